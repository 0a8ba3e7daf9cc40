"""The audit of a table: planted errors are listed with the label they should have; the rest of the table is kept."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.recipes.audit.run import Audit
from bertsmith.tasks.metrics.label_errors import confident_labels, joint_counts, label_thresholds, share_of_errors
from tasks.task_samples import write_base_model

WORDS = {"animal": "cat dog horse cow", "fruit": "apple pear plum fig", "tool": "hammer saw drill axe"}
FLIPPED = {3: "tool", 22: "animal", 41: "fruit"}


def rows_of_table() -> list[dict[str, Any]]:
    rows = []
    for number in range(60):
        label = list(WORDS)[number // 20]
        words = WORDS[label].split()
        text = f"the {words[number % 4]} and the {words[number // 4 % 4]} of house {number}"
        rows.append({"note": f"n{number}", "text": text, "label": FLIPPED.get(number, label)})
    rows.append({**rows[10], "label": "fruit"})
    return rows


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    return bertsmith.audit_labels(rows_of_table(), tmp_path_factory.mktemp("audit") / "out")


def test_planted_errors_are_first_with_the_label_they_should_have(audit: Audit) -> None:
    wrong = {issue["row"] - 1: issue["suggested"] for issue in audit.issues if issue["issue"] == "wrong label"}
    assert {row: wrong[row] for row in FLIPPED} == {row: list(WORDS)[row // 20] for row in FLIPPED}
    assert len(wrong) <= 6
    low, high = audit.report["interval"]
    assert 0 < low <= audit.report["errors"] <= high < 0.3
    assert any("estimated share of wrong labels" in line for line in audit.lines())


def test_texts_with_several_labels_are_listed_with_the_other_row(audit: Audit) -> None:
    same = [issue for issue in audit.issues if issue["issue"] == "same text, other label"]
    assert [(issue["row"], issue["label"]) for issue in same] == [(11, "animal"), (61, "fruit")]
    assert same[0]["other"].startswith("fruit (")


def test_the_corrected_table_differs_in_the_labels_alone(audit: Audit) -> None:
    with open(audit.folder / "corrected.csv", newline="", encoding="utf-8") as file:
        corrected = list(csv.DictReader(file))
    wrong = {issue["row"] - 1: issue["suggested"] for issue in audit.issues if issue["issue"] == "wrong label"}
    for number, (row, before) in enumerate(zip(corrected, rows_of_table(), strict=True)):
        assert (row["note"], row["text"]) == (before["note"], before["text"])
        assert row["label"] == wrong.get(number, before["label"])
        assert row["label_before"] == (before["label"] if number in wrong else "")
    with open(audit.folder / "issues.csv", newline="", encoding="utf-8") as file:
        assert [row["row"] for row in csv.DictReader(file)] == [str(issue["row"]) for issue in audit.issues]
    assert json.loads((audit.folder / "audit.json").read_text()) == audit.report
    assert "Audit of labels" in (audit.folder / "report.html").read_text(encoding="utf-8")


def test_a_model_predicts_next_to_the_bag_of_words(tmp_path: Path) -> None:
    base = write_base_model(tmp_path / "base")
    report = bertsmith.audit_labels(rows_of_table(), tmp_path / "out", model=base, folds=3, device="cpu").report
    assert list(report["accuracy"]) == ["bag of words", "linear model on frozen vectors"]
    with pytest.raises(RunError, match="a new folder"):
        bertsmith.audit_labels(rows_of_table(), tmp_path / "out")


def test_a_run_with_folds_predicts_too(tmp_path: Path) -> None:
    rows, run = rows_of_table(), tmp_path / "run"
    run.mkdir()
    lines = [
        {"texts": [row["text"]], "gold": row["label"], "prediction": {"probabilities": dict.fromkeys(WORDS, 1 / 3)}}
        for row in rows
    ]
    (run / "out_of_fold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = bertsmith.audit_labels(rows, tmp_path / "out", run=run).report
    assert list(report["accuracy"]) == ["bag of words", "fine-tuned model"]
    (run / "report.json").write_text('{"best": "bag-of-words"}')
    kept = bertsmith.audit_labels(rows, tmp_path / "kept", run=run).report
    assert kept["accuracy"] == {"bag of words": report["accuracy"]["fine-tuned model"]}, "the bag counts once"
    with pytest.raises(InputError, match="name the table that the run was trained on"):
        bertsmith.audit_labels(rows[1:], tmp_path / "other", run=run)
    with pytest.raises(InputError, match=r"found no out_of_fold\.jsonl"):
        bertsmith.audit_labels(rows, tmp_path / "none", run=tmp_path)


def test_a_table_without_errors_has_an_interval_all_the_same(tmp_path: Path) -> None:
    rows = [{"text": f"{word} {number}", "label": word} for number in range(20) for word in ("cat", "dog")]
    report = bertsmith.audit_labels(rows, tmp_path / "out", folds=2).report
    low, high = report["interval"]
    assert (report["errors"], low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.025 ** (1 / 40), abs=1e-6)


def test_other_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the task that can be audited; found regression"):
        bertsmith.audit_labels("absent.csv", tmp_path / "out", task="regression")


def test_the_confident_joint_is_scaled_to_the_labels_that_are_there() -> None:
    # Label 0 has the threshold 0.7, label 1 has 0.6; label 2 has no examples.
    chances = np.array([[0.9, 0.1, 0.0], [0.8, 0.2, 0.0], [0.4, 0.6, 0.0], [0.3, 0.7, 0.0], [0.5, 0.5, 0.0]])
    labels = np.array([0, 0, 0, 1, 1])
    np.testing.assert_allclose(label_thresholds(chances, labels), [0.7, 0.6, np.inf])
    confident = confident_labels(chances, labels)
    assert confident.tolist() == [0, 0, 1, 1, -1]
    assert joint_counts(confident, labels, 3).tolist() == [[2.0, 1.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    assert share_of_errors(chances, labels) == pytest.approx(0.2)


def test_a_corrected_table_can_be_audited_again_and_keeps_the_first_labels(audit: Audit, tmp_path: Path) -> None:
    before = list(csv.DictReader((audit.folder / "corrected.csv").read_text(encoding="utf-8").splitlines()))
    again = bertsmith.audit_labels(audit.folder / "corrected.csv", tmp_path / "again")
    lines = (again.folder / "corrected.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].split(",").count("label_before") == 1
    for row, old in zip(csv.DictReader(lines), before, strict=True):
        if old["label_before"]:
            assert row["label_before"] == old["label_before"]


def test_a_label_with_rows_in_one_part_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [*rows_of_table(), {"note": "", "text": "a lonely text", "label": "alone"}]
    audit = bertsmith.audit_labels(rows, tmp_path / "out")
    assert "not judged: 'alone'" in capsys.readouterr().err
    assert (len(rows), "wrong label") not in {(issue["row"], issue["issue"]) for issue in audit.issues}
    with pytest.raises(InputError, match="a label with rows in two parts of the table; found none"):
        bertsmith.audit_labels([{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], tmp_path / "few", folds=2)
    with pytest.raises(ConfigError, match="at least 5 different examples"):
        bertsmith.audit_labels([{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], tmp_path / "few")
    assert not (tmp_path / "few").exists()


def test_a_column_in_which_every_row_has_its_own_label_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"title": f"title {n}", "note": f"note {n} " + "of many words " * 9} for n in range(40)]
    columns = {"text_column": "title", "label_column": "note"}
    with pytest.raises(
        InputError, match="labels that rows share; found 40 labels for 40 rows; is 'note' the label col"
    ):
        bertsmith.audit_labels(rows, tmp_path / "out", **columns)  # type: ignore[arg-type]
    said = "warning: 40 labels have a single one of 40 training examples; check `label_column`\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "out").exists()


def test_an_audit_is_not_resumed_and_says_so(audit: Audit) -> None:
    with pytest.raises(RunError, match="one that is not empty; name another folder"):
        bertsmith.audit_labels(rows_of_table(), audit.folder)
