"""The forward pass of evaluation and prediction: from encoded examples to logits in the same order."""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from bertsmith.encoding.units import EncodedExamples, Logits, TaskBatch, computed
from bertsmith.model.heads import EncoderForTask
from bertsmith.progress import Progress
from bertsmith.runtime import Runtime


@torch.inference_mode()
def task_logits(
    model: EncoderForTask,
    features: EncodedExamples,
    runtime: Runtime,
    micro_tokens: int | None = None,
    advance: Callable[[float], None] | None = None,
) -> Logits:
    """The logits of all positions that the head reads, float32 [R, K], in the order of the features.

    This is the one forward pass of evaluation and prediction; equal rows are computed once.

    Args:
        micro_tokens: maximum tokens per micro-batch; None for a default that suits the device.
        advance: receives the fraction of rows done since its last call, for a progress bar that covers more work;
            without it these rows get their own progress bar.
    """
    progress = Progress("evaluating", total=len(features.rows), unit="rows")

    def logits(part: TaskBatch) -> Tensor:
        found: Tensor = model(part.batch, read=part.read, dtype=runtime.dtype)
        return found

    def advance_here(share: float) -> None:
        progress.advance(share * len(features.rows))

    with progress if advance is None else contextlib.nullcontext():
        return computed(
            features,
            logits,
            width=(model.head.outputs,),
            micro_tokens=runtime.inference_tokens if micro_tokens is None else micro_tokens,
            device=runtime.device,
            advance=advance_here if advance is None else advance,
        )
