"""The estimators keep to what scikit-learn asks of estimators, and give what the library gives.

scikit-learn's checks hand over tables of numbers. Here each row is written out as a text, a word for each number, so
that all of them can run on estimators of texts.
"""

import contextlib
import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from bertsmith import load
from bertsmith.app.library.estimators import BertsmithClassifier, BertsmithVectorizer
from bertsmith.base.core.errors import CheckpointError, ConfigError, CutWarning, InputError, LabelError, RunError
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from tasks.task_samples import CONFIG, examples_of, write_base_model

NUMBERS = [f"{letter}{digit}" for letter in "abcdefghijklmnopqrst" for digit in range(10)]
ON_PROCESSOR = {"device": "cpu", "precision": "fp32"}
QUICK = {**ON_PROCESSOR, "epochs": 6, "batch_size": 8, "learning_rate": 3e-3, "dev_share": 0, "max_length": 32}

# Checks that cannot pass, with the reasons.
EXCEPTIONS = dict.fromkeys(
    ("check_estimator_sparse_tag", "check_estimator_sparse_array", "check_estimator_sparse_matrix"),
    "a sparse table holds no texts; the error is an InputError, and speaks of texts",
)
# Checks that fine-tune many times.
LONG = {
    "check_classifiers_train", "check_classifiers_classes", "check_estimators_dtypes", "check_fit_idempotent",
    "check_positive_only_tag_during_fit", "check_pipeline_consistency", "check_fit_check_is_fitted",
}  # fmt: skip


def written(table):
    """A text for each row: a letter for the column and a digit for the number."""
    if hasattr(table, "tocsr"):
        return table
    rows = np.asarray(table).astype(float)
    digits = np.clip(np.round(5 + 2 * rows), 0, 9).astype(int)
    return [" ".join(f"{chr(97 + column)}{digit}" for column, digit in enumerate(row)) for row in digits.tolist()]


