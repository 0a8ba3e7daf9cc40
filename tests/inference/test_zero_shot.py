"""Labels that are only named: entailment as of transformers, vectors, both; calibration; tables; bad input."""

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import transformers

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import recorded_warnings
from bertsmith.inference.predictors.named_labels import NONE
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.tasks.metrics.calibration import softmax
from bertsmith.tasks.metrics.vectors import unit
from tasks.architecture_samples import write_peer
from tasks.task_samples import write_base_model
from written_files import file_with

TEXTS = ["the good film was great", "who was anna ?", "rome and oslo in one plot " * 3]
LABELS = ["film", "anna", "rome and oslo"]
NLI = ("entailment", "neutral", "contradiction")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_base_model(tmp_path_factory.mktemp("encoder") / "model")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "model"
    write_peer(path, "electra", "ForSequenceClassification", num_labels=3)
    return path


def renamed(source: Path, path: Path, names: tuple[str, ...]) -> Path:
    shutil.copytree(source, path)
    values = json.loads((path / "config.json").read_text())
    values |= {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }
    (path / "config.json").write_text(json.dumps(values))
    return path


def shares(predictions: list[Any]) -> np.ndarray:
    return np.array([prediction.probabilities for prediction in predictions])


@pytest.mark.usefixtures("quiet_transformers")
@pytest.mark.parametrize("names", [names for names in itertools.permutations(NLI) if names[0] != "neutral"])
def test_probabilities_are_those_of_the_pipeline_of_transformers(pairs: Path, tmp_path: Path, names) -> None:
    if names.index("contradiction") not in (0, 2):
        pytest.skip("the pipeline takes another label for the contradiction")
    path = renamed(pairs, tmp_path / "model", names)
    pipeline = transformers.pipeline("zero-shot-classification", str(path), device="cpu")
    for several, template in itertools.product((False, True), ("This example is {}.", "{} ?")):
        ours = bertsmith.classify(TEXTS, LABELS, model=path, multi_label=several, template=[template], device="cpu")
        theirs = pipeline(TEXTS, LABELS, multi_label=several, hypothesis_template=template)
        expected = [dict(zip(answer["labels"], answer["scores"], strict=True)) for answer in theirs]
        np.testing.assert_allclose(
            shares(ours), [[answer[label] for label in LABELS] for answer in expected], atol=1e-5
        )
        assert [answer.label for answer in ours] == [answer["labels"][0] for answer in theirs]


def test_the_contradiction_is_the_label_with_that_name(pairs: Path, tmp_path: Path) -> None:
    first = renamed(pairs, tmp_path / "first", ("contradiction", "neutral", "entailment"))
    second = renamed(pairs, tmp_path / "second", ("neutral", "contradiction", "entailment"))
    a, b = (bertsmith.classify(TEXTS, LABELS, model=path, multi_label=True, device="cpu") for path in (first, second))
    assert np.abs(shares(a) - shares(b)).max() > 1e-4


def test_several_templates_are_averaged_and_descriptions_take_the_place_of_names(pairs: Path, tmp_path: Path) -> None:
    path = renamed(pairs, tmp_path / "model", NLI)
    options = {"model": path, "device": "cpu"}
    alone = [shares(bertsmith.classify(TEXTS, LABELS, template=[each], **options)) for each in ("{} ?", "the {} .")]
    both = shares(bertsmith.classify(TEXTS, LABELS, template=["{} ?", "the {} ."], **options))
    np.testing.assert_allclose(both, softmax(np.mean(np.log(alone), axis=0)), atol=1e-6)
    described = [{"name": str(number), "description": label} for number, label in enumerate(LABELS)]
    np.testing.assert_allclose(
        shares(bertsmith.classify(TEXTS, described, **options)),
        shares(bertsmith.classify(TEXTS, LABELS, **options)),
        atol=1e-6,
    )


def test_an_encoder_compares_texts_with_names_and_descriptions(encoder: str) -> None:
    labels = [{"name": "film_plot", "description": "was it good ?"}, {"name": "anna"}]
    answers = bertsmith.classify(TEXTS, labels, model=encoder, device="cpu")
    embedder = load_embedder(encoder, device="cpu")
    name, about, other = unit(embedder.embed(["film plot", "was it good ?", "anna"]))
    cosines = unit(embedder.embed(TEXTS)) @ np.stack([unit((name + about)[None])[0], other]).T
    np.testing.assert_allclose(shares(answers), softmax(cosines.astype(np.float64) / 0.07), atol=1e-4)
    assert [answer.chosen for answer in answers] == [(answer.label,) for answer in answers]


