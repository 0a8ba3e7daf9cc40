"""The training loop: takes a workload and writes a run folder.

After a crash at any point the loop resumes from the last checkpoint and ends with the parameters of an uninterrupted
run, bit for bit on CPU: the work of a step is a function of (seed, step), and a checkpoint holds everything else.
"""

import contextlib
import time

import torch
from torch import Tensor

from bertsmith.base.core.errors import CheckpointError, ConfigError, TrainingError
from bertsmith.base.core.progress import Progress, amount, counted, quiet, tell, warn
from bertsmith.base.machine.allocator import KeptMemory
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes import distributed
from bertsmith.training.loop import budget
from bertsmith.training.loop.averaging import AveragedSgd, no_longer_improves, require_averaging
from bertsmith.training.loop.checkpoint import Position, take_whole
from bertsmith.training.loop.clock import Clock
from bertsmith.training.loop.devices import peak_of_device
from bertsmith.training.loop.evaluations import PREFIX, Evaluations
from bertsmith.training.loop.guard import (
    LossGuard,
    StepAbandoned,
    StopRequest,
    of_process,
    require_trained,
    too_many_skipped,
)
from bertsmith.training.loop.log import OPERATIONS, SECONDS, TOKENS, MetricsLog, speed
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.result import OnEvaluation, TrainResult, WriteModel, result_of, written
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.schedule import learning_rate
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import StepOutcome, Trainer
from bertsmith.training.loop.workload import StepPlan, Workload

__all__ = ["TIMES", "OnEvaluation", "StepPlan", "TrainResult", "Workload", "WriteModel", "train"]

_LOSS, _NORM, _STEPS = "loop.loss", "loop.norm", "loop.steps"  # sums besides those of `speed` and of the workload

# Values of a log line that differ between two identical runs.
TIMES = ("tokens_per_second", "utilization", "seconds", "time_left")


def train(
    workload: Workload,
    settings: TrainSettings,
    run: RunFolder,
    *,
    rank: Rank | None = None,
    write_model: WriteModel | None = None,
    on_evaluation: OnEvaluation | None = None,
    clock: Clock | None = None,
    label: str = "training",
) -> TrainResult:
    """Starts or resumes the run in `run`, trains until its budget is used up, and returns the result.

    Args:
        workload: the model, on its device, and the work. Its model is trained in place.
        settings: the training settings; must equal those in the run folder.
        run: the run folder; only rank 0 writes to it.
        rank: this process among those that train together (see `distributed.process_group`).
        write_model: called by rank 0 at the end, with the folder RUN/model and the result.
        on_evaluation: called by rank 0 after each evaluation, with the completed steps and the values, as logged.
        clock: counts a budget in minutes, from the moment when the caller made it; by default wall-clock time.
        label: what the progress of the steps is called, such as which of several trainings this is.

    Raises:
        TrainingError: too many steps in a row were not finite, or all of them; the trained parameters are not finite;
            the disk or the GPU memory is full.
        ConfigError: the budget is too small for one step, the settings do not fit it, or the workload cannot select by
            `keep_best`; a run folder that is new is removed, one that was there before is kept.
        CheckpointError: there are checkpoints, but none is usable.
        KeyboardInterrupt: Ctrl-C or SIGTERM; a checkpoint was written after the current step, or after SIGTERM in a
            single process, after the step before it.
    """
    rank = rank or Rank()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices), StopRequest() as stop, KeptMemory() as memory:
        workload.model.train()
        trainer = Trainer(workload, settings, rank, stop)
        try:
            with MetricsLog(run, settings.tensorboard and rank.index == 0) as log:
                return _Course(trainer, run, log, memory, clock or Clock(), on_evaluation, label).go(write_model)
        except ConfigError:
            # A new folder without a trained step would only block the next attempt; what was there before stays.
            if rank.index == 0 and run.is_new and not (run.last_step() or run.metrics("train")):
                run.discard()
            raise
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                expected="enough memory on the GPU for a micro-batch",
                found=str(error).split(". ")[0],
                fix="use fewer tokens per micro-batch and resume",
            ) from error


