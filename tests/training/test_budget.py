"""A budget in tokens or minutes is converted to a number of steps that can be reused."""

import dataclasses
import re
import time

import pytest
import torch

from bertsmith.base.core import progress
from bertsmith.base.core.errors import ConfigError, TrainingError
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import read_json
from bertsmith.training.loop.checkpoint import model_tensors
from bertsmith.training.loop.clock import Clock as RunClock
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.run_folder import RunFolder
from training.test_loop import same_parameters
from training.toy import ROWS, Clock, SlowingClock, ToyWorkload, toy_run, toy_settings


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


def test_a_budget_in_tokens_is_as_many_steps_as_hold_them(tmp_path):
    result = toy_run(tmp_path, ToyWorkload(), tokens=12 * 4 * ROWS + 3)
    assert result.steps == 12
    assert RunFolder.open(tmp_path).resolved["steps"] == 12


@pytest.mark.parametrize("changes", [{}, {"evaluate_every": None}, {"evaluate_every": 5}, {"evaluate_every": 1}])
def test_a_budget_in_minutes_is_kept_and_used(tmp_path, clock, changes):
    """Trials, evaluations and steps together use nearly all of the two minutes, and no more."""
    workload = ToyWorkload(clock=clock)
    result = toy_run(tmp_path, workload, minutes=2, **changes)
    resolved = RunFolder.open(tmp_path).resolved
    assert result.steps == resolved["steps"] == workload.told[-1]
    assert (resolved["seconds_per_step"], resolved["seconds_per_evaluation"]) == (1.0, 2.0)
    assert 105 <= clock.now <= 120


def test_a_budget_in_minutes_ends_as_a_run_with_its_recorded_steps(tmp_path, clock):
    timed, counted = ToyWorkload(clock=clock), ToyWorkload()
    result = toy_run(tmp_path / "timed", timed, minutes=1)
    toy_run(tmp_path / "counted", counted, steps=result.steps)
    assert same_parameters(timed, counted)


def test_a_budget_in_minutes_is_measured_once_for_a_run_and_its_continuation(tmp_path, clock, capsys):
    stopped, resumed = ToyWorkload(clock=clock, broken=tuple(range(13, 99))), ToyWorkload()
    with pytest.raises(TrainingError):
        toy_run(tmp_path, stopped, minutes=1, save_every=10)
    steps = RunFolder.open(tmp_path).resolved["steps"]
    assert toy_run(tmp_path, resumed, minutes=1, save_every=10, resume=True).steps == steps
    assert resumed.told == [steps]


def said(capsys):
    """What was said about the number of steps."""
    return [line for line in capsys.readouterr().err.splitlines() if "steps were" in line]


def message(speed, result, folder):
    """That message."""
    steps = f"{result.steps:,} steps fitted into the minutes instead of {RunFolder.open(folder).resolved['steps']:,}"
    return f"steps were {speed} than the trial steps, so {steps}; settings.json records the changes"


def slowing(monkeypatch, *times):
    clock = SlowingClock(*times)
    monkeypatch.setattr(time, "monotonic", clock)
    return clock


@pytest.mark.parametrize("factor", [1.5, 3, 10])
def test_a_machine_that_slows_down_after_the_trial_steps_does_not_prolong_a_budget_in_minutes(
    tmp_path, monkeypatch, capsys, factor
):
    clock = slowing(monkeypatch, 60, factor)
    workload = ToyWorkload(clock=clock)
    result = toy_run(tmp_path, workload, minutes=20, evaluate_every=None, learning_rate=0.05)
    resolved = RunFolder.open(tmp_path).resolved
    assert 0.9 * 1200 <= clock.now <= 1.15 * 1200
    assert result.steps < resolved["steps"]
    assert result.steps == int(resolved["replanned"].rsplit(":", 1)[1])
    assert said(capsys) == ["warning: " + message("slower", result, tmp_path)]
    rates = [line["learning_rate"] for line in RunFolder.open(tmp_path).metrics("train")]
    peak = rates.index(max(rates))
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] < 0.02 * max(rates), "the schedule reaches its end"


