"""The learning rate is a function of the step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.training.loop.schedule import SCHEDULES, learning_rate


def test_the_first_update_of_a_warm_up_has_rate_zero():
    for schedule in SCHEDULES.keys() - {"slanted_triangular", "noam"}:
        assert learning_rate(schedule, 0, peak=1e-4, warmup=10_000, total=1_000_000) == 0.0


def test_without_a_warm_up_the_first_update_has_the_peak_rate():
    for schedule in SCHEDULES:
        assert learning_rate(schedule, 0, peak=1e-4, warmup=0, total=100) == 1e-4


def test_the_2018_rate_drops_a_little_where_the_warm_up_ends():
    """The decay starts at step 0, so at step 10,000 of 1,000,000 the learning rate is 99% of the peak."""
    rate = [learning_rate("tf_linear", t, peak=1e-4, warmup=10_000, total=1_000_000) for t in (9_999, 10_000, 505_000)]
    assert rate == [1e-4 * 9_999 / 10_000, 1e-4 * (1 - 0.01), 1e-4 * (1 - 0.505)]


def test_the_hugging_face_rate_falls_from_the_peak():
    rate = [learning_rate("hf_linear", t, peak=2.0, warmup=10, total=110) for t in (5, 10, 60, 110)]
    assert rate == [1.0, 2.0, 1.0, 0.0]


def test_slanted_triangles_rise_from_a_32nd_of_the_peak_in_a_tenth_of_the_steps_and_fall_back_to_it():
    """By hand: p is 0 at step 0, 1 at the cut, 1 - (t - cut) / (cut (1 / 0.1 - 1)) after it, 0 at the last step."""
    cut, total = 20, 200
    rates = [learning_rate("slanted_triangular", t, peak=0.01, warmup=cut, total=total) for t in (0, 10, 20, 110, 200)]
    shares = [0, 0.5, 1, 1 - (110 - cut) / (cut * (1 / 0.1 - 1)), 0]
    assert rates == pytest.approx([0.01 * (1 + share * 31) / 32 for share in shares])
    assert rates[0] == rates[-1] == 0.01 / 32


def test_the_constant_rate_stays():
    assert {learning_rate("constant", t, peak=3.0, warmup=4, total=10) for t in range(4, 10)} == {3.0}


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 500), st.data())
def test_a_rate_rises_in_the_warm_up_then_never_rises_and_stays_in_range(schedule, total, data):
    warmup = data.draw(st.integers(0, total - 1))
    rates = [learning_rate(schedule, t, peak=1.0, warmup=warmup, total=total) for t in range(total + 1)]
    assert all(0.0 <= rate <= 1.0 for rate in rates)
    assert rates[:warmup] == sorted(rates[:warmup])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    last = {"constant": 1.0, "slanted_triangular": 1 / 32, "noam": (max(1, warmup) / (total + 1)) ** 0.5}
    assert rates[total] == pytest.approx(last.get(schedule, 0.0), abs=1e-12)


def test_an_unknown_schedule_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'hf_linear'"):
        learning_rate("hf_linaer", 0, peak=1.0, warmup=0, total=1)


@pytest.mark.parametrize("number", [1, 2, 3999, 4000, 4001, 100_000])
def test_noam_is_the_formula_of_the_transformer(number):
    """Vaswani et al. (2017), equation 3; the first update has the number 1."""
    width, warmup = 512, 4000
    expected = width**-0.5 * min(number**-0.5, number * warmup**-1.5)
    peak = (width * warmup) ** -0.5
    rate = learning_rate("noam", number - 1, peak=peak, warmup=warmup, total=100_000)
    assert rate == pytest.approx(expected, rel=1e-12)
