"""What `finetune` gives on tasks that its recipe was not tuned on, scored on texts that the command never sees.

    python benchmarks/unseen_tasks.py --data DIR [--tasks acl-arc sms ...] [--model starter] [--labels 1000]

For each task, a random sample of the labels is fine-tuned with the defaults, but one seed: a tenth of the sample is the
dev set, as always. The model, the bag of words that the run keeps, and the mean of the probabilities of both (`--also`)
are scored on other texts: the official test set, or 2,000 texts that are left out of the sample.

A cell (model, task) that is in the result file is not repeated. Everything runs on one thread; the processor seconds of
each training are in the file.
"""

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from harness import begun, write_result

import bertsmith
from bertsmith.app.library.labelled import evaluate
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator

Rows = Sequence[tuple[str, str]]  # text and label
MOST_SCORED = 2_000  # texts


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("unseen_tasks", options.out)
    for task in options.tasks:
        key = f"{options.label or Path(options.model).name}, {task}" + (", calibrated" if options.calibrate else "")
        if key not in done:
            with tempfile.TemporaryDirectory() as folder:
                done[key] = _cell(options, TASKS[task](options.data), Path(folder))
            settings = {"labels": options.labels, "seeds": 1}
            write_result(name, {"machine": described, "settings": settings, "cells": done})
        print(key, json.dumps(done[key]), flush=True)


def _cell(options: argparse.Namespace, parts: tuple[Rows, Rows], folder: Path) -> dict[str, Any]:
    """The scores of the fine-tuned model, the bag of words and their mean, and the processor seconds of `finetune`."""
    train, test = (folder / f"{name}.csv" for name in ("train", "test"))
    for path, rows, count in ((train, parts[0], options.labels), (test, parts[1], MOST_SCORED)):
        order = generator(0, "unseen tasks", path is test).permutation(len(rows))[:count]
        with open(path, "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *(rows[number] for number in order.tolist())])
    start = time.process_time()
    with quiet():
        report = bertsmith.finetune(
            options.model, "classification", folder / "run", train=train, seeds=1, calibrate=options.calibrate
        ).report
        seconds = time.process_time() - start
        ours, bag = folder / "run" / "model", folder / "run" / "bag-of-words"
        evaluations = {
            "fine-tuned": evaluate(ours, test),
            "bag of words": evaluate(bag, test),
            "mean of both": evaluate(ours, test, also=[bag]),
        }
    return {
        "scored": evaluations["fine-tuned"].examples,
        "seconds": round(seconds, 1),
        "on dev": {
            "fine-tuned": report["scores"]["accuracy"]["mean"],
            **{baseline["name"]: baseline["scores"]["accuracy"] for baseline in report["baselines"]},
        },
        **{
            name: {key: round(value, 4) for key, value in evaluation.scores.items()}
            for name, evaluation in evaluations.items()
        },
    }


def _lines(path: Path, encoding: str = "utf-8") -> list[str]:
    return [line.strip("\n") for line in open(path, encoding=encoding) if line.strip()]


def _left_out(rows: Rows) -> tuple[Rows, Rows]:
    """Rows for the sample, and rows that are scored."""
    order = generator(0, "unseen tasks, left out").permutation(len(rows)).tolist()
    return [rows[number] for number in order[MOST_SCORED:]], [rows[number] for number in order[:MOST_SCORED]]


def _claims(data: Path) -> tuple[Rows, Rows]:
    def read(name: str) -> Rows:
        records = json.loads((data / "claims" / "claimbuster_clef" / f"{name}.json").read_text(encoding="utf-8"))
        return [(record["text"], "Claim" if record["label"] else "Not Claim") for record in records]

    return read("train"), read("test")


def _citations(data: Path) -> tuple[Rows, Rows]:
    def read(name: str) -> list[tuple[str, str]]:
        records = map(json.loads, _lines(data / "cls" / "scibert_cls" / "citation_intent" / f"{name}.txt"))
        return [(record["text"], record["label"]) for record in records]

    return read("train"), [*read("dev"), *read("test")]


def _two_files(folder: str, names: tuple[str, str]) -> Callable[[Path], tuple[Rows, Rows]]:
    def read(data: Path) -> tuple[Rows, Rows]:
        files = [(name, _lines(data / "cls" / "nltk" / folder / name, "latin-1")) for name in names]
        return _left_out([(line.strip(), name) for name, lines in files for line in lines])

    return read


def _messages(data: Path) -> tuple[Rows, Rows]:
    pairs = [line.split("\t", 1) for line in _lines(data / "cls" / "sms_spam" / "SMSSpamCollection")]
    return _left_out([(text, label) for label, text in pairs])


def _news(data: Path) -> tuple[Rows, Rows]:
    def read(name: str) -> Rows:
        lines = _lines(data / "cls" / "reuters_r8" / f"r8-{name}-all-terms.txt")[1:]
        return [(text, label) for label, text in (line.split("\t", 1) for line in lines)]

    return read("train"), read("test")


TASKS: dict[str, Callable[[Path], tuple[Rows, Rows]]] = {
    "acl-arc": _citations,
    "sms": _messages,
    "rt-polarity": _two_files("sentence_polarity", ("rt-polarity.pos", "rt-polarity.neg")),
    "subjectivity": _two_files("subjectivity", ("quote.tok.gt9.5000", "plot.tok.gt9.5000")),
    "claims": _claims,
    "r8": _news,
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cls/ and claims/")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--model", default="starter", help="what is fine-tuned")
    parser.add_argument("--label", help="its name in the results")
    parser.add_argument("--labels", type=int, default=1_000, help="the size of the sample")
    parser.add_argument("--calibrate", action="store_true", help="fit a temperature on the dev set")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
