"""The audit of a table: planted errors are listed with the label they should have; the rest of the table is kept."""

import codecs
import csv
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import bertsmith
from bertsmith.base.core.errors import ConfigError, InputError, RunError
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import digest_file
from bertsmith.recipes.audit.issues import OUTLIER, Audited, issues_of
from bertsmith.recipes.audit.learning_curve import learning_curve
from bertsmith.recipes.audit.next_rows import most_informative
from bertsmith.recipes.audit.out_of_fold import of_run
from bertsmith.recipes.audit.results import write_page
from bertsmith.recipes.audit.run import Audit
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.label_errors import (
    confident_labels,
    joint_counts,
    label_thresholds,
    mixture_weights,
    share_of_errors,
)
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import BAG, VECTORS, TaskSpec
from bertsmith.tasks.task_data.task_files import read_examples
from tasks.task_samples import write_base_model
from written_files import file_with

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


def examples_of(rows: list[dict[str, Any]]) -> list[TextExample]:
    return [TextExample(id=str(n), first=row["text"], label=row["label"]) for n, row in enumerate(rows)]


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


@pytest.mark.parametrize(("examples", "counted"), [(1.2, "about 1 example of"), (2.6, "about 3 examples of")])
def test_labels_that_overlap_are_printed_with_their_examples(audit: Audit, examples: float, counted: str) -> None:
    overlaps = [{"label": "a", "other": "b", "examples": examples, "share": 0.1}]
    assert counted in Audit(report={**audit.report, "overlaps": overlaps}, issues=(), folder=audit.folder).lines()[-1]


def test_the_suggestions_of_a_weak_model_come_with_a_warning(audit: Audit, tmp_path: Path) -> None:
    assert not any("its own errors" in line for line in audit.lines())
    weak = Audit(report={**audit.report, "accuracy": {BAG: 0.42}}, issues=(), folder=audit.folder).lines()
    told = next(line for line in weak if "its own errors" in line)
    assert told.startswith("the best model disagrees with 58% of the labels")
    assert told.endswith("or give --model")
    page = write_page(tmp_path, {**audit.report, "accuracy": {BAG: 0.42}}, ())
    assert "58% of the labels" in page.read_text(encoding="utf-8")
    both = Audit(report={**audit.report, "accuracy": {BAG: 0.42, VECTORS: 0.5}}, issues=(), folder=audit.folder).lines()
    assert any(line.endswith("label more rows") for line in both)


def test_weak_models_write_no_corrected_table(tmp_path: Path) -> None:
    draw = generator(1, "labels at random")
    words = [word for row in WORDS.values() for word in row.split()]
    rows = [
        {"text": f"{' '.join(draw.choice(words, 4).tolist())} {number}", "label": str(draw.choice(list(WORDS)))}
        for number in range(60)
    ]
    audit = bertsmith.audit_labels(rows, tmp_path / "out")
    assert any("no corrected file is written" in line for line in audit.lines())
    assert not (audit.folder / "corrected.csv").exists()
    assert (audit.folder / "issues.csv").is_file()


def test_an_accuracy_comes_with_the_rows_in_training(audit: Audit) -> None:
    assert audit.lines()[0].startswith("61 examples, each predicted by models fitted to about 49 others (5 folds); ")
    of_run = Audit(report={**audit.report, "folds": 2, "run": True}, issues=(), folder=audit.folder).lines()[0]
    assert "about 30 others (2 folds), or trained on the other folds of the run; accuracy: " in of_run


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


def test_a_model_that_was_trained_on_the_table_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write_base_model(tmp_path / "base")
    table = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows_of_table()))
    bertsmith.audit_labels(table, tmp_path / "before", model=base, folds=2, device="cpu")
    assert "training file" not in capsys.readouterr().err
    metadata = Path(base) / "bertsmith.json"
    values = json.loads(metadata.read_text(encoding="utf-8"))
    metadata.write_text(json.dumps(values | {"trained_on": {"train": digest_file(table)}}), encoding="utf-8")
    bertsmith.audit_labels(table, tmp_path / "after", model=base, folds=2, device="cpu")
    assert "is the training file of this model: its vectors may know these labels" in capsys.readouterr().err


