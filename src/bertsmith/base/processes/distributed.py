"""Several processes started by `torchrun`: what they exchange, and replicas of a model that train together.

Losses arrive already divided by the totals of the whole step, so the gradients of the ranks are *summed*.
`DistributedDataParallel` averages them; the loss is multiplied by the number of ranks to undo that. Every rank holds
the whole model and optimizer; `sharding.py` is for models that are too large for that.

Small values travel as JSON. Files are written by rank 0, and every rank may read them: a run is on a disk that all
processes share.
"""

import contextlib
import functools
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.core.progress import counted, quiet
from bertsmith.base.machine.runtime import Rank, choose
from bertsmith.base.processes.code import code_and_versions, first_difference

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")

# While one process writes, evaluates or trains alone, the others wait. If it ends, that shows at once, because its
# connections close, so the limit only has to exceed the longest of these waits.
_LONGEST_WAIT = timedelta(days=7)
# The threads of gloo release the last tensors a little after the exchange. One that does so while the interpreter shuts
# down ends the program ("terminate called without an active exception", pytorch/pytorch#179291), and destroying the
# group does not wait for them if a divided model still holds it. Nothing says when they are done.
_UNTIL_RELEASED = 0.2
# In the messages of gloo and nccl, of which most are about a connection to another process that is lost.
_LOST = ("gloo", "nccl", "connection", "broken pipe")


@contextlib.contextmanager
def process_group(rank: Rank, device: torch.device) -> Iterator[None]:
    """Joins the process group for the duration of the block: gloo for the CPU, and nccl for GPUs.

    No-op for one process, and inside another such block. Only rank 0 shows progress and warnings.
    """
    if rank.count == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        # A place of its own for each start: what an earlier one left in the store leads to processes that have ended.
        store, _, _ = next(rendezvous("env://", rank.index, rank.count, timeout=_LONGEST_WAIT))
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore(f"start-{rank.restarts}", store),
            rank=rank.index,
            world_size=rank.count,
            device_id=device if device.type == "cuda" else None,
            timeout=_LONGEST_WAIT,
        )
        with quiet(warnings=True) if rank.index else contextlib.nullcontext():
            yield
        dist.destroy_process_group()
        time.sleep(_UNTIL_RELEASED)
    except RuntimeError as error:
        if not any(word in str(error).lower() for word in _LOST):
            raise
        reason = str(error).strip().splitlines()[0].split(". ")[0]  # gloo adds general advice
        raise RunError(
            expected=f"all {counted(rank.count, 'process', 'processes')} until the end",
            found=f"process {rank.index} lost the connection to another one: {reason}",
            fix="see the message of the one that ended, and continue with --resume; torchrun --max-restarts does that "
            "by itself",
        ) from error
    finally:
        if dist.is_initialized():  # after a failure, whose message must not wait: torchrun is about to end the others
            dist.destroy_process_group()


