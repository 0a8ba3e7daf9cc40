"""When a model should not answer alone: thresholds for a wanted accuracy, and sets of labels with a wanted coverage.

Both are fitted to labelled examples that the model was not trained on, and hold for texts from the same source.

A model that answers only where its confidence reaches a threshold is more accurate on fewer examples. The lowest
threshold that looks good on some examples is often too low for others, so the accuracy has to be certain: its lower
confidence bound is tested with ever lower thresholds, until one fails. As their order is fixed beforehand, all tests
together are wrong as seldom as one of them (fixed sequence testing); the sequence begins at a few thresholds, which
share the probability of an error.

A set of labels has every label whose probability reaches a threshold. That is the quantile of the probabilities of the
gold labels, corrected for their number, so that a set contains the gold label of another example with at least the
wanted probability, whatever the model (split conformal prediction). The most likely label is in every set.

Letters: E examples, K labels.

Sources: Geifman and El-Yaniv (2017), "Selective Classification for Deep Neural Networks"; Angelopoulos, Bates, Candes,
Jordan and Lei (2021), "Learn then Test", for the sequence of tests; Vovk, Gammerman and Shafer (2005), "Algorithmic
Learning in a Random World", and Vovk (2012), "Conditional Validity of Inductive Conformal Predictors", for the coverage
and its distribution; Sadinle, Lei and Wasserman (2019), "Least Ambiguous Set-Valued Classifiers with Bounded Error
Levels", for the sets.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.tasks.metrics.uncertainty import CONFIDENCE, proportion_interval

STEPS = 20  # thresholds that are tried: those that answer 1/20, 2/20, ... of the examples
STARTS = (0.15, 0.35, 0.65)  # shares that are answered where the sequence begins; chosen on BANKING77
_ROUNDING = 1e-9

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Selection:
    """The examples that are answered with a threshold on the confidence."""

    threshold: float
    num_examples: int
    num_answered: int
    num_right: int

    @property
    def answered(self) -> float:
        """The share of the examples that is answered."""
        return self.num_answered / self.num_examples

    @property
    def accuracy(self) -> float:
        """The share of the answers that is right."""
        return self.num_right / self.num_answered

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95% confidence interval of the accuracy."""
        return proportion_interval(self.num_right, self.num_answered)

    def bound(self, error: float) -> float:
        """What the accuracy is above, except with a probability of `error`."""
        return proportion_interval(self.num_right, self.num_answered, 1 - 2 * error)[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "answered": self.answered,
            "threshold": self.threshold,
            "accuracy": self.accuracy,
            "interval": list(self.interval),
        }


