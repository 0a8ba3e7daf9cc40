"""How often `drift` says that texts differ: later texts of the same source (false alarms), and with others among them.

    python benchmarks/drift.py [--data DIR] [--model starter] [--sizes 100 500] [--shares 0 0.1 0.25 1]

Training and later texts are drawn without overlap from TREC's 5,452 training questions (DIR/cls/nltk/qc); a share of
the later ones is replaced by questions to a bank (DIR/intents/banking77_test.jsonl). For each share and size, the test
is run on 200 draws, on the words of the texts and on vectors of the model. Sources that are equal are called different
by chance in a fortieth of the draws.

For comparison, on 40 draws (200 of 100 texts of one source, 20 of 500 texts): a linear classifier that is fitted to
tell both apart, in five folds; they differ if the 95% interval of its area under the ROC curve is above 0.5.

Without --data, texts of made-up words are drawn. A cell that is in the result file is not repeated. One thread;
processor seconds.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from labelled_rows import trec

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json_lines
from bertsmith.recipes.audit.out_of_fold import Features, bag_features
from bertsmith.tasks.baselines.linear import PENALTIES
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.two_samples import area_of_folds, area_under_curve, two_sample_test
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import fold_numbers

DRAWS, FEWER = 200, {100: 40, 500: 20}
SIZES = (100, 500)  # texts of a side
SHARES = (0.0, 0.1, 0.25, 1.0)  # of the later texts, from the other source
SPEC = TaskSpec(kind="classification", name="classification", labels=("training", "later"))

Judged = tuple[float, bool, np.ndarray]  # the area, whether the texts differ, and a score of each


def main() -> None:
    """Runs the tests on all draws and prints a line for each cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder of data sets [made-up texts]")
    parser.add_argument("--model", default="starter", help="whose vectors are tested")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), choices=SIZES)
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("drift", options.out or (None if options.data else "drift_made-up"))
    texts, others = _made_up() if options.data is None else _questions(options.data)
    model = bertsmith.load(options.model, device="cpu")
    vectors = np.concatenate([model.embed(texts), model.embed(others)])
    for size in options.sizes:
        for share in options.shares:
            draws = [_draw(seed, size, share, len(texts), len(others)) for seed in range(DRAWS)]
            for kind, inputs in {"words": None, f"vectors of {Path(options.model).name}": vectors}.items():
                key = f"{kind}, {size} texts, {share:g} of another source"
                if key not in done:
                    fewer = FEWER[size] if share or size > SIZES[0] else DRAWS
                    cell = {
                        judge.__name__.strip("_"): _judged(judge, draws[:count], [*texts, *others], inputs, len(texts))
                        for judge, count in ((_means, DRAWS), (_classifier, fewer))
                    }
                    _, _, done = begun("drift", name)
                    done[key] = cell
                    write_result(name, {"machine": described, "settings": {"folds": 5}, "cells": done})
                print(key, json.dumps(done[key]), flush=True)


def _draw(seed: int, size: int, share: float, num_texts: int, num_others: int) -> np.ndarray:
    """The numbers of training and later texts, those of the other source last."""
    order = generator(seed, "texts").permutation(num_texts)
    foreign = generator(seed, "other texts").permutation(num_others)[: round(share * size)]
    return np.concatenate([order[: 2 * size - len(foreign)], num_texts + foreign])


def _judged(
    judge: Callable[..., Judged], draws: list[np.ndarray], texts: list[str], vectors: np.ndarray | None, first: int
) -> Mapping[str, Any]:
    """How often texts differ, the mean area, and how well scores rank others before later texts of the same source."""
    areas, ranks, alarms, start = [], [], 0, time.process_time()
    for seed, numbers in enumerate(draws):
        # As in the command: among words that are equally rare, the bag counts those of the first texts.
        order = generator(seed, "order of texts").permutation(len(numbers))
        numbers, is_later = numbers[order], order >= len(numbers) // 2
        examples = [
            TextExample(id=str(row), first=texts[number], label=SPEC.labels[int(later)])
            for row, (number, later) in enumerate(zip(numbers.tolist(), is_later.tolist(), strict=True))
        ]
        bag = bag_features(SPEC, examples) if vectors is None else None
        features = bag or Features(name="vectors", inputs=vectors[numbers], penalties=PENALTIES)
        area, differ, scores = judge(features, is_later, np.array(fold_numbers(examples, 5, seed)), seed)
        areas.append(area)
        alarms += differ
        foreign = numbers >= first
        if foreign.any() and not foreign[is_later].all():
            ranks.append(area_under_curve(scores[is_later & ~foreign], scores[foreign])[0])
    return {
        "differ": int(alarms),
        "draws": len(draws),
        "area": round(float(np.mean(areas)), 4),
        **({"rank of others": round(float(np.mean(ranks)), 4)} if ranks else {}),
        "seconds": round((time.process_time() - start) / len(draws), 2),
    }


def _means(features: Features, is_later: np.ndarray, folds: np.ndarray, seed: int) -> Judged:
    test, scores = two_sample_test(features.inputs, is_later, folds, seed)
    return test.area, test.differ, scores


def _classifier(features: Features, is_later: np.ndarray, folds: np.ndarray, seed: int) -> Judged:
    with quiet():
        scores = features.out_of_fold(SPEC, is_later.astype(np.int64), folds, seed)[:, 1]
    area, low, _ = area_of_folds(scores, is_later, folds)
    return area, low > 0.5, scores


def _questions(data: Path) -> tuple[list[str], list[str]]:
    """The questions of TREC, and questions to a bank."""
    questions = [text for text, _ in trec(data / "cls" / "nltk" / "qc" / "train.txt")]
    bank = read_json_lines(data / "intents" / "banking77_test.jsonl")
    return questions, [row["text"] for row in bank]


def _made_up() -> tuple[list[str], list[str]]:
    """Texts of words in two kinds of frequencies."""
    words = [f"word{number}" for number in range(400)]
    result = []
    for name, power in (("texts", 1.0), ("others", 0.5)):
        chances = 1 / np.arange(1, 401) ** power
        draw = generator(1, name)
        chosen = draw.choice(400, size=(1200, 10), p=chances / chances.sum())
        result.append([" ".join(words[number] for number in row) for row in chosen.tolist()])
    return result[0], result[1]


if __name__ == "__main__":
    main()