def test_labels_are_names_descriptions_by_name_or_a_file_with_a_name_in_each_line(encoder: str, tmp_path: Path) -> None:
    options = {"model": encoder, "device": "cpu"}
    expected = [answer.to_dict() for answer in bertsmith.classify(TEXTS, LABELS, **options)]
    names = file_with(tmp_path / "names.txt", "\n".join(LABELS) + "\n\n")
    for labels in (",".join(LABELS), names, [str(names)], [{"name": name} for name in LABELS]):
        assert [answer.to_dict() for answer in bertsmith.classify(TEXTS, labels, **options)] == expected
    described = {"film": "was it good ?", "anna": ""}
    rows = [{"name": name, "description": text} for name, text in described.items()]
    answers = (bertsmith.classify(TEXTS, labels, **options) for labels in (described, rows))
    np.testing.assert_array_equal(*map(shares, answers))


def test_corrected_predictions_calibrate_by_the_name_of_their_column(encoder: str) -> None:
    rows = [{"text": text, "prediction": label} for text, label in zip(TEXTS, LABELS * len(TEXTS), strict=False)]
    options = {"model": encoder, "device": "cpu"}
    named = [{"text": row["text"], "label": row["prediction"]} for row in rows]
    renamed = bertsmith.classify(TEXTS, LABELS, calibrate=rows, label_column="prediction", **options)
    np.testing.assert_array_equal(
        shares(renamed), shares(bertsmith.classify(TEXTS, LABELS, calibrate=named, **options))
    )


def test_answers_do_not_depend_on_the_other_texts(encoder: str) -> None:
    together = shares(bertsmith.classify(TEXTS, LABELS, model=encoder, device="cpu"))
    alone = [shares(bertsmith.classify([text], LABELS, model=encoder, device="cpu"))[0] for text in TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_examples_teach_an_encoder(encoder: str) -> None:
    good, bad = ["a good film", "great and fine", "good plot"], ["a bad film", "poor and awful", "bad plot"]
    labels = [{"name": "x", "examples": good}, {"name": "y", "examples": bad}]
    answers = bertsmith.classify([*good, *bad], labels, model=encoder, device="cpu")
    assert [answer.label for answer in answers] == ["x"] * 3 + ["y"] * 3
    several = bertsmith.classify([*good, *bad], labels, model=encoder, multi_label=True, device="cpu")
    assert [answer.chosen for answer in several] == [("x",)] * 3 + [("y",)] * 3


def test_the_log_probabilities_of_two_models_are_averaged(encoder: str, pairs: Path, tmp_path: Path) -> None:
    entailment = renamed(pairs, tmp_path / "model", NLI)
    alone = [shares(bertsmith.classify(TEXTS, LABELS, model=each, device="cpu")) for each in (encoder, entailment)]
    both = bertsmith.classify(TEXTS, LABELS, model=encoder, also=[entailment], device="cpu")
    np.testing.assert_allclose(shares(both), softmax(np.mean(np.log(alone), axis=0)), atol=1e-6)


def test_a_loaded_model_keeps_the_vectors_of_the_last_labels(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, sizes = bertsmith.load(encoder, device="cpu"), list[int]()
    embed = Embedder.embed_encoded

    def counted(self: Embedder, encoded: Any) -> Any:
        sizes.append(len(encoded))
        return embed(self, encoded)

    monkeypatch.setattr(Embedder, "embed_encoded", counted)
    for labels in (LABELS, LABELS, dict.fromkeys(LABELS, ""), {**dict.fromkeys(LABELS, ""), "film": "was it good ?"}):
        answers = model.classify_by_labels(TEXTS, labels)
        assert answers == bertsmith.classify(TEXTS, labels, model=encoder, device="cpu")
        sizes[-2:] = []  # of `classify`
    assert sizes == [3, 3, 3, 3, 4, 3]
    assert model.classify_by_labels([], LABELS) == []


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        (["film"], {}, "or add `multi_label=True`"),
        (["film", 3], {}, "labels must be a list"),
        ({"film": "a", "anna": None}, {}, "labels must be a list"),
        ("film,anna", {}, "labels must be a list"),
        (["film", "\ud800"], {}, "valid Unicode in label 2"),
        (LABELS, {"threshold": 1.5}, "threshold"),
        (LABELS, {"template": ["{}"]}, "a model of entailment for a template"),
        (LABELS, {"template": "about {}"}, "list"),
    ],
)
def test_a_loaded_model_refuses_labels_that_it_cannot_tell_apart(encoder: str, labels, options, sentence: str) -> None:
    model = bertsmith.load(encoder, device="cpu")
    with pytest.raises(BertsmithError, match=re.escape(sentence)):
        model.classify_by_labels(TEXTS, labels, **options)
    with pytest.raises(BertsmithError, match=r"'names\.txt' twice"):  # no file is read
        model.classify_by_labels(TEXTS, ["names.txt", "names.txt"])