def in_process_group(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, in the process group of `torchrun` if there is one, for the devices of its setting `device`.

    The setting is a keyword argument, or an attribute of the request that the function takes.
    """

    @functools.wraps(function)
    def joined(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        rank = Rank.from_environment()
        if rank.count == 1:
            return function(*arguments, **named)
        device = named.get("device") or next((value.device for value in arguments if hasattr(value, "device")), None)
        with process_group(rank, choose(str(device or "auto")).torch_device):
            return function(*arguments, **named)

    return joined


def started_before(resume: bool, rank: Rank, *places: Path) -> bool:
    """Whether to resume: if requested, or if `torchrun` restarted processes whose run is in one of these places.

    The store of `torchrun`, which survives restarts, has the places that did not exist yet: what was there before is
    another run, which is never resumed without a request.
    """

    def is_started() -> bool:
        if resume or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return resume
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store, started = dist.TCPStore(address, port, is_master=False), False  # type: ignore[attr-defined]
        for path in places:
            name = f"bertsmith-new-{path.absolute()}"
            if not path.exists():
                store.set(name, "")
            elif rank.restarts:
                started = started or bool(store.check([name]))
        return started

    return bool(result_of_first_rank(is_started, rank))


def replicate(model: nn.Module, rank: Rank) -> nn.Module:
    """The model that each rank trains: itself for one process, otherwise wrapped so that gradients are exchanged."""
    if rank.count == 1:
        return model
    # Buffers are constants; torch 2.13 has another name for the argument.
    names = inspect.signature(DistributedDataParallel).parameters
    buffers: Any = {"forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers": False}
    return DistributedDataParallel(model, gradient_as_bucket_view=True, **buffers)


def exchanging(model: nn.Module, exchange: bool) -> contextlib.AbstractContextManager[None]:
    """A context for the passes of one micro-batch; replicas exchange gradients only if `exchange`, others always."""
    if isinstance(model, DistributedDataParallel) and not exchange:
        return model.no_sync()
    return contextlib.nullcontext()


def sum_gradients(parameters: Sequence[nn.Parameter], rank: Rank) -> None:
    """Sums the gradients of all ranks, on every rank, in one exchange; a parameter that none has one for keeps none.

    This is for a model whose losses use other parameters than its forward pass does, which `replicate` cannot follow.
    """
    if rank.count == 1 or not parameters:
        return
    device = parameters[0].device
    present = torch.tensor([p.grad is not None for p in parameters], dtype=torch.float32, device=device)
    used = sum_over_ranks(present, rank).tolist()
    shared = [p for p, count in zip(parameters, used, strict=True) if count]
    if not shared:
        return
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in shared])
    for p, part in zip(shared, torch.split(sum_over_ranks(flat, rank), [p.numel() for p in shared]), strict=True):
        p.grad = part.view_as(p).clone()


def sum_over_ranks(values: Tensor, rank: Rank) -> Tensor:
    """The sum of `values` over all ranks, on every rank."""
    if rank.count > 1:
        dist.all_reduce(values)
    return values


def most_over_ranks(value: int, rank: Rank) -> int:
    """The largest of the values of all ranks, on every rank."""
    if rank.count == 1:
        return value
    tensor = torch.tensor(value)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return int(tensor)


def from_first_rank(value: float, rank: Rank) -> float:
    """The value of rank 0, on every rank."""
    if rank.count == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.broadcast(tensor, src=0)
    return float(tensor.item())


def from_all_ranks(value: Any, rank: Rank) -> list[Any]:
    """The plain values of all ranks, in their order, on every rank."""
    if rank.count == 1:
        return [value]
    encoded = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(rank.count)]
    dist.all_gather(sizes, torch.tensor([len(encoded)]))
    longest = max(int(size) for size in sizes)
    gathered = [torch.zeros(longest, dtype=torch.uint8) for _ in sizes]
    dist.all_gather(gathered, torch.cat([encoded, encoded.new_zeros(longest - len(encoded))]))
    return [json.loads(bytes(text[: int(size)].tolist())) for text, size in zip(gathered, sizes, strict=True)]


def on_first_rank(work: Callable[[], Result], rank: Rank) -> Result | None:
    """The result of `work`, which only rank 0 does, and None on the other ranks, which wait for it.

    If `work` raises an error, the other ranks raise a RunError, so that none waits for a process that has ended.
    """
    result, refusal = None, None
    if rank.index == 0:
        try:
            result = work()
        except BertsmithError as error:
            refusal = error
    is_refused = from_first_rank(float(refusal is not None), rank)
    if refusal is not None:
        raise refusal
    if is_refused:
        raise RunError(
            expected="process 0 to do its part",
            found=f"an error there, so process {rank.index} stops too",
            fix="do what the message of process 0 says",
        )
    return result


def result_of_first_rank(work: Callable[[], Any], rank: Rank) -> Any:
    """The result of `work`, plain values, on every rank, although only rank 0 does it; raises as `on_first_rank`."""
    return from_all_ranks(on_first_rank(work, rank), rank)[0]


def on_every_rank(work: Callable[[], Result], rank: Rank) -> Result:
    """The result of the `work` of this rank; returns when all ranks are done."""
    result, refusal = None, None
    try:
        result = work()
    except BertsmithError as error:
        refusal = error
    refusals = from_all_ranks("" if refusal is None else str(refusal), rank)
    if refusal is not None:
        raise refusal
    for index, line in enumerate(refusals):
        if line:
            raise RunError(
                expected="every process to do its part", found=f"an error in process {index}: {line}", fix="see there"
            )
    return result  # type: ignore[return-value]


def in_turn(work: Callable[[], Result], rank: Rank) -> Result:
    """The result of the `work` of this rank; the ranks take turns, so that rank 0 computes what all read."""
    results: list[Result] = []
    for index in range(rank.count):
        on_every_rank(lambda is_turn=index == rank.index: results.append(work()) if is_turn else None, rank)  # type: ignore[misc]
    return results[0]


def require_equal(settings: Mapping[str, Any], digests: Mapping[str, str], rank: Rank) -> None:
    """Checks that all processes have the same code, versions, settings and digests; with one process there is no check.

    Processes that differ would train on different rows, or exchange gradients of different models, and no loss would
    show it.
    """
    if rank.count == 1:
        return
    inputs = {f"digest of {name}": digest for name, digest in digests.items()}
    everyone = from_all_ranks({**code_and_versions(), **settings, **inputs}, rank)
    for index, theirs in enumerate(everyone):
        if name := first_difference(everyone[0], theirs):
            first, other = everyone[0].get(name), theirs.get(name)
            raise RunError(
                expected=f"the same {name} in all processes",
                found=f"{str(first)[:60]} in process 0, {str(other)[:60]} in process {index}",
                fix="start all of them with the same command, code and files",
            )
