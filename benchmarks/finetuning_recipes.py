"""The recipes of fine-tuning against each other and against baselines, on small training sets.

    python benchmarks/finetuning_recipes.py --data DIR --model DIR [--tasks cola,trec] [--sizes 100,1000]
        [--seeds 1,2,3] [--arms 2018,auto,cheap] [--set learning_rate=2e-4 --name faster]
    python benchmarks/finetuning_recipes.py --data DIR --model starter --arms auto,cheap --out results/starter.jsonl
    python benchmarks/finetuning_recipes.py --data DIR --model starter --untrained --arms auto --name scratch --out ...
    python benchmarks/finetuning_recipes.py --data DIR --model DIR --tasks sst-2,trec,cola --sizes 100 --arms setfit

The arm `setfit` is SetFit (Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts") for single texts:
contrastive pairs of 20 iterations, one epoch, 16 pairs per step, a rate of 2e-5, then logistic regression. It needs an
environment with the packages setfit, datasets and torch, and src/ on the path. The arm `recipe-setfit` is `finetune
--recipe setfit` of this package on the same rows. The tasks of `unseen_tasks.py`, which had no part in the choice of
the recipes, can be named as well (`--tasks sms,r8`).

DIR contains `glue`, `cls`, `claims` and `ner` in their official formats. A cell is a task, a number of labels and a
seed. The seed draws the labelled rows; a recipe holds a tenth of them out as dev examples, as the command does, and
selects by them alone. Baselines (see `recipes/finetuning/baselines.py`) train on all of them. Scores are those of
official dev rows that no side has seen: at most 1,000, the same for all cells of a task.

Each cell is one training with one seed, and its restarts if it collapses, or several with --trainings, as the command
does by default. Finished cells are in the result file, one
JSON line each, and are not run again; `--table` prints the means. With one thread, seconds are those of the processor.
"""

import argparse
import ast
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, machine, machine_label
from labelled_rows import trec
from sklearn.metrics import accuracy_score, matthews_corrcoef
from unseen_tasks import TASKS as UNSEEN
from unseen_tasks import Rows

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.settings import split_settings
from bertsmith.base.storage.files import read_json_lines
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.models.checkpoints.assembly import untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.recipes.finetuning.baselines import baselines_of
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.recipes import resolved, situation_of
from bertsmith.recipes.finetuning.run import finetune
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_examples

FILES = {
    "cola": ("glue/CoLA/train.tsv", "glue/CoLA/dev.tsv"),
    "sst-2": ("glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"),
    "mrpc": ("glue/MRPC/train.tsv", "glue/MRPC/dev.tsv"),
    "sts-b": ("glue/STS-B/train.tsv", "glue/STS-B/dev.tsv"),
    "trec": ("cls/nltk/qc/train.txt", "cls/nltk/qc/test.txt"),
    "wnut-17": ("ner/wnut17/wnut17train.conll", "ner/wnut17/emerging.dev.conll"),
}
KINDS = {"trec": "classification", "wnut-17": "ner"}  # of the tasks that are not named tasks themselves
HELD_OUT = 0.1
MOST_SCORED = 1_000
CHEAP, SETFIT, OUR_SETFIT = "cheap", "setfit", "recipe-setfit"


def examples_of(task: str, path: Path) -> Sequence[Example]:
    """The labelled examples of a file; of TREC, the coarse label."""
    if task != "trec":
        return read_examples(KINDS.get(task, task), path).examples
    return examples_of_rows(trec(path))


def examples_of_rows(rows: Rows) -> Sequence[Example]:
    """Labelled examples of texts and their labels."""
    numbered = enumerate(rows, start=1)
    return [
        TextExample(id=str(number), first=text, label=label, location=f"text {number}")
        for number, (text, label) in numbered
    ]


def drawn(examples: Sequence[Example], count: int, seed: Sequence[int]) -> list[Example]:
    """At most `count` random examples."""
    return [examples[number] for number in np.random.default_rng(seed).permutation(len(examples))[:count].tolist()]


def untrained_copy(folder: ModelFolder) -> ModelFolder:
    """The same model with random parameters."""
    fresh = untrained(folder.config, seed=0).state_dict()
    tensors = {name: fresh[name] for name in folder.tensors}
    return dataclasses.replace(
        folder, tensors=tensors, metadata=dataclasses.replace(folder.metadata, tokens=0, training={})
    )


