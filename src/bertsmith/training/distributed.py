"""Data-parallel training in several processes started by `torchrun`: one model, one sum of gradients.

Losses arrive already divided by the totals of the whole step, so the gradients of the ranks are *summed*.
`DistributedDataParallel` averages them; the loss is multiplied by the number of ranks to undo that. Every rank holds
the whole model and optimizer, so they must fit on one device.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertsmith.errors import BertsmithError, RunError
from bertsmith.runtime import Rank

Result = TypeVar("Result")


@contextlib.contextmanager
def process_group(rank: Rank, device: torch.device) -> Iterator[None]:
    """Joins the process group for the duration of the block: gloo on CPU, nccl on GPUs; no-op for one process."""
    if rank.count == 1:
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        rank=rank.index,
        world_size=rank.count,
        device_id=device if device.type == "cuda" else None,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def replicate(model: nn.Module, rank: Rank) -> nn.Module:
    """The model that each rank trains: itself for one process, otherwise wrapped so that gradients are exchanged."""
    if rank.count == 1:
        return model
    return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)


def exchanging(model: nn.Module, exchange: bool) -> contextlib.AbstractContextManager[None]:
    """A context for the forward and backward pass of one micro-batch; exchanges gradients only if `exchange`."""
    if isinstance(model, DistributedDataParallel) and not exchange:
        return model.no_sync()
    return contextlib.nullcontext()


def sum_over_ranks(values: Tensor, rank: Rank) -> Tensor:
    """The sum of `values` over all ranks, on every rank."""
    if rank.count > 1:
        dist.all_reduce(values)
    return values


def from_first_rank(value: float, rank: Rank, device: torch.device) -> float:
    """The value of rank 0, on every rank."""
    if rank.count == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(tensor, src=0)
    return float(tensor.item())


def on_first_rank(work: Callable[[], Result], rank: Rank) -> Result | None:
    """The result of `work`, which only rank 0 does, and None on the other ranks, which wait for it.

    Raises:
        BertsmithError: `work` raised it. The other ranks raise a RunError at the same time, so that none of them waits
            for a process that has ended.
    """
    result, refusal = None, None
    if rank.index == 0:
        try:
            result = work()
        except BertsmithError as error:
            refusal = error
    # Collectives of nccl need a tensor on the GPU, here the one of this process.
    device = torch.device("cuda" if rank.count > 1 and dist.get_backend() == "nccl" else "cpu")
    is_refused = from_first_rank(float(refusal is not None), rank, device)
    if refusal is not None:
        raise refusal
    if is_refused:
        raise RunError(
            expected="a training that process 0 can start",
            found=f"an error there, so process {rank.index} stops too",
            fix="do what the message of process 0 says",
        )
    return result
