"""Calibration on data with known probabilities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.calibration import (
    HIGHEST_TEMPERATURE,
    LOWEST_TEMPERATURE,
    best_label_threshold,
    best_thresholds_of_labels,
    expected_calibration_error,
    fit_temperature,
    reliability,
)
from bertsmith.tasks.metrics.labels import multi_label_scores


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


def labels_and_chances(labels: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Gold labels of 200 texts and probabilities that separate them at another point for each label."""
    random = generator(5, "test thresholds of labels")
    gold = random.random((200, labels)) < 0.25
    centers = np.linspace(0.15, 0.75, labels)
    return gold, np.clip(centers + np.where(gold, 0.08, -0.08) + random.normal(0, 0.06, gold.shape), 0, 1)


def test_the_threshold_of_each_label_has_the_best_f1_of_that_label() -> None:
    gold, chances = labels_and_chances()
    thresholds = best_thresholds_of_labels(gold, chances, 0.5, macro=True)
    for label, threshold in enumerate(thresholds):
        scores = {
            tried: multi_label_scores(gold[:, [label]], chances[:, [label]] >= tried)["micro_f1"]
            for tried in (np.arange(1, 100) / 100).tolist()
        }
        best = max(scores.values())
        assert scores[threshold] == pytest.approx(best)
        nearest = min(
            (tried for tried, score in scores.items() if score > best - 1e-12), key=lambda tried: abs(tried - 0.5)
        )
        assert threshold == pytest.approx(nearest)


def test_no_change_of_one_threshold_improves_micro_f1_and_all_together_beat_the_common_one() -> None:
    gold, chances = labels_and_chances()
    common = best_label_threshold(gold, chances, lambda *both: multi_label_scores(*both)["micro_f1"])
    thresholds = best_thresholds_of_labels(gold, chances, common, macro=False)

    def score(thresholds: np.ndarray) -> float:
        return multi_label_scores(gold, chances >= thresholds)["micro_f1"]

    best = score(np.array(thresholds))
    assert best > score(np.full(len(thresholds), common)) + 0.1
    for label in range(len(thresholds)):
        for tried in np.arange(1, 100) / 100:
            changed = np.array(thresholds)
            changed[label] = tried
            assert score(changed) <= best + 1e-12


@pytest.mark.parametrize("macro", [True, False])
def test_labels_of_few_examples_keep_the_common_threshold(macro: bool) -> None:
    gold, chances = labels_and_chances(3)
    gold[:, 0], gold[4:, 1] = False, False
    gold[:4, 1] = True
    thresholds = best_thresholds_of_labels(gold, chances, 0.37, macro=macro)
    assert thresholds[:2] == pytest.approx((0.37, 0.37))
    assert thresholds[2] != pytest.approx(0.37)
    assert best_thresholds_of_labels(gold[:4], chances[:4], 0.37, macro=macro) == pytest.approx((0.37,) * 3)
