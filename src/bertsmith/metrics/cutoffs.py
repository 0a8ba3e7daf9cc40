"""The threshold between two classes that is best for a metric."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

_MOST_TRIED = 200  # thresholds; of more different probabilities, their quantiles
_USUAL = 0.5


def best_threshold(
    gold: npt.NDArray[np.integer],
    chances: npt.NDArray[np.floating],
    metric: Callable[[npt.ArrayLike, npt.ArrayLike], float],
) -> float:
    """The probability from which class 1 is predicted that gives the highest score, from 0 to 1.

    Thresholds lie in the middle between neighbouring probabilities. Of equally good ones, the closest to 0.5.

    Args:
        gold: the class of each example, int64 [E].
        chances: the probability of class 1, [E].
        metric: a score of gold and predicted classes; higher is better.

    >>> from bertsmith.metrics.labels import accuracy
    >>> best_threshold(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.9]), accuracy)
    0.25
    """
    values = np.unique(chances)
    tried = (values[1:] + values[:-1]) / 2
    if len(tried) > _MOST_TRIED:
        tried = np.unique(np.quantile(tried, np.linspace(0, 1, _MOST_TRIED)))
    tried = np.append(tried, _USUAL)
    tried = tried[np.argsort(np.abs(tried - _USUAL), kind="stable")]
    scores = [metric(gold, (chances >= threshold).astype(np.int64)) for threshold in tried.tolist()]
    return float(tried[int(np.argmax(scores))])
