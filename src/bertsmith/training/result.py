"""What a training run returns, and the functions that receive it on the way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The result of a run.

    Attributes:
        steps: completed steps, including skipped ones.
        tokens: real tokens of these steps.
        sequences: sequences of these steps.
        seconds: wall-clock time, over all resumed parts.
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
    skipped: int
    spikes: int
    metrics: Mapping[str, float]
    best_step: int | None = None
    kept_step: int
    kept_tokens: int
    scores: Mapping[str, float]
    stopped_early: bool = False


WriteModel = Callable[[Path, TrainResult], None]
OnEvaluation = Callable[[int, Mapping[str, float]], None]
