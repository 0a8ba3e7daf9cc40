"""What `predict --calibrate` promises and what new texts show: accuracy above thresholds, coverage and size of sets.

    python benchmarks/selective.py --data DIR --work DIR [--model starter] [--tasks banking77 trec sst-2]

The model is fine-tuned on 1,000 training texts of BANKING77 (77 classes), TREC (6) and SST-2 (2) with one seed. Its 500
dev texts, from the same file, choose the step that is kept. The test texts (3,080; 500; the 872 dev texts of SST-2) are
split 20 times at random into texts for calibration (200 or half of them) and others to check on.

- Accuracy: the threshold of `predict --accuracy`, the lowest threshold whose 95% interval holds on its own, and the
  lowest one with that accuracy on the calibration texts.
- Coverage: the sets of `predict --coverage`, those without the rule that the most likely label is in every set, and
  adaptive sets (Romano, Sesia and Candes, 2020), which add labels from the most likely one on until their probabilities
  sum up to a quantile, with and without the random choice of the last one.
- Dev texts: thresholds and sets that are fitted to the dev texts, checked on other texts of the training file, next to
  those fitted to as many texts that chose nothing.

Probabilities are kept in the work folder. A cell that is in the result file is not repeated. One thread.
"""

import argparse
import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from labelled_rows import Row, rows_of

import bertsmith
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.selective import label_sets, selection_for, selections, set_threshold

TASKS = ("banking77", "trec", "sst-2")
TRAINED, DEV, FRESH = 1000, 500, 2000  # texts of the training file
DRAWS = 20
FEW = 200  # texts for calibration
ACCURACIES, COVERAGES = (0.9, 0.95, 0.98), (0.8, 0.9, 0.95)

Part = tuple[np.ndarray, np.ndarray]  # probabilities [E, K] and gold labels [E]


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("selective", options.out)
    for task in options.tasks:
        key = f"{Path(options.model).name}, {task}"
        if key not in done:
            parts, seconds = _parts(task, options)
            done[key] = {**_cell(parts), "processor_seconds": round(seconds, 1)}
            write_result(name, {"machine": described, "settings": {"draws": DRAWS}, "cells": done})
        print(key, json.dumps(done[key]), flush=True)


def _parts(task: str, options: argparse.Namespace) -> tuple[dict[str, Part], float]:
    """What the model says of dev texts, other texts of the training file, and test texts; processor seconds."""
    kept = options.work / f"{task}.npz"
    if not kept.exists():
        start = time.process_time()
        train, test = _rows(task, options.data)
        order = generator(0, "selective").permutation(len(train)).tolist()
        ends = np.cumsum([TRAINED, DEV, FRESH])
        of_part = {"dev": order[ends[0] : ends[1]], "fresh": order[ends[1] : ends[2]]}
        texts = {name: [train[number] for number in numbers] for name, numbers in of_part.items()} | {"test": test}
        trained = [_record(train[number]) for number in order[: ends[0]]]
        run = options.work / task
        bertsmith.finetune(
            options.model,
            task="classification",
            train=trained,
            out=run,
            dev=[_record(row) for row in texts["dev"]],
            seeds=1,
            merge="best",
            keep="best",
            device="cpu",
        )
        model = bertsmith.load(run / "model", device="cpu")
        arrays = {}
        for name, rows in texts.items():
            known = [row for row in rows if row[1] in model.labels]
            answers = model.classify([text for text, _ in known])
            arrays[f"{name} probabilities"] = np.array([answer.probabilities for answer in answers])
            arrays[f"{name} gold"] = np.array([model.labels.index(label) for _, label in known])
        np.savez(kept, seconds=time.process_time() - start, **arrays)
    arrays = np.load(kept)
    parts = {name: (arrays[f"{name} probabilities"], arrays[f"{name} gold"]) for name in ("dev", "fresh", "test")}
    return parts, float(arrays["seconds"])


