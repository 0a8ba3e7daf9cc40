"""predict with --calibrate: no answer, or a set of labels, and the same from Python; the curve of evaluate."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bertsmith
from bertsmith.app.library.labelled import evaluate
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import recorded_warnings
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import digest_file
from cli.test_predicting import write_model

WORDS = ("the film", "a plot", "great", "anna", "rome", "oslo", "who was", "good", "in one", "day")
LABELS = ("negative", "positive")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("selective") / "model", "single")


@pytest.fixture(scope="module")
def rows(model: Path) -> list[dict[str, str]]:
    """Texts whose label is that of the model for the more certain half, and any for the others."""
    texts = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS[:4] if a != b]
    answers = bertsmith.load(model, device="cpu").classify(texts)
    middle = float(np.median([answer.probability for answer in answers]))
    return [
        {"text": text, "label": answer.label if answer.probability > middle else LABELS[number % 2]}
        for number, (text, answer) in enumerate(zip(texts, answers, strict=True))
    ]


@pytest.fixture
def table(tmp_path: Path, rows: list[dict[str, str]]) -> Path:
    path = tmp_path / "labelled.csv"
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def test_texts_below_the_threshold_get_no_answer(
    run, model: Path, rows, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    asked = ("predict", "--model", model, "--device", "cpu", "--calibrate", table, "--accuracy", "0.95")
    stdin = "".join(f"{row['text']}\n" for row in rows).encode()
    shown = run(*asked, "--json", stdin=stdin).succeeds()
    assert "360 labelled texts; answers from a probability of " in shown.err
    answers = [json.loads(line) for line in shown.out.splitlines()]
    plain = [json.loads(line) for line in run(*asked[:5], "--json", stdin=stdin).out.splitlines()]
    answered = [answer["label"] is not None for answer in answers]
    assert 0.3 < np.mean(answered) < 0.7
    assert [answer["chosen"] == [] for answer in answers] == [not flag for flag in answered]
    confidence = [max(answer["probabilities"].values()) for answer in plain]
    lowest = min(value for value, flag in zip(confidence, answered, strict=True) if flag)
    assert lowest > max(value for value, flag in zip(confidence, answered, strict=True) if not flag)
    for answer, before, flag in zip(answers, plain, answered, strict=True):
        assert answer == (before if flag else {**before, "label": None, "chosen": []})
    assert run(*asked, stdin=stdin).out.splitlines()[answered.index(False)].startswith("(no answer)\t")
    out = tmp_path / "out.csv"
    run(*asked, "--data", table, "--out", out).succeeds()
    with open(out, encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert [row["prediction"] for row in cells] == [answer["label"] or "" for answer in answers]
    assert all(row["probability"] for row in cells)
    frame = bertsmith.load(model, device="cpu").predict(pd.DataFrame(rows), calibrate=rows, accuracy=0.95)
    assert [
        None if value else label for value, label in zip(frame.prediction.isna(), frame.prediction, strict=True)
    ] == [answer["label"] for answer in answers]


def test_sets_have_the_labels_above_the_quantile_most_likely_first(
    run, model: Path, rows, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    loaded = bertsmith.load(model, device="cpu")
    answers = loaded.predict(table, calibrate=table, coverage=0.9)
    sizes = [len(answer["prediction"]) for answer in answers]
    assert list(answers[0]) == ["prediction"]
    assert set(sizes) == {1, 2}
    right = [row["label"] in answer["prediction"] for row, answer in zip(rows, answers, strict=True)]
    assert 0.9 <= np.mean(right) < 0.95
    plain = loaded.classify([row["text"] for row in rows])
    assert [answer["prediction"][0] for answer in answers] == [answer.label for answer in plain]
    out = tmp_path / "out.csv"
    done = run("predict", "--model", model, "--data", table, "--out", out, "--calibrate", table, "--coverage", "0.9")
    assert done.code == 0, done.err
    assert "of the sets for other texts contain the right one" in done.err
    with open(out, encoding="utf-8", newline="") as file:
        cells = list(csv.DictReader(file))
    assert list(cells[0]) == ["text", "label", "prediction"]
    assert [row["prediction"].split("|") for row in cells] == [answer["prediction"] for answer in answers]


def test_a_saved_threshold_is_used_without_the_labelled_texts(
    run, model: Path, rows, table: Path, tmp_path: Path
) -> None:
    kept = shutil.copytree(model, tmp_path / "model")
    asked = ("predict", "--model", kept, "--device", "cpu", "--data", table, "--json")
    fitted = run(*asked, "--calibrate", table, "--coverage", "0.9", "--save-threshold").succeeds()
    assert run(*asked, "--coverage", "0.9").out == fitted.out
    texts = [row["text"] for row in rows]
    loaded = bertsmith.load(kept, device="cpu")
    assert [each.promise for each in loaded.thresholds] == [{"coverage": 0.9}]
    chosen = [list(answer.chosen) for answer in loaded.classify(texts, coverage=0.9)]
    assert chosen == [json.loads(line)["chosen"] for line in fitted.out.splitlines()]
    loaded.predict([{"text": texts[0]}], calibrate=rows, accuracy=0.95, save_threshold=True)
    assert [each.promise for each in loaded.thresholds] == [{"coverage": 0.9}, {"accuracy": 0.95}]
    labels = [answer.label or None for answer in bertsmith.load(kept, device="cpu").classify(texts, accuracy=0.95)]
    assert labels == [answer["prediction"] for answer in loaded.predict(rows, calibrate=rows, accuracy=0.95)]
    assert bertsmith.load(kept, device="cpu", precision="fp64").thresholds == []


def test_saved_scores_give_the_threshold_for_any_share(model: Path, rows, tmp_path: Path) -> None:
    kept = shutil.copytree(model, tmp_path / "model")
    loaded = bertsmith.load(kept, device="cpu")
    loaded.predict(rows[:1], calibrate=rows, coverage=0.9, save_threshold=True)
    loaded.predict(rows[:1], calibrate=rows, accuracy=0.95, save_threshold=True)
    assert [len(each.gold) for each in loaded.thresholds] == [0, len(rows)]  # once, with the last one
    texts, again = [row["text"] for row in rows], bertsmith.load(kept, device="cpu")
    for share in ({"accuracy": 0.8}, {"accuracy": 0.9}, {"coverage": 0.6}, {"coverage": 0.97}):
        fitted = [answer["prediction"] for answer in loaded.predict(rows, calibrate=rows, **share)]
        answers = again.classify(texts, **share)
        assert fitted == [list(answer.chosen) if "coverage" in share else answer.label or None for answer in answers]
    with pytest.raises(BertsmithError, match=r"certain to be right 99.9% of the time; found [\d.]+% at best"):
        again.classify(texts, accuracy=0.999)
    path, told = kept / "bertsmith.json", "expected counts and probabilities of 360 texts in selections in"
    values = json.loads(path.read_text())
    plain, scored = values["selections"]
    for damage in (
        {"gold": []}, {"gold": [0.5] * 359}, {"curve": []}, {"curve": [[0.5, 360]]}, {"curve": [[0.5, 9, 10]]},
        {"curve": [[0.5, 361, 10]]}, {"gold": [0.5] * 359 + [2]}, {"curve": [[-1, 360, 10]]},
        {"curve": [[0.9, 0, 0], [0, 360, 10]]}, {"curve": [[0, 360, 10], [0.5, 9, 9]]},
    ):  # fmt: skip
        path.write_text(json.dumps({**values, "selections": [plain, {**scored, **damage}]}))
        with pytest.raises(BertsmithError, match=told):
            bertsmith.load(kept, device="cpu")
    path.write_text(json.dumps({**values, "selections": [plain]}))  # as older versions wrote it
    with pytest.raises(BertsmithError, match=r"for coverage 0.8 in fp32; found coverage 0.9;"):
        bertsmith.load(kept, device="cpu").classify(texts, coverage=0.8)
    with pytest.raises(BertsmithError, match=r"coverage 0.9 in bf16; found coverage 0.9 in fp32; save one in bf16"):
        bertsmith.load(kept, device="cpu", precision="bf16").classify(texts, coverage=0.9)
    assert bertsmith.load(kept, device="cpu").classify(texts[:1], coverage=0.9)[0].chosen


def test_sets_of_saved_scores_have_the_label_of_other_texts_as_often_as_stated(model: Path, tmp_path: Path) -> None:
    """The labels are drawn, so the model is wrong about half of them."""
    texts = [f"{a} {b} {c}" for a in WORDS for b in WORDS for c in WORDS]
    flags = generator(0, "test held-out coverage").random(len(texts)) < 0.5
    rows = [{"text": text, "label": LABELS[flag]} for text, flag in zip(texts, flags.astype(int).tolist(), strict=True)]
    covered = dict[float, list[float]]()
    for draw in range(5):
        kept = shutil.copytree(model, tmp_path / str(draw))
        order = generator(draw, "test held-out split").permutation(len(rows)).tolist()
        known, others = [rows[number] for number in order[:200]], [rows[number] for number in order[200:]]
        bertsmith.load(kept, device="cpu").predict(rows[:1], calibrate=known, coverage=0.5, save_threshold=True)
        loaded = bertsmith.load(kept, device="cpu")
        for coverage in (0.6, 0.75, 0.9):
            answers = loaded.classify([row["text"] for row in others], coverage=coverage)
            right = [row["label"] in answer.chosen for row, answer in zip(others, answers, strict=True)]
            covered.setdefault(coverage, []).append(float(np.mean(right)))
    for coverage, shares in covered.items():
        assert all(abs(share - coverage) < 0.12 for share in shares), covered  # of one draw: the interval of 200 texts
        assert abs(np.mean(shares) - coverage) < 0.04, covered


def test_a_threshold_of_other_weights_is_not_used(run, model: Path, table: Path, tmp_path: Path) -> None:
    kept = shutil.copytree(model, tmp_path / "model")
    asked = ("predict", "--model", kept, "--calibrate", table, "--coverage", "0.9", "--save-threshold")
    run(*asked, stdin=b"the film\n").succeeds()
    values = json.loads((kept / "bertsmith.json").read_text())
    warmer = {**values, "spec": {**values["spec"], "temperature": 1.5}}
    (kept / "bertsmith.json").write_text(json.dumps(warmer))
    with recorded_warnings() as warnings:
        assert bertsmith.load(kept, device="cpu").thresholds == []
    assert any("are of another model, and not used" in line for line in warnings)
    (kept / "bertsmith.json").write_text(json.dumps({**values, "selections": [{"coverage": 2}]}))
    with pytest.raises(BertsmithError, match="selections in"):
        bertsmith.load(kept, device="cpu")


def test_columns_are_those_of_the_labelled_texts_too(run, model: Path, rows, tmp_path: Path) -> None:
    path = tmp_path / "labelled.csv"
    pd.DataFrame(rows).rename(columns={"text": "body", "label": "kind"}).to_csv(path, index=False)
    named = ("--text-column", "body", "--label-column", "kind")
    asked = ("predict", "--model", model, "--calibrate", path, "--coverage", "0.9", *named)
    shown = run(*asked, stdin=b"the film\n")
    assert (shown.code, shown.out.count("\n")) == (0, 1), shown.err
    refused = run("predict", "--model", model, *named, stdin=b"the film\n")
    assert "needs --data or --calibrate" in refused.err


def test_a_resumed_file_needs_the_same_labelled_texts(run, model: Path, table: Path, tmp_path: Path) -> None:
    out, asked = tmp_path / "out.jsonl", ("predict", "--model", model, "--calibrate", table, "--coverage")
    assert run(*asked, "0.9", "--out", out, stdin=b"the film\n\xff\n").code == 1
    refused = run(*asked, "0.8", "--out", out, "--resume", stdin=b"the film\n")
    refused.refuses("the models and options that the predictions in")
    run(*asked, "0.9", "--out", out, "--resume", stdin=b"the film\nrome\n").succeeds()
    alone = run(*asked, "0.9", "--json", stdin=b"the film\nrome\n").out.splitlines()
    assert [json.loads(line)["chosen"] for line in out.read_text().splitlines()] == [
        json.loads(line)["chosen"] for line in alone
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": 0.9}, "expected a model with a saved threshold for accuracy 0.9 in fp32; found none"),
        ({"save_threshold": True}, "`save_threshold=True` needs `calibrate`"),
        ({"calibrate": []}, "`calibrate` needs `accuracy` or `coverage`"),
        ({"calibrate": [], "accuracy": 0.9, "coverage": 0.9}, "leave one of the two out"),
        ({"calibrate": [], "accuracy": 1.0}, "accuracy"),
        ({"calibrate": [{"text": "a", "label": "none"}], "coverage": 0.9}, "a known label"),
        ({"calibrate": [{"text": "a", "label": "negative"}], "coverage": 0.9}, "at least 9 labelled texts"),
        ({"calibrate": [{"text": "a", "label": "negative"}], "accuracy": 0.9}, "ask for a lower accuracy"),
        (
            {"calibrate": [{"text": "a", "label": "negative"}, {"text": "b", "label": "x"}] * 5, "coverage": 0.8},
            "at least 0.8 of them; found 5 texts of 10 with others",
        ),
    ],
)
def test_what_cannot_be_promised_is_refused(model: Path, options: dict, message: str) -> None:
    with pytest.raises(BertsmithError, match=re.escape(message)):
        bertsmith.load(model, device="cpu").predict([{"text": "the film"}], **options)


@pytest.mark.parametrize(
    ("kind", "name"), [("several labels", "several labels"), ("number", "number"), ("tags", "tag")]
)
def test_models_of_other_answers_are_refused(run, table: Path, tmp_path: Path, kind: str, name: str) -> None:
    other = write_model(tmp_path / "model", kind)
    refused = run("predict", "--model", other, "--calibrate", table, "--coverage", "0.9", stdin=b"the film\n")
    refused.refuses("expected a model that gives each text one label, for --calibrate")
    assert refused.err.count("\n") <= 2


def test_the_training_file_is_named_as_such(run, table: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "run" / "model", "single")
    values = json.loads((model / "bertsmith.json").read_text())
    (model / "bertsmith.json").write_text(json.dumps({**values, "trained_on": {"train": digest_file(table)}}))
    asked = ("--calibrate", table, "--coverage", "0.9")
    for folder in (model, tmp_path / "run"):
        with recorded_warnings() as warnings:
            shown = run("predict", "--model", folder, *asked, stdin=b"the film\n")
        assert shown.code == 0, shown.err
        assert any("is the training file of this model" in line for line in warnings)


@pytest.mark.parametrize("other", ["--test", "--replies", "--engine"])
def test_options_that_do_not_go_together_are_refused(run, model: Path, table: Path, other: str) -> None:
    value = "ray" if other == "--engine" else table
    refused = run("predict", "--model", model, "--calibrate", table, "--coverage", "0.9", other, value)
    refused.refuses(f"found {other}", "for --calibrate")


def test_evaluate_has_the_accuracy_of_the_most_certain_examples(run, model: Path, table: Path, rows) -> None:
    curve = evaluate(model, table, device="cpu").selections
    assert [round(20 * each.answered) for each in curve] == list(range(1, 21))
    shown = run("evaluate", "--model", model, "--data", table, "--device", "cpu")
    assert "accuracy of the most certain 50%: " in shown.out
    record = json.loads(run("evaluate", "--model", model, "--data", table, "--json").out)
    assert record["selections"][-1]["accuracy"] == pytest.approx(record["scores"]["accuracy"])
    assert record["selections"][-1]["interval"] == pytest.approx(record["intervals"]["accuracy"])
