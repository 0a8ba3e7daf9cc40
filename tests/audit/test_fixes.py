"""Corrections that are left in an issues.csv are made in the table that was audited, and in no other."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.recipes.audit.results import COLUMNS
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from written_files import file_with

SENTENCES = "Ann B-PER\nsings O\n\nBob O\nsings O\n\nin O\nNew O\nYork B-LOC\n\n"
TEXTS = [{"text": "a cat", "label": "tool", "note": "x"}, {"text": "a saw", "label": "animal", "note": "y"}]
SEVERAL = [
    {"text": "a cat", "labels": "tool"},
    {"text": "a saw", "labels": ""},
    {"text": "all", "labels": "animal|tool"},
]


def issues_file(folder: Path, *rows: dict[str, Any]) -> Path:
    with open(path := folder / "issues.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def corrected(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "corrected.csv").read_text(encoding="utf-8").splitlines()))


def test_one_label_is_corrected_and_rows_of_other_kinds_are_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = issues_file(
        tmp_path,
        {"row": 2, "issue": "wrong label", "label": "animal", "suggested": "tool", "text": "a saw"},
        {"row": 1, "issue": "no clear label", "label": "tool", "suggested": "animal", "text": "a cat"},
    )
    audit = bertsmith.audit_labels(TEXTS, tmp_path / "out", fix=path)
    assert "issues.csv': 1 row with 'no clear label': these issues correct nothing" in capsys.readouterr().err
    assert [row["label"] for row in corrected(audit.folder)] == ["tool", "tool"]
    assert [row["label_before"] for row in corrected(audit.folder)] == ["", "animal"]
    assert audit.lines() == [f"1 correction in {audit.folder / 'corrected.csv'}"]
    assert json.loads((audit.folder / "audit.json").read_text()) == {"examples": 2, "corrections": 1}


def test_labels_are_added_and_removed(tmp_path: Path) -> None:
    wrong = {"issue": "wrong label"}
    path = issues_file(
        tmp_path,
        {"row": 1, "label": "tool", "change": "tool", "text": "a cat"} | wrong,
        {"row": 1, "label": "tool", "change": "animal", "text": "a cat"} | wrong,
        {"row": 2, "label": "", "change": "tool", "text": "a saw"} | wrong,
    )
    folder = bertsmith.audit_labels(SEVERAL, tmp_path / "out", task="multi-label", fix=path).folder
    labels = [gold_of_cell(row["labels"], "", "labels") for row in corrected(folder)]
    assert labels == [("animal",), ("tool",), ("animal", "tool")]


def test_entities_are_corrected_in_the_lines_of_the_file(tmp_path: Path) -> None:
    path = issues_file(
        tmp_path,
        {
            "row": 3,
            "issue": "wrong boundary",
            "label": "New [York LOC]",
            "change": "2 B-LOC I-LOC",
            "text": "in New York",
        },
        {"row": 2, "issue": "missing entity", "label": "Bob", "change": "1 B-PER", "text": "Bob sings"},
    )
    # The second word of an entity is a tag of the table only if some sentence has it.
    text = SENTENCES + "New B-LOC\nOslo I-LOC\n"
    folder = bertsmith.audit_labels(
        file_with(tmp_path / "t.conll", text), tmp_path / "out", task="ner", fix=path
    ).folder
    wanted = text.replace("Bob O", "Bob B-PER").replace("New O\nYork B-LOC", "New B-LOC\nYork I-LOC")
    assert (folder / "corrected.conll").read_text(encoding="utf-8") == wanted


def test_all_issues_of_an_audit_are_applied_if_they_are_left(tmp_path: Path) -> None:
    rows = [
        f"{name} B-PER\nwent O\nto O\nOslo B-LOC\nn{n} O\n" for n in range(8) for name in ("Ann", "Bob", "Eve", "Tom")
    ]
    rows[5] = rows[5].replace("B-PER", "O")
    rows[9] = rows[9].replace("B-LOC", "B-PER")
    table = file_with(tmp_path / "t.conll", "\n".join(rows))
    first = bertsmith.audit_labels(table, tmp_path / "first", task="ner").folder
    again = bertsmith.audit_labels(table, tmp_path / "again", task="ner", fix=first / "issues.csv").folder
    right = [
        f"{name} B-PER\nwent O\nto O\nOslo B-LOC\nn{n} O\n" for n in range(8) for name in ("Ann", "Bob", "Eve", "Tom")
    ]
    assert (again / "corrected.conll").read_text(encoding="utf-8") == "\n".join(right)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"row": 2, "label": "animal", "suggested": "tool", "text": "a hammer"},
            "the text of row 2 of the table, 'a saw' in line 2 of .*; found 'a h",
        ),
        (
            {"row": 2, "label": "tool", "suggested": "animal", "text": "a saw"},
            "the label of row 2 of the table, 'animal' in .*; found 'tool'",
        ),
        (
            {"row": 3, "label": "tool", "suggested": "animal", "text": "a saw"},
            "one of the 2 rows of the table in .*; found 3; the table has changed since",
        ),
        (
            {"row": 2, "label": "animal", "suggested": "fruit", "text": "a saw"},
            "a label of the table, 'animal', 'tool'",
        ),
    ],
)
def test_a_table_that_changed_since_its_audit_is_refused_in_one_line(
    row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = issues_file(tmp_path, {"issue": "wrong label"} | row)
    with pytest.raises(InputError, match=message) as caught:
        bertsmith.audit_labels(TEXTS, tmp_path / "out", fix=path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_other_files_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rows with a correction in"):
        bertsmith.audit_labels(
            TEXTS, tmp_path / "out", fix=issues_file(tmp_path, {"row": 1, "issue": "no clear label"})
        )
    other = file_with(tmp_path / "other.csv", "text,label\na,b\n")
    with pytest.raises(InputError, match=r"the columns of an issues\.csv"):
        bertsmith.audit_labels(TEXTS, tmp_path / "out", fix=other)
    with pytest.raises(ConfigError, match="no `model` with `fix`"):
        bertsmith.audit_labels(TEXTS, tmp_path / "out", fix=other, model="starter")
    tags = issues_file(tmp_path, {"row": 1, "issue": "missing entity", "change": "5 B-PER", "label": "", "text": ""})
    with pytest.raises(InputError, match="the first word and tags of the table, such as '3 B-PER'"):
        bertsmith.audit_labels(
            file_with(tmp_path / "t.conll", SENTENCES.replace("B-LOC", "O")), tmp_path / "out", task="ner", fix=tags
        )


def test_texts_that_differ_after_the_cut_are_shown_from_there_on(tmp_path: Path) -> None:
    long = "a very long text that begins like another one " * 3
    path = issues_file(
        tmp_path, {"row": 2, "issue": "wrong label", "label": "b", "suggested": "a", "text": f"{long}and ends here"}
    )
    table = [{"text": "short", "label": "a"}, {"text": f"{long}and ends elsewhere", "label": "b"}]
    with pytest.raises(InputError, match=r"ends elsewhere'.*found '?…") as caught:
        bertsmith.audit_labels(table, tmp_path / "out", fix=path)
    assert "ends here" in str(caught.value)
