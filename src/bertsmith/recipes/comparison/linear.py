"""Systems on vectors of whole texts: a linear model on counts of their words or on one vector of each, or cosines.

Letters: E examples, D width of a vector, K outputs.

A pair of texts has the features of `text_vectors.pair_features`, whatever the vectors are. Where vectors themselves
are scored, nothing is fitted to the labels. Decoding and scores are those of the task, as for a fine-tuned network.
"""

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertsmith.base.core.progress import warn
from bertsmith.inference.word_vectors.formats import load_word_vectors
from bertsmith.recipes.results.resampling import Line, scored_lines
from bertsmith.tasks.baselines.bag_of_words import BagOfWords, WordSpace, cut_text
from bertsmith.tasks.baselines.linear import PENALTIES, PENALTIES_OF_BAGS, Vectors, fit_for
from bertsmith.tasks.baselines.n_grams import decoded
from bertsmith.tasks.baselines.text_vectors import pair_features, text_vectors
from bertsmith.tasks.datasets.examples import Example, TextExample, texts_of_group
from bertsmith.tasks.encoding.loading import load_frozen_encoder
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import SimilarityPrediction
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import Prediction, Task, TaskSpec
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens

ONE_ANSWER = "the same answer to every example"
# Of rows of zeros and ones, whose length is the root of the number of words.
PENALTIES_OF_ONE_HOT = (300.0, 100.0, *PENALTIES_OF_BAGS)

SEED_OF_COLUMNS = 1  # see `WordSpace.vectors`

Texts = Sequence[TextExample]


class Features(abc.ABC):
    """What a linear model reads of examples."""

    parameters: int = 0  # the numbers of what computes the columns
    penalties: Sequence[float] = PENALTIES  # the candidates of `fit_linear`

    @abc.abstractmethod
    def columns(self, examples: Texts) -> Any:
        """float32 [E, D], or a sparse array of that shape."""

    def unknown_words(self, examples: Sequence[Example]) -> tuple[int, int] | None:
        """How many words of examples have no vector, and how many words there are; None if that cannot happen."""
        return None


