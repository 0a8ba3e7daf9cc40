"""A model whose parameters, gradients and moments are divided among the processes that train it: FSDP2.

Each process holds some rows of every tensor (`fully_shard`). The blocks of a model, which are the members of its
`ModuleList`s, are gathered one at a time for the forward and the backward pass; what is outside of them is gathered for
the whole step. A parameter is a `DTensor` then. Optimizers, checkpoints and norms work on the rows of this process, so
they neither import nor know more of FSDP2 than the functions here; `torch.distributed.tensor` takes seconds to import,
and is imported where a model is divided.

Source: Rajbhandari et al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertsmith.runtime import Rank


def divided(model: nn.Module, rank: Rank) -> nn.Module:
    """A copy of a model on its device, of which this process holds its rows.

    The model itself is moved to the main memory of process 0, which receives the trained parameters (`take_whole`); the
    other processes do not keep it.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = next(model.parameters()).device
    model.to("cpu")
    twin = copy.deepcopy(model)
    if rank.index:
        model.to("meta")
    mesh = init_device_mesh(device.type, (rank.count,))
    # The innermost blocks first, as fully_shard demands.
    for module in reversed(list(twin.modules())):
        if isinstance(module, nn.ModuleList):
            for block in module:
                fully_shard(block, mesh=mesh)
    fully_shard(twin, mesh=mesh)
    return twin.to(device)


def is_part(tensor: Tensor) -> bool:
    """Whether this process holds only some rows of a tensor."""
    return hasattr(tensor, "to_local")


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of a tensor that this process holds, in the same memory; all of them if it is not divided."""
    found: Tensor = tensor.to_local() if is_part(tensor) else tensor  # type: ignore[attr-defined]
    return found


def first_row(tensor: Tensor) -> int:
    """The number of the first of these rows; each process but the last ones has the same number of rows."""
    if not is_part(tensor):
        return 0
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    size = -(-tensor.shape[0] // mesh.size())
    return int(min(tensor.shape[0], size * mesh.get_local_rank()))


def whole(rows: Tensor, like: Tensor) -> Tensor:
    """The tensor whose rows the processes hold, on every process; all of them call it together.

    Args:
        rows: those of this process.
        like: a tensor that is divided in the same way.
    """
    if not is_part(like):
        return rows
    from torch.distributed.tensor import DTensor

    found: Tensor = DTensor.from_local(
        rows,
        like.device_mesh,  # type: ignore[attr-defined]
        like.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    ).full_tensor()
    return found


def rows_of(full: Tensor, like: Tensor) -> Tensor:
    """The rows of a whole tensor that this process holds of one like it."""
    start = first_row(like)
    return full[start : start + len(own_rows(like))] if is_part(like) else full


def norms(tensors: Sequence[Tensor], like: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each whole tensor, from the rows of this process.

    Args:
        like: tensors that are divided in the same way.
    """
    found = torch.stack(torch._foreach_norm(list(tensors)))
    if any(map(is_part, like)):
        found = found.square()
        dist.all_reduce(found)
        found = found.sqrt()
    return found


@torch.no_grad()
def take_whole(model: nn.Module, tensors: Mapping[str, Tensor], rank: Rank) -> None:
    """Copies the whole tensors of a divided model into the undivided one of process 0; all processes call it.

    Args:
        model: the undivided one.
        tensors: those of the divided one, by their names in both.
    """
    targets = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in tensors.items():
        full = whole(own_rows(tensor), tensor)
        if rank.index == 0:
            targets[name].copy_(full)


def is_divided(model: nn.Module) -> bool:
    """Whether a model was made by `divided`."""
    return hasattr(model, "set_requires_gradient_sync")


def exchange_at(model: nn.Module, is_last: bool) -> None:
    """Says whether the next backward pass of a divided model is the last of its step, which exchanges gradients."""
    model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
