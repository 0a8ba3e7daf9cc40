"""What a training run returns, and the function that writes its model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bertsmith.base.core.progress import short_repr
from bertsmith.training.loop.checkpoint import disk_errors


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a run.

    Attributes:
        processor_seconds: processor time of this process, summed over its threads, over all resumed parts; what a part
            took after its last checkpoint is not known.
        skipped: steps that were not applied because the loss or the gradient was not finite.
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

    __repr__ = short_repr


def written(write_model: "WriteModel", folder: Path, result: TrainResult) -> None:
    """Writes the model of a run."""
    with disk_errors(f"space for the model in '{folder}'", "free some space and resume; the last checkpoint is intact"):
        write_model(folder, result)


WriteModel = Callable[[Path, TrainResult], None]