class TextVectors(Features):
    """What computes one vector for each text."""

    @abc.abstractmethod
    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""

    def columns(self, examples: Texts) -> Vectors:
        """The vector of a text, or what is made of the vectors of both texts of a pair."""
        first = self([example.first for example in examples])
        if examples[0].second is None:
            return first
        return pair_features(first, self([example.second or "" for example in examples]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """A system that was fitted to the labels."""

    lines: Sequence[Line]  # its predictions on the dev examples, as in predictions.jsonl
    scores: Mapping[str, float]
    answer: Callable[[Sequence[Example]], Any]  # predicts examples; for measuring how long that takes
    parameters: int  # the numbers that were learned, from the text or from the labels
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    note: str = ""
    # how many words of the dev texts have no vector, and how many there are; None for systems that read every text
    unknown_words: tuple[int, int] | None = None


class CountedColumns(Features):
    """The words of texts, as far as the training texts have them."""

    def __init__(self, train: Texts, spec: TaskSpec, *, one_hot: bool) -> None:
        self._bag = BagOfWords(train, spec.settings, max(1, len(spec.labels)), one_hot=one_hot)
        self.penalties = PENALTIES_OF_ONE_HOT if one_hot else PENALTIES_OF_BAGS

    def columns(self, examples: Texts) -> Any:
        """See `Features.columns`."""
        return self._bag.columns(examples)


class WordCounts(TextVectors):
    """The words of a text, with weights by TF-IDF or with 1; the cosine of two texts is that of their words."""

    def __init__(self, texts: Sequence[str], settings: TaskSettings, *, one_hot: bool) -> None:
        self._settings = settings
        self._space = WordSpace([cut_text(text, settings) for text in texts], one_hot=one_hot)
        self.parameters = 0 if one_hot else len(self._space)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""
        return self._space.vectors([cut_text(text, self._settings) for text in texts], SEED_OF_COLUMNS)


class WordMeans(TextVectors):
    """The mean of the vectors of a text's words; zeros if no word has one.

    Args:
        path: a folder or file of word vectors. Texts are lower-cased if the folder says so, or if no word of the file
            has a capital.
    """

    def __init__(self, path: Path, settings: TaskSettings) -> None:
        self._words, self._settings = load_word_vectors(path), settings
        lowercase = self._words.lowercase
        if path.is_file():
            lowercase = all(word == word.lower() for word in self._words.words)
        self._rules = TextRules(lowercase=lowercase)
        self.parameters = int(self._words.vectors.size)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""
        index, table = self._words.index, self._words.vectors
        means = np.zeros((len(texts), self._words.width), dtype=np.float32)
        for mean, text in zip(means, texts, strict=True):
            rows = [row for word in self._words_of(text) if (row := index.get(word)) is not None]
            if rows:
                mean[:] = table[rows].mean(axis=0)
        return means

    def unknown_words(self, examples: Sequence[Example]) -> tuple[int, int]:
        """See `Features.unknown_words`; punctuation marks count as words."""
        words = [word for example in examples for text in texts_of_group(example) for word in self._words_of(text)]
        return sum(word not in self._words.index for word in words), len(words)

    def _words_of(self, text: str) -> list[str]:
        return basic_tokens(cut_text(text, self._settings), self._rules)


class EncoderMeans(TextVectors):
    """The mean of the vectors of a text's tokens, from a frozen network."""

    def __init__(self, source: str, spec: TaskSpec, device: str) -> None:
        self._encoder = load_frozen_encoder(source, device=device)
        longest = min(spec.settings.max_length, self._encoder.model.max_tokens)
        if longest < spec.settings.max_length:
            warn(f"max_length reduced from {spec.settings.max_length} to {longest}, the positions of '{source}'")
        settings = dataclasses.replace(spec.settings, max_length=longest)
        self._task = task_for(dataclasses.replace(spec, pair=False, reads="mean", settings=settings))
        self.parameters = sum(parameter.numel() for parameter in self._encoder.model.parameters())

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """float32 [E, D]."""
        examples = [TextExample(id=str(number), first=text) for number, text in enumerate(texts)]
        return text_vectors(self._encoder, self._task, examples, self._encoder.choice("last"))


def compare_vectors(task: Task, vectors: TextVectors, dev: Sequence[Example]) -> Fitted:
    """The vectors of the texts of each dev example as they are, without any fit to labels."""
    task.check(dev, gold=True)

    def predict(examples: Sequence[Example]) -> Sequence[Prediction]:
        groups = [texts_of_group(example) for example in examples]
        every = vectors([text for texts in groups for text in texts])
        return SimilarityPrediction.of_each(every, list(map(len, groups)))

    return _fitted(task, predict, dev, predict(dev), vectors.parameters)


def fit_on_features(task: Task, features: Features, train: Texts, dev: Texts, seed: int) -> Fitted:
    """A linear model for a task, fitted to the training examples."""
    task.check(train, gold=True, training=True)
    task.check(dev, gold=True)
    targets = cast("Any", task).targets(train)
    model = fit_for(task.spec, features.columns(train), targets, seed=seed, penalties=features.penalties)

    def predict(examples: Sequence[Example], by: Task = task) -> Sequence[Prediction]:
        return decoded(by, examples, model.outputs(features.columns(cast("Texts", examples))))

    predictions = predict(dev)
    tuned = task.tuned(dev, predictions)
    if tuned != task.spec:
        predictions = predict(dev, task_for(tuned))
    predictions = task_for(tuned).cross_fitted(dev, predictions) or predictions
    parameters = features.parameters + model.weight.size + model.bias.size
    settings = {"penalty": model.penalty, "columns": int(model.weight.shape[1])}
    return dataclasses.replace(_fitted(task, predict, dev, predictions, parameters), settings=settings)


def _fitted(
    task: Task,
    predict: Callable[[Sequence[Example]], Sequence[Prediction]],
    dev: Sequence[Example],
    predictions: Sequence[Prediction],
    parameters: int,
) -> Fitted:
    scores, lines = scored_lines(task, dev, predictions)
    note = ONE_ANSWER if task.is_collapsed(predictions, dev) else ""
    return Fitted(lines=lines, scores=scores, answer=predict, parameters=parameters, note=note)
