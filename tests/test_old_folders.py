"""Folders that release 0.1.0 wrote: its runs are resumed to their end, and its models are loaded and answer as before.

What is in the archive is described in `golden/record_folders_of_0_1_0.py`.
"""

import json
import runpy
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from golden.record_folders_of_0_1_0 import (
    ARCHIVE,
    ASKED,
    PRETRAINED,
    STOPPED_RUNS,
    TUNED,
    answers_of,
    last_scores,
    methods_of,
    plain,
)

TOLERANCE = 1e-5
# Rounding differs between machines, and training amplifies the differences.
TRAINING_TOLERANCE = 1e-3
INT8_TOLERANCE = 0.05  # in probability; a processor without VNNI has weights of 7 bits


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The unpacked archive as the current folder, because the runs refer to their inputs by relative paths."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "folders")
    return tmp_path / "folders"


def recorded(folders: Path, part: str) -> Any:
    return json.loads((folders / "answers.json").read_text(encoding="utf-8"))[part]


def require_close(found: Any, expected: Any, place: str) -> None:
    """Numbers are equal within the tolerance, all else exactly; keys missing from the record are ignored."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            # The text of a continuation had this name.
            key = "second" if name == "text" and "second" in found else name
            require_close(found[key], value, f"{place}, {key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), place
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            require_close(one, other, f"{place}, {number}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=TOLERANCE), place
    else:
        assert found == expected, place


@pytest.mark.parametrize("kind", [*PRETRAINED, *TUNED, "int8", "google"])
def test_a_model_of_an_older_release_answers_as_it_did(folders: Path, kind: str) -> None:
    result = answers_of(folders / "models" / kind, methods_of(kind), kind == "pair")
    require_close(result, recorded(folders, "models")[kind], kind)


def test_a_model_that_an_older_release_quantized_answers_in_int8(folders: Path) -> None:
    model = bertsmith.load(folders / "models" / "int8", device="cpu", precision="int8")
    exact = recorded(folders, "models")["int8"]["classify"]
    result = plain(model.classify(ASKED["classify"]))
    for one, other in zip(result, exact, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=INT8_TOLERANCE)


@pytest.mark.parametrize("run", STOPPED_RUNS)
def test_an_unfinished_run_of_an_older_release_is_resumed_to_its_end(
    folders: Path, monkeypatch: pytest.MonkeyPatch, run: str
) -> None:
    arguments, _, log = STOPPED_RUNS[run]
    metrics = folders / run / log / "metrics.jsonl"
    before = metrics.read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["bertsmith", *arguments.split(), "--out", run, "--resume"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("bertsmith", run_name="__main__")
    assert stop.value.code == 0
    # The lines contain times, so those of a restarted run would differ.
    assert before
    assert metrics.read_text(encoding="utf-8").startswith(before)
    expected, result = recorded(folders, "ends")[run], last_scores(folders / run / log)
    assert result["step"] == expected["step"]
    compared = [name for name in expected if name.endswith(("_loss", "held_out_accuracy"))]
    assert compared
    for name in compared:
        assert result[name] == pytest.approx(expected[name], rel=TRAINING_TOLERANCE), name
    model = bertsmith.load(folders / run / "model", device="cpu")
    assert model.embed(["the good film"]).shape == (1, 8)
