"""A program that fine-tunes models divided among processes; see test_divided.py."""

import contextlib
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import process_group
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.tuning import tune
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.training.loop.trainer import Trainer
from tasks.task_samples import SETTINGS, SPECS, examples_of

# By the name of the run: the kind of task, and settings.
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("single", {"activation_checkpointing": True}),
    "frozen": ("single", {"freeze": "embeddings", "gradual_unfreezing": True}),
    "head": ("single", {"freeze": "body"}),
    "linear": ("on the mean", {"start": "linear"}),
    "tags": ("tags", {}),
    "hierarchical": ("hierarchical", {}),
    "pairs": ("vectors of partners", {}),
}
STOPPED, SEARCHED = "stopped", "searched"
GRID = {"learning_rate": (1e-9, 2e-3, 3e-3, 5e-3, 1e-2), "batch_size": (8,), "epochs": (2,)}


def trained(base: Path, out: Path, kind: str, *, resume: bool = False, **changes: Any) -> None:
    rates = {name: changes.pop(name) for name in ("activation_checkpointing",) if name in changes}
    settings = FinetuningSettings(
        batch_size=8, epochs=1, precision="fp32", device="cpu", micro_tokens=40, baselines=kind == "single", **changes
    )
    recipe = RecipeSettings(learning_rate=2e-3, bias_correction=True, log_every=1, save_every=2, shard=True, **rates)
    data = TaskData(train=examples_of(kind, 32), dev=() if "vectors" in kind else examples_of(kind, 20, seed=1))
    spec = vector_spec("pairs", data.train, SETTINGS) if "vectors" in kind else SPECS[kind]
    finetune(base, spec, data, out, settings, recipe, seeds=2 if kind == "tags" else 1, resume=resume)


def searched(base: Path, out: Path, *, shard: bool = True) -> None:
    settings = FinetuningSettings(batch_size=8, precision="fp32", device="cpu", micro_tokens=40, baselines=False)
    recipe = RecipeSettings(bias_correction=True, log_every=1, evaluate_every=4, shard=shard)
    data = TaskData(train=examples_of("number", 32), dev=examples_of("number", 20, seed=1))
    tune(base, SPECS["number"], data, out, settings, recipe, trials=5, grid=GRID)


def stopped_at(step: int) -> contextlib.AbstractContextManager[Any]:
    """Within the block, a run is interrupted in this step."""
    real = Trainer.gradient

    def gradient(trainer: Trainer, number: int, plan: Any) -> Any:
        if number == step:
            raise KeyboardInterrupt
        return real(trainer, number, plan)

    return mock.patch.object(Trainer, "gradient", gradient)


def main(base: Path, out: Path) -> None:
    """Trains all runs into `out`, stops one more, and searches; with the word resume, resumes the one that stopped."""
    torch.set_num_threads(1)
    with process_group(Rank.from_environment(), torch.device("cpu")):
        if "resume" in sys.argv:
            trained(base, out / STOPPED, "single", resume=True)
            return
        for name, (kind, changes) in RUNS.items():
            trained(base, out / name, kind, **changes)
        with stopped_at(3), contextlib.suppress(KeyboardInterrupt):
            trained(base, out / STOPPED, "single")
        searched(base, out / SEARCHED)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