class Cells:
    """The cells of one task, and their result file."""

    def __init__(
        self, data: Path, model: str, task: str, *, is_untrained: bool = False, trainings: int | None = 1
    ) -> None:
        self.task, self.folder, self.trainings = task, load_any(model), trainings
        if is_untrained:
            self.folder = untrained_copy(self.folder)
        if task in UNSEEN:
            self.pool, scored = map(examples_of_rows, UNSEEN[task](data))
        else:
            self.pool, scored = (examples_of(task, data / name) for name in FILES[task])
        self.scored = drawn(scored, MOST_SCORED, [0])
        kind = "classification" if task in UNSEEN else KINDS.get(task, task)
        self.spec: TaskSpec = spec_for(kind, self.pool, default_settings(kind))

    def recipe(self, name: str, size: int, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
        """The result of one training with a recipe."""
        rows = drawn(self.pool, size, [seed, size])
        aside = max(1, round(HELD_OUT * len(rows)))
        data = TaskData(train=rows[aside:], dev=rows[:aside], held_out=True)
        situation = situation_of(self.spec.name, self.spec.kind, len(data.train), self.folder)
        values = resolved(name, situation, {"seed": seed, "baselines": False, **changes})
        parts = split_settings(values, [FinetuningSettings, RecipeSettings])
        began, wall = time.process_time(), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, quiet():
            settings, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
            result = finetune(self.folder, self.spec, data, Path(folder) / "run", settings, rates, seeds=self.trainings)
            taken = time.process_time() - began, time.perf_counter() - wall
            predictor = load_predictor(Path(folder) / "run" / "model", device="cpu")
            scores, predictions = predictor.evaluate(self.scored)
        run = result.runs[0]
        several = {"kept": result.report["best"], "trainings": len(result.runs)} if self.trainings != 1 else {}
        return {
            **several,
            "scores": {key: round(float(value), 4) for key, value in scores.items()},
            "collapsed": predictor.task.is_collapsed(predictions, self.scored),
            "starts": int(result.report["collapsed"]) + sum(not run.collapsed for run in result.runs),
            "dev": round(float(run.scores[self.spec.metric]), 4),
            "steps": run.steps,
            "learning_rate": run.learning_rate,
            "reads": predictor.task.spec.reads,
            "processor_seconds": round(taken[0], 1),
            "seconds": round(taken[1], 1),
        }

    def cheap(self, size: int, seed: int) -> Iterator[dict[str, Any]]:
        """The results of the baselines."""
        data = TaskData(train=drawn(self.pool, size, [seed, size]), dev=self.scored)
        with tempfile.TemporaryDirectory() as folder, quiet():
            job = FinetuningJob.prepare(self.folder, self.spec, data, FinetuningSettings(), RecipeSettings())
            for baseline in baselines_of(job, Path(folder), resume=False).results:
                scores = {key: round(float(value), 4) for key, value in baseline["scores"].items()}
                yield {"arm": baseline["name"], "scores": scores, "collapsed": False, "seconds": baseline["seconds"]}

    def setfit(self, size: int, seed: int) -> dict[str, Any]:
        """The result of SetFit on all drawn rows; it needs no dev examples."""
        import torch
        from setfit import SetFitModel, Trainer, TrainingArguments

        from datasets import Dataset

        torch.manual_seed(seed)
        rows = [example for example in drawn(self.pool, size, [seed, size]) if isinstance(example, TextExample)]
        names = sorted({str(row.label) for row in rows})
        columns = {"text": [row.first for row in rows], "label": [names.index(str(row.label)) for row in rows]}
        began, wall = time.process_time(), time.perf_counter()
        model = SetFitModel.from_pretrained(str(self.folder.path), labels=names)
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                output_dir=folder, batch_size=16, num_epochs=1, num_iterations=20, body_learning_rate=2e-5, seed=seed,
                report_to="none",
            )  # fmt: skip
            Trainer(model=model, args=settings, train_dataset=Dataset.from_dict(columns)).train()
        taken = time.process_time() - began, time.perf_counter() - wall
        scored = [example for example in self.scored if isinstance(example, TextExample)]
        predicted = [str(label) for label in model.predict([example.first for example in scored])]
        return {**self._of_labels(predicted), "processor_seconds": round(taken[0], 1), "seconds": round(taken[1], 1)}

    def our_setfit(self, size: int, seed: int) -> dict[str, Any]:
        """The result of our recipe of that name on all drawn rows; it needs no dev examples either."""
        rows = [example for example in drawn(self.pool, size, [seed, size]) if isinstance(example, TextExample)]
        began, wall = time.process_time(), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, quiet():
            train = Path(folder) / "train.jsonl"
            train.write_text(
                "".join(json.dumps({"text": example.first, "label": example.label}) + "\n" for example in rows)
            )
            options: dict[str, Any] = {"recipe": "setfit", "seeds": 1, "seed": seed, "baselines": False}
            bertsmith.finetune(str(self.folder.path), "classification", Path(folder) / "run", train=train, **options)
            taken = time.process_time() - began, time.perf_counter() - wall
            predictor = load_predictor(Path(folder) / "run" / "model", device="cpu")
            predicted = [str(prediction.label) for prediction in predictor.predict(self.scored)]
        return {**self._of_labels(predicted), "processor_seconds": round(taken[0], 1), "seconds": round(taken[1], 1)}

    def _of_labels(self, predicted: Sequence[str]) -> dict[str, Any]:
        """The score of the labels of all scored texts."""
        gold = [str(example.label) for example in self.scored if isinstance(example, TextExample)]
        metric = matthews_corrcoef if self.spec.metric == "matthews" else accuracy_score
        score = round(float(metric(gold, predicted)), 4)
        return {"scores": {self.spec.metric: score}, "collapsed": len(set(predicted)) == 1}


