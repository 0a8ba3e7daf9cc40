"""The prediction of a classifier for a text: its labels, with their probabilities."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from bertsmith.tasks.specs.task import Prediction

_MOST_SHOWN = 20  # labels in a line


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPrediction(Prediction):
    """The label of a text with its probability, and the other labels with theirs.

    Attributes:
        label: the most likely label.
        probability: its probability.
        probabilities: one per label, in the model's order; single-label probabilities sum to 1.
        labels: the names of `probabilities`.
        chosen: the predicted labels: the most likely one, or for multi-label tasks all above the threshold.
    """

    label: str
    probability: float
    probabilities: tuple[float, ...]
    labels: tuple[str, ...]
    chosen: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.label,
            "chosen": list(self.chosen),
            "probabilities": dict(zip(self.labels, self.probabilities, strict=True)),
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The predicted labels, then the labels with their probabilities in percent, most likely first, at most 20.

        >>> LabelPrediction(label="Spam", probability=0.75, probabilities=(0.75, 0.25), labels=("Spam", "Not Spam"),
        ...     chosen=("Spam",)).line()
        'Spam\t75% Spam, 25% Not Spam'
        """
        exclusive = abs(sum(self.probabilities) - 1) < 1e-6
        percentages = _percent(self.probabilities) if exclusive else [round(100 * p) for p in self.probabilities]
        ranked = sorted(zip(self.probabilities, percentages, self.labels, strict=True), key=lambda item: -item[0])
        shown = [f"{percentage}% {label}" for _, percentage, label in ranked[:_MOST_SHOWN]]
        shown += [f"{len(ranked) - len(shown)} more"] if len(ranked) > len(shown) else []
        return f"{', '.join(self.chosen)}\t" + ", ".join(shown)


def _percent(probabilities: Sequence[float]) -> list[int]:
    """Integer percentages that sum to 100, by the largest-remainder method.

    >>> _percent([1 / 3, 1 / 3, 1 / 3])
    [34, 33, 33]
    """
    exact = [100 * probability for probability in probabilities]
    whole = [int(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda index: whole[index] - exact[index])
    for index in by_rest[: max(0, 100 - sum(whole))]:
        whole[index] += 1
    return whole
