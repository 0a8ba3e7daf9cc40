"""A linear model on whole texts: on counts of their words, or on one vector of each text.

Letters: E examples, D width of a vector, K outputs.

A pair of texts has the features of `baselines.probe.pair_features`, whatever the vectors are. Decoding and scores are
those of the task, as for a fine-tuned network.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bertsmith.baselines.bag_of_words import BagOfWords, cut_text
from bertsmith.baselines.linear import PENALTIES, PENALTIES_OF_BAGS, LinearModel, Vectors, fit_linear, score_of_metric
from bertsmith.baselines.probe import pair_features, text_vectors
from bertsmith.datasets.examples import Example, TextExample
from bertsmith.encoding.loading import load_frozen_encoder
from bertsmith.results.predictions import Line, example_lines
from bertsmith.tasks.kinds import task_for
from bertsmith.tasks.settings import TaskSettings
from bertsmith.tasks.task import Prediction, Task, TaskSpec
from bertsmith.text.normalize import TextRules, basic_tokens
from bertsmith.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.word_vectors.word_vectors import load_folder

# Of rows of zeros and ones, whose length is the root of the number of words.
PENALTIES_OF_ONE_HOT = (300.0, 100.0, *PENALTIES_OF_BAGS)

# Tasks take targets and predictions by rows of pieces; only the number of rows matters here.
_NO_PIECES = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES]))

Texts = Sequence[TextExample]


class TextVectors(Protocol):
    """What computes one vector for each text.

    Attributes:
        parameters: the numbers that it consists of.
    """

    parameters: int

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """What a linear model reads of examples.

    Attributes:
        columns: returns float32 [E, D] or a sparse array of that shape.
        penalties: the candidates of `fit_linear`.
        parameters: the numbers of what computes the columns.
    """

    columns: Callable[[Texts], Any]
    penalties: Sequence[float] = PENALTIES
    parameters: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class FittedLinear:
    """A linear model with its predictions on the dev examples.

    Attributes:
        model: weight and bias.
        predict: answers examples of the task.
        lines: as in predictions.jsonl.
        scores: by name.
        is_collapsed: whether every dev example gets the same answer.
    """

    model: LinearModel
    predict: Callable[[Sequence[Example]], Sequence[Prediction]]
    lines: Sequence[Line]
    scores: dict[str, float]
    is_collapsed: bool


def counting(train: Texts, spec: TaskSpec, *, one_hot: bool) -> Features:
    """The words of texts, as far as the training texts have them.

    Args:
        one_hot: see `BagOfWords`.
    """
    bag = BagOfWords(train, spec.settings, max(1, len(spec.labels)), one_hot=one_hot)
    return Features(columns=bag.columns, penalties=PENALTIES_OF_ONE_HOT if one_hot else PENALTIES_OF_BAGS)


def of_texts(vectors: TextVectors) -> Features:
    """The vector of a text, or what is made of the vectors of both texts of a pair."""

    def columns(examples: Texts) -> Vectors:
        first = vectors([example.first for example in examples])
        if examples[0].second is None:
            return first
        return pair_features(first, vectors([example.second or "" for example in examples]))

    return Features(columns=columns, parameters=vectors.parameters)


class WordMeans:
    """The mean of the vectors of a text's words; zeros if no word has one.

    Args:
        folder: of word vectors.
        settings: how long texts are cut, see `cut_text`.
    """

    def __init__(self, folder: Path, settings: TaskSettings) -> None:
        self._words, self._settings = load_folder(folder), settings
        self._rules = TextRules(lowercase=self._words.lowercase)
        self.parameters = int(self._words.vectors.size)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""
        index, table = self._words.index, self._words.vectors
        means = np.zeros((len(texts), self._words.width), dtype=np.float32)
        for mean, text in zip(means, texts, strict=True):
            words = basic_tokens(cut_text(text, self._settings), self._rules)
            rows = [row for word in words if (row := index.get(word)) is not None]
            if rows:
                mean[:] = table[rows].mean(axis=0)
        return means


class EncoderMeans:
    """The mean of the vectors of a text's tokens, from a frozen network.

    Args:
        source: the network.
        spec: says how texts are cut.
        device: where it runs.
    """

    def __init__(self, source: str, spec: TaskSpec, device: str) -> None:
        self._encoder = load_frozen_encoder(source, device=device)
        longest = min(spec.settings.max_length, self._encoder.model.max_tokens)
        settings = dataclasses.replace(spec.settings, max_length=longest)
        self._task = task_for(dataclasses.replace(spec, pair=False, reads="mean", settings=settings))
        self.parameters = sum(one.numel() for one in self._encoder.model.parameters())

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""
        examples = [TextExample(id=str(number), first=text) for number, text in enumerate(texts)]
        return text_vectors(self._encoder, self._task, examples, self._encoder.choice("last"))


def fit_on_features(task: Task, features: Features, train: Texts, dev: Texts, seed: int) -> FittedLinear:
    """A linear model for a task, fitted to the training examples.

    Args:
        task: classification or regression.
        seed: determines the folds by which the penalty is chosen.

    Raises:
        InputError: an example has no text or no known label.
    """
    task.check(train, gold=True, training=True)
    task.check(dev, gold=True)
    plain = task_for(dataclasses.replace(task.spec, reads="mean", settings=TaskSettings()))
    targets = plain.encode(_short(train), _NO_PIECES).targets
    assert targets is not None, "checked above"
    model = fit_linear(
        features.columns(train),
        targets,
        num_outputs=max(1, len(task.spec.labels)),
        seed=seed,
        penalties=features.penalties,
        score=score_of_metric(task.spec.metric, targets),
    )

    def predict(examples: Sequence[Example], by: Task = task) -> Sequence[Prediction]:
        texts: Texts = examples  # type: ignore[assignment]
        # A row for each example, so that the outputs of rows are those of examples.
        rows = plain.encode(_short(texts), _NO_PIECES)
        return by.decode(texts, rows, model.outputs(features.columns(texts)), _NO_PIECES)

    predictions = predict(dev)
    tuned = task.tuned(dev, predictions)
    if tuned != task.spec:
        predictions = predict(dev, task_for(tuned))
    predictions = task_for(tuned).cross_fitted(dev, predictions) or predictions
    return FittedLinear(
        model=model,
        predict=predict,
        lines=[json.loads(json.dumps(line)) for line in example_lines(task, dev, predictions)],
        scores={name: float(value) for name, value in task.score(dev, predictions).items()},
        is_collapsed=task.is_collapsed(predictions, dev),
    )


def _short(examples: Texts) -> Texts:
    """The examples with texts that fit into a row, whose gold labels stay."""
    return [dataclasses.replace(one, first="a", second=None if one.second is None else "b") for one in examples]
