"""Converts a budget in steps, tokens or minutes to a number of steps before training starts.

For a budget in minutes, a few steps spread over the run are timed and their updates discarded. The resulting number
of steps is recorded; a run that is given this number as its budget ends with the same parameters. If later steps take
longer than the timed ones, or less long, a `Deadline` finds a new number of steps, which is recorded too (`pace.py`).
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import Progress
from bertsmith.base.processes import distributed
from bertsmith.training.loop.checkpoint import model_tensors
from bertsmith.training.loop.clock import RESERVE, Clock
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.loop.workload import StepPlan

EVALUATIONS = 10
_TRIAL_RUN = 100  # assumed length of the run while the actual number of steps is unknown
# Positions of the trial steps: the middle of each tenth of the run, ordered to cover the run early. The first one is
# repeated because the first step of a process is slow (memory, compilation). On a GPU all of them are: each new shape
# takes memory and loads kernels, so they run once before they are timed.
_TRIALS = (5, 5, 95, 45, 75, 25, 85, 55, 15, 65, 35)
# (trials, fraction): after this many trials, stop if they took more than this fraction of the budget.
_ENOUGH = ((3, 0.1), (2, 0.3), (1, 1.0))
_EVALUATION_SHARE = 0.1  # of the budget, if the number of evaluations is not set
_WINDOW = 0.05  # of the budget: the time over which the duration of a step is averaged
_FIRST_LOOK = 0.2  # of the window, before anything is concluded from it
_LOOKS = 1000  # at most this many times per run is the time compared with the budget


@dataclass(frozen=True, kw_only=True)
class Durations:
    """Seconds that the parts of a run take."""

    step: float
    evaluation: float
    checkpoint: float

    def fitting(self, seconds: float, settings: TrainSettings) -> tuple[int, int, float]:
        """The number of steps that fit into some seconds, the steps between evaluations, the seconds for one step."""
        each = self.step
        # The last checkpoint and the model folder, which is about a third the size of a checkpoint.
        fixed = 2 * self.checkpoint
        if settings.save_every is not None:
            each += self.checkpoint / settings.save_every
        if settings.save_minutes is not None:
            fixed += self.checkpoint * (seconds // (settings.save_minutes * 60))
        evaluations = max(1, min(EVALUATIONS, int(_EVALUATION_SHARE * seconds / max(self.evaluation, 1e-9))))
        if settings.evaluate_every is not None:
            each += self.evaluation / settings.evaluate_every
            fixed += self.evaluation
        else:
            fixed += evaluations * self.evaluation
        steps = int((seconds - fixed) / each)
        return steps, settings.evaluate_every or -(-steps // evaluations), fixed + each


def resolve(
    trainer: Trainer,
    *,
    evaluate: Callable[[], None],
    save: Callable[[], None],
    clock: Clock,
    resumed: bool = False,
) -> dict[str, Any]:
    """The resolved budget, to be recorded: "steps", "evaluate_every" and, for minutes, the measurements.

    Args:
        trainer: the trainer whose workload is timed; its parameters and moments are the same afterwards.
        resumed: the run was there before, so only its budget can be changed.

    Raises:
        BudgetError: the budget is too short for a single step.
        KeyboardInterrupt: a stop was requested during the trials.
    """
    settings = trainer.settings
    if settings.minutes is not None:
        return _resolve_minutes(trainer, settings.minutes * 60, evaluate, save, clock, resumed)
    steps = settings.steps or _steps_for_tokens(trainer, settings.tokens or 0)
    return {"steps": steps, "evaluate_every": settings.evaluate_every or -(-steps // EVALUATIONS)}


def _steps_for_tokens(trainer: Trainer, tokens: int) -> int:
    """The number of steps for `tokens` tokens."""
    plans = trial_plans(trainer)
    return max(1, round(tokens * len(plans) / sum(plan.tokens for plan in plans)))


def trial_plans(trainer: Trainer) -> list[StepPlan]:
    """The plans of some steps, spread over the run."""
    trainer.workload.fix_steps(_TRIAL_RUN)
    return [plan for _, plan in trainer.plans(sorted(set(_TRIALS)))]


def _resolve_minutes(
    trainer: Trainer,
    seconds: float,
    evaluate: Callable[[], None],
    save: Callable[[], None],
    clock: Clock,
    resumed: bool,
) -> dict[str, Any]:
    settings = trainer.settings

    def agreed(value: float) -> float:
        return distributed.from_first_rank(value, trainer.rank)

    def timed(action: Callable[[], None]) -> float:
        start = clock.now()
        action()
        return agreed(clock.now() - start)

    loading = agreed(clock.elapsed())
    step_seconds = time_of_a_step(trainer, agreed, lambda: agreed(clock.elapsed()) / seconds, clock)
    spent = agreed(clock.elapsed())
    before = f", after {loading:.1f} s of loading and {spent - loading:.1f} s of timing steps"
    if spent + step_seconds > seconds * (1 - clock.reserve):
        raise _too_short(seconds, spent + step_seconds, step_seconds, before, resumed)
    trainer.workload.fix_steps(_TRIAL_RUN)
    evaluation_seconds, save_seconds = timed(evaluate), timed(save)
    spent = agreed(clock.elapsed())
    durations = Durations(step=step_seconds, evaluation=evaluation_seconds, checkpoint=save_seconds)
    steps, evaluate_every, least = durations.fitting(seconds * (1 - clock.reserve) - spent, settings)
    if steps < 1:
        rest = f" and evaluating and saving take {evaluation_seconds + save_seconds:.1f} s"
        raise _too_short(seconds, spent + least, step_seconds, rest + before, resumed)
    return {
        "steps": steps,
        "evaluate_every": evaluate_every,
        "seconds_per_step": round(step_seconds, 4),
        "seconds_per_evaluation": round(evaluation_seconds, 4),
        "seconds_per_checkpoint": round(save_seconds, 4),
    }


class BudgetError(ConfigError):
    """The time budget is too short for a single step; `minutes` is the minimum."""

    def __init__(self, *, expected: str, found: str, fix: str, minutes: float) -> None:
        super().__init__(expected=expected, found=found, fix=fix)
        self.minutes = minutes


def _too_short(seconds: float, needed: float, step_seconds: float, rest: str, resumed: bool) -> BudgetError:
    """The error for a budget of `seconds`, when at least `needed` seconds are required."""
    least = math.ceil(needed / (1 - RESERVE) / 6) / 10
    # With --resume, other settings than the budget have to stay as they are.
    more = "; --resume takes them" if resumed else ", or use a smaller model or smaller steps"
    return BudgetError(
        expected="a budget long enough for one step",
        found=f"{seconds / 60:g} minutes; a step takes {step_seconds:.1f} s{rest}",
        fix=f"allow more than {least:g} minutes with --minutes, or give --steps or --tokens instead{more}",
        minutes=least,
    )


class Deadline:
    """Keeps a run within its budget in minutes: the number of steps that fit, from recent steps.

    Args:
        may_grow: whether the run may get more steps than planned; see `Workload.has_even_steps`.
    """

    def __init__(self, settings: TrainSettings, resolved: Mapping[str, Any], clock: Clock, *, may_grow: bool) -> None:
        assert settings.minutes is not None
        self.clock, self.may_grow = clock, may_grow
        self.seconds = settings.minutes * 60
        self.save_every = settings.save_every
        self.evaluate_every = settings.evaluate_every or int(resolved["evaluate_every"])
        self.trial, self.evaluation, self.checkpoint = (
            float(resolved.get(f"seconds_per_{event}", 0.0)) for event in ("step", "evaluation", "checkpoint")
        )
        # Sums over the past that decay with time: seconds, and steps in them.
        self._worked = self._steps = 0.0
        self._seen = 0.0

    def note(self, seconds: float) -> None:
        """Takes the duration of a step into account."""
        kept = math.exp(-seconds / (_WINDOW * self.seconds))
        self._worked, self._steps = self._worked * kept + seconds, self._steps * kept + 1
        self._seen += seconds

    @staticmethod
    def looks(step: int, pace: Pace) -> bool:
        """Whether the time is compared with the budget after this step; the same for all ranks."""
        is_decided = bool(pace.changes) and step <= pace.changes[-1][0]  # resumed before the last change
        return step < pace.steps and not is_decided and step % max(1, pace.planned // _LOOKS) == 0

    def replan(self, step: int, pace: Pace, spent: float) -> int | None:
        """The new number of steps of the run; None if it will end in time as it is."""
        if self._seen < _FIRST_LOOK * _WINDOW * self.seconds:
            return None
        each = self._worked / self._steps
        slowdown = max(1.0, each / max(self.trial, 1e-4))  # recorded to a ten-thousandth of a second
        each += slowdown * self.evaluation / self.evaluate_every
        each += slowdown * self.checkpoint / self.save_every if self.save_every else 0.0
        # As in the first plan: the last evaluation, the last checkpoint and the model folder.
        fixed = slowdown * (self.evaluation + 2 * self.checkpoint)
        share = (spent + each * (pace.steps - step) + fixed) / self.seconds
        if abs(share - 1) < self.clock.tolerance:
            return None
        fitting = step + max(1, int((self.seconds * (1 - self.clock.reserve) - spent - fixed) / each))
        if not self.may_grow:
            fitting = min(fitting, pace.planned)
        elif share > 1 - self.clock.unused:
            fitting = min(fitting, max(pace.planned, pace.steps))
        return None if fitting == pace.steps else fitting


def time_of_a_step(
    trainer: Trainer, agreed: Callable[[float], float], spent: Callable[[], float], clock: Clock
) -> float:
    """Seconds per step, the mean of a few trial steps; leaves model and optimizer unchanged.

    Args:
        spent: returns the fraction of the budget spent so far.
    """
    before = {name: tensor.clone() for name, tensor in model_tensors(trainer.trained).items()}
    trainer.workload.fix_steps(_TRIAL_RUN)
    warm_up = len(_TRIALS) - 1 if any(tensor.is_cuda for tensor in before.values()) else 1
    trials = _TRIALS[1:] * 2 if warm_up > 1 else _TRIALS
    times: list[float] = []
    try:
        with (
            Progress("timing steps", len(trials), "steps") as progress,
            contextlib.closing(trainer.plans(trials)) as plans,
        ):
            start = clock.now()
            for step, plan in plans:
                outcome = trainer.gradient(step, plan)
                if outcome.stop:
                    raise KeyboardInterrupt
                trainer.apply(outcome, 0.0)
                now = clock.now()
                times.append(now - start)
                start = now
                progress.advance()
                share = spent()
                if any(len(times) >= count and share > limit for count, limit in _ENOUGH):
                    break
    finally:
        with torch.no_grad():
            for name, tensor in model_tensors(trainer.trained).items():
                tensor.copy_(before[name])
        trainer.optimizer.reset()
        trainer.optimizer.clear_gradients()
        trainer.workload.carry(0, {})
    counted = times[warm_up:] or times[1:] or times
    return agreed(sum(counted) / len(counted))
