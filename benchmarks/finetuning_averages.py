"""What an average of several trainings is worth: with and without the start, against each training, on few labels.

    python benchmarks/finetuning_averages.py --data DIR --model DIR [--tasks trec,sst-2] [--size 100] [--seeds 1,2,3]
        [--epochs 7.2]

Each cell draws labelled rows as `finetuning_recipes.py` does, and trains three times on all of them with the recipe
`auto`, each time with another order. Its scores, on official dev rows: `start`, the base model with the linear layer
that all trainings start from; `f0` to `f2`, the trainings; `wise0.5`, half of the start and half of the first training;
`soup2` and `soup3`, the mean of the first two and of all trainings; and with `+S`, of the start as well. `finetune
--merge average` keeps `soup3+S`, and `--keep auto` `soup2`. `steps` are those of a training, `processor_seconds` those
of the three. Finished cells are in the result file and are not run again.
"""

import argparse
import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from finetuning_recipes import HELD_OUT, Cells, drawn
from harness import RESULTS, machine, machine_label
from torch import Tensor

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.settings import split_settings
from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import load_for_task
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.merging import average_of
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.task_data.split import TaskData

TRAININGS = 3
Weights = Mapping[str, Tensor]


def job_of(cells: Cells, size: int, seed: int, changes: Mapping[str, float]) -> FinetuningJob:
    """The job of the recipe `auto` on all drawn rows; its dev examples are among them, so their scores mean nothing."""
    rows = drawn(cells.pool, size, [seed, size])
    aside = max(1, round(HELD_OUT * len(rows)))
    situation = situation_of(cells.spec.name, cells.spec.kind, len(rows), cells.folder)
    values = resolved("auto", situation, {"seed": seed, "baselines": False, **changes})
    parts = split_settings(values, [FinetuningSettings, RecipeSettings])
    settings, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    data = TaskData(train=rows, dev=rows[:aside], held_out=True)
    return FinetuningJob.prepare(cells.folder, cells.spec, data, settings, rates)


def cell(cells: Cells, size: int, seed: int, changes: Mapping[str, float]) -> dict[str, float]:
    """The scores of one draw of labels."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        path, job = Path(folder), job_of(cells, size, seed, changes)
        began = time.process_time()
        results = [job.train_once(path / f"f{number}", 10 * seed + number) for number in range(TRAININGS)]
        seconds = round(time.process_time() - began, 1)
        base = load_any(path / "f0" / "model")

        def score(weights: Weights) -> float:
            model = load_for_task(dataclasses.replace(base, tensors=dict(weights)), job.head, keep_head=True).model
            job.write_model(path / "scored", model, job.task.spec, results[0])
            scores, _ = load_predictor(path / "scored", device="cpu").evaluate(cells.scored)
            return round(float(scores[cells.spec.metric]), 4)

        state = job.started_model(seed).state_dict()
        start: Weights = {name: state[name] for name in base.tensors}
        trained: list[Weights] = [load_any(path / f"f{number}" / "model").tensors for number in range(TRAININGS)]
        return {
            "start": score(start),
            **{f"f{number}": score(weights) for number, weights in enumerate(trained)},
            "wise0.5": score(average_of([start, trained[0]])),
            "soup2": score(average_of(trained[:2])),
            "soup2+S": score(average_of([start, *trained[:2]])),
            "soup3": score(average_of(trained)),
            "soup3+S": score(average_of([start, *trained])),
            "steps": results[0].steps,
            "processor_seconds": seconds,
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the cells that are not in the result file yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True, help="a model folder, or starter")
    parser.add_argument("--tasks", default="trec,sst-2")
    parser.add_argument("--size", type=int, default=100, help="labels")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--epochs", type=float, help="of a training [those of the recipe]")
    parser.add_argument("--out", type=Path, help="the result file [in results/]")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    changes = {} if options.epochs is None else {"epochs": options.epochs}
    about = machine()
    label = f"finetuning_averages_{machine_label(about)}_torch-{about['packages']['torch']}.jsonl"
    out, name = options.out or RESULTS / label, Path(options.model).resolve().parent.name
    name = options.model if options.model == "starter" else name
    done = (
        {(line["model"], line["task"], line["seed"], line["size"]) for line in read_json_lines(out)}
        if out.exists()
        else set()
    )
    for seed in map(int, options.seeds.split(",")):
        for task in options.tasks.split(","):
            if (name, task, seed, options.size) in done:
                continue
            scores = cell(Cells(options.data, options.model, task), options.size, seed, changes)
            with out.open("a", encoding="utf-8") as file:
                line = json.dumps({"model": name, "task": task, "seed": seed, "size": options.size, **scores})
                file.write(line + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
