"""The area under the ROC curve and its variance, as defined; the test on scores that say something, and on noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.two_samples import area_under_curve, two_sample_test

scores = st.lists(st.integers(0, 6), min_size=2, max_size=30)


@given(scores, scores)
def test_the_area_is_that_of_scikit_learn_and_its_variance_that_of_delong(first: list[int], second: list[int]) -> None:
    area, variance = area_under_curve(np.array(first, dtype=np.float64), np.array(second, dtype=np.float64))
    gold = [0] * len(first) + [1] * len(second)
    assert area == pytest.approx(roc_auc_score(gold, [*first, *second]))
    wins = np.array([[(b > a) + (b == a) / 2 for a in first] for b in second])
    expected = wins.mean(axis=1).var(ddof=1) / len(second) + wins.mean(axis=0).var(ddof=1) / len(first)
    assert variance == pytest.approx(expected)


def test_equal_sources_seldom_differ_and_shifted_ones_do() -> None:
    folds = np.arange(200) % 5
    is_second = np.arange(200) % 2 == 1
    differ = []
    for seed in range(200):
        noise = generator(seed, "scores").normal(size=200)
        differ.append(two_sample_test(noise, is_second, folds).differ)
    assert np.mean(differ) < 0.02
    shifted = two_sample_test(generator(1, "scores").normal(size=200) + is_second, is_second, folds)
    assert shifted.differ
    assert shifted.p_value < 0.001
    assert shifted.low < shifted.area < shifted.high


def test_samples_that_are_told_apart_perfectly_have_an_interval() -> None:
    is_second = np.arange(40) >= 20
    test = two_sample_test(is_second.astype(np.float64), is_second, np.arange(40) % 5)
    assert (test.area, test.high) == (1.0, 1.0)
    assert 0.9 < test.low < 1
