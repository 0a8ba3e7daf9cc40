"""Spreads and bootstraps, on samples with a known answer."""

import numpy as np
import pytest
import scipy.stats

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.labels import matthews
from bertsmith.tasks.metrics.uncertainty import Spread, bootstrap_interval, paired_test, proportion_interval, spread


def test_the_spread_of_restarts_uses_the_sample_deviation() -> None:
    assert spread([84.0, 88.0]) == Spread(86.0, pytest.approx(8**0.5), (84.0, 88.0))
    assert spread([3.0]) == Spread(3.0, 0.0, (3.0,))


@pytest.mark.parametrize(("right", "total"), [(8, 8), (0, 8), (5, 8), (1, 1), (640, 1000)])
def test_the_interval_of_a_proportion_is_that_of_the_exact_binomial_test(right: int, total: int) -> None:
    exact = scipy.stats.binomtest(right, total).proportion_ci(0.95, method="exact")
    assert proportion_interval(right, total) == pytest.approx((exact.low, exact.high))
    with pytest.raises(InputError, match="at least 1 value; found 0"):
        proportion_interval(0, 0)


def test_equal_systems_do_not_differ() -> None:
    scores = generator(1, "test").random(200)
    result = paired_test(scores, scores)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_clearly_different_systems_differ_in_either_order() -> None:
    random = generator(2, "test")
    good, bad = random.random(500) < 0.9, random.random(500) < 0.6
    result = paired_test(good, bad, draws=2000)
    assert result.p_value == 1 / 2001
    assert 0.15 < result.low < result.difference < result.high < 0.4
    turned = paired_test(bad, good, draws=2000)
    assert (turned.difference, turned.low, turned.high) == pytest.approx(
        (-result.difference, -result.high, -result.low)
    )
    assert turned.p_value == result.p_value


def test_a_constant_difference_is_certain_despite_rounding() -> None:
    scores = generator(3, "test").random(50)
    result = paired_test(scores + 0.1, scores, draws=500)
    assert result.p_value == 1 / 501
    assert (result.low, result.high) == pytest.approx((0.1, 0.1))


def test_the_p_value_of_equally_good_systems_is_uniform() -> None:
    values = []
    for number in range(300):
        random = generator(4, "test", number)
        values.append(paired_test(random.random(60), random.random(60), draws=200, seed=number).p_value)
    for level in (0.1, 0.5, 0.9):
        assert np.mean(np.array(values) <= level) == pytest.approx(level, abs=0.08)


def test_the_p_value_agrees_with_the_normal_test_of_the_mean() -> None:
    random = generator(5, "test")
    first = random.normal(size=400)
    second = first + random.normal(loc=0.06, size=400)
    differences = first - second
    tail = 2 * scipy.stats.norm.sf(abs(differences.mean()) / (differences.std() / 20))
    assert 0.01 < tail < 0.5
    assert paired_test(first, second).p_value == pytest.approx(tail, rel=0.2)


def test_a_handful_of_examples_cannot_prove_more_than_their_number() -> None:
    # Five of eight examples differ, all in one direction: 2 of the 2^5 ways to swap them give as large a difference.
    first, second = np.ones(8), np.array([0, 0, 0, 0, 0, 1, 1, 1])
    assert paired_test(first, second).p_value == pytest.approx(2 / 32, rel=0.1)
    exact = scipy.stats.binomtest(5, 5).pvalue
    assert paired_test(first, second).p_value == pytest.approx(exact, rel=0.1)


def test_the_p_value_of_a_score_other_than_the_mean_is_that_of_swaps() -> None:
    random = generator(8, "test")
    golds = random.integers(2, size=(40, 1))
    good = np.hstack([golds, golds])
    bad = np.hstack([golds, random.integers(2, size=(40, 1))])
    result = paired_test(good, bad, draws=500, statistic=lambda rows: matthews(rows[:, 0], rows[:, 1]))
    assert result.p_value < 0.01
    same = paired_test(bad, bad, draws=500, statistic=lambda rows: matthews(rows[:, 0], rows[:, 1]))
    assert same.p_value == 1.0


def test_draws_are_a_function_of_the_seed() -> None:
    random = generator(6, "test")
    first, second = random.random(40), random.random(40)
    assert paired_test(first, second, seed=1, draws=100) == paired_test(first, second, seed=1, draws=100)
    assert paired_test(first, second, seed=1, draws=100) != paired_test(first, second, seed=2, draws=100)


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    values = generator(7, "test").normal(size=900)
    low, high = bootstrap_interval(values, draws=4000)
    half = 1.96 * values.std() / 30
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.1 * half)
    narrow = bootstrap_interval(values, draws=4000, confidence=0.5)
    assert low < narrow[0] < narrow[1] < high


def test_the_interval_of_any_score_draws_gold_and_prediction_together() -> None:
    random = generator(8, "test")
    gold = random.integers(2, size=300)
    predicted = np.where(random.random(300) < 0.8, gold, 1 - gold)
    low, high = bootstrap_interval(
        np.column_stack([gold, predicted]), lambda rows: matthews(rows[:, 0], rows[:, 1]), draws=500
    )
    assert 0.45 < low < matthews(gold, predicted) < high < 0.75


def test_one_value_is_its_own_interval() -> None:
    assert bootstrap_interval([0.7], draws=10) == (0.7, 0.7)


def test_too_few_values_are_refused() -> None:
    with pytest.raises(InputError, match="at least 1 value"):
        spread([])
    with pytest.raises(InputError, match="at least 1 value"):
        bootstrap_interval([])
    with pytest.raises(InputError, match="at least 2 values; found 1"):
        paired_test([1.0], [0.0])
    with pytest.raises(InputError, match=r"scores of the same examples; found shapes \[1\] and \[2\]"):
        paired_test([1.0], [0.0, 1.0])


def test_the_mean_as_a_statistic_of_rows_gives_the_default_result() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.random(50), rng.random(50) - 0.1
    plain = paired_test(first, second, draws=500)
    rows = paired_test(first[:, None], second[:, None], draws=500, statistic=lambda rows: float(np.mean(rows)))
    assert (rows.difference, rows.low, rows.high, rows.p_value) == pytest.approx(
        (plain.difference, plain.low, plain.high, plain.p_value)
    )


def test_the_draws_tell_apart_the_correlations_of_two_systems() -> None:
    rng = np.random.default_rng(4)
    gold = rng.random(200)
    good = np.stack([gold, gold + 0.1 * rng.random(200)], axis=1)
    poor = np.stack([gold, rng.random(200)], axis=1)

    def correlation(rows: np.ndarray) -> float:
        return float(np.corrcoef(rows[:, 0], rows[:, 1])[0, 1])

    assert paired_test(good, poor, draws=300, statistic=correlation).p_value < 0.01
    assert paired_test(good, good, draws=300, statistic=correlation).p_value == 1.0
