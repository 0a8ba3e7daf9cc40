"""Thresholds for a wanted accuracy and sets of labels: the definitions written out, and what they promise."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom, binomtest
from sklearn.metrics import accuracy_score

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.selective import (
    STEPS,
    coverage_interval,
    label_sets,
    selection_for,
    selections,
    set_threshold,
)

examples = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60)


@given(examples)
def test_a_selection_is_what_reaches_its_threshold(rows: list[tuple[int, bool]]) -> None:
    confidence = np.array([number / 7 for number, _ in rows])  # with many ties
    right = np.array([flag for _, flag in rows])
    curve = selections(confidence, right)
    assert len(curve) <= STEPS
    assert [curve[-1].threshold, curve[-1].answered] == [0.0, 1.0]
    for selection in curve:
        above = confidence >= selection.threshold
        assert selection.num_answered == above.sum()
        assert selection.accuracy == accuracy_score(np.ones(above.sum()), right[above])
    exact = binomtest(curve[0].num_right, curve[0].num_answered).proportion_ci(0.95)
    assert curve[0].interval == pytest.approx((exact.low, exact.high), abs=1e-9)
    sizes = {selection.num_answered for selection in curve}
    for step in range(1, STEPS + 1):  # the least that answers a share, and equal confidences with it
        size = math.ceil(Fraction(len(rows) * step, STEPS))
        assert int((confidence >= np.sort(confidence)[-size]).sum()) in sizes


def test_the_accuracy_of_a_selection_is_at_least_the_wanted_one_as_often_as_promised() -> None:
    """An answer of confidence c is right with a probability of c, so the accuracy above t is (1 + t) / 2."""
    draws, wanted = 300, 0.8
    promised = below = naive = 0
    for draw in range(draws):
        random = generator(draw, "test selections")
        confidence = random.random(400)
        right = random.random(400) < confidence
        try:
            below += (1 + selection_for(selections(confidence, right), wanted).threshold) / 2 < wanted
            promised += 1
        except InputError:  # not certain
            pass
        reached = [each.threshold for each in selections(confidence, right) if each.accuracy >= wanted]
        naive += (1 + reached[-1]) / 2 < wanted
    assert promised > draws / 2
    assert below <= binom.ppf(0.999, promised, 0.05)
    assert naive > draws / 3  # the accuracy itself promises nothing


def test_an_accuracy_that_is_not_certain_is_refused_with_the_best_bound() -> None:
    with pytest.raises(InputError, match=r"certain to be right 95.0% of the time; found 86.1% at best: of the 20 most"):
        selection_for(selections(np.linspace(1, 0.5, 20), np.ones(20, dtype=bool)), 0.95)
    assert (
        selection_for(selections(np.full(60, 0.5), np.ones(60, dtype=bool)), 0.95).threshold == 0.0
    )  # ties, all right
    with pytest.raises(InputError, match=r"found 0.0% at best"):
        selection_for(selections(np.array([1.0]), np.array([False])), 0.5)


@given(st.lists(st.integers(0, 8), min_size=1, max_size=40), st.sampled_from((5, 50, 80, 90, 95)))
def test_the_threshold_is_the_quantile_corrected_for_the_number_of_examples(values: list[int], percent: int) -> None:
    chances = np.array(values) / 8
    needed = math.ceil(Fraction(percent * (len(values) + 1), 100))
    if needed > len(values):
        least = math.ceil(Fraction(percent, 100 - percent))
        assert len(values) < least
        with pytest.raises(InputError, match=rf"expected at least {least} labelled text.*; found {len(values)};"):
            set_threshold(chances, percent / 100)
        return
    threshold = set_threshold(chances, percent / 100)
    tried = [value for value in chances.tolist() if sum(chances >= value) >= needed]
    assert threshold == max(tried)


@pytest.mark.parametrize("num_labels", [1, 2, 8])
@pytest.mark.parametrize("coverage", [0.8, 0.95])
def test_sets_contain_the_gold_label_of_other_examples_as_often_as_stated(num_labels: int, coverage: float) -> None:
    """Of any model: the gold labels here do not follow its probabilities."""
    draws, size, others, covered = 200, 59, 50, []
    for draw in range(draws):
        random = generator(draw, "test sets", num_labels)
        probabilities = random.dirichlet(np.full(num_labels, 0.4), size + others)
        flatter = probabilities**0.3 / (probabilities**0.3).sum(axis=1, keepdims=True)
        gold = (flatter.cumsum(axis=1) < random.random((size + others, 1))).sum(axis=1).clip(max=num_labels - 1)
        threshold = set_threshold(probabilities[np.arange(size), gold[:size]], coverage)
        sets = label_sets(probabilities[size:], threshold)
        assert sets.any(axis=1).all()
        covered.append(sets[np.arange(others), gold[size:]].mean())
    error = np.std(covered) / math.sqrt(draws)
    assert np.mean(covered) >= coverage - 3 * error
    if num_labels == 8:  # no larger than needed
        assert np.mean(covered) <= coverage + 1 / (size + 1) + 3 * error


def test_the_interval_of_the_coverage_is_that_of_order_statistics() -> None:
    low, high = coverage_interval(59, 0.8)
    assert (low, high) == pytest.approx(tuple(beta(48, 12).ppf([0.025, 0.975])))
    covered = [1 - set_threshold(generator(draw, "test interval").random(59), 0.8) for draw in range(1000)]
    assert np.mean([low <= value <= high for value in covered]) == pytest.approx(0.95, abs=0.03)
