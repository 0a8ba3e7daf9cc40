"""The lines of `predictions.jsonl`: a model's prediction for each labelled example, next to its gold.

A line is `{"id", "texts", "gold", "score", "prediction"}`, plain values for JSON; `score` is the example's contribution
to the score, if that is a mean over examples. The gold is what the scorer compares the prediction with: labels of a
hierarchy include their parents.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.specs.task import Prediction, Task

Line = Mapping[str, Any]

_LONGEST_TEXT = 300  # characters of an example's text


def example_lines(task: Task, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Iterator[Line]:
    """One line per example, in order."""
    scores = task.example_scores(examples, predictions).tolist()
    for example, gold, prediction, score in zip(examples, task.golds(examples), predictions, scores, strict=True):
        yield {
            "id": example.id,
            "texts": texts_of(example),
            "gold": gold,
            "score": score,
            "prediction": prediction.to_dict(),
        }


def texts_of(example: Example) -> list[str]:
    """The texts of an example, each cut to 300 characters; empty for tagged words, which the prediction contains."""
    values = vars(example)
    texts = [values[name] for name in ("first", "second", "question", "context") if values.get(name)]
    return [text[:_LONGEST_TEXT] for text in (*texts, *values.get("endings", ()))]
