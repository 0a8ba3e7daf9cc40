"""A tiny workload for the tests of the loop; as a program, it makes a run that can be killed."""

import argparse
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import bertsmith
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import to_dict
from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.base.processes.distributed import process_group, started_before
from bertsmith.training.loop.loop import train
from bertsmith.training.loop.pace import Pace
from bertsmith.training.loop.run_folder import SETTINGS_FILE, RunFolder
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.workload import StepPlan, Workload

ROWS = 8  # of a step


class ToyModel(nn.Module):
    """A regression with dropout from torch's own generator, a norm, and a tied weight."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(width, 1)
        self.also_last = self.last
        draws = torch.Generator().manual_seed(3)
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.rand(p.shape, generator=draws) - 0.4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.drop(self.norm(self.first(x)).relu())).squeeze(-1)


class Clock:
    """A replacement for `time.monotonic` that only advances when work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowingClock(Clock):
    """A clock on which work takes `factor` times as long between two times."""

    def __init__(self, begin: float, factor: float, end: float = float("inf")) -> None:
        self._now, self.begin, self.end, self.factor = 0.0, begin, end, factor

    @property
    def now(self) -> float:
        return self._now

    @now.setter
    def now(self, value: float) -> None:
        is_slow = self.begin <= self._now < self.end
        self._now += (value - self._now) * (self.factor if is_slow else 1.0)


class ToyWorkload(Workload):
    """Rows with a linear target. `broken` steps have a NaN loss, `jumps` a high one.

    With a `clock`, a micro-batch takes one second and an evaluation two.
    """

    def __init__(
        self,
        *,
        micro_batch: int = 8,
        dropout: bool = True,
        broken: tuple[int, ...] = (),
        jumps: tuple[int, ...] = (),
        pause: float = 0.0,
        clock: "Clock | None" = None,
        width: int = 8,
    ) -> None:
        self.model = ToyModel(width)
        if not dropout:
            self.model.drop.p = 0.0
        self.micro_batch, self.broken, self.jumps, self.pause = micro_batch, broken, jumps, pause
        self.clock = clock
        self.die_at: int | None = None
        self.told: list[int] = []
        self.is_even = False
        self.evaluations = 0

    def fix_steps(self, total: int) -> None:
        self.told.append(total)

    @property
    def has_even_steps(self) -> bool:
        return self.is_even

    def change_pace(self, pace: Pace) -> None:
        self.pace = pace

    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        x = torch.from_numpy(generator(5, "toy", step).random((ROWS, 4), dtype="float32"))
        y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0])
        if step in self.broken:
            y = y * torch.nan
        if step in self.jumps:
            y = y + 50.0
        mine = range(rank, ROWS, world)
        cuts = [list(mine)[i : i + self.micro_batch] for i in range(0, len(mine), self.micro_batch)]
        batches = [(x[c], y[c]) for c in cuts]
        if step == self.die_at:
            batches.append((None, None))
        return StepPlan(micro_batches=batches, tokens=4 * ROWS, sequences=ROWS)

    def loss(self, model: nn.Module, micro_batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        if self.pause:
            time.sleep(self.pause)
        if self.clock is not None:
            self.clock.now += 1.0
        x, y = micro_batch
        if x is None:
            os.kill(os.getpid(), 9)
        squares = ((model(x) - y) ** 2).sum()
        return squares / ROWS, {"squares": squares.detach(), "count": torch.tensor(float(len(y)))}

    def summarize(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        return {"mean_square": sums["squares"] / sums["count"], "unigram_entropy": 2.0}

    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> Mapping[str, float]:
        self.evaluations += 1
        if self.clock is not None:
            self.clock.now += 2.0
        assert not model.training
        x = torch.ones(3, 4)
        return {"loss": float(((model(x) + 0.5) ** 2).mean())}


def toy_settings(**changes: Any) -> TrainSettings:
    values = {"steps": 20, "learning_rate": 0.01, "log_every": 1, "evaluate_every": 7}
    if "minutes" in changes or "tokens" in changes:
        del values["steps"]
    return TrainSettings(**(values | changes))


def toy_run(path: Path, workload: ToyWorkload, *, resume: bool = False, **changes: Any) -> Any:
    """The result of a complete toy run in `path`."""
    settings = toy_settings(**changes)
    make = RunFolder.resume if resume else RunFolder.create
    return train(workload, settings, make(path, {"train": to_dict(settings)}))


def environment() -> dict[str, str]:
    """The environment to run this file as a program, whether or not the package is installed."""
    return {**os.environ, "PYTHONPATH": str(Path(bertsmith.__file__).parents[1]), "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--plain", action="store_true", help="no dropout, micro-batches of 2")
    parser.add_argument("--die-at", type=int, help="kill -9 of process 1 in this step, unless it was started again")
    parser.add_argument("--die-writing", type=int, help="kill -9 itself in the middle of writing this checkpoint")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.die_writing is not None:
        _die_while_writing(arguments.die_writing)
    workload = ToyWorkload(
        pause=arguments.pause,
        dropout=not arguments.plain,
        micro_batch=2 if arguments.plain else ROWS,
        width=arguments.width,
    )
    settings = toy_settings(steps=arguments.steps, save_every=5)
    rank = Rank.from_environment()
    if rank.index == 1 and not rank.restarts:
        workload.die_at = arguments.die_at
    with process_group(rank, torch.device("cpu")):
        resume = started_before(arguments.resume, rank, arguments.path / SETTINGS_FILE)
        run = RunFolder.prepare(arguments.path, {"train": to_dict(settings)}, resume=resume, rank=rank)
        train(workload, settings, run, rank=rank)


def _die_while_writing(step: int) -> None:
    """Stops the write of the optimizer's file at `step` halfway, without any cleanup."""
    from bertsmith.training.loop import checkpoint

    write = checkpoint.save_tensors

    def half(tensors: Mapping[str, Tensor], path: Path, rank: Rank | None = None) -> None:
        write(tensors, path, rank)
        if path.name == checkpoint.OPTIMIZER_FILE and f"step-{step:08d}" in str(path):
            with open(path, "r+b") as file:
                file.truncate(path.stat().st_size // 2)
            os.kill(os.getpid(), 9)

    checkpoint.save_tensors = half


if __name__ == "__main__":
    try:
        main()
    except BertsmithError as error:
        raise SystemExit(f"error: {error}") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
