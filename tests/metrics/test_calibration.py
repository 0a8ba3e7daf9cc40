"""Calibration on data with known probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from bertsmith.errors import InputError
from bertsmith.metrics.calibration import (
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    expected_calibration_error,
    fit_temperature,
    reliability,
)
from bertsmith.randomness import generator


def drawn(examples: int, classes: int, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and gold classes drawn from softmax(logits / temperature)."""
    random = generator(3, "test calibration", classes)
    logits = random.normal(scale=3.0, size=(examples, classes))
    edges = np.cumsum(softmax(logits / temperature, axis=1), axis=1)
    gold = np.minimum(np.sum(edges < random.random((examples, 1)), axis=1), classes - 1)
    return logits, gold


def loss(logits: np.ndarray, gold: np.ndarray, temperature: float) -> float:
    return float(-np.mean(log_softmax(logits / temperature, axis=1)[np.arange(len(gold)), gold]))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
@pytest.mark.parametrize("classes", [2, 4])
def test_the_temperature_of_the_data_is_found_and_fixes_the_calibration(temperature: float, classes: int) -> None:
    logits, gold = drawn(20_000, classes, temperature)
    result = fit_temperature(logits, gold)
    assert result == pytest.approx(temperature, rel=0.05)
    assert expected_calibration_error(softmax(logits / result, axis=1), gold) < 0.015
    if temperature != 1.0:
        assert expected_calibration_error(softmax(logits, axis=1), gold) > 0.05


@given(st.integers(0, 2**32), st.integers(2, 5), st.integers(2, 20))
def test_no_other_temperature_has_a_lower_loss(seed: int, classes: int, examples: int) -> None:
    random = generator(seed, "test temperature")
    logits, gold = random.normal(size=(examples, classes)), random.integers(classes, size=examples)
    best = loss(logits, gold, fit_temperature(logits, gold))
    others = np.geomspace(LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE, 50)
    assert best <= min(loss(logits, gold, other) for other in others) + 1e-12


def test_temperatures_without_an_optimum_stop_at_the_bounds() -> None:
    logits = np.array([[2.0, 0.0], [0.0, 2.0]])
    assert fit_temperature(logits, [0, 1]) == LOWEST_TEMPERATURE
    assert fit_temperature(logits, [1, 0]) == HIGHEST_TEMPERATURE
    assert fit_temperature(np.zeros((3, 2)), [0, 1, 0]) == 1.0
    assert fit_temperature([[5.0]], [0]) == 1.0


def test_bins_include_their_upper_edge_and_empty_ones_are_left_out() -> None:
    probabilities = [[0.75, 0.25], [0.75, 0.25], [0.3, 0.7], [1.0, 0.0]]
    result = reliability(probabilities, [0, 1, 1, 0], bins=4)
    assert [(part.accuracy, part.num_examples) for part in result] == [(2 / 3, 3), (1.0, 1)]
    assert [part.confidence for part in result] == pytest.approx([2.2 / 3, 1.0])
    wanted = (3 * abs(2 / 3 - 2.2 / 3) + 0) / 4
    assert expected_calibration_error(probabilities, [0, 1, 1, 0], bins=4) == pytest.approx(wanted)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_every_example_is_in_one_bin(bins: int) -> None:
    logits, gold = drawn(500, 3, 1.0)
    result = reliability(softmax(logits, axis=1), gold, bins)
    assert sum(part.num_examples for part in result) == 500
    right = sum(part.num_examples * part.accuracy for part in result)
    assert right == pytest.approx(np.sum(logits.argmax(axis=1) == gold))


def test_constant_and_certain_probabilities_are_scored() -> None:
    assert expected_calibration_error([[0.5, 0.5]] * 4, [0, 1, 0, 1]) == 0.0
    assert expected_calibration_error([[1.0]] * 4, [0] * 4) == 0.0
    assert expected_calibration_error([[1.0, 0.0]] * 4, [1] * 4) == 1.0


@pytest.mark.parametrize(
    ("values", "gold", "message"),
    [
        (np.zeros((0, 2)), [], "a row of class values for each gold class"),
        ([[0.5, 0.5]], [0, 1], "a row of class values for each gold class"),
        ([[0.5, 0.5]], [2], "gold classes from 0 to 1; found classes from 2 to 2"),
        ([[0.5, 0.5]], [-1], "gold classes from 0 to 1"),
        ([[float("nan"), 0.5]], [0], "finite values; found nan"),
    ],
)
def test_mismatched_input_is_refused(values: np.ndarray, gold: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        reliability(values, gold)
    with pytest.raises(InputError, match=message):
        fit_temperature(values, gold)


def test_logits_are_refused_as_probabilities() -> None:
    with pytest.raises(InputError, match="probabilities from 0 to 1; found values from -1 to 2"):
        expected_calibration_error([[-1.0, 2.0]], [0])
