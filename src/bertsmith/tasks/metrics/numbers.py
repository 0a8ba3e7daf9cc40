"""Scores of predicted numbers; the correlation with a constant is 0, and no score is ever NaN.

Letter: E examples.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError

Floats = npt.NDArray[np.float64]


def pearson(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The linear correlation of two series of numbers, from -1 to 1; 0 if one of them is constant.

    Args:
        gold: float [E].
        predicted: float [E].
    """
    return _correlation(*_same_examples(gold, predicted))


def spearman(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The rank correlation, from -1 to 1; tied values share their mean rank, and a constant gives 0.

    >>> spearman([1.0, 2.0, 3.0], [0.1, 0.5, 40.0])
    1.0
    """
    first, second = _same_examples(gold, predicted)
    return _correlation(_ranks(first), _ranks(second))


def mean_squared_error(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The mean squared difference, in squared units of the numbers; lower is better."""
    first, second = _same_examples(gold, predicted)
    return float(np.mean((first - second) ** 2))


NUMBER_METRICS: dict[str, Callable[[npt.ArrayLike, npt.ArrayLike], float]] = {
    "pearson": pearson,
    "spearman": spearman,
    "mse": mean_squared_error,
}
"""The scores of a regression by name."""


def _correlation(first: Floats, second: Floats) -> float:
    return min(max(float(_direction(first) @ _direction(second)), -1.0), 1.0)


def _ranks(values: Floats) -> Floats:
    ordered = np.sort(values)
    return np.asarray((ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") + 1) / 2)


def _direction(values: Floats) -> Floats:
    """The values minus their mean, normalized to length 1; zeros if all are equal."""
    if values.min() == values.max():
        return np.zeros_like(values)
    # Scaled first, since squares of very large or small numbers leave the range of a float.
    scaled = values / np.abs(values).max()
    centered = scaled - scaled.mean()
    centered /= np.abs(centered).max()
    return np.asarray(centered / np.linalg.norm(centered))


def _same_examples(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Both as float64 [E], after checking for equal length, at least one example, and finite numbers."""
    first, second = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1 or not len(first):
        raise InputError(
            expected="as many predicted numbers as gold numbers, at least one",
            found=f"gold numbers of shape {list(first.shape)}, predictions of shape {list(second.shape)}",
            fix="predict every example that has a gold number",
        )
    for name, values in (("gold", first), ("predicted", second)):
        if not np.isfinite(values).all():
            wrong = np.flatnonzero(~np.isfinite(values))
            raise InputError(
                expected=f"finite {name} numbers",
                found=f"{values[wrong[0]]} for example {wrong[0]}",
                fix="find its cause before scoring",
            )
    return first, second
