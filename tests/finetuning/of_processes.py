"""A program that fine-tunes in the ways that several processes share differently; see test_processes.py."""

import sys
from pathlib import Path

from bertsmith.app.library.distillation import distill, distill_corpus
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import process_group
from bertsmith.recipes.adaptation.run import adapt
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.tuning import tune
from bertsmith.tasks.specs.vector_gold import vector_spec
from bertsmith.tasks.task_data.split import TaskData
from tasks.task_samples import SETTINGS, SPECS, examples_of

QUICK = FinetuningSettings(batch_size=8, epochs=1, precision="fp32", device="cpu", micro_tokens=40, baselines=False)
RATES = RecipeSettings(learning_rate=2e-3, bias_correction=True, log_every=1)
GRID = {"learning_rate": (1e-9, 1e-3, 5e-3), "batch_size": (8,), "epochs": (1,)}


def main(base: Path, out: Path) -> None:
    """Writes shared/, spread/, search-search/, vectors/, student/, adapted/ and taught/ into `out`."""
    import torch

    torch.set_num_threads(1)
    data = TaskData(train=examples_of("single", 32), dev=examples_of("single", 20, seed=1))
    with process_group(Rank.from_environment(), torch.device("cpu")):
        single = finetune(base, SPECS["single"], data, out / "shared", QUICK, RATES, seeds=1)
        two = finetune(base, SPECS["single"], data, out / "spread", QUICK, RATES, seeds=3)
        assert (len(single.runs), len(two.runs)) == (1, 3), "every process returns the results of all seeds"
        chosen = tune(base, SPECS["single"], data, out / "search", QUICK, RATES, trials=3, grid=GRID)
        assert chosen.recipe.learning_rate in GRID["learning_rate"]
        pairs = TaskData(train=examples_of("vectors of partners", 24), dev=())
        finetune(base, vector_spec("pairs", pairs.train, SETTINGS), pairs, out / "vectors", QUICK, RATES, seeds=1)
        files = {"train": base.parent / "train.jsonl", "dev": base.parent / "dev.jsonl"}
        report = distill(
            out / "shared", out / "student", **files, student="layers", layers="1", state_weight=1.0, first_stage=1.0,
            seeds=1, log_every=1, times=False, without_teacher=False, epochs=1.0, batch_size=8, precision="fp32",
            device="cpu",
        )  # fmt: skip
        assert [row["name"] for row in report.rows] == ["teacher", "student"]
        texts, general = base.parent / "field.txt", [base.parent / "general.txt"]
        adapted = adapt(
            base.parent / "whole", [texts], out / "adapted", general=general, vocabulary="graft", steps=3,
            max_length=32, held_out=0.1, score_words=200, device="cpu", precision="fp32",
        )  # fmt: skip
        assert adapted.report["losses"]["field"]["after"]["words"] > 0
        corpus = out / "adapted" / "corpus"
        distill_corpus(
            out / "adapted" / "model", corpus, out / "taught", method="tinybert", student="layers", layers="1",
            steps=3, log_every=1, max_length=32, device="cpu", precision="fp32", rows_per_step=8,
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
