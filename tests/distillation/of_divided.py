"""A program whose processes divide the students of distillations, and a model that is adapted; see test_divided.py."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import torch

from bertsmith.app.library.distillation import distill, distill_corpus
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import process_group
from bertsmith.recipes.adaptation.run import adapt
from finetuning.of_divided import stopped_at

QUICK = {"log_every": 1, "precision": "fp32", "device": "cpu", "shard": True}
NEW = "1x24"  # narrower than its teacher, so that states are compared after a projection
# Students of a fine-tuned teacher, and of a pre-trained one, by the name of the run.
OF_A_TASK: dict[str, dict[str, Any]] = {
    "logits": {"student": "layers", "layers": "1", "activation_checkpointing": True},
    "projected": {"student": NEW, "state_weight": 1.0, "save_every": 2},
    "stages": {"student": "layers", "layers": "1", "attention_weight": 1.0, "state_weight": 1.0, "first_stage": 1.0},
    "attention": {"student": "layers", "layers": "1", "attention_weight": 1.0},
}
OF_A_CORPUS: dict[str, dict[str, Any]] = {
    "distilbert": {"student": "layers", "layers": "1"},
    "tinybert": {"method": "tinybert", "student": NEW, "attention_weight": 0.0},
}
STOPPED = "stopped"


def taught(folder: Path, out: Path, *, resume: bool = False, **changes: Any) -> None:
    files = {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl"}
    distill(
        folder / "teacher" / "model", out, **files, seeds=1, times=False, without_teacher=False, epochs=1.0,
        batch_size=8, micro_tokens=40, learning_rate=2e-3, recipe="2018", resume=resume, **{**QUICK, **changes},
    )  # fmt: skip


def taught_on_text(folder: Path, out: Path, **changes: Any) -> None:
    options = {"steps": 4, "max_length": 32, "rows_per_step": 8, "evaluation_rows": 4, "micro_tokens": 64}
    distill_corpus(folder / "base", folder / "corpus", out, **{**options, **QUICK, **changes})


def adapted(folder: Path, out: Path, *, shard: bool = True) -> None:
    adapt(
        folder / "base", [folder / "field.txt"], out, general=[folder / "general.txt"], vocabulary="graft", steps=3,
        max_length=32, held_out=0.1, score_words=200, device="cpu", precision="fp32", shard=shard,
        task="classification", train=folder / "train.csv", dev=folder / "dev.csv", seeds=1,
    )  # fmt: skip


def main(folder: Path, out: Path) -> None:
    """Trains all runs into `out`, and stops one more."""
    torch.set_num_threads(1)
    with process_group(Rank.from_environment(), torch.device("cpu")):
        for name, changes in OF_A_TASK.items():
            taught(folder, out / name, **changes)
        for name, changes in OF_A_CORPUS.items():
            taught_on_text(folder, out / name, **changes)
        adapted(folder, out / "adapted")
        with stopped_at(2), contextlib.suppress(KeyboardInterrupt):
            taught(folder, out / STOPPED, **OF_A_TASK["projected"])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
