"""Tests of classifiers on the text vectors of a frozen encoder."""

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from baselines.frozen_samples import LETTERS, TOKENIZER, encoder, hidden_states, row
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.baselines.text_vectors import text_vectors
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.labels import accuracy, macro_f1
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.task import TaskSettings, TaskSpec

BENCHMARKS = Path(__file__).parent.parent.parent / "benchmarks"
LABELS = ("no", "yes", "never")


@pytest.fixture
def feature_probe(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("feature_probe").FeatureProbe


def classification(**settings: object) -> ClassificationTask:
    spec = TaskSpec(
        kind="classification",
        name="classification",
        labels=LABELS,
        metrics=("accuracy", "macro_f1"),
        settings=TaskSettings(**{"max_length": 32, **settings}),
    )
    return ClassificationTask(spec)


def texts(count: int, seed: int = 0) -> list[TextExample]:
    """Texts labelled by whether most of their letters come before `f`; the third label never occurs."""
    rng = np.random.default_rng(seed)
    result = []
    for number in range(count):
        early = bool(rng.integers(2))
        letters = rng.choice(list(LETTERS[:5] if early else LETTERS[5:]), rng.integers(1, 8))
        result.append(
            TextExample(
                id=str(number), first=" ".join(letters), label="yes" if early else "no", location=f"row {number}"
            )
        )
    return result


@pytest.mark.parametrize("layers", ["last", "sum-last-4", "concat-last-4"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_vector_of_a_text_is_the_mean_of_its_tokens_or_the_first(layers: str, pooling: str) -> None:
    frozen = encoder(micro_tokens=30)
    examples = texts(9)
    vectors = text_vectors(frozen, classification(), examples, frozen.choice(layers), pooling)
    for example, vector in zip(examples, vectors, strict=True):
        states = hidden_states(frozen.model, row(TOKENIZER.encode(example.first).tolist()))
        mixed = frozen.choice(layers).mix(states).numpy()
        np.testing.assert_allclose(vector, mixed.mean(axis=0) if pooling == "mean" else mixed[0], atol=5e-5)


def test_the_windows_of_a_text_are_averaged() -> None:
    frozen = encoder()
    letters = "abcdefghijabcdefgh"
    task = classification(max_length=8, long_text="windows", stride=6)
    long = TextExample(id="0", first=" ".join(letters), label="yes")
    (vector,) = text_vectors(frozen, task, [long], frozen.choice("last"), "cls")
    starts = [0, 6, 12]
    firsts = [
        hidden_states(frozen.model, row(TOKENIZER.encode(" ".join(letters[start : start + 6]))))[-1][0]
        for start in starts
    ]
    np.testing.assert_allclose(vector, torch.stack(firsts).mean(dim=0).numpy(), atol=2e-5)


@pytest.mark.parametrize("classifier", ["logistic", "mlp"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_probe_learns_and_is_scored_like_the_fine_tuned_task(
    feature_probe: type[Any], classifier: str, pooling: str
) -> None:
    train, dev = texts(80), texts(40, seed=1)
    probe = feature_probe(encoder(), classification(), pooling=pooling, classifier=classifier)
    probe.fit(train)
    predictions = probe.predict(dev)
    gold = np.array([LABELS.index(example.label) for example in dev])
    predicted = np.array([LABELS.index(prediction.label) for prediction in predictions])
    assert probe.score(dev) == {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}
    assert probe.score(dev)["accuracy"] > 0.85
    for prediction in predictions:
        assert sum(prediction.probabilities) == pytest.approx(1)
        assert prediction.probabilities[2] < 1e-20
    again = feature_probe(encoder(), classification(), pooling=pooling, classifier=classifier)
    again.fit(train)
    assert again.predict(dev) == predictions
    assert probe.predict([]) == []


def test_a_probe_refuses_what_it_cannot_do(feature_probe: type[Any]) -> None:
    frozen, task = encoder(), classification()
    for arguments, message in (
        ({"classifier": "logistc"}, "did you mean 'logistic'"),
        ({"penalty": 0.0}, "penalty above 0"),
        ({"layers": "lst"}, "did you mean 'last'"),
    ):
        with pytest.raises(ConfigError, match=message):
            feature_probe(frozen, task, **arguments)
    with pytest.raises(ConfigError, match="single-label task"):
        feature_probe(frozen, ClassificationTask(dataclasses.replace(task.spec, multi_label=True)))
    probe = feature_probe(frozen, task, pooling="men")
    with pytest.raises(ConfigError, match="did you mean 'mean'"):
        probe.fit(texts(4))
    same = [dataclasses.replace(example, label="yes") for example in texts(4)]
    with pytest.raises(InputError, match="two labels"):
        feature_probe(frozen, task).fit(same)
