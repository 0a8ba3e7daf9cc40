"""The forward pass of evaluation and prediction: encoded examples in, logits in their order out."""

import contextlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from bertsmith.encoding.units import Features, micro_batches
from bertsmith.model.heads import BertForTask
from bertsmith.progress import Progress
from bertsmith.runtime import Runtime

Logits = npt.NDArray[np.float32]


@torch.inference_mode()
def task_logits(
    model: BertForTask,
    features: Features,
    runtime: Runtime,
    micro_tokens: int | None = None,
    advance: Callable[[float], None] | None = None,
) -> Logits:
    """The logits of all positions that the head reads, float32 [R, K], in the order of the features.

    This is the one forward pass of evaluation and prediction: rows sorted by length, cut by tokens.

    Args:
        micro_tokens: most tokens worked on at once; None: what suits the device.
        advance: is told the share of the rows that was done since it was last told, for a progress that covers more;
            without it there is a progress of these rows.
    """
    found = np.empty((features.num_read, model.head.outputs), dtype=np.float32)
    everything = np.arange(len(features), dtype=np.int64)
    progress = Progress("evaluating", total=len(features.rows), unit="rows")
    with progress if advance is None else contextlib.nullcontext():
        tokens = runtime.inference_tokens if micro_tokens is None else micro_tokens
        for part in micro_batches(features, everything, micro_tokens=tokens, device=runtime.device):
            logits = model(part.batch, read=part.read, dtype=runtime.dtype)
            found[part.chosen] = logits.float().cpu().numpy()
            if advance is None:
                progress.advance(part.batch.num_rows)
            else:
                advance(part.batch.num_rows / len(features.rows))
    return found
