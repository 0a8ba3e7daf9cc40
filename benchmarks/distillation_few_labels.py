"""Whether a student needs its teacher: few labels, many texts without labels, layers that have not seen the task.

    python benchmarks/distillation_few_labels.py --data DIR --model DIR --work DIR [--tasks trec-fine,...]
    python benchmarks/distillation_few_labels.py --work DIR --write

DIR of `--data` contains `glue`, `cls` and `ner` in their official formats. The labelled examples of a task and others
without labels are drawn once from its training set, at random or with as many of each class as there are.

==============  ============================================  =========  ============================  ==============
task            labelled                                      others     scored on                     metric
==============  ============================================  =========  ============================  ==============
clinc-150       5 of each of 150 intents                      2,000      1,000 rows of its dev set     accuracy
trec-fine       at most 10 of each of 50 kinds of question    2,000      its test set, 500             accuracy
reuters-8       10 of each of 8 topics                        1,500      1,000 texts of its test set   accuracy
sst-2           100 of both classes                           2,000      its dev set, 872              accuracy
sts-b           500 scored pairs                              2,000      1,000 pairs of its dev set    as in GLUE
ncbi-disease    300 sentences with tagged diseases            1,200      its dev set, 923 sentences    F1 of entities
==============  ============================================  =========  ============================  ==============

The teacher is MODEL fine-tuned on the labelled examples (recipe auto, one seed). The students of a seed start from the
lower half of the layers of MODEL, which have not seen the task:

taught           all examples, the unlabelled ones with the teacher's answers, 2 epochs (`bertsmith distill`)
as many steps    the labelled examples alone, for as many steps with the same settings (its `--without-teacher`)
recipe auto      the labelled examples alone, with the recipe that `finetune` chooses (`--auto`, seed 1)

Scores are those of the last model of each training. A training is in WORK and is not repeated; `--write` collects all.
"""

import argparse
import functools
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import RESULTS, machine, machine_label, write_result
from labelled_rows import rows_of, trec

import bertsmith
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.models.checkpoints.assembly import load_pretrained, save_pretrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.distillation.settings import WITHOUT
from bertsmith.recipes.distillation.students import with_layers

MOST_DEV = 1_000
EPOCHS, RATE = 2.0, 2e-4  # of the students that read all examples
CELLS = "cells.json"
# The name of the task, labelled examples of each class, all labelled ones at most, and others.
TASKS: Mapping[str, tuple[str, int | None, int, int]] = {
    "clinc-150": ("classification", 5, 750, 2_000),
    "trec-fine": ("classification", 10, 500, 2_000),
    "reuters-8": ("classification", 10, 80, 1_500),
    "sst-2": ("classification", 100, 200, 2_000),
    "sts-b": ("regression", None, 500, 2_000),
    "ncbi-disease": ("ner", None, 300, 1_200),
}


def tables(task: str, data: Path) -> tuple[list[str], list[str], list[str]]:
    """The header, the training and the dev rows of a task as lines."""
    if task == "sts-b":
        files = [data / f"glue/STS-B/{name}.tsv" for name in ("train", "dev")]
        lines = [path.read_text(encoding="utf-8").splitlines()[1:] for path in files]
        train, dev = (["\t".join(line.split("\t")[7:10]) for line in part] for part in lines)
        return ["sentence1\tsentence2\tlabel"], train, dev
    if task == "ncbi-disease":
        files = [data / f"ner/bio_scibert/NCBI-disease/{name}.txt" for name in ("train", "dev")]
        blocks = [path.read_text(encoding="utf-8").split("\n\n") for path in files]
        train, dev = ([block.strip() + "\n" for block in part if block.strip()] for part in blocks)
        return [], train, dev
    if task == "trec-fine":
        parts = [trec(data / f"cls/nltk/qc/{name}.txt", fine=True) for name in ("train", "test")]
    elif task == "reuters-8":
        files = [data / f"cls/reuters_r8/r8-{name}-all-terms.txt" for name in ("train", "test")]
        news = [path.read_text(encoding="utf-8").splitlines()[1:] for path in files]
        parts = [[(text, label) for label, text in (line.split("\t", 1) for line in part)] for part in news]
    else:
        parts = list(rows_of(task, data))
    train, dev = ([f"{' '.join(text.split())}\t{label}" for text, label in part] for part in parts)
    return ["text\tlabel"], train, dev


def prepared(task: str, data: Path, work: Path) -> dict[str, Path]:
    """The files of a task: train (labelled), more (without labels) and dev."""
    folder = work / task
    ending = "conll" if TASKS[task][0] == "ner" else "tsv"
    files = {name: folder / f"{name}.{ending}" for name in ("train", "more", "dev")}
    if not files["dev"].is_file():
        folder.mkdir(parents=True, exist_ok=True)
        header, train, dev = tables(task, data)
        _, of_class, most, unlabelled = TASKS[task]
        order = [train[number] for number in generator(1, f"few labels of {task}").permutation(len(train)).tolist()]
        counts, labelled, others = Counter[str](), list[str](), list[str]()
        for row in order:
            label = row.split("\t")[-1]
            few = len(labelled) < most and (of_class is None or counts[label] < of_class)
            counts[label] += few
            (labelled if few else others).append(row)
        kept = sorted(generator(2, f"few labels of {task}").permutation(len(dev))[:MOST_DEV].tolist())
        for name, rows in (("train", labelled), ("more", others[:unlabelled]), ("dev", [dev[row] for row in kept])):
            files[name].write_text("\n".join([*header, *rows]) + "\n", encoding="utf-8")
    return files


