"""What each loss of DistilBERT is worth, and students that are not Transformers.

    python benchmarks/distillation_parts.py --data DIR --work DIR --part losses [--steps 200] [--seeds 1 2 3]
    python benchmarks/distillation_parts.py --data DIR --work DIR --part students --model MODEL [--tasks trec,...]

losses: the student has two of the four layers of the starter, its teacher, and reads --novels novels with the three
losses of DistilBERT (soft targets, masked LM, cosine of the last states), with one of them left out, and with masked LM
alone; all start from the same layers and take the same steps. Scores: the loss of masked pieces on held-out novels, in
nats (the teacher has read them), and the accuracy of logistic regression on frozen mean vectors of TREC and SST-2.

students: the tasks, files and teachers of `distillation.py` (MODEL fine-tuned on 1,000 labels; 1,500 texts more without
labels), with a BiLSTM over the word vectors of the teacher (DocBERT) and a linear model on n-grams as students: with
the teacher, and on the labels alone (the BiLSTM for as many steps).

Models are in WORK and cells in the file of results; neither are computed again. One thread, processor seconds.

Source: Sanh et al. (2019), "DistilBERT", table 4, for the losses; Adhikari et al. (2019), "DocBERT", for the BiLSTM.
"""

import argparse
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from harness import begun, write_result
from model_scores import HeldOutRows, ProbeTask, folder_scores, probe_tasks

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.models.checkpoints.load import load_any
from bertsmith.recipes.distillation.corpus_run import RECIPE, START
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from distillation import EPOCHS, prepared

TEACHER = "starter"
LENGTH, ROWS, HELD_OUT_ROWS = 64, 32, 400  # tokens of a row, rows of a step and to score
WEIGHTS = {
    "all three": {},
    "without soft targets": {"soft_weight": 0.0},
    "without masked LM": {"mlm_weight": 0.0},
    "without cosine": {"cosine_weight": 0.0},
}
ALONE = "masked LM alone"
STUDENTS: dict[str, dict[str, Any]] = {
    "bilstm": {"epochs": 10.0, "learning_rate": 1e-3, "without_teacher": True, "seeds": 1},
    "n-grams": {},
}
Cells = Iterator[tuple[str, Callable[[], dict[str, Any]]]]


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each arm."""
    options = _options()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    described, name, done = begun("distillation_parts", options.out)
    for key, compute in {"losses": losses, "students": students}[options.part](options):
        if key in done:
            continue
        start = time.process_time()
        with quiet():
            results = compute()
        done[key] = {**results, "processor_seconds": round(time.process_time() - start, 1)}
        print(key, done[key], flush=True)
        settings = {"steps": options.steps, "rows": ROWS, "length": LENGTH, "novels": options.novels}
        of_students = {student: {**options, "with_teacher_epochs": EPOCHS} for student, options in STUDENTS.items()}
        write_result(name, {"machine": described, "losses": settings, "students": of_students, "cells": done})
    for arm in dict.fromkeys(key.rsplit(", seed", 1)[0] for key in done):
        some = [cell for key, cell in done.items() if key.startswith(f"{arm}, seed")]
        for score in some[0]:
            mean = spread([cell[score] for cell in some])
            print(f"{arm}: {score} {mean.mean:.4f} ± {mean.deviation:.4f}")


def losses(options: argparse.Namespace) -> Cells:
    """The cells of the losses."""
    corpus = options.work / "corpus"
    if not corpus.is_dir():
        novels = sorted((options.data / "pretrain_gutenberg100").glob("*_*.txt"))[: options.novels]
        build_corpus(novels, load_any(TEACHER).require_tokenizer(), corpus, held_out=0.1, workers=1)
    rows = HeldOutRows.of(Corpus.open(corpus), length=LENGTH, rows=HELD_OUT_ROWS)
    tasks = probe_tasks(options.data)
    shared: dict[str, Any] = {
        "steps": options.steps, "max_length": LENGTH, "rows_per_step": ROWS, "evaluation_rows": 32, "precision": "fp32",
    }  # fmt: skip

    def trained(arm: str, seed: int) -> Path:
        out = options.work / f"{arm}-{seed}".replace(" ", "-")
        if arm == ALONE:
            start = trained("all three", seed).parent / START
            bertsmith.pretrain(
                corpus, out, init=str(start), seed=seed, resume=out.is_dir(), **{**dict(RECIPE), **shared}
            )
        else:
            bertsmith.distill_corpus(
                TEACHER, corpus, out, method="distilbert", seed=seed, resume=out.is_dir(), **WEIGHTS[arm], **shared
            )
        return out / "model"

    yield "losses, teacher, seed 1", lambda: _scores(TEACHER, rows, tasks)
    for seed in options.seeds:
        for arm in (*WEIGHTS, ALONE):
            yield (
                f"losses, {arm}, seed {seed}",
                lambda arm=arm, seed=seed: _scores(trained(arm, seed), rows, tasks),
            )


def _scores(model: str | Path, rows: HeldOutRows, tasks: dict[str, ProbeTask]) -> dict[str, float]:
    return {
        "loss": folder_scores(rows, model)["loss"],  # type: ignore[arg-type]
        **{name: task.accuracy(model) for name, task in tasks.items()},  # type: ignore[arg-type]
    }


def students(options: argparse.Namespace) -> Cells:
    """The cells of the other students."""

    def taught(task: str, student: str) -> dict[str, Any]:
        folder = prepared(task, options.data, options.work)
        shared = {"train": folder / "train.tsv", "dev": folder / "dev.tsv", "keep": "last", "evaluate_every": 10**6}
        teacher, out = folder / "teacher", folder / student
        if not (teacher / "report.json").is_file():
            bertsmith.finetune(
                options.model, "classification", teacher, seeds=1, baselines=False, resume=teacher.is_dir(), **shared
            )
        report = bertsmith.distill(
            teacher, out, student=student, unlabelled=folder / "more.tsv", logits=folder / "logits",
            resume=out.is_dir(), **{**shared, **STUDENTS[student]} if student != "n-grams" else
            {"train": shared["train"], "dev": shared["dev"]},
        )  # fmt: skip
        rows = {row["name"]: row for row in report.to_dict()["rows"]}
        scores = {name: round(row["score"], 4) for name, row in rows.items()}
        waits = rows["student"]["cost"]["milliseconds"]["fp32"]["one"]
        return {**scores, "parameters": rows["student"]["cost"]["parameters"], "milliseconds": waits}

    for task in options.tasks.split(","):
        for student in STUDENTS:
            yield f"students, {task}, {student}, seed 1", functools.partial(taught, task, student)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--work", type=Path, required=True, help="the folder of models")
    parser.add_argument("--part", choices=("losses", "students"), required=True)
    parser.add_argument("--model", help="students: the encoder that teachers are made from")
    parser.add_argument("--tasks", default="trec,sst-2,clinc-150", help="students: [trec,sst-2,clinc-150]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="losses: [1 2 3]")
    parser.add_argument("--steps", type=int, default=200, help="losses: of 32 rows of 64 tokens [200]")
    parser.add_argument("--novels", type=int, default=20, help="losses: that are read [20]")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