def selections(confidence: Floats, right: Flags) -> list[Selection]:
    """The accuracy of the most confident examples, fewest first: about 1/20, 2/20, ... of them, at last all.

    A threshold is halfway between two confidences, 0 for all examples; equal confidences are answered together.

    Args:
        confidence: the probability of each predicted label, [E].
        right: whether it is the gold label, [E].

    >>> [half, whole] = selections(np.array([0.9, 0.9, 0.7]), np.array([True, True, False]))
    >>> round(half.threshold, 6), half.num_answered, half.accuracy, whole.threshold, whole.num_right
    (0.8, 2, 1.0, 0.0, 2)
    """
    order = np.argsort(-confidence, kind="stable")
    values, hits = confidence[order], right[order].cumsum()
    sizes = [-(-len(values) * step // STEPS) for step in range(1, STEPS + 1)]
    counts = dict.fromkeys(int((values >= values[size - 1]).sum()) for size in sizes)
    below = [*values.tolist(), -values[-1]]  # halfway to the last one is 0
    return [
        Selection(float(below[count - 1] + below[count]) / 2, len(values), count, int(hits[count - 1]))
        for count in counts
    ]


def selection_for(tried: Sequence[Selection], accuracy: float) -> Selection:
    """The selection that answers most examples with at least the wanted accuracy, with a confidence of 95%.

    Args:
        tried: all `selections` of some examples.
        accuracy: the share of the answers that should be right.

    Raises:
        InputError: no threshold is certain to reach it.

    >>> selection_for(selections(np.linspace(0.9, 0.5, 200), np.arange(200) < 140), 0.9).num_answered
    140
    """
    least = math.log((1 - CONFIDENCE) / len(STARTS)) / math.log(accuracy)  # fewer, all right, are not certain
    first = (next(n for n, each in enumerate(tried) if each.answered >= share - _ROUNDING) for share in STARTS)
    starts = sorted({number for number in first if tried[number].num_answered >= least}) or [len(tried) - 1]
    error = (1 - CONFIDENCE) / len(starts)
    held = [
        selection
        for start in starts
        for selection in itertools.takewhile(lambda each: each.bound(error) >= accuracy, tried[start:])
    ]
    if not held:
        best = max((tried[start] for start in starts), key=lambda each: each.bound(error))
        raise InputError(
            expected=f"answers that are certain to be right {accuracy:.1%} of the time",
            found=f"{best.bound(error):.1%} at best: of the {best.num_answered:,} most certain answers to "
            f"{counted(best.num_examples, 'labelled text')}, {best.num_right:,} are right",
            fix="ask for a lower accuracy, or label more texts",
        )
    return max(held, key=lambda each: each.num_answered)


def set_threshold(gold_chances: Floats, coverage: float) -> float:
    """The probability from which a label is in the set of an example.

    Args:
        gold_chances: the probability of the gold label of each example, [E].
        coverage: the share of sets that contain the gold label, on average over draws of these examples and others.

    Raises:
        InputError: there are too few examples for this coverage.

    >>> set_threshold(np.arange(1, 10) / 10, 0.8), set_threshold(np.arange(1, 10) / 10, 0.9)
    (0.2, 0.1)
    """
    rank = _rank(len(gold_chances), coverage)
    if rank > len(gold_chances):
        least = math.ceil(coverage / (1 - coverage) - _ROUNDING)
        raise InputError(
            expected=f"at least {counted(least, 'labelled text')} for sets that contain the right label {coverage:g} "
            "of the time",
            found=f"{len(gold_chances):,}",
            fix="label more texts, or ask for a lower coverage",
        )
    return float(np.sort(gold_chances)[len(gold_chances) - rank])


def label_sets(probabilities: Floats, threshold: float) -> Flags:
    """Whether each label is in the set of each example, bool [E, K].

    >>> label_sets(np.array([[0.5, 0.4, 0.1], [0.3, 0.4, 0.3]]), 0.35).astype(int).tolist()
    [[1, 1, 0], [0, 1, 0]]
    >>> label_sets(np.array([[0.5, 0.4, 0.1]]), 0.6).astype(int).tolist()
    [[1, 0, 0]]
    """
    sets = probabilities >= threshold
    sets[np.arange(len(sets)), probabilities.argmax(axis=1)] = True
    return np.asarray(sets)


def coverage_interval(num_examples: int, coverage: float) -> tuple[float, float]:
    """Where the coverage of the sets of one draw of the examples lies with a probability of 95%, other texts unlimited.

    It follows a beta distribution; the sets are then those of `set_threshold`, for probabilities without ties.

    >>> [round(end, 3) for end in coverage_interval(1000, 0.9)]
    [0.881, 0.918]
    """
    from scipy.special import betaincinv  # the import takes a moment, which predictions need not wait for

    rank, tail = _rank(num_examples, coverage), (1 - CONFIDENCE) / 2
    low, high = (float(betaincinv(rank, num_examples + 1 - rank, share)) for share in (tail, 1 - tail))
    return low, high


def _rank(num_examples: int, coverage: float) -> int:
    """The number of examples whose sets have to contain their gold labels."""
    return math.ceil((num_examples + 1) * coverage - _ROUNDING)
