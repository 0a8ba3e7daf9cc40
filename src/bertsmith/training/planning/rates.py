"""How long the parts of a training run take: measured on this machine, read from a plan, or estimated for a GPU."""

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean as mean
from typing import Any

import torch

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.machine.allocator import KeptMemory
from bertsmith.base.machine.runtime import Rank, machine, memory_bytes
from bertsmith.base.storage.files import misfit, read_json
from bertsmith.training.loop.budget import time_of_a_step, trial_plans
from bertsmith.training.loop.checkpoint import Position, write_checkpoint
from bertsmith.training.loop.clock import Clock
from bertsmith.training.loop.guard import StopRequest
from bertsmith.training.loop.settings import TrainSettings
from bertsmith.training.loop.trainer import Trainer
from bertsmith.training.loop.workload import Workload

MEASURED, READ, ESTIMATED = "measured", "read", "estimated"
_KEYS: dict[str, Any] = {
    "parameters": int,
    "precision": str,
    "step": {},
    "rates": {
        "device": str,
        "kind": str,
        "memory": int,
        "lanes": int,
        "seconds_to_start": float,
        "tokens_per_step": float,
        "sequences_per_step": float,
        "seconds_per_step": float,
        "seconds_per_evaluation": float,
        "seconds_per_checkpoint": float,
    },
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    """The size of a step and the seconds of the parts of a run, of a single process.

    Attributes:
        source: `MEASURED` here, `READ` from a plan, or `ESTIMATED`.
        memory: of the machine, or of the GPU, in bytes; 0 if unknown.
        seconds_to_start: from opening the corpus to the first step.
    """

    source: str
    device: str
    kind: str
    memory: int
    lanes: int = 1
    tokens_per_step: float
    sequences_per_step: float
    seconds_per_step: float
    seconds_per_evaluation: float = 0.0
    seconds_per_checkpoint: float = 0.0
    seconds_to_start: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """The rate of the steps."""
        return self.tokens_per_step / max(self.seconds_per_step, 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, as `read_rates` reads them."""
        return {name: round(value, 6) if isinstance(value, float) else value for name, value in vars(self).items()}


def measure_rates(workload: Workload, settings: TrainSettings, seconds: float, to_start: float) -> Rates:
    """The rates of a few real steps, one evaluation and one checkpoint on this machine; nothing is kept of them.

    Args:
        seconds: how long steps are measured at most, roughly; a few that take a tenth of it are enough.
    """
    device = next(workload.model.parameters()).device
    devices = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), KeptMemory():
        workload.model.train()
        trainer = Trainer(workload, settings, Rank(), StopRequest())
        plans = trial_plans(trainer)
        clock = Clock()
        step = time_of_a_step(trainer, lambda value: value, lambda: clock.elapsed() / seconds, clock)
        start = time.monotonic()
        trainer.evaluate()
        evaluation = time.monotonic() - start
        described, is_gpu = machine(), device.type == "cuda"
        return Rates(
            source=MEASURED,
            device=described["gpu"]
            if is_gpu
            else f"{described['processor']}, {counted(described['threads'], 'thread')}",
            kind=device.type,
            memory=torch.cuda.get_device_properties(device).total_memory if is_gpu else memory_bytes(),
            lanes=workload.lanes,
            tokens_per_step=mean([plan.tokens for plan in plans]),
            sequences_per_step=mean([plan.sequences for plan in plans]),
            seconds_per_step=step,
            seconds_per_evaluation=evaluation,
            seconds_per_checkpoint=_checkpoint_seconds(trainer),
            seconds_to_start=to_start,
        )


def _checkpoint_seconds(trainer: Trainer) -> float:
    """The seconds to write a checkpoint to the folder for temporary files; 0 if there is no room for it."""
    tensors = [*trainer.workload.model.parameters(), *trainer.optimizer.state_tensors().values()]
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    with tempfile.TemporaryDirectory(prefix="bertsmith-plan-") as folder:
        if shutil.disk_usage(folder).free < 2 * needed:
            return 0.0
        start = time.monotonic()
        write_checkpoint(Path(folder), Position(), trainer.workload.model, trainer.optimizer, {})
        return time.monotonic() - start


def read_rates(path: Path, *, parameters: int, precision: str | None, step: Mapping[str, Any]) -> tuple[Rates, str]:
    """The rates in a file that `bertsmith plan --json` wrote on another machine, and their precision.

    A plan of another size of model, another precision than the one asked for, or other settings of a step is refused.
    """
    plan = read_json(path)
    if wrong := misfit(plan, _KEYS):
        raise InputError(expected=f"a plan in '{path}', written with --json", found=wrong, fix="write it again")
    if plan["parameters"] != parameters or precision not in (None, plan["precision"]):
        raise InputError(
            expected=f"a plan of a model with {parameters:,} parameters" + (f" in {precision}" if precision else ""),
            found=f"one with {plan['parameters']:,} in {plan['precision']} in '{path}'",
            fix="plan the same model there",
        )
    if other := {name: plan["step"].get(name) for name in step if plan["step"].get(name) != step[name]}:
        raise InputError(
            expected="a plan with " + ", ".join(f"{name} = {step[name]!r}" for name in other),
            found=", ".join(f"{value!r}" for value in other.values()) + f" in '{path}'",
            fix="plan the same steps there",
        )
    names = {field.name for field in dataclasses.fields(Rates)} - {"source"}
    return Rates(source=READ, **{name: plan["rates"][name] for name in names}), str(plan["precision"])


def estimated_rates(device: str, memory: int, reached: float, *, work: float, tokens: float, sequences: float) -> Rates:
    """The rates of a GPU that is not here."""
    return Rates(
        source=ESTIMATED,
        device=device,
        kind="cuda",
        memory=memory,
        tokens_per_step=tokens,
        sequences_per_step=sequences,
        seconds_per_step=work / reached,
    )
