"""How many labels are saved by choosing the texts to label: `audit --next` against random order.

    python benchmarks/next_labels.py --data DIR [--model starter] [--tasks trec banking77] [--draws 5]

TREC (5,452 training questions, 6 labels; 500 test questions) and BANKING77 (10,003 training texts, 77 labels; 3,080
test texts). 100 texts are drawn at random and labelled, then 50 more at a time up to 500: at random, those with the
smallest margin between the two most likely labels, or those of `most_informative`. The model is a linear one on the
frozen vectors of `--model`; its penalty is chosen once by cross-validation, on 500 texts at random. Accuracies on the
test texts are means over the draws, with their standard errors; "labels" is the number at which the mean reaches that
of 500 labels in random order, by linear interpolation. A task that is in the result file is not repeated. One thread.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from labelled_rows import trec

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.recipes.audit.next_rows import most_informative
from bertsmith.tasks.baselines.linear import fit_linear
from bertsmith.tasks.metrics.calibration import softmax

FIRST, STEP, LAST = 100, 50, 500  # labels
Choose = Callable[[Any, Any, int], list[int]]


def main() -> None:
    """Fills in the tasks that are missing, and prints a line for each system."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("next_labels", options.out)
    embedder = load_embedder(options.model)
    for task in options.tasks:
        if task not in done:
            start = time.process_time()
            train, test = TASKS[task](options.data)
            with quiet():
                vectors, of_test = (embedder.embed([text for text, _ in rows]) for rows in (train, test))
                done[task] = _cell(
                    vectors, [label for _, label in train], of_test, [label for _, label in test], options
                )
            done[task]["seconds"] = round(time.process_time() - start, 1)
            write_result(name, {"machine": described, "settings": {"model": options.model}, "cells": done})
        for system, values in done[task]["systems"].items():
            print(task, system, json.dumps(values), flush=True)


def _cell(vectors: Any, train: list[str], of_test: Any, test: list[str], options: Any) -> dict[str, Any]:
    names = sorted(set(train))
    labels, golds = (np.array([names.index(label) for label in part]) for part in (train, test))
    rows = generator(options.draws, "next labels").permutation(len(labels))[:LAST]
    penalty = fit_linear(vectors[rows], labels[rows], num_outputs=len(names)).penalty
    curves: dict[str, Any] = {}
    for system, choose in SYSTEMS.items():
        curves[system] = np.array(
            [
                _curve(vectors, labels, of_test, golds, len(names), penalty, choose, draw)
                for draw in range(options.draws)
            ]
        )
        print(system, curves[system].mean(axis=0).round(3).tolist(), flush=True)
    target = float(curves["random order"].mean(axis=0)[-1])
    return {
        "draws": options.draws,
        "penalty": penalty,
        "labels": list(range(FIRST, LAST + 1, STEP)),
        "reached_at_random": round(target, 4),
        "systems": {
            system: {
                "accuracy": part.mean(axis=0).round(4).tolist(),
                "labels": _labels_to(part.mean(axis=0), target),
                "standard_error": (part.std(axis=0, ddof=1) / len(part) ** 0.5).round(4).tolist(),
            }
            for system, part in curves.items()
        },
    }


def _curve(
    vectors: Any,
    labels: Any,
    of_test: Any,
    golds: Any,
    num_labels: int,
    penalty: float,
    choose: Choose | None,
    draw: int,
) -> list[float]:
    """The accuracy after each step."""
    order = generator(draw, "next labels").permutation(len(labels))
    labelled, curve = order[:FIRST].tolist(), []
    while True:
        linear = fit_linear(vectors[labelled], labels[labelled], num_outputs=num_labels, penalties=(penalty,))
        curve.append(float((linear.outputs(of_test).argmax(axis=1) == golds).mean()))
        if len(labelled) == LAST:
            return curve
        known = set(labelled)
        rows = np.array([row for row in order.tolist() if row not in known])
        probabilities = softmax(linear.outputs(vectors[rows]).astype(np.float64))
        chosen = range(STEP) if choose is None else choose(probabilities, vectors[rows], STEP)
        labelled += rows[list(chosen)].tolist()


def _labels_to(curve: Any, target: float) -> int | None:
    """The number of labels from which a curve is at a target; None if it is not within the range."""
    for number, value in enumerate(curve):
        if value >= target:
            before = curve[number - 1] if number else value
            part = (target - before) / (value - before) if value > before else 1.0
            return round(FIRST + STEP * (number - 1 + part)) if number else FIRST
    return None


def _smallest_margins(probabilities: Any, vectors: Any, count: int) -> list[int]:
    ordered = np.sort(probabilities, axis=1)
    return np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")[:count].tolist()


def _trec(data: Path) -> Any:
    return tuple(trec(data / f"cls/nltk/qc/{part}.txt") for part in ("train", "test"))


def _banking(data: Path) -> Any:
    files = (data / f"intents/banking77_{part}.jsonl" for part in ("train", "test"))
    records = ([json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] for file in files)
    return tuple([(record["text"], record["label"]) for record in part] for part in records)


SYSTEMS: dict[str, Choose | None] = {
    "random order": None,
    "smallest margin": _smallest_margins,
    "audit --next": most_informative,
}
TASKS = {"trec": _trec, "banking77": _banking}

if __name__ == "__main__":
    main()
