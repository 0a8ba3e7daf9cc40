"""Model folders of format 1, as version 0.1.0 wrote them: the models are loaded and answer as before.

What is in the archive is described in `golden/record_folders_of_0_1_0.py`.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.inference.indexes.index import KIND, MANIFEST, Manifest
from bertsmith.training.loop.run_folder import SETTINGS_FILE, RunFolder
from golden.record_folders_of_0_1_0 import (
    ARCHIVE,
    ASKED,
    PRETRAINED,
    TUNED,
    answers_of,
    methods_of,
    plain,
)

TOLERANCE = 1e-5
INT8_TOLERANCE = 0.05  # in probability; a processor without VNNI has weights of 7 bits


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """The unpacked archive."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "folders"


def recorded(folders: Path, part: str) -> Any:
    return json.loads((folders / "answers.json").read_text(encoding="utf-8"))[part]


def require_close(actual: Any, expected: Any, where: str) -> None:
    """Numbers are equal within the tolerance, all else exactly; keys missing from the record are ignored."""
    if isinstance(expected, dict):
        for name, value in expected.items():
            # The text of a continuation had this name.
            key = "second" if name == "text" and "second" in actual else name
            require_close(actual[key], value, f"{where}, {key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for number, (item, other) in enumerate(zip(actual, expected, strict=True)):
            require_close(item, other, f"{where}, {number}")
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=TOLERANCE), where
    else:
        assert actual == expected, where


@pytest.mark.parametrize("kind", [*PRETRAINED, *TUNED, "int8", "google"])
def test_a_model_of_format_1_answers_as_it_did(folders: Path, kind: str) -> None:
    result = answers_of(folders / "models" / kind, methods_of(kind), kind == "pair")
    require_close(result, recorded(folders, "models")[kind], kind)


def test_a_quantized_model_of_format_1_answers_in_int8(folders: Path) -> None:
    model = bertsmith.load(folders / "models" / "int8", device="cpu", precision="int8")
    exact = recorded(folders, "models")["int8"]["classify"]
    result = plain(model.classify(ASKED["classify"]))
    for answer, other in zip(result, exact, strict=True):
        assert answer["probabilities"] == pytest.approx(other["probabilities"], abs=INT8_TOLERANCE)


def test_a_run_and_an_index_of_a_newer_version_are_refused_before_their_shape_is_looked_at(tmp_path: Path) -> None:
    content = json.dumps({"format": 2, "kind": KIND, "a part of a newer version": {}})
    for name, read in ((SETTINGS_FILE, RunFolder.open), (MANIFEST, Manifest.read)):
        (tmp_path / name).write_text(content)
        with pytest.raises(
            bertsmith.BertsmithError, match="found version 2; read it with the version of bertsmith that"
        ):
            read(tmp_path)
