"""The training loop: takes a workload and writes a run folder.

After a crash at any point the loop resumes from the last checkpoint and ends with the parameters of an uninterrupted
run, bit for bit on CPU: the work of a step is a function of (seed, step), and a checkpoint holds everything else.

`train` is the whole of it. What a step computes is in `trainer.py`, the position of the run with its log, checkpoints
and evaluations in `state.py`, and the number of steps for a budget in minutes in `budget.py`.
"""

import contextlib
import time
from collections.abc import Iterator

import torch

from bertsmith.base.core.errors import ConfigError, TrainingError
from bertsmith.base.core.progress import Progress, tell
from bertsmith.base.machine.allocator import KeptMemory
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes import distributed
from bertsmith.training.loop.averaging import AveragedSgd
from bertsmith.training.loop.checkpoint import take_whole
from bertsmith.training.loop.clock import Clock
from bertsmith.training.loop.guard import StepAbandoned, StopRequest, require_trained
from bertsmith.training.loop.log import TIMES, MetricsLog
from bertsmith.training.loop.result import TrainResult, WriteModel, written
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.schedule import learning_rate
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.state import TrainingState
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.loop.workload import StepPlan, Workload

__all__ = ["TIMES", "StepPlan", "TrainResult", "Workload", "WriteModel", "train"]


def train(
    workload: Workload,
    settings: TrainSettings,
    run: RunFolder,
    *,
    rank: Rank | None = None,
    write_model: WriteModel | None = None,
    clock: Clock | None = None,
    label: str = "training",
) -> TrainResult:
    """Starts or resumes the run in `run`, trains until its budget is used up, and returns the result.

    Args:
        workload: the model, on its device, and the work. Its model is trained in place.
        write_model: called by rank 0 at the end, with the folder RUN/model and the result.
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
    rank, clock = rank or Rank(), clock or Clock()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with contextlib.ExitStack() as held:
        held.enter_context(torch.random.fork_rng(devices))
        stop, memory = held.enter_context(StopRequest()), held.enter_context(KeptMemory())
        workload.model.train()
        trainer = Trainer(workload, settings, rank, stop)
        held.enter_context(_refusals(run, rank))
        log = held.enter_context(MetricsLog(run, settings.trackers, is_first=rank.index == 0))

        # The newest checkpoint, or step 0; the number of steps, after timing a few for a budget in minutes.
        state = TrainingState(trainer, run, log, clock)
        log.start(state.position.step, int(run.resolved.get("steps", 0)) or settings.steps)
        state.fix_budget()
        warmup = settings.warmup(state.pace.planned)
        if settings.evaluate_at_start or state.position.step:
            state.evaluate_if_due()

        with (
            Progress(label, state.pace.steps, "steps", done=state.position.step) as progress,
            contextlib.closing(state.steps()) as steps,
        ):
            start = clock.now()
            for step, plan in steps:
                began = time.monotonic()
                rate = learning_rate(
                    settings.schedule,
                    state.pace.planned_position(step),
                    peak=settings.learning_rate,
                    warmup=warmup,
                    total=state.pace.planned,
                )

                # Forward and backward passes of all micro-batches; loss and gradients summed over the processes.
                try:
                    outcome = trainer.gradient(step, plan)
                except StepAbandoned:  # the process is about to be killed
                    if state.position.step:
                        state.save()
                    raise

                # The update, unless loss or gradient is NaN or infinite.
                is_applied = state.accepts(step, outcome)
                if is_applied:
                    trainer.apply(outcome, rate * workload.step_rate(step))
                state.count(plan, outcome if is_applied else None, time.monotonic() - began)
                if state.deadline is not None:
                    state.deadline.note(clock.now() - start)
                memory.check()

                # The log, and a checkpoint.
                progress.total = state.pace.steps
                progress.advance(1, state.note(outcome))
                if state.position.step % settings.log_every == 0 or state.position.step == state.pace.steps:
                    state.log_line(rate)
                if state.save_is_due() or outcome.stop:
                    state.save()
                if outcome.stop:
                    if state.first:
                        steps_done = f"{state.position.step:,} of {state.pace.steps:,}"
                        tell(f"stopped after step {steps_done}; continue with --resume")
                    raise KeyboardInterrupt

                # Scores on held-out data.
                state.evaluate_if_due(silently=True)
                start = clock.now()

        # The last parameters, or the best, or their averages.
        if state.deadline is not None:
            state.tell_changes()
        result = state.result()
        if result.best_step is not None:
            run.load_best(trainer.trained, result.best_step)
        elif isinstance(trainer.optimizer, AveragedSgd):
            trainer.optimizer.take_averages()
        require_trained(workload.model, state.guard, workload.precision, rank)
        if write_model is not None:
            take_whole(workload.model, run.path, rank)
            distributed.on_first_rank(lambda: written(write_model, run.model, result), rank)
        log.result = result
        return result


@contextlib.contextmanager
def _refusals(run: RunFolder, rank: Rank) -> Iterator[None]:
    """Removes a new run that is refused, and says what to do when the memory of the GPU is full."""
    try:
        yield
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
