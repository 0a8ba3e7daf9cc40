"""Warnings about the examples of a task: what is in training and dev data, and texts with several labels."""

import json
from pathlib import Path

import pytest

from bertsmith.tasks.task_data.task_files import read_task


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return path


def test_examples_in_both_files_and_texts_with_several_labels_are_counted_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = table(tmp_path / "train.csv", "a,x", "b,y", "c,x", " a ,y", "d,x", "a,x")
    dev = table(tmp_path / "dev.csv", "e,x", "a,x", "c,y", "f,y")
    _, data = read_task("classification", train, dev)
    assert data.warnings == (
        f"2 of 4 dev examples are also among the training examples, the first in line 3 of '{dev}' (as in line 2 of "
        f"'{train}'): scores on what was learned say little about other texts",
        f"1 text of the training examples has different labels: 'x' in line 2 of '{train}' and 'y' in line 5 of "
        f"'{train}' for 'a'",
    )
    said = capsys.readouterr().err
    assert all(said.count(warning) == 1 for warning in data.warnings)


def test_entities_of_a_text_are_shown_as_in_their_file(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    labels = ([[0, 1, "A"]], [])
    path.write_text("".join(json.dumps({"tokens": ["a"], "entities": each}) + "\n" for each in labels))
    (warning,) = read_task("nested-ner", path, path)[1].warnings[-1:]
    assert "has different labels: ((0, 1, 'A'),) in line 1" in warning


def test_data_without_either_have_no_warnings(tmp_path: Path) -> None:
    train = table(tmp_path / "train.csv", "a,x", "b,y", "c,x", "c,x", "d,y")
    assert read_task("classification", train, table(tmp_path / "dev.csv", "e,x"))[1].warnings == ()
    _, same = read_task("classification", train, train)
    assert same.warnings == ()


@pytest.mark.parametrize("task", ["ner", "squad", "choice", "multi-label", "regression", "pairs"])
def test_every_kind_of_task_is_checked(tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, rows = {
        "ner": ("a.conll", ["Ann B-PER\nsings O\n", "Oslo B-LOC\n"]),
        "squad": (
            "a.jsonl",
            [
                json.dumps({"id": f"{n}", "context": f"It was {n}.", "question": "Who?", "answers": {"text": ["It"]}})
                for n in "ab"
            ],
        ),
        "choice": ("a.jsonl", [json.dumps({"context": n, "endings": ["c", "d"], "label": 0}) for n in "ab"]),
        "multi-label": ("a.jsonl", [json.dumps({"text": n, "labels": ["x", n]}) for n in "ab"]),
        "regression": ("a.jsonl", [json.dumps({"text": n, "label": ord(n)}) for n in "ab"]),
        "pairs": ("a.jsonl", [json.dumps({"anchor": n, "positive": "c"}) for n in "ab"]),
    }[task]
    train, dev = tmp_path / name, tmp_path / f"dev-{name}"
    train.write_text("\n".join(rows) + "\n", encoding="utf-8")
    dev.write_text(rows[1] + "\n", encoding="utf-8")
    _, data = read_task(task, train, dev)
    assert len(data.warnings) == 1
    assert data.warnings[0].startswith("1 of 1 dev example is also among the training examples, the first in ")
