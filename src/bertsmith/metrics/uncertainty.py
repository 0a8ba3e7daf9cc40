"""How far a score or a difference of scores can be trusted: over random restarts, and over the examples of a test set.

Letter: E examples. The bootstrap draws E examples with replacement, many times, and looks how much the score moves.

Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 13 and 16.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.errors import InputError
from bertsmith.progress import counted
from bertsmith.randomness import generator

DRAWS = 10_000
CONFIDENCE = 0.95

_ROOM = 2**22  # example numbers that are held at once

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Scores of several runs.

    Attributes:
        mean: their mean.
        deviation: their sample standard deviation (divided by one less than their number); 0 for a single run.
        values: the scores themselves.
    """

    mean: float
    deviation: float
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """What the examples say about the difference of two systems.

    Attributes:
        difference: the mean of the first less that of the second.
        low: lower end of its 95% interval.
        high: upper end.
        p_value: how often so large a difference, in either direction, would come about by chance; never 0.
    """

    difference: float
    low: float
    high: float
    p_value: float


def spread(values: Sequence[float]) -> Spread:
    """The mean and the deviation of scores of several runs.

    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, values=(1.0, 2.0, 3.0))

    Raises:
        InputError: there are none.
    """
    scores = np.asarray(values, dtype=np.float64)
    _require_examples(scores, least=1)
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return Spread(float(scores.mean()), deviation, tuple(scores.tolist()))


def paired_bootstrap(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    seed: int = 0,
    draws: int = DRAWS,
    *,
    statistic: Callable[[npt.NDArray[np.generic]], float] | None = None,
) -> PairedTest:
    """Whether two systems differ on the same examples; the p-value is two-sided.

    The interval holds the middle 95% of the differences of the draws. The p-value is the share of draws that lie at
    least as far from the difference as the difference lies from 0; the difference itself counts as one draw.

    Args:
        first: float [E], what each example adds to the score of the first system; or, with a statistic, rows [E, any]
            that hold gold and prediction of an example.
        second: the same of the second system, in the same order.
        seed: what the draws are made from.
        draws: how many.
        statistic: the score of drawn rows, such as a correlation; the mean if not given.

    Raises:
        InputError: the lengths differ, or there are less than two examples.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise InputError(
            expected="scores of the same examples",
            found=f"shapes {list(ours.shape)} and {list(theirs.shape)}",
            fix="predict the same file with both",
        )
    _require_examples(ours, least=2)
    parts = _draw(len(ours), draws, seed, "paired bootstrap")
    if statistic is None:
        differences = ours - theirs
        difference = float(differences.mean())
        means = np.concatenate([differences[chosen].mean(axis=1) for chosen in parts])
        largest = float(np.abs(differences).max())
    else:
        difference, largest = float(statistic(ours) - statistic(theirs)), 1.0
        means = np.array([statistic(ours[chosen]) - statistic(theirs[chosen]) for part in parts for chosen in part])
    # A draw that gives the difference again may miss it by rounding.
    rounding = 1e-12 * largest
    as_far = int(np.sum(np.abs(means - difference) >= abs(difference) - rounding))
    low, high = _middle(means, CONFIDENCE)
    return PairedTest(difference, low, high, (1 + as_far) / (draws + 1))


def bootstrap_interval(
    values: npt.ArrayLike,
    statistic: Callable[[npt.NDArray[np.generic]], float] | None = None,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
) -> tuple[float, float]:
    """The interval in which the middle share `confidence` of the draws of a score lies.

    Args:
        values: [E] or [E, anything]; rows are drawn, so that a row may hold gold and prediction of an example.
        statistic: the score of drawn rows; their mean if not given.
        seed: what the draws are made from.
        draws: how many.
        confidence: a share, above 0 and below 1.

    Raises:
        InputError: there are no examples.
    """
    assert 0.0 < confidence < 1.0, confidence
    rows = np.asarray(values)
    _require_examples(rows, least=1)
    score = np.mean if statistic is None else statistic
    parts = _draw(len(rows), draws, seed, "bootstrap interval")
    scores = np.array([float(score(rows[chosen])) for part in parts for chosen in part])
    return _middle(scores, confidence)


def _draw(num_examples: int, draws: int, seed: int, purpose: str) -> Iterator[npt.NDArray[np.int64]]:
    """Numbers of examples, int64 [D, E] at a time, `draws` rows in all."""
    assert draws >= 1, draws
    random = generator(seed, purpose)
    at_once = max(1, _ROOM // num_examples)
    for done in range(0, draws, at_once):
        yield random.integers(num_examples, size=(min(at_once, draws - done), num_examples))


def _middle(values: Floats, share: float) -> tuple[float, float]:
    """Both ends of the middle share of the values."""
    low, high = np.quantile(values, [(1.0 - share) / 2, (1.0 + share) / 2])
    return float(low), float(high)


def _require_examples(values: npt.NDArray[np.generic], *, least: int) -> None:
    if values.ndim < 1 or len(values) < least:
        raise InputError(
            expected=f"at least {counted(least, 'value')}",
            found=f"{values.size}",
            fix="score more examples or runs",
        )
