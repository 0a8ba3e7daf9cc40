"""Scores of predicted sets, such as the medications of a visit: Jaccard, F1 and average precision of each example.

Letters: E examples, K members that a set can have. A score of many examples is the mean of theirs, and examples that
belong together, such as the visits of a subject, are drawn together for intervals and tests.

Source: the released code of G-BERT and GAMENet, `multi_label_metric`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.metrics.uncertainty import PairedTest, bootstrap_interval, paired_test

Floats = npt.NDArray[np.float64]
Sets = npt.NDArray[np.bool_]


def jaccard(gold: Sets, predicted: Sets) -> Floats:
    """The share of the members of either set that both have [E]; 1 for two empty sets.

    >>> jaccard(np.array([[1, 1, 0]], dtype=bool), np.array([[1, 0, 1]], dtype=bool)).round(3).tolist()
    [0.333]
    """
    both, either = (gold & predicted).sum(axis=1), (gold | predicted).sum(axis=1)
    return np.where(either, both / np.maximum(either, 1), 1.0)


def f1_of_sets(gold: Sets, predicted: Sets) -> Floats:
    """The harmonic mean of precision and recall of each example [E]; 1 for two empty sets.

    >>> f1_of_sets(np.array([[1, 1, 0]], dtype=bool), np.array([[1, 0, 1]], dtype=bool)).tolist()
    [0.5]
    """
    both, total = (gold & predicted).sum(axis=1), gold.sum(axis=1) + predicted.sum(axis=1)
    return np.where(total, 2 * both / np.maximum(total, 1), 1.0)


def average_precision_of_sets(gold: Sets, scores: npt.NDArray[np.floating]) -> Floats:
    """The area under precision against recall of each example [E], as scikit-learn computes it.

    Equal scores count at once. An example with an empty set has no area: NaN.

    >>> average_precision_of_sets(np.array([[1, 0, 1]], dtype=bool), np.array([[0.9, 0.8, 0.1]])).round(4).tolist()
    [0.8333]
    """
    values = np.full(len(gold), np.nan)
    for example, (members, of_members) in enumerate(zip(gold, scores, strict=True)):
        if not members.any():
            continue
        order = np.argsort(-of_members, kind="stable")
        ends = np.append(np.flatnonzero(np.diff(of_members[order])), len(order) - 1)  # of each run of equal scores
        right = members[order].cumsum()[ends]
        values[example] = float(np.sum(np.diff(right, prepend=0) * right / (ends + 1)) / right[-1])
    return values


def best_threshold(gold: Sets, scores: npt.NDArray[np.floating]) -> float:
    """The threshold among 0.02, 0.04, ..., 0.98 with the highest mean F1; of equal ones the middle."""
    candidates = np.arange(1, 50) / 50
    means = np.array([f1_of_sets(gold, scores >= threshold).mean() for threshold in candidates])
    best = np.flatnonzero(means >= means.max() - 1e-12)
    return float(candidates[best[(len(best) - 1) // 2]])


def sums_of_groups(values: Floats, groups: Sequence[int]) -> Floats:
    """The sum of the values of each group and their number [groups, 2], ordered by the number of the group."""
    numbers = np.asarray(groups)
    used = np.unique(numbers)
    rows = np.searchsorted(used, numbers)
    return np.stack([np.bincount(rows, values), np.bincount(rows)], axis=1).astype(np.float64)


def interval_by_group(values: Floats, groups: Sequence[int], *, draws: int = 2000) -> tuple[float, float]:
    """The 95% bootstrap interval of the mean of values, where groups are drawn."""
    return bootstrap_interval(sums_of_groups(values, groups), _mean, draws=draws)


def paired_test_by_group(first: Floats, second: Floats, groups: Sequence[int], *, draws: int = 2000) -> PairedTest:
    """The difference of two means of values of the same examples, where groups are drawn and swapped."""
    return paired_test(sums_of_groups(first, groups), sums_of_groups(second, groups), draws=draws, statistic=_mean)


def _mean(rows: npt.NDArray[np.generic]) -> float:
    sums, counts = np.asarray(rows, dtype=np.float64).sum(axis=0)
    return float(sums / counts)
