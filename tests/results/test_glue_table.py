"""Own scores next to published ones: what is shown, what is missing, which runs are refused."""

import json
from pathlib import Path

import pytest

from bertsmith.datasets.glue import GLUE
from bertsmith.errors import InputError
from bertsmith.results.glue_table import glue_lines, read_scores


def write_run(folder: Path, task: str, value: float) -> Path:
    folder.mkdir()
    scores = {name: {"mean": value} for name in (GLUE[task].metrics if task in GLUE else ("accuracy",))}
    (folder / "report.json").write_text(json.dumps({"task": task, "scores": scores}))
    return folder


def test_the_average_is_shown_once_every_task_is_present(tmp_path: Path) -> None:
    keys = [key for key in GLUE if key not in ("ax", "wnli")]
    scores = read_scores([write_run(tmp_path / key, key, 0.5) for key in keys])
    lines = glue_lines(scores)
    assert "average without WNLI: 50.0" in lines
    assert "average with WNLI: incomplete; expected" not in lines[-1]
    assert "wnli is missing" in lines[-1]
    assert len(lines) == 1 + len(keys) + 2


def test_published_scores_are_in_the_row_of_their_task(tmp_path: Path) -> None:
    lines = glue_lines(read_scores([write_run(tmp_path / "a", "cola", 0.31), write_run(tmp_path / "b", "mrpc", 0.8)]))
    assert lines[1].split() == ["cola", "matthews", "31.0", "52.1", "60.5"]
    assert lines[2].split()[-2:] == ["88.9", "89.3"]
    assert "incomplete" in lines[-1]


def test_a_run_of_another_task_or_a_second_run_of_a_task_is_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", "cola", 0.3)
    with pytest.raises(InputError, match="'cola' again"):
        read_scores([first, write_run(tmp_path / "b", "cola", 0.4)])
    with pytest.raises(InputError, match="'spam'"):
        read_scores([write_run(tmp_path / "c", "spam", 0.3)])
