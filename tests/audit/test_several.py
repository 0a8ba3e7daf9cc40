"""The audit of texts with several labels: planted errors are listed as pairs of a row and a label, and corrected."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.recipes.audit.run import Audit
from bertsmith.recipes.audit.several import answer_margins, confident_answers
from bertsmith.tasks.datasets.label_cells import gold_of_cell

WORDS = {"animal": "cat dog horse cow", "fruit": "apple pear plum fig", "tool": "hammer saw drill axe"}
CHANGED = {5: "tool", 12: "animal", 30: "fruit", 47: "fruit"}  # labels that a row has and should not have, or lacks


def rows_of_table() -> list[dict[str, Any]]:
    """Texts with the words of one label or of two, four of them with one label too many or too few."""
    names, rows = list(WORDS), []
    for number in range(72):
        labels = sorted({names[number % 3], names[number // 3 % 3]})
        words = " and ".join(WORDS[label].split()[number % 4] for label in labels)
        right = set(labels) ^ ({CHANGED[number]} if number in CHANGED else set())
        rows.append({"text": f"the {words} of house {number}", "labels": "|".join(sorted(right)), "note": str(number)})
    return rows


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    out = tmp_path_factory.mktemp("several") / "out"
    return bertsmith.audit_labels(rows_of_table(), out, task="multi-label", near=1.0)


def test_planted_errors_are_first_as_pairs_of_a_row_and_a_label(audit: Audit) -> None:
    planted = set(CHANGED.items())
    wrong = [issue for issue in audit.issues if issue["issue"] == "wrong label"]
    assert {(issue["row"] - 1, issue["change"]) for issue in wrong[:6]} >= planted
    by_row = {issue["row"] - 1: issue for issue in wrong if (issue["row"] - 1, issue["change"]) in planted}
    for row, issue in by_row.items():
        before, after = (set(filter(None, issue[name].split("|"))) for name in ("label", "suggested"))
        assert before ^ after == {issue["change"]}
        assert issue["other"] == f"{'with' if row in (5, 12, 30) else 'without'} {issue['change']}"
        assert issue["probability"] < issue["probability_of_suggested"]
    low, high = audit.report["interval"]
    assert 0 < low <= audit.report["errors"] <= high < 0.2
    assert audit.report["pairs"] == 72 * 3
    assert any("wrong labels among the 216 pairs of a row and a label" in line for line in audit.lines())


def test_the_corrected_table_is_read_again_and_the_page_has_both_labelings(audit: Audit) -> None:
    with open(audit.folder / "corrected.csv", newline="", encoding="utf-8") as file:
        corrected = list(csv.DictReader(file))
    rows = rows_of_table()
    assert [row["note"] for row in corrected] == [row["note"] for row in rows]
    wrong = [(issue["row"] - 1, issue["change"]) for issue in audit.issues if issue["issue"] == "wrong label"]
    for number, (row, before) in enumerate(zip(corrected, rows, strict=True)):
        labels, old = (set(gold_of_cell(cell["labels"], "", "labels")) for cell in (row, before))
        assert labels ^ old == {label for other, label in wrong if other == number}
        assert row["label_before"] == ("" if labels == old else before["labels"])
    page = (audit.folder / "report.html").read_text(encoding="utf-8")
    first = next(issue for issue in audit.issues if issue["issue"] == "wrong label")
    assert first["text"] in page
    assert first["label"] in page


def test_a_run_with_folds_predicts_too_and_other_rows_are_refused(tmp_path: Path) -> None:
    rows, run = rows_of_table(), tmp_path / "run"
    run.mkdir()
    lines = [
        {
            "texts": [row["text"]],
            "gold": gold_of_cell(row["labels"], "", "labels"),
            "prediction": {"probabilities": {label: 0.9 if label in row["labels"] else 0.1 for label in WORDS}},
        }
        for row in rows
    ]
    (run / "out_of_fold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    audit = bertsmith.audit_labels(rows, tmp_path / "out", task="multi-label", run=run)
    assert audit.report["accuracy"]["fine-tuned model"] == 1.0
    assert audit.report["weights"]["fine-tuned model"] > 0.5
    rows[3]["labels"] = "tool"
    with pytest.raises(InputError, match="row 4 is the first that differs"):
        bertsmith.audit_labels(rows, tmp_path / "other", task="multi-label", run=run)


def test_each_label_is_judged_as_a_question_of_two_answers() -> None:
    draws = np.random.default_rng(3)
    for _ in range(20):
        has = draws.integers(2, size=(40, 3))
        chances = np.clip(0.6 * has + 0.4 * draws.random((40, 3)) * draws.random((40, 3)), 0.01, 0.99)
        answers, margins = confident_answers(chances, has), answer_margins(chances, has)
        for label in range(3):
            column, y = chances[:, label], has[:, label]
            of_yes = column[y == 1].mean() if y.any() else np.inf
            of_no = (1 - column)[y == 0].mean() if (y == 0).any() else np.inf
            for row in range(40):
                yes, no = column[row], 1 - column[row]
                reached = [(no, 0)] * int(no >= of_no) + [(yes, 1)] * int(yes >= of_yes)
                assert answers[row, label] == (max(reached)[1] if reached else -1)
                assert margins[row, label] == pytest.approx((yes - no) * (1 if y[row] else -1))


@pytest.mark.parametrize(
    ("rows", "options", "error", "message"),
    [
        ([{"text": f"a {n}", "a": n % 2, "b": 1} for n in range(9)], {}, InputError, None),
        ([{"text": f"a {n}", "labels": "[1, 0]" if n % 2 else "[0, 1]"} for n in range(9)], {}, InputError, "names of"),
        ([{"text": f"a {n}", "labels": f"l{n}"} for n in range(9)], {}, InputError, "labels that rows share|two parts"),
        ([{"text": "a", "labels": "x"}], {"next": 3}, ConfigError, "`next` needs `task"),
        (rows_of_table(), {"run": "somewhere"}, InputError, "a finished run with `folds` in 'somewhere'"),
    ],
)
def test_what_cannot_be_audited_is_refused_in_one_line(
    rows: list[dict[str, Any]], options: dict[str, Any], error: type[Exception], message: str | None, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as caught:
        bertsmith.audit_labels(rows, tmp_path / "out", task="multi-label", **options)
    assert "\n" not in str(caught.value)
