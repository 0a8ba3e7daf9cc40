"""Scores of numbers, against scipy and worked by hand."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS, mean_squared_error, pearson, spearman

# Multiples of a quarter: no row is constant up to rounding errors, and ties are frequent.
pairs = arrays.arrays(
    np.float64, st.tuples(st.just(2), st.integers(2, 30)), elements=st.integers(-40, 40).map(lambda number: number / 4)
)


@given(pairs)
def test_correlations_equal_scipy(pair: np.ndarray) -> None:
    gold, predicted = pair
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        assert pearson(gold, predicted) == spearman(gold, predicted) == 0.0
    else:
        assert pearson(gold, predicted) == pytest.approx(scipy.stats.pearsonr(gold, predicted).statistic, abs=1e-9)
        assert spearman(gold, predicted) == pytest.approx(scipy.stats.spearmanr(gold, predicted).statistic, abs=1e-9)


def test_scores_computed_by_hand() -> None:
    result = {name: score([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]) for name, score in NUMBER_METRICS.items()}
    assert result == pytest.approx({"pearson": 0.8, "spearman": 0.8, "mse": 0.5})


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e-300, 1e300])
def test_a_constant_prediction_has_correlation_zero(constant: float) -> None:
    gold = [0.0, 2.5, 5.0]
    assert pearson(gold, [constant] * 3) == pearson([constant] * 3, gold) == spearman(gold, [constant] * 3) == 0.0


@pytest.mark.parametrize("unit", [1e-308, 1.0, 1e307])
def test_the_magnitude_of_the_numbers_does_not_matter(unit: float) -> None:
    gold = np.array([1.0, 2.0, 3.0])
    assert pearson(gold, -unit * gold) == pytest.approx(-1.0)


def test_one_example_has_correlation_zero() -> None:
    assert pearson([1.0], [2.0]) == spearman([1.0], [2.0]) == 0.0
    assert mean_squared_error([1.0], [3.0]) == 4.0


def test_float32_predictions_are_scored_in_float64() -> None:
    predicted = np.array([1.1, 2.2, 3.3], np.float32)
    assert mean_squared_error([0.0, 0.0, 0.0], predicted) == float(np.mean(predicted.astype(np.float64) ** 2))


@pytest.mark.parametrize("name", list(NUMBER_METRICS))
def test_mismatched_input_is_refused(name: str) -> None:
    for gold, predicted in (([], []), ([1.0], [1.0, 2.0])):
        with pytest.raises(InputError, match="as many predicted numbers as gold numbers"):
            NUMBER_METRICS[name](gold, predicted)
    with pytest.raises(InputError, match="finite predicted numbers; found nan for example 1"):
        NUMBER_METRICS[name]([1.0, 2.0], [1.0, float("nan")])
