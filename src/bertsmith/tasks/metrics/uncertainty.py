"""The uncertainty of scores and of their differences: over random restarts, and over the examples of a test set.

Letter: E examples. The bootstrap draws E examples with replacement, many times, and measures how much the score varies.

A proportion, such as accuracy, has an exact interval instead: when all of a few examples are right, all draws are
equal, as if the score were certain.

Sources: Clopper and Pearson, "The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial" (1934);
Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapters 13 and 15; Noreen, "Computer-Intensive Methods
for Testing Hypotheses" (1989), for approximate randomization.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator

DRAWS = 10_000
CONFIDENCE = 0.95

_ROOM = 2**22  # example indices held in memory at once

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Spread:
    """Scores of several runs."""

    mean: float
    deviation: float  # their sample standard deviation (with their number minus one as divisor); 0 for a single run
    values: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """The difference between two systems on the same examples, and how certain it is."""

    difference: float
    low: float  # the lower end of its 95% confidence interval
    high: float
    p_value: float  # the probability of a difference at least as large, in either direction, by chance; never 0


def spread(values: Sequence[float]) -> Spread:
    """The mean and the standard deviation of the scores of several runs.

    >>> spread([1.0, 2.0, 3.0])
    Spread(mean=2.0, deviation=1.0, values=(1.0, 2.0, 3.0))
    """
    scores = np.asarray(values, dtype=np.float64)
    _require_examples(scores, least=1)
    deviation = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return Spread(float(scores.mean()), deviation, tuple(scores.tolist()))


def paired_test(
    first: npt.ArrayLike,
    second: npt.ArrayLike,
    seed: int = 0,
    draws: int = DRAWS,
    *,
    statistic: Callable[[npt.NDArray[np.generic]], float] | None = None,
) -> PairedTest:
    """The difference between two systems on the same examples, with interval and two-sided p-value.

    The interval of the paired bootstrap contains the middle 95% of the differences of the draws. The
    p-value comes from approximate randomization: if the systems are equally good, the two results for an example are
    interchangeable, so the p-value is the fraction of random swaps after which they differ at least as much; the
    observed difference counts as one of them. It is therefore valid for a handful of examples too, which allow no more
    than 2^E different swaps.

    Args:
        first: float [E], the contribution of each example to the score of the first system; or, with a statistic, rows
            [E, any] with the gold label and the prediction of each example.
        second: the same for the second system, in the same order.
        statistic: the score of drawn rows, such as a correlation; by default the mean. That of whole numbers may not
            depend on their order.
    """
    ours, theirs = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if ours.shape != theirs.shape:
        raise InputError(
            expected="scores of the same examples",
            found=f"shapes {list(ours.shape)} and {list(theirs.shape)}",
            fix="predict the same file with both",
        )
    _require_examples(ours, least=2)
    score = np.mean if statistic is None else statistic
    difference = float(score(ours) - score(theirs))
    parts = _draw(len(ours), draws, seed, "paired bootstrap")
    swaps = (part == 1 for part in _draw(len(ours), draws, seed, "approximate randomization", 2, np.int8))
    if statistic is None:
        each = ours - theirs
        means = np.concatenate([each[chosen].mean(axis=1) for chosen in parts])
        swapped = np.concatenate([np.where(swap, -each, each).mean(axis=1) for swap in swaps])
        largest = float(np.abs(each).max())
    else:
        size, both = len(ours), np.concatenate([np.asarray(first), np.asarray(second)])
        both = both if np.issubdtype(both.dtype, np.integer) else both.astype(np.float64)

        def differences(chosen: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> Floats:
            return _scores(both, chosen, statistic) - _scores(both, others, statistic)

        means = np.concatenate([differences(chosen, chosen + size) for chosen in parts])
        examples = np.arange(size)
        swapped = np.concatenate([differences(examples + size * swap, examples + size * ~swap) for swap in swaps])
        largest = 1.0
    # A swap that reproduces the difference may be off by rounding.
    as_far = int(np.sum(np.abs(swapped) >= abs(difference) - 1e-12 * largest))
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
    """The bootstrap confidence interval of a score: the middle fraction `confidence` of the scores of the draws.

    Args:
        values: [E] or [E, anything]; rows are drawn, so a row may contain the gold label and the prediction of an
            example.
        statistic: the score of drawn rows; by default their mean. That of whole numbers may not depend on their order.
    """
    assert 0.0 < confidence < 1.0, confidence
    rows = np.asarray(values)
    _require_examples(rows, least=1)
    parts = _draw(len(rows), draws, seed, "bootstrap interval")
    return _middle(np.concatenate([_scores(rows, chosen, statistic) for chosen in parts]), confidence)


def proportion_interval(right: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact (Clopper-Pearson) confidence interval of a proportion: `right` of `total` independent examples.

    Its ends are the proportions under which as many right examples, or as few, have a probability of
    (1 - confidence) / 2.

    >>> low, high = proportion_interval(8, 8)
    >>> round(low, 2), high
    (0.63, 1.0)
    """
    from scipy.special import betaincinv  # the import takes a moment, which predictions need not wait for

    assert 0 <= right <= total, (right, total)
    _require_examples(np.zeros(total), least=1)
    tail = (1.0 - confidence) / 2
    low = 0.0 if right == 0 else float(betaincinv(right, total - right + 1, tail))
    high = 1.0 if right == total else float(betaincinv(right + 1, total - right, 1.0 - tail))
    return low, high


def _draw(
    num_examples: int, draws: int, seed: int, purpose: str, below: int = 0, dtype: npt.DTypeLike = np.int64
) -> Iterator[npt.NDArray[np.int64]]:
    """The indices of drawn examples, or numbers below another limit, [D, E] at a time, `draws` rows in total."""
    assert draws >= 1, draws
    random = generator(seed, purpose)
    at_once = max(1, _ROOM // num_examples)
    for done in range(0, draws, at_once):
        yield random.integers(below or num_examples, size=(min(at_once, draws - done), num_examples), dtype=dtype)


def _scores(
    rows: npt.NDArray[np.generic],
    draws: npt.NDArray[np.int64],
    statistic: Callable[[npt.NDArray[np.generic]], float] | None,
) -> Floats:
    """The score of the rows of each draw, float64 [D], from their indices [D, E]."""
    if statistic is None:
        return np.asarray(rows[draws].reshape(len(draws), -1).mean(axis=1), dtype=np.float64)
    if not np.issubdtype(rows.dtype, np.integer):
        return np.array([float(statistic(rows[chosen])) for chosen in draws])
    kinds, kind = np.unique(rows.reshape(len(rows), -1), axis=0, return_inverse=True)
    cells = kind.reshape(-1)[draws] + len(kinds) * np.arange(len(draws))[:, None]
    counts = np.bincount(cells.reshape(-1), minlength=len(draws) * len(kinds)).reshape(len(draws), -1)
    counts, number = np.unique(counts, axis=0, return_inverse=True)
    kinds = kinds.reshape(-1, *rows.shape[1:])
    return np.array([float(statistic(np.repeat(kinds, times, axis=0))) for times in counts])[number.reshape(-1)]


def _middle(values: Floats, share: float) -> tuple[float, float]:
    """Both ends of the middle fraction of the values."""
    low, high = np.quantile(values, [(1.0 - share) / 2, (1.0 + share) / 2])
    return float(low), float(high)


def _require_examples(values: npt.NDArray[np.generic], *, least: int) -> None:
    if values.ndim < 1 or len(values) < least:
        raise InputError(
            expected=f"at least {counted(least, 'value')}", found=f"{values.size}", fix="score more examples"
        )
