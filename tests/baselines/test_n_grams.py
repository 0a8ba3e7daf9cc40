"""The folder of a linear model on n-grams: what is damaged in it is named, in one line, and nothing is predicted."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import scipy.sparse as sp

from bertsmith.base.core.errors import BertsmithError
from bertsmith.models.model_files.metadata import NGRAM_TERMS, NGRAM_WEIGHTS
from bertsmith.tasks.baselines.bag_of_words import BagOfWords
from bertsmith.tasks.baselines.linear import LinearModel
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec

EXAMPLES = [TextExample(id=text, first=text, second=None) for text in ("good film", "bad film")]


def write(folder: Path) -> int:
    """Writes a model of two labels; returns the number of its columns."""
    bag = BagOfWords(EXAMPLES, TaskSettings(), 2)
    weight = np.arange(2 * bag.num_columns, dtype=np.float32).reshape(2, -1)
    linear = LinearModel(weight=weight, bias=np.zeros(2, np.float32), penalty=0.0)
    spec = TaskSpec(kind="classification", name="mood", labels=("a", "b"))
    NGramModel(spec=spec, bag=bag, linear=linear).write(folder)
    assert NGramModel.read(folder).predict(EXAMPLES) == NGramModel(spec=spec, bag=bag, linear=linear).predict(EXAMPLES)
    return bag.num_columns


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda terms: terms["bag"]["settings"].update(nonsense=1), "nonsense"),
        (lambda terms: terms["bag"]["settings"].update(max_length="x"), "max_length"),
        (lambda terms: terms["bag"]["spaces"].clear(), "0 kinds of terms"),
        (lambda terms: terms["bag"]["spaces"][0].pop("terms"), r"no bag\.spaces\.0\.terms"),
        (lambda terms: terms["bag"]["spaces"][0]["rarity"].pop(), "5 different terms with 4 frequencies"),
        (lambda terms: terms["bag"]["spaces"][0]["rarity"].__setitem__(0, float("nan")), "not finite"),
        (lambda terms: terms["bag"]["spaces"][0]["terms"].__setitem__(0, ["x"]), "of another type"),
        (lambda terms: terms["bag"].update(pair=True), "shapes"),
        (lambda terms: terms["spec"].update(kind="tagging"), "found tagging"),
        (lambda terms: terms["spec"].update(labels=["a", "b", "c"]), "shapes"),
    ],
)
def test_damaged_terms_are_refused(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    write(tmp_path)
    terms = json.loads((tmp_path / NGRAM_TERMS).read_text())
    change(terms)
    (tmp_path / NGRAM_TERMS).write_text(json.dumps(terms))
    with pytest.raises(BertsmithError, match=message):
        NGramModel.read(tmp_path)


@pytest.mark.parametrize(("outputs", "less", "value"), [(2, 3, 0.0), (3, 0, 0.0), (2, 0, np.nan), (2, 0, np.inf)])
def test_weights_of_other_shapes_or_not_finite_are_refused(
    outputs: int, less: int, value: float, tmp_path: Path
) -> None:
    columns = write(tmp_path)
    weight = np.full((outputs, columns - less), value, np.float32)
    damaged = safetensors.numpy.save({"weight": weight, "bias": np.zeros(outputs, np.float32)})
    (tmp_path / NGRAM_WEIGHTS).write_bytes(damaged)
    with pytest.raises(BertsmithError, match="expected finite numbers of the shapes"):
        NGramModel.read(tmp_path)


def drawn_texts(seed: int, count: int) -> list[str]:
    """Random texts of some words, among them marks, capitals, letters that are not ASCII, and white space."""
    draws = np.random.default_rng(seed)
    pieces = ["good", "Bad", "film", "É", "straße", "i", "don't", "3.5", "!?", "...", "日本", "a" * 9, "\t", "  ", "\n"]
    return ["", " ", *(" ".join(draws.choice(pieces, draws.integers(1, 12))) for _ in range(count - 2))]


@pytest.mark.parametrize("kind", ["two labels", "five labels", "several labels", "numbers"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_folder_answers_as_scikit_learn_does_with_its_terms_and_weights(kind: str, seed: int, tmp_path: Path) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge

    texts, draws = drawn_texts(seed, 60), np.random.default_rng(seed + 10)
    labels = tuple("abcde"[: 2 if kind == "two labels" else 5]) if kind != "numbers" else ()
    several = kind == "several labels"
    spec = TaskSpec(
        kind="classification" if labels else "regression",
        name="random",
        labels=labels,
        multi_label=several,
        metric="micro_f1" if several else "accuracy" if labels else "pearson",
        metrics=("micro_f1",) if several else ("accuracy",) if labels else ("pearson",),
    )
    targets = draws.integers(max(2, len(labels)), size=len(texts)) if labels else draws.standard_normal(len(texts))
    targets = draws.integers(2, size=(len(texts), 5)) if several else targets
    examples = [TextExample(id=str(number), first=text) for number, text in enumerate(texts)]
    fitted = NGramModel.fitted(spec, examples, targets)
    fitted.write(tmp_path)
    model, asked = NGramModel.read(tmp_path), drawn_texts(seed + 20, 40)
    spaces, ways = model.bag.state()["spaces"], ({"token_pattern": r"\w+|[^\w\s]"}, {"analyzer": "char_wb"})
    vectorizers = []
    for space, way, lengths in zip(spaces, ways, ((1, 2), (2, 5)), strict=True):
        vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=lengths, vocabulary=space["terms"], **way)
        vectorizer.idf_ = np.array(space["rarity"])
        vectorizers.append(vectorizer)
        tfidf = TfidfVectorizer(sublinear_tf=True, ngram_range=lengths, **way).fit(texts)
        assert set(tfidf.get_feature_names_out()) == set(space["terms"])
    columns = sp.hstack([vectorizer.transform(asked) for vectorizer in vectorizers])
    outputs = columns @ model.linear.weight.T.astype(np.float64) + model.linear.bias
    answers = model.predict([TextExample(id=str(number), first=text) for number, text in enumerate(asked)])
    if kind == "numbers":
        expected, actual = outputs[:, 0], [answer.value for answer in answers]
    else:
        actual = [answer.probabilities for answer in answers]
        expected = 1 / (1 + np.exp(-outputs)) if several else np.exp(outputs)
        expected = expected if several else expected / expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)
    if several:
        return
    # Its own fit, with the penalty that was chosen, says the same as far as both have converged.
    penalty, training = fitted.linear.penalty, sp.hstack([each.transform(texts) for each in vectorizers]).tocsr()
    if kind == "numbers":
        ridge = Ridge(alpha=penalty, tol=1e-10, solver="sparse_cg", fit_intercept=True).fit(training, targets)
        np.testing.assert_allclose(actual, ridge.predict(columns), atol=5e-3)
        return
    regression = LogisticRegression(C=1 / penalty, max_iter=5000, tol=1e-10).fit(training, targets)
    np.testing.assert_allclose(actual, regression.predict_proba(columns), atol=5e-3)
