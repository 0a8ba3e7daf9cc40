"""A baseline from word counts with the task that it answers: a folder that needs no encoder, such as a linear model's.

::

    FOLDER/n-grams.json   the task and the counts: of tags, of words of questions and contexts, or of words of texts
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import misfit, read_json, write_json
from bertsmith.models.model_files.metadata import NGRAM_TERMS
from bertsmith.tasks.baselines.bag_of_words import WordSpace, cut_text
from bertsmith.tasks.baselines.n_grams import FIX, NGramModel, rows_of_units
from bertsmith.tasks.baselines.word_overlap import (
    Counts,
    answers,
    choice_logits,
    counted_answers,
    counted_contexts,
    counted_tags,
    tag_logits,
)
from bertsmith.tasks.datasets.examples import Example, texts_of_group
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import SimilarityPrediction
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import Prediction, TaskSpec

_TAGS = {"*": {"*": int}}
_COUNTS: Mapping[str, Any] = {
    "tagging": {"word": _TAGS, "lower case": _TAGS, "ending": _TAGS, "shape": _TAGS, "any": {"": {"*": int}}},
    "choice": {"rarity": {"*": float}},
    "span": {"rarity": {"*": float}, "kinds": {"*": {"*": int}}, "limit?": float},
    "similarity": {"rarity": {"": float, "*": float}},
}
_SEED_OF_COLUMNS = 1  # see `WordSpace.vectors`


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class WordModel:
    """Counts of words and the task that they answer: tags, an ending, an answer in the context, or a similarity."""

    spec: TaskSpec
    counts: Counts

    @classmethod
    def fitted(cls, spec: TaskSpec, train: Sequence[Example]) -> "WordModel":
        """The model that counts the words of training examples."""
        examples = cast("Any", train)
        count: Mapping[str, Callable[[], Counts]] = {
            "tagging": lambda: counted_tags(examples),
            "choice": lambda: counted_contexts(examples),
            "span": lambda: counted_answers(examples, unanswerable=spec.unanswerable),
            "similarity": lambda: _counted_texts(examples, spec.settings),
        }
        return cls(spec=spec, counts=count[spec.kind]())

    def predict(self, examples: Sequence[Example]) -> Sequence[Prediction]:
        """One prediction per example."""
        task, asked = cast("Any", task_for(self.spec)), cast("Any", examples)
        if self.spec.kind == "span":
            return answers(self.counts, asked)
        if self.spec.kind == "similarity":
            return self._cosines(examples)
        if self.spec.kind == "tagging":
            return list(task.decode(asked, None, tag_logits(self.counts, asked, self.spec.labels), None))
        rows = rows_of_units(np.array([len(example.endings) for example in asked], dtype=np.int64))
        return list(task.decode(asked, rows, choice_logits(self.counts, asked), None))

    def _cosines(self, examples: Sequence[Example]) -> list[SimilarityPrediction]:
        """The TF-IDF vectors of the texts of each example; `cut_tokens` are the words that were cut."""
        if not examples:
            return []
        groups = [texts_of_group(example) for example in examples]
        texts = [cut_text(text, self.spec.settings) for group in groups for text in group]
        vectors = WordSpace(texts, rarity=self.counts["rarity"]).vectors(texts, _SEED_OF_COLUMNS)
        cut = [
            len(text.split()) - len(kept.split())
            for text, kept in zip((text for group in groups for text in group), texts, strict=True)
        ]
        starts = np.cumsum([0, *map(len, groups)])
        parts = np.split(vectors, starts[1:-1])
        return [
            SimilarityPrediction.of(part, lost)
            for part, lost in zip(parts, np.add.reduceat(cut, starts[:-1]).tolist(), strict=True)
        ]

    def write(self, folder: Path) -> None:
        """Writes the file."""
        write_json(folder / NGRAM_TERMS, {"spec": self.spec.to_dict(), "counts": self.counts})


def read_counted(folder: Path) -> "NGramModel | WordModel":
    """The model in a folder without an encoder: on n-grams or on counts of words."""
    file = folder / NGRAM_TERMS
    values = read_json(file)
    if not (isinstance(values, dict) and "counts" in values):
        return NGramModel.read(folder)
    wrong = misfit(values, {"spec": dict})
    if wrong:
        raise InputError(expected=f"a task in '{file}'", found=wrong, fix=FIX)
    spec, counts = TaskSpec.from_dict(values["spec"], str(file)), values["counts"]
    wrong = misfit(counts, _COUNTS[spec.kind]) if spec.kind in _COUNTS else spec.kind
    if not wrong and ("limit" in counts) != spec.unanswerable:
        wrong = f"limit = {counts.get('limit')}"
    if not wrong and not all(0 <= number < math.inf for number in _numbers_of(counts)):
        wrong = "a number that is negative or not finite"
    if wrong:
        raise InputError(expected=f"counts of words in '{file}'", found=wrong, fix=FIX)
    return WordModel(spec=spec, counts=counts)


def _counted_texts(train: Sequence[Example], settings: TaskSettings) -> Counts:
    """The inverse document frequency of each word of texts; see `WordSpace`."""
    texts = [cut_text(text, settings) for example in train for text in texts_of_group(example)]
    return {"rarity": WordSpace(texts).rarity(len(texts))}


def _numbers_of(counts: Any) -> Iterator[float]:
    """All numbers of counts, however deep."""
    if isinstance(counts, dict):
        for part in counts.values():
            yield from _numbers_of(part)
    elif isinstance(counts, int | float):
        yield counts
