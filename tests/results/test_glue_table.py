"""Own scores next to published ones: what is shown, what is missing, which runs are refused."""

import json
from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.recipes.results.published_scores import glue_lines, read_scores
from bertsmith.tasks.datasets.glue import GLUE


def write_run(folder: Path, task: str, value: float) -> Path:
    folder.mkdir()
    scores = {name: {"mean": value} for name in (GLUE[task].metrics if task in GLUE else ("accuracy",))}
    (folder / "report.json").write_text(json.dumps({"task": task, "scores": scores}))
    return folder


def test_the_averages_are_shown_once_every_task_is_present(tmp_path: Path) -> None:
    """The mean of the table counts MNLI twice, the GLUE score once; WNLI has no row in the table."""
    keys = [key for key in GLUE if key not in ("ax", "wnli")]
    values = {key: 0.8 if key.startswith("mnli") else 0.5 for key in keys}
    scores = read_scores([write_run(tmp_path / key, key, values[key]) for key in keys])
    lines = glue_lines(scores)
    average = next(line for line in lines if line.startswith("average "))
    assert average.split() == ["average", "56.7", "74.0", "71.0", "75.1", "79.6", "82.1"]  # (2 * 80 + 7 * 50) / 9
    assert "average without WNLI, each task once: 53.8" in lines  # (80 + 7 * 50) / 8
    assert any(line.startswith("average with WNLI") and line.endswith("wnli is missing") for line in lines)
    with_wnli = glue_lines(scores | read_scores([write_run(tmp_path / "wnli", "wnli", 0.5)]))
    assert "average with WNLI, each task once: 53.3" in with_wnli
    assert next(line for line in with_wnli if line.startswith("wnli")).split()[1:] == [
        "-",
        "accuracy",
        "50.0",
        *"-----",
    ]
    assert next(line for line in with_wnli if line.startswith("average ")) == average


def test_the_whole_published_table_is_shown_with_the_own_scores_in_the_rows_of_their_tasks(tmp_path: Path) -> None:
    lines = glue_lines(read_scores([write_run(tmp_path / "a", "cola", 0.31), write_run(tmp_path / "b", "mrpc", 0.8)]))
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:11]}
    assert list(rows) == ["mnli", "mnli-mm", "qqp", "qnli", "sst-2", "cola", "sts-b", "mrpc", "rte", "average"]
    assert rows["cola"] == ["8.5k", "matthews", "31.0", "35.0", "36.0", "45.4", "52.1", "60.5"]
    assert rows["mrpc"] == ["3.5k", "f1", "80.0,", "accuracy", "80.0", "86.0", "84.9", "82.3", "88.9", "89.3"]
    assert rows["rte"] == ["2.5k", "-", "61.7", "56.8", "56.0", "66.4", "70.1"]
    assert rows["average"] == ["-", "74.0", "71.0", "75.1", "79.6", "82.1"]
    assert len({len(line) for line in lines[:11]}) == 1
    assert all("incomplete" in line for line in lines[11:13])


def test_what_the_published_scores_are_is_said_below_them(tmp_path: Path) -> None:
    text = " ".join(glue_lines(read_scores([write_run(tmp_path / "a", "cola", 0.31)])))
    assert "GLUE score with WNLI: 80.5 (BERT large on the leaderboard), 7.7 points above" in text
    assert "Entries that use BERT as a component are excluded" in text


def test_a_run_of_another_task_or_a_second_run_of_a_task_is_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", "cola", 0.3)
    with pytest.raises(InputError, match="'cola' again"):
        read_scores([first, write_run(tmp_path / "b", "cola", 0.4)])
    with pytest.raises(InputError, match="'spam'"):
        read_scores([write_run(tmp_path / "c", "spam", 0.3)])
