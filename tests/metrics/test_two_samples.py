"""The area under the ROC curve and its variance, as defined; the test on scores that say something, and on noise."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import roc_auc_score

from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.two_samples import area_of_folds, area_under_curve, two_sample_test

scores = st.lists(st.integers(0, 6), min_size=2, max_size=30)


@given(scores, scores)
def test_the_area_is_that_of_scikit_learn_and_its_variance_that_of_delong(first: list[int], second: list[int]) -> None:
    area, variance = area_under_curve(np.array(first, dtype=np.float64), np.array(second, dtype=np.float64))
    gold = [0] * len(first) + [1] * len(second)
    assert area == pytest.approx(roc_auc_score(gold, [*first, *second]))
    wins = np.array([[(b > a) + (b == a) / 2 for a in first] for b in second])
    expected = wins.mean(axis=1).var(ddof=1) / len(second) + wins.mean(axis=0).var(ddof=1) / len(first)
    assert variance == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_equal_sources_differ_as_seldom_as_stated_and_shifted_ones_do(kind: str) -> None:
    is_second, folds = np.arange(60) % 2 == 1, np.arange(60) // 2 % 5
    differ = []
    for seed in range(120):
        rows = generator(seed, "rows").exponential(size=(60, 12)) * (1 + np.arange(12)) ** 3  # no normal distribution
        inputs = rows if kind == "dense" else sp.csr_array(rows * (rows > 1))
        differ.append(two_sample_test(inputs, is_second, folds, seed)[0].differ)
    assert sum(differ) <= binom.ppf(0.999, len(differ), 0.025)
    noise = generator(1, "rows").normal(size=(60, 12))
    shifted = noise + is_second[:, None]
    test, scores = two_sample_test(shifted if kind == "dense" else sp.csr_array(shifted), is_second, folds, 1)
    assert test.differ
    assert test.p_value == 1 / 1000
    assert test.low < test.area < test.high
    assert roc_auc_score(is_second, scores) == pytest.approx(test.area, abs=0.05)


def test_the_p_value_counts_divisions_with_means_as_far_apart() -> None:
    """All 20 divisions of six texts into halves, each drawn about equally often."""
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.2], [3.0, 1.0], [2.0, 2.5], [1.2, 2.0]])
    standard = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    is_second = np.arange(6) >= 3
    distances = [
        np.linalg.norm(standard[list(half)].mean(axis=0) - np.delete(standard, half, axis=0).mean(axis=0))
        for half in itertools.combinations(range(6), 3)
    ]
    expected = np.mean(np.array(distances) >= distances[-1] - 1e-12)
    test, _ = two_sample_test(rows, is_second, np.arange(6) % 3, 0)
    assert test.p_value == pytest.approx(expected, abs=0.04)
    same, _ = two_sample_test(np.ones((6, 2)), is_second, np.arange(6) % 3, 0)
    assert (same.p_value, same.area) == (1.0, 0.5)


def test_samples_that_are_told_apart_perfectly_have_an_interval() -> None:
    is_second = np.arange(40) >= 20
    area, low, high = area_of_folds(is_second.astype(np.float64), is_second, np.arange(40) % 5)
    assert (area, high) == (1.0, 1.0)
    assert 0.9 < low < 1