def test_below_the_threshold_the_answer_is_none_of_these(encoder: str) -> None:
    answers = bertsmith.classify(TEXTS, LABELS, model=encoder, device="cpu")
    lowest = min(answers, key=lambda answer: answer.probability)
    limited = bertsmith.classify(TEXTS, LABELS, model=encoder, threshold=lowest.probability + 1e-4, device="cpu")
    number = answers.index(lowest)
    assert (limited[number].label, limited[number].chosen) == (NONE, (NONE,))
    assert limited[number].probability == pytest.approx(lowest.probability, abs=1e-5)
    several = bertsmith.classify(TEXTS, LABELS, model=encoder, multi_label=True, threshold=0.0, device="cpu")
    assert several[0].chosen == tuple(LABELS)


def test_labelled_texts_calibrate_probabilities_and_threshold(encoder: str) -> None:
    texts = [f"{word} film" for word in ("anna", "bert", "carl", "rome", "oslo", "lima")]
    plain = bertsmith.classify(texts, ["anna", "rome"], model=encoder, device="cpu")
    golds = [answer.label for answer in plain]
    golds[plain.index(max(plain, key=lambda answer: answer.probability))] = "rome" if golds[0] == "anna" else "anna"
    rows = [{"text": text, "label": gold} for text, gold in zip(texts, golds, strict=True)]
    fitted = bertsmith.classify(texts, ["anna", "rome"], model=encoder, calibrate=rows, device="cpu")
    right = [["anna", "rome"].index(gold) for gold in golds]

    def loss(predictions: list[Any]) -> float:
        return float(-np.log(shares(predictions)[np.arange(len(right)), right]).mean())

    assert loss(fitted) <= loss(plain) + 1e-9
    rows.append({"text": "in in in", "label": NONE})

    def num_right(**options: Any) -> int:
        asked = [row["text"] for row in rows]
        answers = bertsmith.classify(asked, ["anna", "rome"], model=encoder, calibrate=rows, device="cpu", **options)
        return sum(answer.label == row["label"] for answer, row in zip(answers, rows, strict=True))

    assert num_right() >= max(num_right(threshold=number / 10) for number in range(10))
    several = [{"text": row["text"], "labels": [row["label"]]} for row in rows[:-1]] + [{"text": "it", "labels": []}]
    options = {"model": encoder, "multi_label": True, "device": "cpu"}
    before = bertsmith.classify(texts, ["anna", "rome"], **options)
    after = bertsmith.classify(texts, ["anna", "rome"], calibrate=several, **options)
    assert np.abs(shares(before) - shares(after)).max() > 1e-4


def test_calibration_never_reverses_the_order_of_several_labels(encoder: str) -> None:
    options = {"model": encoder, "multi_label": True, "device": "cpu"}
    plain = bertsmith.classify(TEXTS, LABELS, **options)
    wrong = [
        {"text": text, "labels": [LABELS[int(np.argmin(answer.probabilities))]]}
        for text, answer in zip(TEXTS, plain, strict=True)
    ]
    with recorded_warnings() as warnings:
        answers = bertsmith.classify(TEXTS, LABELS, calibrate=wrong, **options)
    np.testing.assert_allclose(shares(answers), shares(plain), atol=1e-6)
    assert any("the probabilities are not calibrated" in warning for warning in warnings)


