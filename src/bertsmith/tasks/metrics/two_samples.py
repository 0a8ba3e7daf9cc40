"""Whether two samples differ, by how well a classifier tells them apart: the area under its ROC curve.

The area is the probability that a text of the second sample has a higher score than one of the first. It is 0.5 if
nothing tells them apart. The scores come from cross-validation: each fold is scored by a model of the others. It has an
area of its own, as scores of different models are not comparable.

Letters: E texts.

Sources: Lopez-Paz and Oquab (2017), "Revisiting Classifier Two-Sample Tests"; DeLong, DeLong and Clarke-Pearson (1988),
"Comparing the Areas under Two or More Correlated Receiver Operating Characteristic Curves", for the variance; Nadeau
and Bengio (2003), "Inference for the Generalization Error", for that of the mean over folds.
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_TAIL = 1.959963984540054  # of a normal distribution, for 95%


@dataclasses.dataclass(frozen=True)
class TwoSampleTest:
    """How well two samples are told apart, and how certain that is."""

    area: float
    low: float  # the lower end of its 95% confidence interval
    high: float
    p_value: float  # the probability of such an area, or a larger one, if the samples have the same source

    @property
    def differ(self) -> bool:
        """Whether the samples differ by more than noise: the interval is above 0.5."""
        return self.low > 0.5


def area_under_curve(first: Floats, second: Floats) -> tuple[float, float]:
    """The area under the ROC curve, and its variance.

    Args:
        first, second: the scores of both samples.

    >>> area_under_curve(np.array([0.1, 0.4]), np.array([0.4, 0.9]))
    (0.875, 0.03125)
    """
    above = _shares_below(np.sort(first), second)  # of each score of the second sample
    below = 1 - _shares_below(np.sort(second), first)
    variance = sum(float(part.var(ddof=1)) / len(part) if len(part) > 1 else 0.25 for part in (above, below))
    return float(above.mean()), variance


def _shares_below(ordered: Floats, scores: Floats) -> Floats:
    """The share of some scores that is below each other score; equal ones count half."""
    places = [np.searchsorted(ordered, scores, side=side) for side in ("left", "right")]
    return np.asarray(np.mean(places, axis=0) / len(ordered), dtype=np.float64)


def two_sample_test(scores: Floats, is_second: npt.NDArray[np.bool_], folds: npt.NDArray[Any]) -> TwoSampleTest:
    """The mean of the areas of all folds, with its interval.

    Args:
        scores: of each text, by a model that was not fitted to its fold, [E].
        is_second: whether it is of the second sample, [E].
        folds: the fold of each, of two or more, each with texts of both samples, [E].
    """
    areas = [
        area_under_curve(scores[(folds == fold) & ~is_second], scores[(folds == fold) & is_second])
        for fold in np.unique(folds).tolist()
    ]
    area = float(np.mean([each for each, _ in areas]))
    # The models of two folds share most of their texts, so their areas vary together.
    shared = 1 + len(areas) / (len(areas) - 1)
    # Samples that are told apart perfectly have no variance: an error of half a text is assumed.
    least = 0.5 / min(int(is_second.sum()), int((~is_second).sum()))
    deviation = max(math.sqrt(shared * sum(variance for _, variance in areas)) / len(areas), least)
    p_value = 0.5 * math.erfc((area - 0.5) / deviation / math.sqrt(2))
    return TwoSampleTest(area, max(0.0, area - _TAIL * deviation), min(1.0, area + _TAIL * deviation), p_value)
