"""A program for several processes: divided models, and what goes wrong in one process; see test_sharding.py."""

import contextlib
import copy
import errno
import importlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import safetensors.torch
import torch
from torch import nn

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import on_every_rank, on_first_rank, process_group
from bertsmith.base.processes.sharding import Division, divide
from bertsmith.training.loop.checkpoint import model_tensors
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.parts import save_tensors
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.workload import StepPlan
from training.toy import ToyWorkload, toy_settings


class Blocks(nn.Module):
    """Blocks of layers that are gathered one at a time, with an odd number of rows, and hidden matrices for Muon."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 7)
        self.layers = nn.ModuleList(nn.Linear(7, 7) for _ in range(2))
        self.last = nn.Linear(7, 1)
        draws = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.rand(p.shape, generator=draws) - 0.4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x).tanh()
        return self.last(x).sum(dim=1)


class Work(ToyWorkload):
    """Process 0 has more micro-batches than the others; some processes are slow, or have NaN in a step."""

    def __init__(self, *, broken_on: int | None = None, slow: int | None = None) -> None:
        super().__init__(dropout=False, micro_batch=2)
        self.model = Blocks()
        self.broken_on, self.slow = broken_on, slow

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        plan = super().plan(step, 0, 1)
        batches = list(plan.micro_batches)
        batches_here = batches[: len(batches) - world + 1] if rank == 0 else [batches[-rank]]
        if self.broken_on == rank and step == 3:
            batches_here = [(x, y * torch.nan) for x, y in batches_here]
        self.pause = 0.25 if self.slow == rank else 0.0
        return StepPlan(micro_batches=batches_here, tokens=plan.tokens, sequences=plan.sequences)

    def higher_is_better(self) -> dict[str, bool]:
        return {"loss": False}


def trained(path: Path, rank: Rank, work: Work, *, resume: bool = False, **changes: Any) -> None:
    settings = toy_settings(**{"save_every": 5, "keep_checkpoints": 9, "keep_best": "loss", **changes})

    def write_model(folder: Path, _: object) -> None:
        folder.mkdir(exist_ok=True)
        tensors = {name: tensor.clone() for name, tensor in model_tensors(work.model).items()}
        safetensors.torch.save_file(tensors, folder / "model.safetensors")

    if settings.shard and rank.count > 1:
        first, work.model = dict(work.model.named_parameters()), copy.deepcopy(work.model).to("meta")
        divide(work.model, Division(rank, torch.device("cpu")), first.__getitem__)
    run = RunFolder.prepare(path, {"train": to_dict(settings)}, resume=resume, rank=rank)
    # The products of Muon in fp32, so that sums in another order change no more than the last digits.
    with mock.patch("bertsmith.training.loop.optimizer.fast_precisions", return_value=("fp32",)):
        train(work, settings, run, rank=rank, write_model=write_model)


def copied_until(run: Path, step: int, folder: Path) -> None:
    """A copy of a run as a kill would have left it after a step."""
    shutil.copytree(run, folder)
    for checkpoint in (folder / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > step:
            shutil.rmtree(checkpoint)


def refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except BertsmithError as error:
        return str(error)
    return ""


def full_in_process_1(tensors: Mapping[str, torch.Tensor], path: Path, rank: Rank | None) -> None:
    """Writes a part of a checkpoint, but for process 1 the disk is full at step 10."""
    if rank is not None and rank.index == 1 and "step-00000010" in str(path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")
    save_tensors(tensors, path, rank)


@contextlib.contextmanager
def full(rank: Rank, function: str, folder_name: str) -> Iterator[None]:
    """Within the block, the disk is full for process 0 when the function is called with this path."""
    module, name = function.rsplit(".", 1)
    real = getattr(importlib.import_module(module), name)

    def refused(*paths: Any, **named: Any) -> Any:
        if rank.index == 0 and Path(paths[-1]).name == folder_name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*paths, **named)

    with mock.patch(function, refused):
        yield


def main(out: Path) -> None:
    """Trains divided models into `out`; with the word resume, resumes the one of every optimizer."""
    torch.set_num_threads(1)
    rank = Rank.from_environment()
    with process_group(rank, torch.device("cpu")):
        for optimizer in ("adam", "lamb", "muon"):
            if "resume" in sys.argv:
                trained(out / optimizer, rank, Work(), resume=True, shard=True, optimizer=optimizer)
            else:
                trained(out / optimizer, rank, Work(), shard=True, optimizer=optimizer)
        if "resume" in sys.argv:
            return
        on_first_rank(lambda: copied_until(out / "adam", 10, out / "resumed"), rank)
        trained(out / "resumed", rank, Work(), resume=True, shard=True)
        trained(out / "troubled", rank, Work(broken_on=1, slow=1), steps=6, log_every=5)
        lines = [refusal(lambda: trained(out / "seeds", rank, Work(), seed=rank.index))]
        lines.append(
            refusal(lambda: RunFolder.prepare(out / "data", {}, {"corpus": f"sha256:{rank.index}"}, rank=rank))
        )
        lines.append(refusal(lambda: on_every_rank(lambda: RunFolder.open(out / ("adam", "none")[rank.index]), rank)))
        with mock.patch("bertsmith.base.processes.code.digest_of_code", return_value=f"code {rank.index}"):
            lines.append(refusal(lambda: RunFolder.prepare(out / "data", {}, rank=rank)))
        for function, folder_name in (
            ("bertsmith.training.loop.checkpoint.atomic_folder", "step-00000010"),
            ("os.rename", "step-00000010"),
            ("bertsmith.training.loop.checkpoint.atomic_file", "best-00000007.safetensors"),
        ):
            with full(rank, function, folder_name):
                name = function.rsplit("_", 1)[-1].rsplit(".", 1)[-1]
                lines.append(refusal(lambda name=name: trained(out / name, rank, Work(), shard=True)))
        with mock.patch("bertsmith.training.loop.checkpoint.save_tensors", full_in_process_1):
            lines.append(refusal(lambda: trained(out / "full", rank, Work(), shard=True)))
        (out / f"lines-{rank.index}.txt").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
