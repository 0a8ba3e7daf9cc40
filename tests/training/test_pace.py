"""The place of a step in its schedule when the number of steps changes."""

import pytest

from bertsmith.base.core.errors import ConfigError
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.schedule import learning_rate
from bertsmith.training.loop.settings import TrainSettings


def rates(pace, schedule="tf_linear"):
    return [
        learning_rate(schedule, pace.planned_position(step), peak=1.0, warmup=10, total=pace.planned)
        for step in range(pace.steps)
    ]


def test_a_pace_without_changes_is_the_plain_schedule():
    plain = [learning_rate("tf_linear", step, peak=1.0, warmup=10, total=100) for step in range(100)]
    assert rates(Pace(100)) == plain


@pytest.mark.parametrize(
    "changes",
    [((5, 60),), ((40, 60),), ((40, 60), (50, 52)), ((40, 60), (45, 90)), ((40, 160),), ((40, 60), (50, 130))],
)
def test_a_change_keeps_the_schedule_so_far_and_ends_it_at_the_new_last_step(changes):
    pace, step = Pace(100, changes), changes[0][0]
    assert rates(pace)[: step + 1] == rates(Pace(100))[: step + 1]
    assert pace.planned_position(pace.steps) == pytest.approx(100)
    places = [pace.planned_position(step) for step in range(pace.steps + 1)]
    assert places == sorted(places)


def test_a_change_does_not_alter_the_steps_before_it():
    once, twice = Pace(100, ((40, 60),)), Pace(100, ((40, 60), (50, 55)))
    assert [once.planned_position(step) for step in range(51)] == [twice.planned_position(step) for step in range(51)]


def test_the_first_step_at_a_place_stays_where_it_was_once_it_is_passed():
    assert Pace(100).first_step(90) == 90
    assert Pace(100, ((95, 97),)).first_step(90) == 90
    pace = Pace(100, ((20, 60),))
    assert pace.planned_position(pace.first_step(90) - 1) < 90 <= pace.planned_position(pace.first_step(90))


def test_the_changes_are_read_as_they_are_written():
    pace = Pace(100, ((20, 60), (30, 80)))
    assert Pace.parse(100, pace.text) == pace
    assert TrainSettings(steps=100, replanned=pace.text).pace(100) == pace


@pytest.mark.parametrize(
    "text", ["", "20", "20:x", "20:60:70", "60:20", "20:60,20:50", "20:60,70:80", "0:50", "100:120"]
)
def test_changes_that_do_not_fit_are_refused(text):
    with pytest.raises(ConfigError, match=r"STEP:STEPS.*settings\.json"):
        TrainSettings(steps=100, replanned=text)


def test_changes_without_a_number_of_steps_are_refused():
    with pytest.raises(ConfigError, match="replanned with minutes"):
        TrainSettings(minutes=1, replanned="20:60")
