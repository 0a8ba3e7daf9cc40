"""Scores of vectors as measures of similarity, against scikit-learn and plain loops."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from bertsmith.tasks.metrics.similarity import (
    best_pair_accuracy,
    pair_average_precision,
    ranks_of_partners,
)
from bertsmith.tasks.metrics.vectors import unit


def some_vectors(count: int, width: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_average_precision_and_best_accuracy_equal_a_loop_over_all_thresholds() -> None:
    draw = np.random.default_rng(1)
    belongs, values = draw.integers(2, size=60).astype(bool), draw.integers(12, size=60) / 10
    assert pair_average_precision(belongs, values) == pytest.approx(average_precision_score(belongs, values))
    accuracies = [np.mean((values >= threshold) == belongs) for threshold in np.unique(values)[1:]]
    assert best_pair_accuracy(belongs, values) == pytest.approx(max(accuracies))


def test_pairs_of_which_none_belongs_have_no_precision() -> None:
    assert pair_average_precision([False, False], [0.3, 0.1]) == 0.0


def test_the_rank_of_a_partner_equals_a_sorted_list_of_cosines() -> None:
    first, second = some_vectors(40), some_vectors(40, seed=2)
    second[:20] = first[:20] + 0.7 * second[:20]
    cosines = unit(first.astype(np.float64)) @ unit(second.astype(np.float64)).T
    by_hand = [sorted(row, reverse=True).index(row[position]) + 1 for position, row in enumerate(cosines)]
    assert ranks_of_partners(first, second, [str(number) for number in range(40)]).tolist() == by_hand
    assert len(set(by_hand)) > 5


def test_equal_partners_are_one_text_and_equal_distances_do_not_flatter() -> None:
    first = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert ranks_of_partners(first, first, ["a", "b", "a"]).tolist() == [1, 1, 1]
    collapsed = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    assert ranks_of_partners(collapsed, collapsed, ["a", "b", "c"]).tolist() == [3, 3, 3]


def test_scores_equal_those_of_mteb_on_the_same_vectors() -> None:
    mteb = pytest.importorskip("mteb")
    from mteb.abstasks.pair_classification import AbsTaskPairClassification
    from scipy.stats import spearmanr

    from bertsmith.tasks.metrics.numbers import spearman
    from bertsmith.tasks.metrics.vectors import cosines

    first, second = some_vectors(200), some_vectors(200, seed=3)
    second[::2] += first[::2]
    values, belongs = cosines(first, second), np.arange(200) % 2 == 0
    belongs[:20] = ~belongs[:20]
    theirs = AbsTaskPairClassification._compute_metrics_values(_Methods(), values.tolist(), belongs.astype(int), True)
    assert pair_average_precision(belongs, values) == pytest.approx(theirs["ap"])
    assert best_pair_accuracy(belongs, values) == pytest.approx(theirs["accuracy"])
    assert spearman(belongs, values) == pytest.approx(spearmanr(belongs, values)[0])
    assert mteb.__version__


class _Methods:
    """The methods of MTEB's task that its scorer calls."""

    def __getattr__(self, name: str) -> object:
        from mteb.abstasks.pair_classification import AbsTaskPairClassification

        result = getattr(AbsTaskPairClassification, name)
        return lambda *arguments: result(self, *arguments)
