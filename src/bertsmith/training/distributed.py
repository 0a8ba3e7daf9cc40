"""Training in several processes that `torchrun` started: one model, one sum of gradients.

Losses are divided by the totals of the whole step before they come here, so gradients of ranks are *summed*.
`DistributedDataParallel` averages them; the loss is multiplied by the number of ranks to undo that. Every rank
holds the whole model and optimizer. A model that does not fit one device would need `fully_shard`, and
checkpoints that gather its shards; that is not built.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bertsmith.runtime import Rank


@contextlib.contextmanager
def process_group(rank: Rank, device: torch.device) -> Iterator[None]:
    """Joins the processes for the length of the block: gloo on the CPU, nccl on GPUs; nothing for one process."""
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
    """The model as every rank trains it: itself for one process, else wrapped so that gradients are exchanged."""
    if rank.count == 1:
        return model
    return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)


def exchanging(model: nn.Module, exchange: bool) -> contextlib.AbstractContextManager[None]:
    """The block in which one micro-batch runs forward and backward; gradients travel only where `exchange`."""
    if isinstance(model, DistributedDataParallel) and not exchange:
        return model.no_sync()
    return contextlib.nullcontext()


def sum_over_ranks(values: Tensor, rank: Rank) -> Tensor:
    """The sum of `values` over all ranks, on every rank."""
    if rank.count > 1:
        dist.all_reduce(values)
    return values


def from_first_rank(value: float, rank: Rank, device: torch.device) -> float:
    """The value that rank 0 has, on every rank."""
    if rank.count == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.broadcast(tensor, src=0)
    return float(tensor.item())


def wait_for_all(rank: Rank) -> None:
    """Returns when every rank has come here."""
    if rank.count > 1:
        dist.barrier()