class _Course:
    """A run in progress: its position, and the work between its steps."""

    def __init__(
        self,
        trainer: Trainer,
        run: RunFolder,
        log: MetricsLog,
        memory: KeptMemory,
        clock: Clock,
        on_evaluation: OnEvaluation | None,
        label: str,
    ) -> None:
        self.label, self.memory, self.clock = label, memory, clock
        self.trainer, self.run, self.log, self.on_evaluation = trainer, run, log, on_evaluation
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

    @property
    def total(self) -> int:
        """The number of steps of the run."""
        return self.pace.steps

    def go(self, write_model: WriteModel | None) -> TrainResult:
        """Runs to the end."""
        self._fix_budget()
        if self.settings.evaluate_at_start or self.position.step:
            self._evaluate_if_due()
        with Progress(self.label, self.total, "steps", done=self.position.step) as progress:
            while self.position.step < self.total and not self._out_of_patience():
                progress.total = self.total
                self._run(progress)
        self._tell_changes()
        result = self._result()
        if result.best_step is not None:
            self.run.load_best(self.trainer.trained, result.best_step)
        elif isinstance(self.trainer.optimizer, AveragedSgd):
            self.trainer.optimizer.take_averages()
        workload = self.trainer.workload
        require_trained(workload.model, self.guard, workload.precision, self.rank)
        if write_model is not None:
            take_whole(workload.model, self.run.path, self.rank)
            distributed.on_first_rank(lambda: written(write_model, self.run.model, result), self.rank)
        return result

    def _run(self, progress: Progress) -> None:
        """Runs to the last step, to the end of the patience, or until the number of steps changes."""
        settings, warmup = self.settings, self.settings.warmup(self.pace.planned)
        with contextlib.closing(self.trainer.plans(range(self.position.step, self.total))) as plans:
            start = self.clock.now()
            for step, plan in plans:
                place = self.pace.place(step)
                rate = learning_rate(
                    settings.schedule, place, peak=settings.learning_rate, warmup=warmup, total=self.pace.planned
                )
                try:
                    outcome = self._step(step, plan, rate)
                except StepAbandoned:
                    if self.position.step:
                        self._save()
                    raise
                if self.deadline is not None:
                    self.deadline.note(self.clock.now() - start)
                self.memory.check()
                progress.advance(1, self._note(outcome))
                if self.position.step % settings.log_every == 0 or self.position.step == self.total:
                    self._log_line(rate)
                if self._save_is_due() or outcome.stop:
                    self._save()
                if outcome.stop:
                    if self.first:
                        tell(f"stopped after step {self.position.step:,} of {self.total:,}; continue with --resume")
                    raise KeyboardInterrupt
                self._evaluate_if_due(silently=True)
                if self._out_of_patience():
                    self._save()
                    return
                if self._replan():
                    return
                start = self.clock.now()

    def _replan(self) -> bool:
        """Whether the number of steps changed, so that the run ends within its minutes; rank 0 decides for all."""
        if self.deadline is None or not self.deadline.looks(self.position.step, self.pace):
            return False
        steps = self.deadline.replan(self.position.step, self.pace, self.clock.spent()) or 0
        steps = int(distributed.from_first_rank(steps, self.rank))
        if not steps:
            return False
        self.pace = self.pace.changed(self.position.step, steps)
        if self.first:
            self.run.resolve({**self.run.resolved, "replanned": self.pace.text})
        self.trainer.workload.change_pace(self.pace)
        return True

    def _tell_changes(self) -> None:
        """Says how many steps fitted into the minutes: at the end, because until then the number can change again."""
        steps, planned = self.position.step, self.pace.planned
        is_near = abs(steps - planned) <= self.clock.tolerance * planned
        if self.deadline is None or self.clock.by_processor or not self.first or steps != self.total or is_near:
            return
        slower, say = ("slower", warn) if steps < planned else ("faster", tell)
        say(
            f"steps were {slower} than the trial steps, so {counted(steps, 'step')} fitted into the minutes instead of "
            f"{planned:,}; settings.json records the changes"
        )

    def _fix_budget(self) -> None:
        """Determines the number of steps, once, and passes it to the run folder and the workload."""
        resolved = self.run.resolved
        if not resolved:
            resolved = budget.resolve(
                self.trainer,
                evaluate=self._evaluate,
                save=self._save,
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
        if self.pace.changes:
            self.trainer.workload.change_pace(self.pace)

    def _step(self, step: int, plan: StepPlan, rate: float) -> StepOutcome:
        start = time.monotonic()
        outcome = self.trainer.gradient(step, plan)
        verdict = self.guard.judge(outcome.loss, outcome.gradient_norm)
        added = {TOKENS: float(plan.tokens)}
        if verdict == "skip":
            self._report_skip(step + 1, outcome)
        else:
            if verdict == "spike":
                self._report_spike(step + 1, outcome)
            self.trainer.apply(outcome, rate * self.trainer.workload.step_rate(step))
            added |= {_LOSS: outcome.loss, _NORM: outcome.gradient_norm, _STEPS: 1.0, **outcome.sums}
        added[SECONDS] = time.monotonic() - start
        if self.peak is not None:
            added[OPERATIONS] = self.trainer.workload.operations(plan)
        position = self.position
        for name, value in added.items():
            position.pending[name] = position.pending.get(name, 0.0) + value
        position.step = step + 1
        position.tokens += plan.tokens
        position.sequences += plan.sequences
        return outcome

    def _report_skip(self, step: int, outcome: StepOutcome) -> None:
        found = f"loss {outcome.loss}, gradient norm {outcome.gradient_norm}{of_process(outcome.broken, self.rank)}"
        if self.first:
            self.log.write(
                "skipped", step, {"skipped_loss": str(outcome.loss), "skipped_norm": str(outcome.gradient_norm)}
            )
            in_a_row = self.guard.skipped_in_a_row
            limit = counted(self.settings.skip_limit, "such step")
            then = f"; after {limit} in a row the training stops" if in_a_row == 1 else ""
            warn(f"step {step} was skipped, because its loss or gradient is not finite ({found}){then}")
        if self.guard.skipped_in_a_row >= self.settings.skip_limit:
            last = self.run.last_step()
            raise too_many_skipped(self.guard, step, found, self.trainer.workload.precision, last)

    def _report_spike(self, step: int, outcome: StepOutcome) -> None:
        if self.first:
            self.log.write("spike", step, {"spike_loss": outcome.loss, "usual_loss": self.guard.mean})
            warn(f"the loss jumped to {outcome.loss:.4g} in step {step}, from about {self.guard.mean:.4g}")

    def _note(self, outcome: StepOutcome) -> str:
        found = speed(self.position.pending, self.peak)
        share = f", {found['utilization']:.0%} of the peak" if "utilization" in found else ""
        return f"loss {outcome.loss:.3f}, {amount(found['tokens_per_second'])} tokens/s{share}"

    def _log_line(self, rate: float) -> None:
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
            "time_left": round((time.monotonic() - self.clock.started) / done * (self.total - position.step), 1),
        }
        if self.first:
            self.log.write("train", position.step, values)
        if (seconds := self.trainer.watch.look(position.step)) and self.first:
            self.log.write("processes", position.step, {"seconds": [round(one, 3) for one in seconds]})
        position.pending = {}

    def _save_is_due(self) -> bool:
        step, s = self.position.step, self.settings
        by_step = s.save_every is not None and step % s.save_every == 0
        by_time = s.save_minutes is not None and time.monotonic() - self.last_saved >= s.save_minutes * 60
        if self.together:
            by_time = distributed.from_first_rank(float(by_time), self.rank) > 0
        return step == self.total or by_step or by_time

    def _save(self) -> None:
        if not (self.first or self.together) or self.saved_step == self.position.step:
            return
        self.position.seconds, self.position.processor_seconds = self.clock.seconds, self.clock.processor_seconds
        self.position.updates = self.trainer.optimizer.updates
        self.position.guard = self.guard.to_dict()
        model, optimizer = self.trainer.trained, self.trainer.optimizer
        carried = self.trainer.workload.carried(self.position.step)
        self.run.save(self.position, model, optimizer, self.settings.keep_checkpoints, carried, self.together)
        if self.first:
            self.run.forget_best(but=self.evaluations.best_step())
        self.saved_step, self.last_saved = self.position.step, time.monotonic()

    def _evaluate_if_due(self, *, silently: bool = False) -> None:
        step = self.position.step
        if step in (0, self.total) or step % self.evaluate_every == 0:
            self._evaluate(silently=silently)
            optimizer = self.trainer.optimizer
            if isinstance(optimizer, AveragedSgd) and no_longer_improves(self.evaluations.losses(step)):
                optimizer.start_averaging()

    def _evaluate(self, *, silently: bool = False) -> None:
        """Evaluates and writes a log line, unless this step already has one; `silently` without its own progress."""
        position = self.position
        if position.step in self.evaluations:
            return
        with quiet() if silently else contextlib.nullcontext(), self.trainer.averages():
            values = {f"{PREFIX}{name}": value for name, value in self.trainer.evaluate().items()}
            self.evaluations.add(position.step, position.tokens, values)
            # Before the log line: if a line exists, the parameters of that step have already been considered.
            is_best = position.step and self.evaluations.best_step() == position.step
            if distributed.from_first_rank(float(is_best), self.rank):
                self.run.save_best(self.trainer.trained, position.step, self.rank)
        if not self.first:
            return
        if values:
            line = {"tokens": position.tokens, **values, "seconds": round(self.clock.seconds, 3)}
            self.log.write("evaluation", position.step, line)
        if self.on_evaluation is not None:
            self.on_evaluation(position.step, values)

    def _out_of_patience(self) -> bool:
        """Whether `patience` evaluations have passed since the best one; rank 0 decides for all."""
        if self.settings.patience is None:
            return False
        spent = float(self.evaluations.since_best() >= self.settings.patience)
        return distributed.from_first_rank(spent, self.rank) > 0

    def _result(self) -> TrainResult:
        best = int(distributed.from_first_rank(self.evaluations.best_step() or 0, self.rank)) or None
        return result_of(self.position, self.guard, self.evaluations, self.run, self.clock, best, self.total)