def test_a_run_that_was_replanned_is_repeated_by_its_recorded_steps(tmp_path, monkeypatch):
    clock = slowing(monkeypatch, 60, 4)
    timed, counted = ToyWorkload(clock=clock), ToyWorkload()
    result = toy_run(tmp_path / "timed", timed, minutes=10)
    resolved = RunFolder.open(tmp_path / "timed").resolved
    again = toy_run(tmp_path / "counted", counted, steps=resolved["steps"], replanned=resolved["replanned"])
    assert again.steps == result.steps < resolved["steps"]
    assert same_parameters(timed, counted)
    assert timed.pace == counted.pace


def test_a_replanned_run_that_was_killed_and_resumed_is_repeated_by_its_recorded_steps(tmp_path, monkeypatch):
    """The changes are recorded when they are made; the resumed run makes them at the same steps."""
    clock = slowing(monkeypatch, 60, 4)
    dies = tuple(range(50, 999))
    with pytest.raises(TrainingError):
        toy_run(tmp_path / "timed", ToyWorkload(clock=clock, broken=dies), minutes=10, save_every=30, skip_limit=1)
    before = RunFolder.open(tmp_path / "timed")
    assert before.last_step() < int(before.resolved["replanned"].split(":")[0]), "the checkpoint is from before"
    resumed, counted = ToyWorkload(clock=clock), ToyWorkload()
    result = toy_run(tmp_path / "timed", resumed, minutes=10, save_every=30, skip_limit=1, resume=True)
    resolved = RunFolder.open(tmp_path / "timed").resolved
    assert resolved["replanned"].startswith(before.resolved["replanned"])
    again = toy_run(tmp_path / "counted", counted, steps=resolved["steps"], replanned=resolved["replanned"])
    assert again.steps == result.steps
    assert same_parameters(resumed, counted)