def table(lines: Sequence[dict[str, Any]]) -> str:
    """The main score of each arm, mean and range over the seeds, as a Markdown table."""
    cells: dict[tuple[str, int], dict[str, list[float]]] = {}
    for line in lines:
        arms = cells.setdefault((line["task"], line["size"]), {})
        arms.setdefault(line["arm"], []).append(line["scores"][line["metric"]])
    rows = ["| task, labels | arm | mean | lowest to highest | seeds |", "|---|---|---|---|---|"]
    for (task, size), arms in sorted(cells.items()):
        for arm, scores in sorted(arms.items(), key=lambda item: -statistics.mean(item[1])):
            between = f"{min(scores):.3f} to {max(scores):.3f}"
            rows.append(f"| {task}, {size} | {arm} | {statistics.mean(scores):.3f} | {between} | {len(scores)} |")
    return "\n".join(rows)


def main() -> None:
    """Runs the cells that are not in the result file yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", help="a model folder, or starter")
    parser.add_argument("--untrained", action="store_true", help="with random parameters in place of those of --model")
    parser.add_argument("--tasks", default=",".join(FILES))
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--arms", default=f"2018,auto,{CHEAP}")
    parser.add_argument("--trainings", type=int, default=1, help="per cell; 0: as the command has by default [1]")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of the recipes")
    parser.add_argument("--name", help="the name of the arm, with --set")
    parser.add_argument("--out", type=Path, help="the result file")
    parser.add_argument("--table", action="store_true", help="print the means of the result file and stop")
    options = parser.parse_args()
    about = machine()
    label = f"finetuning_recipes_{machine_label(about)}_torch-{about['packages']['torch']}.jsonl"
    out = options.out or RESULTS / label
    lines = read_json_lines(out) if out.exists() else []
    if options.table:
        print(table(lines))
        return
    done = {(line["task"], line["size"], line["seed"], line["asked"]) for line in lines}
    changes = {name: _value(text) for name, _, text in (change.partition("=") for change in options.set)}
    for size in map(int, options.sizes.split(",")):
        for seed in map(int, options.seeds.split(",")):
            for task in options.tasks.split(","):
                cells = None
                for arm in options.arms.split(","):
                    name = options.name if options.name and arm != CHEAP else arm
                    if (task, size, seed, name) in done:
                        continue
                    cells = cells or Cells(
                        options.data,
                        options.model,
                        task,
                        is_untrained=options.untrained,
                        trainings=options.trainings or None,
                    )
                    cell = {"task": task, "size": size, "seed": seed, "asked": name, "metric": cells.spec.metric}
                    if arm == CHEAP:
                        measured = list(cells.cheap(size, seed))
                    elif arm == SETFIT:
                        measured = [{"arm": SETFIT, **cells.setfit(size, seed)}]
                    elif arm == OUR_SETFIT:
                        measured = [{"arm": OUR_SETFIT, **cells.our_setfit(size, seed)}]
                    else:
                        measured = [{"arm": name, **cells.recipe(arm, size, seed, changes)}]
                    with out.open("a", encoding="utf-8") as file:
                        for arm_scores in measured:
                            line = {
                                **cell,
                                **arm_scores,
                                "model": Path(options.model).name,
                                "day": time.strftime("%Y-%m-%d"),
                            }
                            file.write(json.dumps(line) + "\n")
                            print(json.dumps(line), flush=True)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


if __name__ == "__main__":
    main()