def test_tables_come_back_as_tables(encoder: str, tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": TEXTS, "number": [1, 2, 3]}, index=[5, 6, 7])
    answers = bertsmith.classify(TEXTS, LABELS, model=encoder, device="cpu")
    answered = bertsmith.classify(frame, LABELS, model=encoder, device="cpu")
    assert list(answered.index) == [5, 6, 7]
    assert list(answered["prediction"]) == [answer.label for answer in answers]
    frame.to_csv(tmp_path / "texts.csv", index=False)
    from_file = bertsmith.classify(tmp_path / "texts.csv", LABELS, model=encoder, device="cpu")
    assert [row["prediction"] for row in from_file] == list(answered["prediction"])
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    lines = bertsmith.classify(tmp_path / "texts.txt", LABELS, model=encoder, device="cpu")
    np.testing.assert_allclose(shares(lines), shares(answers), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"labels": []}, "expected names of labels; found none"),
        ({"labels": ["a", " "]}, "expected names of labels; found a blank one"),
        ({"labels": ["film"]}, "expected two or more labels to choose from; found 'film' alone"),
        ({"labels": "film,anna,film"}, "expected different labels; found 'film' twice"),
        ({"labels": ["film", NONE]}, f"found '{NONE}', the answer below the threshold"),
        ({"texts": ["film", " "]}, "expected a text in text 2; found an empty one"),
        ({"template": ["about"]}, "expected a template with {} for the label; found 'about'"),
        ({"threshold": 1.5}, "threshold"),
        ({"labels": [{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]}, "found 'weight'"),
        ({"labels": [{"name": "a"}, {"description": "b"}]}, "expected the name of a label"),
        ({"labels": [{"description": "a"}, {"description": "b"}]}, "column"),
        ({"calibrate": [{"text": "film", "label": "x"}]}, "expected one of the named labels in"),
        ({"texts": "the good film " * 99}, "there is no file of texts 'the good film"),
        ({"texts": "film,rome", "labels": __file__}, "give the texts first, then the labels"),
        ({"texts": {"film": "", "rome": ""}, "labels": TEXTS}, "expected the texts first, then the labels"),
        ({"texts": LABELS, "labels": [{"text": text} for text in TEXTS]}, "texts to classify come before the labels"),
        ({"labels": "film,,rome"}, "found a blank one"),
        ({"texts": [{"text": "film"}], "text_column": "x"}, "expected the column 'x' in the table 'texts'"),
        ({"template": ["about {}"]}, "`template` needs a model of entailment"),
        ({"text_column": "text"}, "`text_column` needs a table or a file"),
        ({"labels": "labels.csv,rome"}, "expected names of labels, or a file of them alone; found 'labels.csv'"),
        ({"labels": ["film", "names.txt"]}, "expected names of labels, or a file of them alone; found 'names.txt'"),
        ({"label_column": "text"}, "`label_column` needs `calibrate`"),
        ({"calibrate": [{"text": "a", "prediction": "rome"}]}, '`label_column="prediction"`'),
        ({"texts": [{"text": "film"}], "bad_bytes": "drop"}, "`bad_bytes` needs a text file or stdin"),
    ],
)
def test_bad_input_is_refused_in_one_line(encoder: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BertsmithError, match=re.escape(sentence)):
        bertsmith.classify(**{"texts": TEXTS, "labels": LABELS, "model": encoder, "device": "cpu", **options})


def test_a_model_that_is_neither_of_entailment_nor_an_encoder_is_refused(pairs: Path, tmp_path: Path) -> None:
    path = renamed(pairs, tmp_path / "model", ("good", "bad", "plain"))
    with pytest.raises(BertsmithError, match="expected a sentence encoder, or a model of pairs") as refusal:
        bertsmith.classify(TEXTS, LABELS, model=path, device="cpu")
    assert "good, bad, plain" in str(refusal.value)
    entailment = renamed(pairs, tmp_path / "nli", NLI)
    with pytest.raises(BertsmithError, match="`prompt` needs a sentence encoder"):
        bertsmith.classify(TEXTS, LABELS, model=entailment, prompt="none", device="cpu")
    with pytest.raises(BertsmithError, match="labels without examples"):
        bertsmith.classify(TEXTS, [{"name": "a", "examples": "film|plot"}, {"name": "b"}], model=entailment)