def test_a_machine_that_is_slow_for_a_while_gets_steps_back(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_silent", 0)
    clock = slowing(monkeypatch, 100, 8, 300)
    workload = ToyWorkload(clock=clock)
    result = toy_run(tmp_path, workload, minutes=20)
    changes = [int(part.split(":")[1]) for part in RunFolder.open(tmp_path).resolved["replanned"].split(",")]
    assert result.steps == changes[-1] > min(changes)
    assert 0.85 * 1200 <= clock.now <= 1.15 * 1200
    assert said(capsys) == ["warning: " + message("slower", result, tmp_path)], "once, at the end"


def test_a_machine_that_is_fast_again_in_time_leaves_nothing_to_say(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_silent", 0)
    clock = slowing(monkeypatch, 100, 8, 120)
    result = toy_run(tmp_path, ToyWorkload(clock=clock), minutes=20)
    resolved = RunFolder.open(tmp_path).resolved
    fewest = min(int(part.split(":")[1]) for part in resolved["replanned"].split(","))
    assert fewest < 0.9 * resolved["steps"] < result.steps
    assert said(capsys) == []


@pytest.mark.parametrize("factor", [1.5, 4])
def test_a_machine_that_was_busy_during_the_trial_steps_gets_more_steps(tmp_path, monkeypatch, capsys, factor):
    monkeypatch.setattr(progress, "_silent", 0)
    clock = slowing(monkeypatch, 0, factor, 30)
    workload = ToyWorkload(clock=clock)
    workload.is_even = True
    result = toy_run(tmp_path / "timed", workload, minutes=20, evaluate_every=None, learning_rate=0.05)
    run = RunFolder.open(tmp_path / "timed")
    assert 0.9 * 1200 <= clock.now <= 1.05 * 1200
    assert result.steps == int(run.resolved["replanned"].rsplit(":", 1)[1]) > run.resolved["steps"]
    assert said(capsys) == [message("faster", result, tmp_path / "timed")]
    rates = [line["learning_rate"] for line in run.metrics("train")]
    assert rates[-1] < 0.02 * max(rates), "the schedule reaches its end"
    peak = rates.index(max(rates))
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    counted = ToyWorkload()
    options = {"steps": run.resolved["steps"], "replanned": run.resolved["replanned"], "learning_rate": 0.05}
    assert toy_run(tmp_path / "counted", counted, evaluate_every=None, **options).steps == result.steps
    assert same_parameters(workload, counted)


@pytest.mark.parametrize("times", [(60, 1.3), (0, 1.3, 60), (300, 2, 500), (0, 1)])
def test_a_budget_of_processor_time_is_kept_to_two_percent(tmp_path, monkeypatch, times):
    """Whatever else runs on the machine, and whether the first steps are slow, the last ones or none."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    processor = SlowingClock(*times)
    monkeypatch.setattr(time, "process_time", lambda: 2 * processor.now)
    monkeypatch.setattr(time, "monotonic", lambda: 7 * processor.now + 100)
    workload = ToyWorkload(clock=processor)
    workload.is_even = True
    settings = toy_settings(minutes=20, evaluate_every=None)
    run = RunFolder.create(tmp_path, {"train": to_dict(settings)})
    result = train(workload, settings, run, clock=RunClock(by_processor=True))
    assert processor.now == pytest.approx(1200, rel=0.02)
    assert (result.processor_seconds, result.seconds) == (2 * processor.now, 7 * processor.now)
    assert len(run.resolved.get("replanned", "").split(",")) < 50, "few changes, not one at every look"


@pytest.mark.parametrize(
    ("rank", "device", "found"), [(Rank(index=1, count=2), "cpu", "2 processes"), (Rank(), "cuda:0", "the device cuda")]
)
def test_processor_time_is_that_of_one_process_on_a_cpu(tmp_path, rank, device, found):
    with pytest.raises(ConfigError, match=f"^expected one process on a CPU .*; found {found}.*; count wall"):
        RunClock.of_run(rank, device, by_processor=True, before={})
    assert not RunClock.of_run(rank, device, by_processor=False, before={}).by_processor


def test_a_number_of_threads_that_changes_does_not_change_the_time(monkeypatch):
    processor = Clock()
    monkeypatch.setattr(time, "process_time", processor)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    clock = RunClock(by_processor=True)
    processor.now = 80.0
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert clock.elapsed() == clock.spent() == 20


def test_the_processor_time_of_a_resumed_run_is_that_of_all_its_parts(tmp_path, monkeypatch):
    processor = Clock()
    processor.now = 50.0
    monkeypatch.setattr(time, "process_time", processor)
    with pytest.raises(TrainingError):
        toy_run(tmp_path, ToyWorkload(clock=processor, broken=tuple(range(13, 99))), minutes=1, save_every=10)
    first = read_json(tmp_path / "checkpoints" / "step-00000010" / "state.json")["processor_seconds"]
    assert first >= 10
    processor.now = 1000.0
    resumed = toy_run(tmp_path, ToyWorkload(clock=processor), minutes=1, save_every=10, resume=True)
    assert resumed.processor_seconds == first + processor.now - 1000


def test_a_run_whose_first_steps_are_the_cheap_ones_gets_no_more_steps(tmp_path, monkeypatch):
    clock = slowing(monkeypatch, 0, 4, 30)
    result = toy_run(tmp_path, ToyWorkload(clock=clock), minutes=20)
    assert result.steps == RunFolder.open(tmp_path).resolved["steps"]
    assert clock.now < 0.5 * 1200


def test_the_time_that_the_caller_used_counts_towards_a_budget_in_minutes(tmp_path, clock):
    settings = toy_settings(minutes=2)
    run = RunFolder.create(tmp_path / "run", {"train": to_dict(settings)})
    since = RunClock()
    clock.now = 40.0
    train(ToyWorkload(clock=clock), settings, run, clock=since)
    assert 105 <= clock.now <= 120


def test_the_trial_steps_leave_the_model_as_it_was(tmp_path, clock):
    workload = ToyWorkload(clock=clock)
    before = {name: tensor.clone() for name, tensor in model_tensors(workload.model).items()}
    with pytest.raises(ConfigError, match=r"long enough for one step; found 0\.1 minutes; a step takes 1\.0 s"):
        toy_run(tmp_path / "run", workload, minutes=0.1)
    assert all(torch.equal(before[name], tensor) for name, tensor in model_tensors(workload.model).items())
    assert all(p.grad is None for p in workload.model.parameters())


def test_evaluation_takes_about_a_tenth_of_a_budget_in_minutes(tmp_path, clock):
    workload = ToyWorkload(clock=clock)
    toy_run(tmp_path, workload, minutes=1, evaluate_every=None)
    assert workload.evaluations == 3


@pytest.mark.parametrize(
    ("minutes", "trials", "words"), [(0.1, 2, "evaluating and saving take 2.0 s"), (0.01, 1, "timing")]
)
def test_a_budget_without_room_for_a_step_says_what_is_needed_and_leaves_nothing(
    tmp_path, clock, minutes, trials, words
):
    """A budget that is certain to fail is refused immediately; one above the minimum in the error trains."""
    workload, folder = ToyWorkload(clock=clock), tmp_path / "run"
    with pytest.raises(ConfigError, match=words) as error:
        toy_run(folder, workload, minutes=minutes)
    assert clock.now == trials + 2 * workload.evaluations
    assert not folder.exists()
    least = float(re.search(r"allow more than ([0-9.]+) minutes", str(error.value))[1])
    assert toy_run(folder, ToyWorkload(clock=clock), minutes=least + 0.1).steps >= 1
    assert least <= 0.2


def test_other_files_in_the_folder_of_a_run_that_never_started_stay(tmp_path, clock):
    settings = toy_settings(minutes=0.1)
    run = RunFolder.create(tmp_path / "run", {"train": to_dict(settings)})
    (run.path / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(ConfigError):
        train(ToyWorkload(clock=clock), settings, run)
    assert [path.name for path in run.path.iterdir()] == ["mine.txt"]


def test_a_run_that_was_there_before_stays_although_it_has_no_step(tmp_path, clock):
    settings = toy_settings(minutes=0.1)
    RunFolder.create(tmp_path, {"train": to_dict(settings)})
    before = (tmp_path / "settings.json").read_bytes()
    with pytest.raises(ConfigError, match=r"minutes with --minutes, or give --steps or --tokens .*--resume takes"):
        train(ToyWorkload(clock=clock), settings, RunFolder.open(tmp_path))
    assert (tmp_path / "settings.json").read_bytes() == before


def test_the_time_that_was_spent_is_divided_into_loading_and_timing(tmp_path, clock):
    settings = toy_settings(minutes=0.5)
    run = RunFolder.create(tmp_path / "run", {"train": to_dict(settings)})
    since = RunClock()
    clock.now = 40.0
    with pytest.raises(ConfigError, match=r"a step takes 1\.0 s, after 40\.0 s of loading and 1\.0 s of timing steps"):
        train(ToyWorkload(clock=clock), settings, run, clock=since)


def test_a_run_that_began_stays_whatever_its_continuation_is_given(tmp_path, clock):
    with pytest.raises(TrainingError):
        toy_run(tmp_path / "old", ToyWorkload(clock=clock, broken=tuple(range(13, 99))), minutes=1, save_every=10)
    with pytest.raises(ConfigError):
        toy_run(tmp_path / "new", _Idle(), steps=4)
    assert not (tmp_path / "new").exists()
    with pytest.raises(ConfigError):
        train(_Idle(), toy_settings(minutes=1, save_every=10), RunFolder.open(tmp_path / "old"))
    assert RunFolder.open(tmp_path / "old").last_step() == 10


class _Idle(ToyWorkload):
    """A workload without work for any process, which is an error in the settings."""

    def plan(self, step, rank, world):
        return dataclasses.replace(super().plan(step, rank, world), micro_batches=[])
