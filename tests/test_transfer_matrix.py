"""The matrix of transfers on two tiny tasks: every pair once, and nothing again."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from tasks.architecture_samples import write_base_model
from tasks.task_samples import BAD, GOOD
from written_files import file_with

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    result = importlib.import_module("transfer_matrix")
    monkeypatch.setattr(result, "MOST_EPOCHS", 1.0)
    monkeypatch.setattr(
        result, "write_result", lambda name, payload: (tmp_path / "r.json").write_text(json.dumps(payload))
    )
    return result


def write_task(path: Path, count: int, flipped: bool) -> Path:
    labels = ("bad", "good") if flipped else ("good", "bad")
    rows = [f"{(GOOD, BAD)[n % 2][n % 2]}\t{labels[n % 2]}" for n in range(count)]
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_every_pair_of_tasks_is_measured_once_and_a_stopped_run_continues(script, tmp_path, monkeypatch):
    base = write_base_model(tmp_path / "base")
    files = [write_task(tmp_path / f"{name}.tsv", 24, name == "b") for name in "ab"]
    command = ["--model", f"tiny={base}", "--work", str(tmp_path / "work"), "--seeds", "1", "--labels", "8"]
    command += ["--most", "16", "--dev", "8", "--epochs", "1"]
    for name, path in zip("ab", files, strict=True):
        command += ["--task", f"{name}:classification={path},{path}"]
    matrix = script.main(command)["matrix"]["tiny"]
    assert {first: sorted(row) for first, row in matrix.items()} == {"nothing": ["a", "b"], "a": ["b"], "b": ["a"]}
    entry = matrix["a"]["b"]
    assert entry["gain"] == pytest.approx(entry["mean"] - matrix["nothing"]["b"]["mean"], abs=1e-4)
    removed = tmp_path / "work" / "cells" / "tiny_a_b_1.json"
    before = removed.read_text()
    removed.unlink()
    prepared = []
    prepare = script.FinetuningJob.prepare
    monkeypatch.setattr(
        script.FinetuningJob, "prepare", lambda *arguments: prepared.append(arguments) or prepare(*arguments)
    )
    again = script.main(command)["matrix"]["tiny"]
    assert len(prepared) == 1, "only the missing cell"
    assert json.loads(removed.read_text())["score"] == json.loads(before)["score"]
    assert again == matrix
    only = script.main([*command, "--first", "a"])["matrix"]["tiny"]
    assert only == {first: {"b": matrix[first]["b"]} for first in ("nothing", "a")}
    with pytest.raises(SystemExit, match="name one of a, b"):
        script.main([*command, "--first", "c"])
    with pytest.raises(SystemExit, match="others; use another --work"):
        script.main([*command, "--labels", "9"])


def test_a_model_of_one_data_set_is_scored_on_the_others_as_it_is(script, tmp_path):
    base = write_base_model(tmp_path / "base")
    files = [write_task(tmp_path / f"{name}.tsv", 24, name == "b") for name in "ab"]
    command = ["--model", f"tiny={base}", "--work", str(tmp_path / "work"), "--seeds", "2", "--direct"]
    command += ["--most", "16", "--dev", "8", "--epochs", "1"]
    for name, path in zip("ab", files, strict=True):
        command += ["--task", f"{name}:classification={path},{path}"]
    matrix = script.main(command)["matrix"]
    words = {
        first: {second: entry["mean"] for second, entry in row.items()} for first, row in matrix["bag of words"].items()
    }
    assert words == {"a": {"a": 1, "b": 0}, "b": {"a": 0, "b": 1}}, "the labels of b are those of a, flipped"
    for row in matrix["tiny"].values():
        values = [[cell["values"][seed] for cell in row.values()] for seed in range(2)]
        assert all(score + other == pytest.approx(1) for score, other in values)
    again = script.main(command)["matrix"]
    assert again == matrix
    other = file_with(tmp_path / "c.tsv", "text\tlabel\na\tx\nb\ty\n")
    with pytest.raises(SystemExit, match="the same labels"):
        script.main([*command, "--task", f"c:classification={other},{other}"])
