"""What all tasks have in common whose answers are compared with right texts: texts that a model writes, or chooses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import Example, SequenceExample
from bertsmith.tasks.metrics.texts import ANSWERS, TEXT_METRICS, text_scores
from bertsmith.tasks.specs.task import TaskWithLoss


class TaskOfTexts(TaskWithLoss):
    """A kind of task whose predictions have a `text`, and whose examples have targets."""

    def golds(self, examples: Sequence[Example]) -> list[list[str]]:
        """The targets of each example."""
        return [list(example.targets) for example in sequences_of(examples)]

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        """The metrics of the spec and, of texts that answer questions, those of answers."""
        are_answers = bool(examples) and all(example.is_answer for example in sequences_of(examples))
        names = dict.fromkeys((*self.spec.metrics, *(ANSWERS if are_answers else ())))
        return text_scores(tuple(names), [answer.text for answer in predictions], self.golds(examples))

    def example_scores(self, examples: Sequence[Example], predictions: Sequence[Any]) -> npt.NDArray[np.float64]:
        """The main score of each text alone, float64 [examples]."""
        metric = TEXT_METRICS[self.spec.metric]
        pairs = zip(predictions, self.golds(examples), strict=True)
        return np.array([metric([answer.text], [targets]) for answer, targets in pairs], dtype=np.float64)


def check_texts_of(example: SequenceExample) -> None:
    """Checks that a labelled example has a source and targets with text."""
    for text, name in ((example.source, "source"), *((target, "target") for target in example.targets)):
        if not text.strip():
            raise InputError(
                expected=f"a {name} in {example.location}",
                found="an empty one",
                fix="fill it or remove the row",
            )
    if not example.targets:
        raise InputError(expected=f"a target in {example.location}", found="none", fix="add it or remove the row")


def sequences_of(examples: Sequence[Example]) -> list[SequenceExample]:
    """The examples, all of which have a source."""
    sequences = [example for example in examples if isinstance(example, SequenceExample)]
    assert len(sequences) == len(examples), "this task takes sources"
    return sequences