def test_the_tables_of_an_audit_begin_with_the_byte_order_mark_of_the_audited_one(tmp_path: Path) -> None:
    rows = "".join(f"{row['text']} caf\u00e9,{row['label']}\r\n" for row in rows_of_table())
    for name, encoding in (("plain", "utf-8"), ("marked", "utf-8-sig"), ("wide", "utf-16")):
        table = tmp_path / f"{name}.csv"
        table.write_bytes(f"text,label\r\n{rows}".encode(encoding))
        folder = bertsmith.audit_labels(table, tmp_path / name, folds=2).folder
        for written in ("issues.csv", "corrected.csv"):
            has_mark = (folder / written).read_bytes().startswith(codecs.BOM_UTF8)
            assert has_mark == (encoding != "utf-8"), (name, written)
    fixed = bertsmith.audit_labels(tmp_path / "marked.csv", tmp_path / "fixed", fix=tmp_path / "marked" / "issues.csv")
    assert (fixed.folder / "corrected.csv").read_text(encoding="utf-8-sig").startswith("text,label,label_before\n")


def test_a_run_with_folds_predicts_too(tmp_path: Path) -> None:
    rows, run = rows_of_table(), tmp_path / "run"
    run.mkdir()
    lines = [
        {"texts": [row["text"]], "gold": row["label"], "prediction": {"probabilities": dict.fromkeys(WORDS, 1 / 3)}}
        for row in rows
    ]
    (run / "out_of_fold.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = bertsmith.audit_labels(rows, tmp_path / "out", run=run).report
    assert set(report["accuracy"]) == set(report["weights"]) == {"bag of words", "fine-tuned model"}
    (run / "report.json").write_text('{"best": "bag-of-words"}')
    kept = bertsmith.audit_labels(rows, tmp_path / "kept", run=run).report
    assert kept["accuracy"] == {"bag of words": report["accuracy"]["fine-tuned model"]}, "the bag counts once"
    (run / "report.json").write_text('{"best": "start"}')
    changed = [*rows[:4], {**rows[4], "text": "another text"}, *rows[5:]]
    with pytest.raises(
        InputError, match=r"row 5 is the first that differs: 'another text' with the label 'animal', in"
    ):
        bertsmith.audit_labels(changed, tmp_path / "other", run=run)
    with pytest.raises(InputError, match="row 61 is the first that differs: no row, in place of 'the horse"):
        bertsmith.audit_labels(rows[:60], tmp_path / "other", run=run)
    spec = TaskSpec(name="classification", kind="classification", labels=tuple(WORDS), pair=False)
    assert list(of_run(run, spec, examples_of(rows), "cpu")) == ["the linear start"]
    with pytest.raises(InputError, match=r"found no out_of_fold\.jsonl"):
        bertsmith.audit_labels(rows, tmp_path / "none", run=tmp_path)


def test_a_table_without_errors_has_an_interval_all_the_same(tmp_path: Path) -> None:
    rows = [{"text": f"{word} {number}", "label": word} for number in range(20) for word in ("cat", "dog")]
    report = bertsmith.audit_labels(rows, tmp_path / "out", folds=2).report
    low, high = report["interval"]
    assert (report["errors"], low) == (0.0, 0.0)
    assert high == pytest.approx(1 - 0.025 ** (1 / 40), abs=1e-6)


def test_other_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the tasks that can be audited; found regression"):
        bertsmith.audit_labels("absent.csv", tmp_path / "out", task="regression")
    with pytest.raises(ConfigError, match="unknown task 'nre'; did you mean 'ner'"):
        bertsmith.audit_labels("absent.csv", tmp_path / "out", task="nre")


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


def test_a_corrected_table_has_the_fields_that_only_later_records_have(tmp_path: Path) -> None:
    rows = rows_of_table()
    rows[4]["author"] = "Ann"
    path = file_with(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    folder = bertsmith.audit_labels(path, tmp_path / "out").folder
    corrected = list(csv.DictReader((folder / "corrected.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["author"] for row in corrected[3:6]] == ["", "Ann", ""]


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
        bertsmith.audit_labels(rows, tmp_path / "out", **columns)
    said = "warning: 40 labels have only one of 40 training examples each; check `label_column`\n"
    assert capsys.readouterr().err == said
    assert not (tmp_path / "out").exists()


def test_an_audit_is_not_resumed_and_says_so(audit: Audit) -> None:
    with pytest.raises(RunError, match="one that is not empty; name another folder"):
        bertsmith.audit_labels(rows_of_table(), audit.folder)


def test_words_far_into_a_long_text_are_read(tmp_path: Path) -> None:
    filler = "so " * 200
    rows = [{"text": f"{filler} {word} {n}", "label": word} for n in range(20) for word in ("cat", "dog")]
    rows[7]["label"] = "cat"
    audit = bertsmith.audit_labels(rows, tmp_path / "out", folds=2, near=1.0)
    assert audit.report["accuracy"] == {"bag of words": 39 / 40}
    assert [(issue["row"], issue["suggested"]) for issue in audit.issues if issue["issue"] == "wrong label"] == [
        (8, "dog")
    ]


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    rows = rows_of_table()
    others = [
        {"note": "", "text": text, "label": ""} for text in ("the cat and the saw", "a plum", "the dog", "a plum")
    ]
    return bertsmith.audit_labels(
        [*rows, *others], tmp_path_factory.mktemp("partly") / "out", next=2, dev=[{"text": rows[1]["text"]}]
    )


def test_unlabelled_rows_of_the_table_are_ranked_for_annotation(partly: Audit) -> None:
    assert (partly.report["unlabelled"], partly.report["next"]) == (3, 2)
    assert partly.report["examples"] == 61
    with open(partly.folder / "next.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["text"] == "the cat and the saw", "two labels are about as likely"
    assert [row["label"] for row in rows] == ["", ""]
    sizes = [point["labels"] for point in partly.report["curve"]]
    assert sizes == [12, 24, 49]
    low, high = partly.report["forecast"]["interval"]
    assert 0.0 <= low <= partly.report["forecast"]["gain"] <= high
    assert any("2 more labels at random would add about" in line for line in partly.lines())
    assert any("to label next, of 3 unlabelled texts: 2 in" in line for line in partly.lines())


def test_a_forecast_without_a_single_error_has_an_interval_all_the_same() -> None:
    labels = np.repeat([0, 1], 30)
    certain = np.eye(2)[labels]
    features = SimpleNamespace(out_of_fold=lambda *args, **more: certain)
    curve = learning_curve([features], None, labels, np.arange(60) % 5, np.ones(1), certain, 10, seed=0)
    low, high = curve["forecast"]["interval"]
    assert low == curve["forecast"]["gain"] == 0.0
    assert 0.01 < high < 0.1


def test_what_annotation_tools_make_of_the_rows_is_read_as_labels(partly: Audit, tmp_path: Path) -> None:
    tasks = json.loads((partly.folder / "next.json").read_text(encoding="utf-8"))
    for task in tasks:  # an annotator accepts the prediction
        task["annotations"] = [{"result": task["predictions"][0]["result"]}]
    (tmp_path / "studio.json").write_text(json.dumps(tasks))
    lines = [json.loads(line) for line in (partly.folder / "next.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(line["label"] == [] for line in lines)
    records = [json.dumps({**line, "label": [line["suggested"]]}) + "\n" for line in lines]
    (tmp_path / "doccano.jsonl").write_text("".join(records))
    wanted = [(line["text"], line["suggested"]) for line in lines]
    for name in ("studio.json", "doccano.jsonl"):
        examples = read_examples("classification", tmp_path / name, ColumnSettings(text_column="text")).examples
        assert [(example.first, example.label) for example in examples] == wanted


def test_texts_of_the_dev_file_are_listed(partly: Audit) -> None:
    shared = [issue for issue in partly.issues if issue["issue"] == "also in the dev file"]
    assert shared[0]["row"] == 2
    assert "row 1 of" in shared[0]["other"]


def test_what_is_said_of_the_columns_of_a_table_is_said_once_and_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    path = tmp_path / "mails.csv"
    path.write_text("text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in rows_of_table()) + "a cat,\n")
    bertsmith.audit_labels(path, tmp_path / "out", next=1)
    assert "not read: column 'label'" not in capsys.readouterr().err
    bertsmith.audit_labels(
        path, tmp_path / "other", next=1, skip_unlabelled=True, unlabelled=[{"text": "a dog", "label": "x"}]
    )
    assert "not read: column 'label'" in capsys.readouterr().err


def test_the_next_rows_need_texts_without_a_label(tmp_path: Path) -> None:
    rows = rows_of_table()
    with pytest.raises(InputError, match="texts without a label for `next`; found a label for each text"):
        bertsmith.audit_labels(rows, tmp_path / "out", next=5)
    with pytest.raises(ConfigError, match="`unlabelled` needs `next`"):
        bertsmith.audit_labels(rows, tmp_path / "out", unlabelled=rows)
    with pytest.raises(InputError, match=r"single texts in .*, as in the table; found pairs"):
        bertsmith.audit_labels(rows, tmp_path / "out", next=5, unlabelled=[{"text": "a", "pair": "b"}])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("sparse", [False, True])
def test_the_next_rows_are_uncertain_and_not_alike(sparse: bool) -> None:
    draws = np.random.default_rng(0)
    chances, vectors = draws.dirichlet([0.5] * 3, size=60), draws.normal(size=(60, 4))
    ordered = np.sort(chances, axis=1)
    order = np.argsort(ordered[:, 2] - ordered[:, 1]).tolist()
    vectors[order[1]], vectors[order[3]] = 2 * vectors[order[0]], -vectors[order[0]]
    inputs = sp.csr_array(vectors) if sparse else vectors
    chosen = most_informative(chances, inputs, 5)
    cosines = unit(vectors)[chosen] @ unit(vectors)[chosen].T
    assert chosen[0] == order[0]
    assert order[1] not in chosen
    assert (cosines - np.eye(5)).max() < 0.95
    left_out = [row for row in order[: order.index(chosen[-1])] if row not in chosen]
    assert all((unit(vectors)[chosen] @ unit(vectors)[row]).max() >= 0.95 for row in left_out)
    assert sorted(most_informative(chances, inputs, 99)) == list(range(60)), "rows that are alike come last"


def test_the_weights_of_systems_have_the_highest_likelihood() -> None:
    draws = np.random.default_rng(1)
    labels = draws.integers(3, size=200)
    systems = [draws.dirichlet([1.0] * 3, size=200) + share * np.eye(3)[labels] for share in (0.4, 0.2)]
    systems = [part / part.sum(axis=1, keepdims=True) for part in systems]
    likelihoods = [part[np.arange(200), labels] for part in systems]
    tried = np.linspace(0, 1, 1001)
    best = max(tried, key=lambda share: np.log(share * likelihoods[0] + (1 - share) * likelihoods[1]).sum())
    np.testing.assert_allclose(mixture_weights(systems, labels), [best, 1 - best], atol=2e-3)


def test_a_row_whose_vector_is_far_from_all_others_is_an_outlier() -> None:
    vectors = np.random.default_rng(2).normal(size=(60, 8)) * 0.1 + np.eye(8)[0]
    vectors[17] = -np.eye(8)[3]
    labels = np.arange(60) % 2
    table = Audited(
        spec=TaskSpec(name="classification", kind="classification", labels=("x", "y"), pair=False),
        examples=[TextExample(id=str(n), first=f"w{n}", label="xy"[n % 2]) for n in range(60)],
        labels=labels,
        probabilities=np.eye(2)[labels],
        confident=labels,
    )
    assert [(issue["row"], issue["issue"]) for issue in issues_of(table, 0.9, vectors=vectors)] == [(18, OUTLIER)]
