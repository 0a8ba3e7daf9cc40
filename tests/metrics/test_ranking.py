"""Scores of rankings: worked examples, scikit-learn, and plain definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.metrics.ranking import (
    RANKING_METRICS,
    average_precision,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)

some_gains = st.lists(st.integers(0, 4), min_size=2, max_size=20).filter(any)


@given(some_gains, st.integers(1, 25), st.booleans())
def test_ndcg_equals_scikit_learn(gains: list[int], k: int, exponential: bool) -> None:
    """Its ranks are distinct, so it averages nothing over ties; it receives exponential gains as its input."""
    theirs = [2**gain - 1 for gain in gains] if exponential else gains
    order = [list(range(len(gains), 0, -1))]
    assert ndcg(gains, gains, k, exponential=exponential) == pytest.approx(ndcg_score([theirs], order, k=k))


@given(some_gains)
def test_average_precision_equals_scikit_learn(gains: list[int]) -> None:
    relevant = [int(gain > 0) for gain in gains]
    expected = average_precision_score(relevant, list(range(len(gains), 0, -1)))
    assert average_precision(gains, gains) == pytest.approx(expected)


def test_scores_computed_by_hand() -> None:
    """All five relevant passages are ranked: first, third, sixth, ninth, tenth."""
    ranked = [1, 0, 1, 0, 0, 1, 0, 0, 1, 1]
    judged = [1] * 5
    assert average_precision(ranked, judged) == pytest.approx((1 / 1 + 2 / 3 + 3 / 6 + 4 / 9 + 5 / 10) / 5)
    assert recall(ranked, judged, k=6) == 3 / 5
    assert precision(ranked, judged, k=6) == 3 / 6
    assert reciprocal_rank(ranked, judged) == 1.0
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, 6))
    result = sum(1 / math.log2(rank + 1) for rank in (1, 3, 6, 9, 10))
    assert ndcg(ranked, judged, k=10) == pytest.approx(result / ideal)


def test_the_best_ranking_has_the_highest_scores_and_nothing_found_the_lowest() -> None:
    assert {name: metric([2, 1], [1, 2]) for name, metric in RANKING_METRICS.items()} == dict.fromkeys(
        RANKING_METRICS, 1.0
    )
    assert {name: metric([], [1, 2]) for name, metric in RANKING_METRICS.items()} == dict.fromkeys(RANKING_METRICS, 0.0)


def test_relevant_passages_that_are_not_ranked_lower_the_scores() -> None:
    assert ndcg([1], [1, 1], k=10) < ndcg([1], [1], k=10) == 1.0
    assert recall([1], [1, 1]) == average_precision([1], [1, 1]) == 0.5


def test_graded_gains_count_linearly_or_exponentially() -> None:
    linear = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    exponential = (1 + 7 / math.log2(3)) / (7 + 1 / math.log2(3))
    assert ndcg([1, 3], [1, 3]) == pytest.approx(linear)
    assert ndcg([1, 3], [1, 3], exponential=True) == pytest.approx(exponential)


def test_only_the_first_k_count() -> None:
    ranked = [0, 0, 1]
    assert reciprocal_rank(ranked, [1], k=2) == ndcg(ranked, [1], k=2) == recall(ranked, [1], k=2) == 0.0
    assert reciprocal_rank(ranked, [1], k=3) == 1 / 3


@pytest.mark.parametrize(
    ("judged", "message"),
    [([0, 0], "a relevant passage"), ([], "a relevant passage"), ([-1, 1], "gains of 0 or more; found -1")],
)
def test_input_that_cannot_be_scored_is_refused(judged: list[int], message: str) -> None:
    for metric in RANKING_METRICS.values():
        with pytest.raises(InputError, match=message):
            metric(np.zeros(1), judged)