def task_cells(task: str, options: argparse.Namespace) -> None:
    """Trains what is missing of a task, and writes WORK/TASK/cells.json."""
    folder, files = options.work / task, prepared(task, options.data, options.work)
    cells: dict[str, Any] = read_json(folder / CELLS) if (folder / CELLS).is_file() else {}
    name, base = TASKS[task][0], lower_half(options.model, options.work / "lower-half")
    shared: dict[str, Any] = {
        "train": files["train"], "dev": files["dev"], "keep": "last", "evaluate_every": 10**6, "seeds": 1,
        "precision": "fp32",
    }  # fmt: skip

    def teacher() -> dict[str, Any]:
        return score_of(bertsmith.finetune(options.model, name, folder / "teacher", baselines=False,
                                           resume=(folder / "teacher").is_dir(), **shared).report)  # fmt: skip

    def taught(seed: int) -> dict[str, Any]:
        out = folder / f"taught-{seed}"
        bertsmith.distill(
            folder / "teacher", out, student=str(base), unlabelled=files["more"], epochs=EPOCHS, learning_rate=RATE,
            logits=folder / "logits", without_teacher=True, times=False, seed=seed, resume=out.is_dir(), **shared,
        )  # fmt: skip
        alone = read_json(out / WITHOUT / "report.json")
        return {**score_of(read_json(out / "report.json")), "as many steps": score_of(alone)["score"]}

    def alone(seed: int) -> dict[str, Any]:
        out = folder / f"alone-{seed}"
        return score_of(bertsmith.finetune(base, name, out, baselines=False, seed=seed, resume=out.is_dir(),
                                           **shared).report)  # fmt: skip

    wanted = {"teacher": teacher}
    for seed in options.seeds:
        wanted[f"taught, seed {seed}"] = functools.partial(taught, seed)
    if options.auto:
        wanted["recipe auto, seed 1"] = functools.partial(alone, 1)
    for cell, compute in wanted.items():
        if cell not in cells:
            begun = time.process_time()
            cells[cell] = {**compute(), "processor_seconds": round(time.process_time() - begun, 1)}
            write_json(folder / CELLS, cells)
            print(task, cell, json.dumps(cells[cell]), flush=True)


def lower_half(model: Path, path: Path) -> Path:
    """A model folder with the lower half of the layers of a model."""
    if not path.is_dir():
        folder = load_any(model)
        half = with_layers(folder, tuple(range(1, folder.config.num_hidden_layers // 2 + 1)))
        loaded = load_pretrained(half, seed=1)
        save_pretrained(path, loaded.model, loaded.tokenizer, half.metadata, trained=half.parts)
    return path


def score_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """The score of a training, and what it read."""
    metric = report["metric"]
    return {"score": report["runs"][0]["scores"][metric], "metric": metric, "examples": report["train_examples"]}


def summary(options: argparse.Namespace) -> None:
    """Writes what is in WORK to a file of results, which keeps its other tasks, and prints a line for each task."""
    described, tasks = machine(), {}
    for path in sorted(options.work.glob(f"*/{CELLS}")):
        cells = read_json(path)
        mine = [cell for name, cell in cells.items() if name.startswith("taught")]
        arms = {
            "taught": [cell["score"] for cell in mine],
            "as many steps": [cell["as many steps"] for cell in mine],
            "recipe auto": [cell["score"] for name, cell in cells.items() if name.startswith("recipe auto")],
        }
        means = {name: float(np.mean(scores)) for name, scores in arms.items() if scores}
        spread = max(deviation(scores) for scores in arms.values())
        gain = means["taught"] - max(score for name, score in means.items() if name != "taught")
        teacher = cells["teacher"]
        row = {
            "teacher": teacher["score"],
            "metric": teacher["metric"],
            "labelled": teacher["examples"],
            **{name: [round(score, 4) for score in scores] for name, scores in arms.items()},
            "kept": round(means["taught"] / teacher["score"], 4),
            "gain": round(gain, 4),
            "spread": round(spread, 4),
            "processor_seconds": round(sum(cell["processor_seconds"] for cell in cells.values()), 1),
        }
        tasks[path.parent.name] = row
        print(path.parent.name, json.dumps(row))
    name = f"distillation_few_labels_{machine_label(described)}_torch-{described['packages']['torch']}"
    before = RESULTS / f"{name}.json"
    tasks = {**(read_json(before)["tasks"] if before.is_file() else {}), **tasks}
    unlabelled = {task: TASKS[task][-1] for task in tasks}
    settings = {"unlabelled": unlabelled, "epochs": EPOCHS, "learning_rate": RATE}
    write_result(name, {"machine": described, "settings": settings, "tasks": tasks})


def deviation(scores: Sequence[float]) -> float:
    """The standard deviation of scores, 0 of one."""
    return float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0


def main() -> None:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", help="the model that teacher and students are fine-tuned from")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--auto", action="store_true", help="also the recipe auto on labels alone, with seed 1")
    parser.add_argument("--write", action="store_true", help="collect what is in WORK instead")
    options = parser.parse_args()
    if options.write:
        summary(options)
    else:
        for task in options.tasks.split(","):
            task_cells(task, options)


if __name__ == "__main__":
    main()
