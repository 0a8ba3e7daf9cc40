"""The state of a training between its steps: its position, and its log, checkpoints, evaluations and budget."""

import contextlib
import dataclasses
import time
from collections.abc import Generator

from torch import Tensor

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.progress import amount, counted, quiet, tell, warn
from bertsmith.base.processes import distributed
from bertsmith.training.loop import budget
from bertsmith.training.loop.averaging import AveragedSgd, no_longer_improves, require_averaging
from bertsmith.training.loop.checkpoint import Position
from bertsmith.training.loop.clock import Clock
from bertsmith.training.loop.devices import peak_of_device
from bertsmith.training.loop.evaluations import PREFIX, Evaluations
from bertsmith.training.loop.guard import LossGuard, of_process, too_many_skipped
from bertsmith.training.loop.log import OPERATIONS, SECONDS, TOKENS, MetricsLog, speed
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.trainer import StepOutcome, Trainer
from bertsmith.training.loop.workload import StepPlan

_LOSS, _NORM, _STEPS = "loop.loss", "loop.norm", "loop.steps"  # sums besides those of `speed` and of the workload


class TrainingState:
    """A training in progress, at its newest checkpoint or at step 0.

    Args:
        trainer: the model and the optimizer, which receive the values of the checkpoint.

    Attributes:
        position: the completed steps, and what was counted in them.
        pace: the number of steps, after `fix_budget`.
        deadline: the end of a budget in minutes.
    """

    def __init__(self, trainer: Trainer, run: RunFolder, log: MetricsLog, clock: Clock) -> None:
        self.trainer, self.run, self.log, self.clock = trainer, run, log, clock
        self.settings, self.rank = trainer.settings, trainer.rank
        self.first = self.rank.index == 0
        # Of a divided model no process can save without the others.
        self.together = self.rank if trainer.is_divided else None
        self.last_saved = time.monotonic()
        self.peak = peak_of_device(trainer.device, trainer.workload.precision)
        self.position = self._load()
        self.guard = LossGuard(**self.position.guard)
        self.clock.resume(self.position.seconds, self.position.processor_seconds)
        self.steps_before = self.position.step
        self.saved_step = self.position.step if run.last_step() is not None else None
        evaluated = distributed.result_of_first_rank(lambda: run.metrics("evaluation"), self.rank)
        self.evaluations = Evaluations(evaluated, self.settings.keep_best, trainer.workload.higher_is_better())
        if isinstance(trainer.optimizer, AveragedSgd):
            require_averaging(self.rank.count, trainer.workload.higher_is_better())
        self.pace, self.evaluate_every = Pace(0), 0
        self.deadline: budget.Deadline | None = None

    def _load(self) -> Position:
        """The position of the run; rank 0 loads first, because it may set damaged checkpoints aside."""
        model, optimizer = self.trainer.trained, self.trainer.optimizer
        carried = dict[str, Tensor]()
        position = (self.run.load(model, optimizer, carried) if self.first else None) or Position()
        step = distributed.from_first_rank(position.step, self.rank)
        if not self.first:
            position = self.run.load(model, optimizer, carried, repair=False) or Position()
        if position.step != step:
            raise CheckpointError(
                expected=f"the checkpoint of step {step:.0f} in every process",
                found=f"the checkpoint of step {position.step} in process {self.rank.index}",
                fix="put the run on a disk that all processes share",
            )
        self.trainer.workload.carry(position.step, carried)
        return position

    def steps(self) -> Generator[tuple[int, StepPlan]]:
        """Yields each step with its plan, up to the last step or the end of the patience."""
        while self.position.step < self.pace.steps and not self.out_of_patience():
            with contextlib.closing(self.trainer.plans(range(self.position.step, self.pace.steps))) as plans:
                for step, plan in plans:
                    yield step, plan
                    if self.out_of_patience():
                        self.save()
                        return
                    if self.deadline is not None and self.replan(self.deadline):
                        break  # what a step does depends on the number of steps

    def fix_budget(self) -> None:
        """Determines the number of steps, once, and passes it to the run folder and the workload."""
        resolved = self.run.resolved
        if not resolved:
            resolved = budget.resolve(
                self.trainer,
                evaluate=self._evaluate,
                save=self.save,
                clock=self.clock,
                resumed=not self.run.is_new,
            )
            self.settings.warmup(resolved["steps"])
            if self.first:
                self.run.resolve(resolved)
        planned = int(resolved["steps"])
        self.pace = Pace.parse(planned, text) if (text := resolved.get("replanned")) else self.settings.pace(planned)
        self.evaluate_every = self.settings.evaluate_every or int(resolved["evaluate_every"])
        if self.settings.minutes is not None:
            may_grow = self.trainer.workload.has_even_steps
            self.deadline = budget.Deadline(self.settings, resolved, self.clock, may_grow=may_grow)
        self.trainer.workload.fix_steps(planned)
        self.trainer.workload.note_evaluations(self.evaluations.until(self.position.step))
        if self.pace.changes:
            self.trainer.workload.change_pace(self.pace)

    def replan(self, deadline: budget.Deadline) -> bool:
        """Whether the number of steps changed, so that the run ends within its minutes; rank 0 decides for all."""
        if not deadline.looks(self.position.step, self.pace):
            return False
        steps = deadline.replan(self.position.step, self.pace, self.clock.spent()) or 0
        steps = int(distributed.from_first_rank(steps, self.rank))
        if not steps:
            return False
        self.pace = self.pace.changed(self.position.step, steps)
        if self.first:
            self.run.resolve({**self.run.resolved, "replanned": self.pace.text})
        self.trainer.workload.change_pace(self.pace)
        return True

    def tell_changes(self) -> None:
        """Says how many steps fitted into the minutes, at the end: until then their number can change again."""
        steps, planned = self.position.step, self.pace.planned
        is_near = abs(steps - planned) <= self.clock.tolerance * planned
        if self.clock.by_processor or not self.first or steps != self.pace.steps or is_near:
            return
        slower, say = ("slower", warn) if steps < planned else ("faster", tell)
        say(
            f"steps were {slower} than the trial steps, so {counted(steps, 'step')} fitted into the minutes instead of "
            f"{planned:,}; settings.json records the changes"
        )

    def accepts(self, step: int, outcome: StepOutcome) -> bool:
        """Whether the parameters are updated after a step, because its loss and gradient are finite."""
        verdict = self.guard.judge(outcome.loss, outcome.gradient_norm)
        if verdict == "skip":
            self._report_skip(step + 1, outcome)
        elif verdict == "spike":
            self._report_spike(step + 1, outcome)
        return verdict != "skip"

    def count(self, plan: StepPlan, applied: StepOutcome | None, seconds: float) -> None:
        """Adds a step to the position."""
        added = {TOKENS: float(plan.tokens)}
        if applied is not None:
            added |= {_LOSS: applied.loss, _NORM: applied.gradient_norm, _STEPS: 1.0, **applied.sums}
        added[SECONDS] = seconds
        if self.peak is not None:
            added[OPERATIONS] = self.trainer.workload.operations(plan)
        position = self.position
        for name, value in added.items():
            position.pending[name] = position.pending.get(name, 0.0) + value
        position.step += 1
        position.tokens += plan.tokens
        position.sequences += plan.sequences

    def _report_skip(self, step: int, outcome: StepOutcome) -> None:
        values = f"loss {outcome.loss}, gradient norm {outcome.gradient_norm}{of_process(outcome.broken, self.rank)}"
        if self.first:
            self.log.write(
                "skipped", step, {"skipped_loss": str(outcome.loss), "skipped_norm": str(outcome.gradient_norm)}
            )
            in_a_row = self.guard.skipped_in_a_row
            limit = counted(self.settings.skip_limit, "such step")
            then = f"; after {limit} in a row the training stops" if in_a_row == 1 else ""
            warn(f"step {step} was skipped, because its loss or gradient is not finite ({values}){then}")
        if self.guard.skipped_in_a_row >= self.settings.skip_limit:
            last = self.run.last_step()
            raise too_many_skipped(self.guard, step, values, self.trainer.workload.precision, last)

    def _report_spike(self, step: int, outcome: StepOutcome) -> None:
        if self.first:
            self.log.write("spike", step, {"spike_loss": outcome.loss, "usual_loss": self.guard.mean})
            warn(f"the loss jumped to {outcome.loss:.4g} in step {step}, from about {self.guard.mean:.4g}")

    def note(self, outcome: StepOutcome) -> str:
        """The loss and the speed, for the progress line."""
        rates = speed(self.position.pending, self.peak)
        share = f", {rates['utilization']:.0%} of the peak" if "utilization" in rates else ""
        return f"loss {outcome.loss:.3f}, {amount(rates['tokens_per_second'])} tokens/s{share}"

    def log_line(self, rate: float) -> None:
        """Writes the means since the last line, and resets them."""
        position, pending = self.position, self.position.pending
        values: dict[str, float] = {"tokens": position.tokens, "sequences": position.sequences}
        if steps := pending.get(_STEPS):
            sums = {name: value for name, value in pending.items() if not name.startswith("loop.")}
            values["loss"] = pending[_LOSS] / steps
            values |= self.trainer.workload.summarize(sums)
            values["gradient_norm"] = pending[_NORM] / steps
        done = position.step - self.steps_before
        values |= {
            "learning_rate": rate,
            "skipped": self.guard.skipped,
            **speed(pending, self.peak),
            "seconds": round(self.clock.seconds, 3),
            "time_left": round((time.monotonic() - self.clock.started) / done * (self.pace.steps - position.step), 1),
        }
        if self.first:
            self.log.write("train", position.step, values)
        if self.trainer.watch is not None:
            seconds = self.trainer.watch.look(position.step)
            if self.first:
                self.log.write("processes", position.step, {"seconds": [round(value, 3) for value in seconds]})
        position.pending = {}

    def save_is_due(self) -> bool:
        """Whether a checkpoint is due after this step."""
        step, s = self.position.step, self.settings
        by_step = s.save_every is not None and step % s.save_every == 0
        by_time = s.save_minutes is not None and time.monotonic() - self.last_saved >= s.save_minutes * 60
        if self.together:
            by_time = distributed.from_first_rank(float(by_time), self.rank) > 0
        return step == self.pace.steps or by_step or by_time

    def save(self) -> None:
        """Writes a checkpoint, unless there is one of this step."""
        if not (self.first or self.together) or self.saved_step == self.position.step:
            return
        self.position.seconds, self.position.processor_seconds = self.clock.seconds, self.clock.processor_seconds
        self.position.updates = self.trainer.optimizer.updates
        self.position.guard = dataclasses.asdict(self.guard)
        model, optimizer = self.trainer.trained, self.trainer.optimizer
        carried = self.trainer.workload.carried(self.position.step)
        self.run.save(self.position, model, optimizer, self.settings.keep_checkpoints, carried, self.together)
        if self.first:
            self.run.forget_best(but=self.evaluations.best_step())
        self.saved_step, self.last_saved = self.position.step, time.monotonic()

    def evaluate_if_due(self, *, silently: bool = False) -> None:
        """Evaluates after the first, the last and every `evaluate_every`-th step, and where a callback stops."""
        step = self.position.step
        if step in (0, self.pace.steps) or step % self.evaluate_every == 0 or self.is_stopped():
            self._evaluate(silently=silently)
            self.trainer.workload.note_evaluations(self.evaluations.until(step))
            optimizer = self.trainer.optimizer
            if isinstance(optimizer, AveragedSgd) and no_longer_improves(self.evaluations.losses(step)):
                optimizer.start_averaging()

    def _evaluate(self, *, silently: bool = False) -> None:
        """Evaluates and writes a log line, unless this step already has one; `silently` without its own progress."""
        position = self.position
        if position.step in self.evaluations:
            return
        optimizer = self.trainer.optimizer
        averages = optimizer.averages() if isinstance(optimizer, AveragedSgd) else contextlib.nullcontext()
        with quiet() if silently else contextlib.nullcontext(), averages:
            values = {f"{PREFIX}{name}": value for name, value in self.trainer.evaluate().items()}
            self.evaluations.add(position.step, position.tokens, values)
            # Before the log line: if a line exists, the parameters of that step have already been considered.
            is_best = position.step and self.evaluations.best_step() == position.step
            if distributed.from_first_rank(float(is_best), self.rank):
                self.run.save_best(self.trainer.trained, position.step, self.rank)
        if self.first and values:
            line = {"tokens": position.tokens, **values, "seconds": round(self.clock.seconds, 3)}
            self.log.write("evaluation", position.step, line)

    def is_stopped(self) -> bool:
        """Whether a callback asked for the end; rank 0 decides for all."""
        return self.log.may_stop and distributed.from_first_rank(float(self.log.is_stopped), self.rank) > 0

    def out_of_patience(self) -> bool:
        """Whether `patience` evaluations have passed since the best one, or a callback asked for the end."""
        if (stopped := self.is_stopped()) or self.settings.patience is None:
            return stopped
        spent = float(self.evaluations.since_best() >= self.settings.patience)
        return distributed.from_first_rank(spent, self.rank) > 0

    def result(self) -> TrainResult:
        """The result of the training, after its last step."""
        best = int(distributed.from_first_rank(self.evaluations.best_step() or 0, self.rank)) or None
        position, guard = self.position, self.guard
        kept = position.step if best is None else best
        latest = [lines[-1] for kind in ("train", "evaluation") if (lines := self.run.metrics(kind))]
        return TrainResult(
            steps=position.step,
            tokens=position.tokens,
            sequences=position.sequences,
            seconds=self.clock.seconds,
            processor_seconds=self.clock.processor_seconds,
            skipped=guard.skipped,
            spikes=guard.spikes,
            metrics={name: value for line in latest for name, value in line.items() if name not in ("kind", "step")},
            best_step=best,
            kept_step=kept,
            kept_tokens=position.tokens if best is None else self.evaluations.tokens(best),
            scores=self.evaluations.scores(kept),
            stopped_early=position.step < self.pace.steps,
        )