class OfTables:
    """Declares that tables are accepted. Checks of their columns and numbers do not apply to texts."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array = True, False
        tags.no_validation = True
        return tags


class VectorizerOfTables(OfTables, BertsmithVectorizer):
    def fit(self, X, y=None):
        return super().fit(written(X), y)

    def transform(self, X):
        return super().transform(written(X))


class ClassifierOfTables(OfTables, BertsmithClassifier):
    def fit(self, X, y):
        return super().fit(written(X), y)

    def predict_proba(self, X):
        return super().predict_proba(written(X))


def checks():
    """Those of scikit-learn; the classifier with the recipe of 2018, since one of them allows hardly any rounding."""
    for estimator in (VectorizerOfTables("", **ON_PROCESSOR), ClassifierOfTables("", **QUICK, recipe="2018")):
        for _, check in estimator_checks_generator(estimator, legacy=True):
            name = check.func.__name__
            marks = []
            if name in EXCEPTIONS:
                marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=EXCEPTIONS[name]))
            if name in LONG and isinstance(estimator, BertsmithClassifier):
                marks.append(pytest.mark.slow)
            options = "".join(f" {key}={value}" for key, value in check.keywords.items())
            yield pytest.param(estimator, check, marks=marks, id=f"{type(estimator).__name__} {name}{options}")


@pytest.fixture(scope="module")
def of_numbers(tmp_path_factory) -> Path:
    """A base model with the words of `written` in its vocabulary."""
    tokenizer = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *NUMBERS]))
    config = dataclasses.replace(CONFIG, vocab_size=len(tokenizer.vocabulary))
    folder = tmp_path_factory.mktemp("numbers") / "base"
    save_pretrained(folder, untrained(config, 0), tokenizer, ModelMetadata.from_dict({"task": "pretraining"}))
    return folder


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_scikit_learn_finds_nothing_wrong(of_numbers, estimator, check):
    check(clone(estimator).set_params(model=of_numbers))


@pytest.mark.parametrize("kind", [BertsmithVectorizer, BertsmithClassifier])
@pytest.mark.filterwarnings("ignore:Can't test estimator:sklearn.exceptions.SkipTestWarning")
def test_of_texts_alone_scikit_learn_checks_little(kind):
    names = [result["check_name"] for result in check_estimator(kind("base"))]
    assert names == ["check_estimator_cloneable"], "what else it checks now could be checked here"


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> str:
    return write_base_model(tmp_path_factory.mktemp("estimators") / "base")


def sample(count: int, seed: int = 0):
    examples = examples_of("single", count, seed)
    return [example.first for example in examples], [example.label for example in examples]


@pytest.fixture(scope="module")
def classifier(base) -> BertsmithClassifier:
    return BertsmithClassifier(base, **{**QUICK, "learning_rate": 1e-3}).fit(*sample(120))


def test_vectors_are_those_of_the_embedder(base):
    texts, _ = sample(9)
    for options in ({}, {"pooling": "cls", "normalize": True, "max_length": 5}, {"layers": "-1,-2"}):
        vectorizer = BertsmithVectorizer(base, device="cpu", **options)
        wanted = load_embedder(base, device="cpu", **options).embed(texts)
        cuts = pytest.warns(CutWarning) if "max_length" in options else contextlib.nullcontext()
        with cuts:
            np.testing.assert_array_equal(vectorizer.transform(texts), wanted)
            np.testing.assert_array_equal(vectorizer.fit_transform(np.array(texts)), wanted)
        names = vectorizer.get_feature_names_out()
        assert (len(names), names[0]) == (wanted.shape[1], "bertsmithvectorizer0")
    assert vectorizer.transform([]).shape == (0, 64)


def test_heavier_texts_decide_what_a_classifier_learns(base):
    texts, labels = ["anna was here", "anna was here", "was", "was"] * 8, ["spam", "ham", "spam", "ham"] * 8
    for weights, label in (([9, 1, 1, 1], "spam"), ([1, 9, 1, 1], "ham"), (np.array([0, 0.5, 1, 1]), "ham")):
        model = BertsmithClassifier(base, **{**QUICK, "learning_rate": 1e-3})
        assert model.fit(texts, labels, sample_weight=list(weights) * 8).predict(["anna was here"]) == [label]
    for wrong in ([1.0], [-1.0] * 32, [0] * 32, [float("nan")] * 32):
        with pytest.raises(LabelError, match=r"a weight from 0 to 1e\+06 for each of 32 texts"):
            model.fit(texts, labels, sample_weight=wrong)


def test_truncation_warns_at_the_line_of_the_caller(base):
    texts, labels = sample(12)
    long = [*texts, "film " * 40]
    vectorizer = BertsmithVectorizer(base, device="cpu", max_length=32)
    pipeline = make_pipeline(vectorizer, LogisticRegression())
    classifier = BertsmithClassifier(base, **{**QUICK, "epochs": 1})
    for ask in (
        lambda: vectorizer.transform(long),
        lambda: vectorizer.fit_transform(long),
        lambda: pipeline.fit(long, [*labels, labels[0]]),
        lambda: classifier.fit(long, [*labels, labels[0]]),
        lambda: classifier.predict(long),
    ):
        with pytest.warns(CutWarning, match="the model reads: 1, 10 tokens in all") as caught:
            ask()
        assert [warning.filename for warning in caught if warning.category is CutWarning] == [__file__]


def test_a_changed_parameter_takes_effect_without_a_new_fit(base):
    texts, _ = sample(3)
    vectorizer = BertsmithVectorizer(base, device="cpu").fit(texts)
    first = vectorizer._load()
    assert vectorizer._load() is first
    vectorizer.set_params(pooling="max")
    np.testing.assert_array_equal(
        vectorizer.transform(texts), load_embedder(base, pooling="max", device="cpu").embed(texts)
    )


def test_a_pickled_vectorizer_holds_no_model_and_gives_the_same(base):
    texts, _ = sample(3)
    vectorizer = BertsmithVectorizer(base, device="cpu", pooling="cls").fit(texts)
    kept = pickle.dumps(vectorizer)
    assert len(kept) < 2000
    again = pickle.loads(kept)  # noqa: S301
    np.testing.assert_array_equal(again.transform(texts), vectorizer.transform(texts))


def test_vectors_go_into_a_pipeline_and_its_cross_validation(base):
    texts, labels = sample(60)
    pipeline = make_pipeline(BertsmithVectorizer(base, device="cpu"), LogisticRegression(C=100, max_iter=1000))
    scores = cross_val_score(pipeline, texts, labels, cv=3)
    assert scores.mean() > 0.8


def test_a_wrong_text_or_parameter_is_one_clear_line(base, tmp_path):
    with pytest.raises(InputError, match="a text as text 2; found 3"):
        BertsmithVectorizer(base, device="cpu").fit(["a", 3])
    with pytest.raises(InputError, match="a list of texts; found one text"):
        BertsmithVectorizer(base, device="cpu").transform("anna")
    with pytest.raises(ConfigError, match="unknown pooling"):
        BertsmithVectorizer(base, device="cpu", pooling="mode").fit(["a"])
    with pytest.raises(InputError, match="found an empty folder"):
        BertsmithVectorizer(tmp_path, device="cpu").fit(["a"])
    with pytest.raises(ConfigError, match="'epoch'; did you mean 'epochs'"):
        BertsmithClassifier(base, settings={"epoch": 3}, **QUICK).fit(["a", "b"], [0, 1])
    with pytest.raises(ConfigError, match='`patience` needs `keep="best"`'):
        BertsmithClassifier(base, settings={"patience": 3, "keep": "last"}, **QUICK).fit(["a", "b"], [0, 1])
    with pytest.raises(ConfigError, match="dev_share must be at least 0 and below 1"):
        BertsmithClassifier(base, dev_share=1).fit(["a", "b"], [0, 1])


def test_the_classifier_learns_and_is_the_model_that_finetune_makes(classifier):
    texts, labels = sample(40, seed=7)
    assert classifier.score(texts, labels) > 0.9
    assert classifier.classes_.tolist() == ["negative", "positive"]
    chances = classifier.predict_proba(texts)
    assert chances.shape == (40, 2)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-9)
    assert classifier.predict(texts).tolist() == classifier.classes_[chances.argmax(axis=1)].tolist()
    examples = [TextExample(id="", first=text) for text in texts]
    assert [prediction.probabilities for prediction in classifier.predictor_.predict(examples)] == list(
        map(tuple, chances.tolist())
    )
    assert (classifier.report_["train_examples"], classifier.report_["dev_examples"]) == (120, 0)


def test_the_model_of_a_given_folder_can_be_loaded(base, tmp_path):
    texts, labels = sample(40)
    numbers = [int(label == "positive") for label in labels]
    options = {**QUICK, "epochs": 1, "dev_share": 0.25}
    classifier = BertsmithClassifier(base, out=tmp_path / "run", **options).fit(texts, numbers)
    assert classifier.classes_.tolist() == [0, 1]
    assert set(classifier.predict(texts).tolist()) <= {0, 1}
    assert (classifier.report_["train_examples"], classifier.report_["dev_examples"]) == (30, 10)
    model = load(tmp_path / "run", device="cpu")
    assert model.labels == ("0", "1")
    result = [prediction.probabilities for prediction in model.classify(texts)]
    np.testing.assert_array_equal(np.array(result), classifier.predict_proba(texts))
    with pytest.raises(RunError):
        classifier.fit(texts, numbers)


def test_nothing_is_left_of_a_folder_that_was_not_asked_for(base, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    texts, labels = sample(8)
    classifier = BertsmithClassifier(base, **{**QUICK, "epochs": 1}).fit(texts, labels)
    assert list(tmp_path.iterdir()) == []
    assert len(classifier.predict(texts)) == 8


def test_a_copy_has_the_parameters_and_not_the_model(classifier):
    copied = clone(classifier)
    assert copied.get_params() == classifier.get_params()
    with pytest.raises(NotFittedError):
        copied.predict(["anna"])


def test_a_pickled_classifier_says_the_same(classifier):
    texts, _ = sample(5)
    again = pickle.loads(pickle.dumps(classifier))  # noqa: S301
    np.testing.assert_array_equal(again.predict_proba(texts), classifier.predict_proba(texts))


def test_pairs_are_classified_as_pairs(base):
    examples = examples_of("pair", 24)
    pairs = [(example.first, example.second) for example in examples]
    labels = [example.label == "1" for example in examples]
    classifier = BertsmithClassifier(base, **{**QUICK, "epochs": 1}).fit(np.array(pairs), labels)
    assert classifier.predictor_.task.spec.pair is True
    assert classifier.classes_.tolist() == [False, True]
    assert classifier.predict_proba(pairs).shape == (24, 2)
    with pytest.raises(InputError, match="a pair of texts in text 1"):
        classifier.predict(["anna"])


def test_parameters_are_searched(base):
    texts, labels = sample(80)
    search = GridSearchCV(
        BertsmithClassifier(base, **{**QUICK, "learning_rate": 1e-3}),
        {"epochs": [0.1, 8.0], "settings": [{"warmup_share": 0.0}]},
        cv=2,
        error_score="raise",
    )
    assert search.fit(texts, labels).best_params_["epochs"] == 8.0
    assert len(search.predict(texts)) == 80


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "found no y"),
        (["a", None], "found None for 1 text, the first for text 2"),
        ([1.0, float("nan")], "found nan for 1 text, the first for text 2"),
        (pd.Series([pd.NA, "b"], dtype="string"), "found <NA> for 1 text, the first for text 1"),
        (pd.Categorical(["a", None]), "found nan for 1 text, the first for text 2"),
        ([0], "a class for each of 3 texts; found 1"),
        ([0, 0, 0], "at least two classes; found 1 class"),
        ([0.5, 1.25, 2.0], "Unknown label type"),
        ([[0, 1], [1, 0], [1, 1]], "1d array"),
    ],
)
def test_invalid_labels_are_refused(base, labels, message):
    with pytest.raises(ValueError, match=message):
        BertsmithClassifier(base, **QUICK).fit(["a", "film", "was"], labels)


def test_empty_data_has_no_classes(base):
    with pytest.raises(LabelError, match="at least two classes; found none"):
        BertsmithClassifier(base, **QUICK).fit([], [])


def test_an_empty_list_of_texts_has_no_predictions(classifier):
    assert classifier.predict([]).tolist() == []
    assert classifier.predict_proba([]).shape == (0, 2)


def test_a_model_without_a_vocabulary_is_refused(base, tmp_path):
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((Path(base) / name).read_bytes())
    for estimator in (BertsmithVectorizer(tmp_path), BertsmithClassifier(tmp_path)):
        with pytest.raises(CheckpointError, match="a vocabulary next to the model"):
            estimator.fit(["a", "b"], [0, 1])
