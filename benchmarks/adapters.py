"""What a low-rank adapter loses and saves against fine-tuning the whole encoder, on 1,000 labels.

    python benchmarks/adapters.py --data DIR --models starter,DIR [--tasks trec,sst-2] [--size 1000] [--seeds 1,2,3]

Each cell draws labelled rows as `finetuning_recipes.py` does, and trains once on all of them with the recipe `auto`:
the whole encoder, or an adapter (`--lora-rank 8`) of some layers (`--targets`), with a multiple of the learning rate of
the whole encoder (`--rates`). It records the score on official dev rows, the trained parameters, the processor seconds
of the training, and the bytes that the trained weights take on the disk. Finished cells are in the result file and are
not run again.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from finetuning_recipes import Cells, drawn
from harness import RESULTS, machine, machine_label

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.settings import split_settings
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.task_data.split import TaskData

RANK = 8


def cell(cells: Cells, size: int, seed: int, rate: float, targets: str | None) -> dict[str, Any]:
    """The figures of one training; `rate` is 0 for the whole encoder."""
    rows = drawn(cells.pool, size, [seed, size])
    situation = situation_of(cells.spec.name, cells.spec.kind, len(rows), cells.folder)
    fixed: Mapping[str, Any] = {"seed": seed, "baselines": False, "device": "cpu"}
    values = resolved("auto", situation, fixed)
    if rate:
        peak = float(f"{values['learning_rate'] * rate:.2g}")
        values = resolved(
            "auto", situation, {**fixed, "lora_rank": RANK, "lora_targets": targets, "learning_rate": peak}
        )
    parts = split_settings(values, [FinetuningSettings, RecipeSettings])
    settings, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    with tempfile.TemporaryDirectory() as folder, quiet():
        job = FinetuningJob.prepare(cells.folder, cells.spec, TaskData(train=rows, dev=()), settings, rates)
        run = Path(folder) / "training"
        trained = sum(
            part.numel() for part in job._workload(seed, None, Rank()).model.parameters() if part.requires_grad
        )
        begin = time.process_time()
        result = job.train_once(run, seed)
        seconds = time.process_time() - begin
        scores, _ = load_predictor(run / "model", device="cpu").evaluate(cells.scored)
        written = run / ("adapter/adapter_model.safetensors" if rate else "model/model.safetensors")
        return {
            "score": round(float(scores[cells.spec.metric]), 4),
            "trained_parameters": trained,
            "learning_rate": rates.learning_rate,
            "steps": result.steps,
            "processor_seconds": round(seconds, 1),
            "bytes": written.stat().st_size,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the cells that are not in the result file yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--models", default="starter", help="model folders, or starter")
    parser.add_argument("--tasks", default="trec,sst-2")
    parser.add_argument("--size", type=int, default=1000, help="labels")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rates", default="0,10", help="multiples of the learning rate; 0 for the whole encoder")
    parser.add_argument("--targets", help="layers with an adapter [queries and values]")
    parser.add_argument("--out", type=Path, help="the result file [in results/]")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    about = machine()
    out = options.out or RESULTS / f"adapters_{machine_label(about)}_torch-{about['packages']['torch']}.jsonl"
    keys = ("model", "task", "seed", "size", "rate", "targets")
    done = {tuple(line[key] for key in keys) for line in read_json_lines(out)} if out.exists() else set()
    for task in options.tasks.split(","):
        for model in options.models.split(","):
            name = model if model == "starter" else Path(model).resolve().parent.name
            cells = Cells(options.data, model, task)
            for seed in map(int, options.seeds.split(",")):
                for rate in map(float, options.rates.split(",")):
                    key = (name, task, seed, options.size, rate, options.targets if rate else None)
                    if key in done:
                        continue
                    figures = cell(cells, options.size, seed, rate, options.targets)
                    line = json.dumps({**dict(zip(keys, key, strict=True)), **figures})
                    with out.open("a", encoding="utf-8") as file:
                        file.write(line + "\n")
                    print(line, flush=True)


if __name__ == "__main__":
    main()
