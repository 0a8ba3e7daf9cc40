"""What a training run returns, and the functions that receive it on the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors

from bertsmith.base.core.errors import TrainingError
from bertsmith.training.loop.checkpoint import Position
from bertsmith.training.loop.clock import Clock
from bertsmith.training.loop.evaluations import Evaluations
from bertsmith.training.loop.guard import LossGuard
from bertsmith.training.loop.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a run.

    Attributes:
        steps: completed steps, including skipped ones.
        tokens: real tokens of these steps.
        sequences: sequences of these steps.
        seconds: wall-clock time, over all resumed parts.
        processor_seconds: processor time of this process, summed over its threads, over all resumed parts; what a part
            took after its last checkpoint is not known.
        skipped: steps that were not applied because the loss or the gradient was not finite.
        spikes: steps at which the loss spiked.
        metrics: the values of the last log line and of the last evaluation.
        best_step: the step after which `keep_best` was best; None without that setting.
        kept_step: the step whose parameters the model has: the best one, or the last.
        kept_tokens: real tokens up to that step.
        scores: the values of the evaluation after that step, named held_out_...; empty without one.
        stopped_early: whether `patience` ended the run before its last step.
    """

    steps: int
    tokens: int
    sequences: int
    seconds: float
    processor_seconds: float
    skipped: int
    spikes: int
    metrics: Mapping[str, float]
    best_step: int | None = None
    kept_step: int
    kept_tokens: int
    scores: Mapping[str, float]
    stopped_early: bool = False


def result_of(
    position: Position,
    guard: LossGuard,
    evaluations: Evaluations,
    run: RunFolder,
    clock: Clock,
    best: int | None,
    total: int,
) -> TrainResult:
    """The result of a run at its end.

    Args:
        clock: the time so far.
        best: the step after which `keep_best` was best, if there is one.
        total: the number of steps that it was to have.
    """
    kept = position.step if best is None else best
    latest = [lines[-1] for kind in ("train", "evaluation") if (lines := run.metrics(kind))]
    return TrainResult(
        steps=position.step,
        tokens=position.tokens,
        sequences=position.sequences,
        seconds=clock.seconds,
        processor_seconds=clock.processor_seconds,
        skipped=guard.skipped,
        spikes=guard.spikes,
        metrics={name: value for line in latest for name, value in line.items() if name not in ("kind", "step")},
        best_step=best,
        kept_step=kept,
        kept_tokens=position.tokens if best is None else evaluations.tokens(best),
        scores=evaluations.scores(kept),
        stopped_early=position.step < total,
    )


def written(write_model: "WriteModel", folder: Path, result: TrainResult) -> None:
    """Writes the model of a run."""
    try:
        write_model(folder, result)
    except (OSError, safetensors.SafetensorError) as error:
        raise TrainingError(
            expected=f"space for the model in '{folder}'",
            found=getattr(error, "strerror", None) or str(error),
            fix="free some space and resume; the last checkpoint is intact",
        ) from error


WriteModel = Callable[[Path, TrainResult], None]
OnEvaluation = Callable[[int, Mapping[str, float]], None]
