"""Whether two samples of texts differ: how far the means of their rows are apart, and how well that tells them apart.

The rows are words or vectors. The distance of the two means is compared with that of random divisions of all texts into
samples of these sizes, so that equal sources are called different as seldom as stated, whatever the rows are.

How large the difference is is an area under the ROC curve: the probability that a text of the second sample has a
higher score than one of the first, 0.5 if nothing tells them apart. A score is the row times the difference of the
means. The scores come from cross-validation: each fold is scored by the means of the others, and has an area of its
own, as scores by different means are not comparable.

Letters: E texts, D columns.

Sources: Gretton, Borgwardt, Rasch, Schoelkopf and Smola (2012), "A Kernel Two-Sample Test", for the distance (maximum
mean discrepancy, with the linear kernel) and the scores (its witness function); DeLong, DeLong and Clarke-Pearson
(1988), "Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves", for the variance;
Nadeau and Bengio (2003), "Inference for the Generalization Error", for that of the mean over folds.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

DIVISIONS = 999  # random ones
LEVEL = 0.025  # the share of samples of one source that are called different
_AT_ONCE = 20  # divisions whose means are in memory
_SAME = 1e-9  # relative difference of equal distances

_TAIL = 1.959963984540054  # of a normal distribution, for 95%


@dataclasses.dataclass(frozen=True)
class TwoSampleTest:
    """How well two samples are told apart, and whether by more than noise."""

    area: float
    low: float  # the lower end of its 95% confidence interval
    high: float
    p_value: float  # the probability of means that are as far apart, if the samples have the same source

    @property
    def differ(self) -> bool:
        """Whether the samples differ by more than noise."""
        return self.p_value <= LEVEL


def area_under_curve(first: Floats, second: Floats) -> tuple[float, float]:
    """The area under the ROC curve, and its variance.

    Args:
        first, second: the scores of both samples.

    >>> area_under_curve(np.array([0.1, 0.4]), np.array([0.4, 0.9]))
    (0.875, 0.03125)
    """
    above = shares_below(np.sort(first), second)  # of each score of the second sample
    below = 1 - shares_below(np.sort(second), first)
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (above, below))
    return float(above.mean()), variance


def shares_below(ordered: Floats, scores: Floats) -> Floats:
    """The share of some scores that is below each other score; equal ones count half."""
    places = [np.searchsorted(ordered, scores, side=side) for side in ("left", "right")]
    return np.asarray(np.mean(places, axis=0) / len(ordered), dtype=np.float64)


def two_sample_test(inputs: Any, is_second: Flags, folds: npt.NDArray[Any], seed: int) -> tuple[TwoSampleTest, Floats]:
    """The test of whether two samples differ, and a score of each text, higher in the second sample, [E].

    Args:
        inputs: the row of each text, dense or sparse, [E, D]; dense columns get the same spread.
        is_second: whether it is of the second sample, [E].
        folds: the fold of each, of two or more, each with texts of both samples, [E].
        seed: of the random divisions.
    """
    if isinstance(inputs, np.ndarray):
        spread = inputs.std(axis=0, dtype=np.float64)
        inputs = (inputs - inputs.mean(axis=0, dtype=np.float64)) / np.where(spread > 0, spread, 1)
    scores = np.zeros(len(is_second))
    for fold in np.unique(folds).tolist():
        held = folds == fold
        first, second = (np.asarray(inputs[~held & side].mean(axis=0)).ravel() for side in (~is_second, is_second))
        scores[held] = inputs[held] @ (second - first)
    return TwoSampleTest(*area_of_folds(scores, is_second, folds), _p_value(inputs, is_second, seed)), scores


def area_of_folds(scores: Floats, is_second: Flags, folds: npt.NDArray[Any]) -> tuple[float, float, float]:
    """The mean of the areas of all folds, and the ends of its 95% confidence interval.

    Args:
        scores: of each text, by what was not fitted to its fold, [E].
        is_second, folds: see `two_sample_test`.
    """
    areas = [
        area_under_curve(scores[(folds == fold) & ~is_second], scores[(folds == fold) & is_second])
        for fold in np.unique(folds).tolist()
    ]
    area = float(np.mean([each for each, _ in areas]))
    # What is fitted for two folds shares most of its texts, so their areas vary together.
    shared = 1 + len(areas) / (len(areas) - 1)
    # Samples that are told apart perfectly have no variance: an error of half a text is assumed.
    least = 0.5 / min(int(is_second.sum()), int((~is_second).sum()))
    deviation = max(math.sqrt(shared * sum(variance for _, variance in areas)) / len(areas), least)
    return area, max(0.0, area - _TAIL * deviation), min(1.0, area + _TAIL * deviation)


def _p_value(inputs: Any, is_second: Flags, seed: int) -> float:
    """The share of divisions whose means are at least as far apart as those of the samples, these included."""
    distances: list[float] = []
    for block in range(-(-DIVISIONS // _AT_ONCE)):
        divisions = np.tile(is_second, (min(_AT_ONCE, DIVISIONS - block * _AT_ONCE), 1))
        divisions = generator(seed, "divisions", block).permuted(divisions, axis=1)
        if not block:
            divisions = np.vstack([is_second, divisions])
        weights = np.where(divisions, 1 / is_second.sum(), -1 / (~is_second).sum())  # [divisions, E]
        distances += np.square(inputs.T @ weights.T).sum(axis=0).tolist()
    return float(np.mean(np.array(distances) >= distances[0] * (1 - _SAME)))
