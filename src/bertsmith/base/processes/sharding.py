"""A model whose parameters, gradients and moments are divided among the processes that train it: FSDP2.

Each process holds some rows of every tensor (`fully_shard`). The blocks of a model, which are the members of its
`ModuleList`s, are gathered one at a time for the forward and the backward pass; what is outside of them is gathered for
the whole pass. Gradients are exchanged after every pass, because whole ones would have to be kept until
the last one. A parameter is a `DTensor` then. Optimizers, checkpoints and norms work on the rows of this process, so
they neither import nor know more of FSDP2 than the functions here; `torch.distributed.tensor` takes seconds to import,
and is imported where a model is divided.

No process ever holds all parameters. A model is divided while it is on the meta device, and then each process gets the
values of its rows, one tensor after another; files are written one whole tensor after another too.

Source: Rajbhandari et al. (2020), "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 5.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertsmith.base.machine.runtime import Rank


@dataclass(frozen=True)
class Division:
    """Among which processes a model is divided, and the device of each of them."""

    rank: Rank
    device: torch.device


@torch.no_grad()
def divide(model: nn.Module, division: Division, values: Callable[[str], Tensor]) -> None:
    """Divides a model among processes, and gives each of them the memory and the values of its rows alone.

    Args:
        model: on the meta device.
        values: returns the whole values of the parameter with a name; called for one after another.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(division.device.type, (division.rank.count,))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model.to_empty(device=division.device)
    for name, parameter in model.named_parameters():
        own_rows(parameter).copy_(rows_of(values(name), parameter))


def divide_part(model: nn.Module, part: nn.Module) -> None:
    """Divides a module that was added to a model, and that calls outside of the model's forward pass gather by itself.

    No-op if the model is not divided.
    """
    if not is_divided(model):
        return
    from torch.distributed.fsdp import fully_shard

    mesh = next(filter(is_part, model.parameters())).device_mesh  # type: ignore[attr-defined]
    # Several calls in one pass would otherwise gather it several times.
    fully_shard(part, mesh=mesh, reshard_after_forward=False)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The modules whose parameters are gathered together, innermost first: the members of lists, such as layers."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return [block for module in reversed(lists) for block in module]


def is_part(tensor: Tensor) -> bool:
    """Whether this process holds only some rows of a tensor."""
    return hasattr(tensor, "to_local")


def own_rows(tensor: Tensor) -> Tensor:
    """The rows of a tensor that this process holds, in the same memory; all of them if it is not divided."""
    rows: Tensor = tensor.to_local() if is_part(tensor) else tensor  # type: ignore[attr-defined]
    return rows


def first_row(tensor: Tensor) -> int:
    """The number of the first of these rows; each process but the last ones has the same number of rows."""
    if not is_part(tensor):
        return 0
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    size = -(-tensor.shape[0] // mesh.size())
    return int(min(tensor.shape[0], size * mesh.get_local_rank()))


def whole(rows: Tensor, like: Tensor) -> Tensor:
    """The tensor whose rows the processes hold, on every process; all of them call it together."""
    if not is_part(like):
        return rows
    from torch.distributed.tensor import DTensor

    tensor: Tensor = DTensor.from_local(
        rows,
        like.device_mesh,  # type: ignore[attr-defined]
        like.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    ).full_tensor()
    return tensor


def rows_of(full: Tensor, like: Tensor) -> Tensor:
    """The rows of a whole tensor that this process holds of one like it."""
    start = first_row(like)
    return full[start : start + len(own_rows(like))] if is_part(like) else full


def norms(tensors: Sequence[Tensor], like: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of each whole tensor, from the rows of this process."""
    lengths = torch.stack(torch._foreach_norm(list(tensors)))
    if any(map(is_part, like)):
        lengths = lengths.square()
        dist.all_reduce(lengths)
        lengths = lengths.sqrt()
    return lengths


@contextlib.contextmanager
def whole_parameters(model: nn.Module, *beginnings: str) -> Iterator[None]:
    """Has the whole tensors as some parameters of a model inside the block; after it, each process keeps its rows.

    All processes do the same in the block, where there is no forward pass. No-op if the model is not divided.
    """
    if not is_divided(model):
        yield
        return
    divided = {name: parameter for name, parameter in model.named_parameters() if name.startswith(beginnings)}
    for name, parameter in divided.items():
        put_parameter(model, name, nn.Parameter(whole(own_rows(parameter), parameter).detach(), requires_grad=False))
    yield
    for name, parameter in divided.items():
        with torch.no_grad():
            own_rows(parameter).copy_(rows_of(model.get_parameter(name), parameter))
        put_parameter(model, name, parameter)


def put_parameter(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Makes this the parameter of a model with a name."""
    submodule, _, last = name.rpartition(".")
    setattr(model.get_submodule(submodule), last, parameter)


def is_divided(model: nn.Module) -> bool:
    """Whether a model was divided by `divide`."""
    return hasattr(model, "set_requires_gradient_sync")