def _rows(task: str, data: Path) -> tuple[list[Row], list[Row]]:
    if task != "banking77":
        return rows_of(task, data)
    parts = []
    for part in ("train", "test"):
        lines = (data / "intents" / f"banking77_{part}.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines if line.strip()]
        parts.append([(record["text"], record["label"]) for record in records])
    return parts[0], parts[1]


def _record(row: Row) -> dict[str, str]:
    return {"text": row[0], "label": row[1]}


def _cell(parts: dict[str, Part]) -> dict[str, Any]:
    """All measurements of one task."""
    test = parts["test"]
    splits: dict[str, list[tuple[Part, Part]]] = {}
    for draw in range(DRAWS):
        order = generator(draw, "selective, splits").permutation(len(test[1]))
        for size in (FEW, len(order) // 2):
            split = _taken(test, order[:size]), _taken(test, order[size:])
            splits.setdefault(str(size), []).append(split)
    accuracy = {name: float((part[0].argmax(axis=1) == part[1]).mean()) for name, part in parts.items()}
    return {
        "texts": {name: len(part[1]) for name, part in parts.items()},
        "accuracy": {name: round(value, 4) for name, value in accuracy.items()},
        "thresholds": {size: _thresholds(pairs) for size, pairs in splits.items()},
        "sets": {size: _sets(pairs) for size, pairs in splits.items()},
        "dev texts": _of_dev(parts),
    }


def _taken(part: Part, rows: np.ndarray) -> Part:
    return part[0][rows], part[1][rows]


def _answers(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and correctness."""
    return part[0].max(axis=1), part[0].argmax(axis=1) == part[1]


def _lowest(confidence: np.ndarray, right: np.ndarray, accuracy: float, value: str) -> float | None:
    """The threshold of the last selection with an accuracy, or another value of it, that is high enough."""
    values = {"point": lambda each: each.accuracy, "interval": lambda each: each.interval[0]}
    held = [each.threshold for each in selections(confidence, right) if values[value](each) >= accuracy]
    return held[-1] if held else None


def _promised(confidence: np.ndarray, right: np.ndarray, accuracy: float) -> float | None:
    try:
        return selection_for(selections(confidence, right), accuracy).threshold
    except InputError:
        return None


RULES: dict[str, Callable[[np.ndarray, np.ndarray, float], float | None]] = {
    "predict --accuracy": _promised,
    "each interval alone": functools.partial(_lowest, value="interval"),
    "accuracy itself": functools.partial(_lowest, value="point"),
}


def _thresholds(pairs: list[tuple[Part, Part]]) -> dict[str, Any]:
    """For each rule and accuracy: splits with a threshold, share answered, accuracy, and how often it is too low."""
    result: dict[str, Any] = {}
    for rule, choose in RULES.items():
        for accuracy in ACCURACIES:
            answered, right_share, below = [], [], 0
            for calibration, other in pairs:
                threshold = choose(*_answers(calibration), accuracy)
                if threshold is None:
                    continue
                confidence, right = _answers(other)
                above = confidence >= threshold
                answered.append(float(above.mean()))
                if above.any():
                    right_share.append(float(right[above].mean()))
                    below += right_share[-1] < accuracy
            result.setdefault(rule, {})[f"{accuracy:g}"] = {
                "splits with a threshold": len(answered),
                "answered": _mean(answered),
                "accuracy": _mean(right_share),
                "lowest accuracy": round(min(right_share), 4) if right_share else None,
                "splits below": below,
            }
    return result


def _adaptive(part: Part, random: np.ndarray | None) -> np.ndarray:
    """The adaptive score of each label [E, K]: the probabilities from the most likely label to it, summed up."""
    order = np.argsort(-part[0], axis=1, kind="stable")
    ranked = np.take_along_axis(part[0], order, axis=1)
    sums = ranked.cumsum(axis=1)
    if random is not None:
        sums = sums - ranked * random[:, None]
    scores = np.empty_like(sums)
    np.put_along_axis(scores, order, sums, axis=1)
    return scores


def _sets_of(method: str, calibration: Part, other: Part, coverage: float, draw: int) -> np.ndarray:
    """Which labels are in the sets of other texts, [E, K]."""
    if method.startswith("adaptive"):
        random = [
            generator(draw, f"adaptive, {number}").random(len(part[1])) if "random" in method else None
            for number, part in enumerate((calibration, other))
        ]
        ours, theirs = (-_adaptive(part, numbers) for part, numbers in zip((calibration, other), random, strict=True))
        return theirs >= set_threshold(ours[np.arange(len(ours)), calibration[1]], coverage)
    threshold = set_threshold(calibration[0][np.arange(len(calibration[1])), calibration[1]], coverage)
    return label_sets(other[0], threshold) if method == METHODS[0] else other[0] >= threshold


METHODS = ("predict --coverage", "without the most likely label", "adaptive", "adaptive, random")


def _sets(pairs: list[tuple[Part, Part]]) -> dict[str, Any]:
    """For each kind of set and coverage: the coverage, the mean size, the share of empty and of single sets."""
    result: dict[str, Any] = {}
    for method in METHODS:
        for coverage in COVERAGES:
            measured = []
            for draw, (calibration, other) in enumerate(pairs):
                sets = _sets_of(method, calibration, other, coverage, draw)
                sizes = sets.sum(axis=1)
                covered = sets[np.arange(len(sets)), other[1]].mean()
                measured.append((covered, sizes.mean(), (sizes == 0).mean(), (sizes == 1).mean()))
            values = np.array(measured)
            names = ("coverage", "size", "empty", "single")
            means = {name: round(float(value), 4) for name, value in zip(names, values.mean(axis=0), strict=True)}
            lowest = {"lowest coverage": round(float(values[:, 0].min()), 4)}
            result.setdefault(method, {})[f"{coverage:g}"] = means | lowest
    return result


def _of_dev(parts: dict[str, Part]) -> dict[str, Any]:
    """What is fitted to dev texts, and to as many fresh ones, on the other fresh texts."""
    size, fresh = len(parts["dev"][1]), parts["fresh"]
    pairs = []
    for draw in range(DRAWS):
        order = generator(draw, "selective, dev").permutation(len(fresh[1]))
        pairs.append((_taken(fresh, order[:size]), _taken(fresh, order[size:])))
    result: dict[str, Any] = {}
    for name, chosen in (("dev", [(parts["dev"], fresh)]), ("fresh", pairs)):
        cell = result.setdefault(name, {})
        accuracies = [float(_answers(calibration)[1].mean()) for calibration, _ in chosen]
        cell["accuracy"] = _range(accuracies)
        cell["thresholds"] = _thresholds(chosen)["predict --accuracy"]
        for coverage in COVERAGES:
            covered = []
            for calibration, other in chosen:
                sets = _sets_of(METHODS[0], calibration, other, coverage, 0)
                covered.append(float(sets[np.arange(len(sets)), other[1]].mean()))
            cell[f"coverage {coverage:g}"] = _range(covered)
    return result


def _range(values: list[float]) -> dict[str, float]:
    return {"mean": round(float(np.mean(values)), 4), "low": round(min(values), 4), "high": round(max(values), 4)}


def _mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


if __name__ == "__main__":
    main()
