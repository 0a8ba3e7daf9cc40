"""Non-finite steps are skipped, loss spikes are reported, a request to stop sets a flag."""

import dataclasses
import math
import os
import signal

import pytest

from bertsmith.training.loop.guard import LossGuard, StopRequest


def test_a_step_that_is_not_a_number_is_skipped_and_leaves_the_mean():
    guard = LossGuard()
    assert guard.judge(2.0, 1.0) == "fine"
    for loss, norm in ((math.nan, 1.0), (math.inf, 1.0), (2.0, math.nan), (2.0, math.inf)):
        assert guard.judge(loss, norm) == "skip"
    assert (guard.mean, guard.skipped, guard.skipped_in_a_row) == (2.0, 4, 4)
    assert guard.judge(2.0, 1.0) == "fine"
    assert (guard.skipped, guard.skipped_in_a_row) == (4, 0)


def test_a_jump_after_a_quiet_stretch_is_a_spike():
    guard = LossGuard()
    assert {guard.judge(5.0 + 0.01 * (i % 3), 1.0) for i in range(60)} == {"fine"}
    assert guard.judge(9.0, 1.0) == "spike"
    assert guard.spikes == 1
    assert guard.mean < 5.1
    assert guard.judge(5.0, 1.0) == "fine"


def test_a_falling_or_noisy_loss_is_no_spike():
    guard = LossGuard()
    losses = [10 * 0.99**i * (1.1 if i % 2 else 0.9) for i in range(300)]
    assert {guard.judge(loss, 1.0) for loss in losses} == {"fine"}


def test_early_losses_are_never_spikes():
    guard = LossGuard()
    assert [guard.judge(loss, 1.0) for loss in (1.0, 100.0, 1.0)] == ["fine"] * 3


def test_a_loss_that_stays_high_is_one_spike_and_then_the_usual():
    guard = LossGuard()
    for _ in range(60):
        guard.judge(1.0, 1.0)
    verdicts = [guard.judge(2.0, 1.0) for _ in range(200)]
    assert verdicts == ["spike"] + ["fine"] * 199
    assert not guard.high
    assert guard.mean == pytest.approx(2.0, abs=0.1)


def test_the_memory_comes_back_from_plain_values():
    guard = LossGuard()
    for loss in (3.0, 2.0, math.nan):
        guard.judge(loss, 1.0)
    assert LossGuard(**dataclasses.asdict(guard)) == guard


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_a_flag_and_the_second_interrupts(number, capsys):
    before = signal.getsignal(number)
    with StopRequest() as stop:
        os.kill(os.getpid(), number)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert "writing a checkpoint" in capsys.readouterr().err
