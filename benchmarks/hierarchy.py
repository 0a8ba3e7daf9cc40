"""Labels of a hierarchy: the 6 coarse and 50 fine kinds of TREC's questions, and what tuned thresholds are worth.

    python benchmarks/hierarchy.py --data DIR [--model MODEL] [--arms words classes ...] [--seeds 1 2 3]

Arms, with the same training questions:

* `words`: 50 independent labels, logistic regression on TF-IDF of words and pairs of words for each;
* `words-hierarchy`: the same with the coarse kinds as further labels, the parents of the fine ones;
* `classes`: MODEL, fine-tuned to tell which of the 50 fine kinds a question is (cross-entropy);
* `labels`: MODEL, fine-tuned on 50 independent labels (binary cross-entropy), for as many steps;
* `hierarchy`: the same with `--hierarchy`, which adds the coarse kinds as parents.

Scored on the 500 questions of the official test set: how often the most probable fine kind, or one of the 5 most
probable ones, is right, and how often the most probable coarse kind is (without a hierarchy that of the most probable
fine kind). For the arms of labels also micro and macro F1 of the fine labels (macro: of those in the test set), with
the threshold 0.5, with a common one, and with one for each label, tuned for either score on --dev questions that are
held out of the training set.

A seed draws the dev questions and starts the training. A cell (arm, seed) that is in the result file is not repeated.
Everything runs on one thread; the processor seconds of each training are in the file.

Source: Lee and Hsiang (2020), "Patent classification by fine-tuning BERT language model", for the scores at k; Li and
Roth (2002), "Learning Question Classifiers", for the hierarchy.
"""

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result
from labelled_rows import trec
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.inference.predictors.loading import load_predictor
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.metrics.labels import accuracy, multi_label_scores, scores_at
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.classification import ClassificationTask, label_matrix, with_parents
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.predictions import LabelPrediction
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.task_files import read_examples, read_task

ARMS = {
    "words": "multi-label",
    "words-hierarchy": "multi-label",
    "classes": "classification",
    "labels": "multi-label",
    "hierarchy": "multi-label",
}
PENALTY = 30.0  # the inverse strength of regularization of logistic regression
Row = tuple[str, str]  # question and fine kind


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each arm."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("hierarchy", options.out)
    asked = ("train", "dev", "epochs", "rate")
    settings = {**{key: getattr(options, key) for key in asked}, "model": options.label or Path(options.model).name}
    for seed in options.seeds:
        for arm in options.arms:
            key = f"{arm}, seed {seed}"
            if key not in done:
                with tempfile.TemporaryDirectory() as folder:
                    done[key] = _cell(arm, seed, options, Path(folder))
                write_result(name, {"machine": described, "settings": settings, "cells": done})
    for arm in options.arms:
        cells = [done[f"{arm}, seed {seed}"]["scores"] for seed in options.seeds]
        for score in cells[0]:
            scores = spread([cell[score] for cell in cells])
            print(f"{arm}: {score} {scores.mean:.3f} ± {scores.deviation:.3f}")


def _cell(arm: str, seed: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The scores of an arm on the test set."""
    rows = _questions(options.data / "cls/nltk/qc/train.txt")
    order = generator(seed, "questions of a hierarchy").permutation(len(rows)).tolist()
    sides = {
        "train": [rows[index] for index in order[options.dev : options.dev + options.train]],
        "dev": [rows[index] for index in order[: options.dev]],
        "test": _questions(options.data / "cls/nltk/qc/test.txt"),
    }
    files = {side: folder / f"{side}.tsv" for side in sides}
    for side, some in sides.items():
        files[side].write_text("text\tlabel\n" + "".join(f"{text}\t{kind}\n" for text, kind in some), encoding="utf-8")
    parents = folder / "parents.tsv"
    parents.write_text("".join(f"{kind}\t{_coarse(kind)}\n" for kind in sorted({kind for _, kind in rows})))
    hierarchy = str(parents) if arm.endswith("hierarchy") else None
    kind, start = ARMS[arm], time.process_time()
    dev, test = (list(read_examples(kind, files[side]).examples) for side in ("dev", "test"))
    if arm.startswith("words"):
        spec, data = read_task(kind, files["train"], files["dev"], columns=ColumnSettings(hierarchy=hierarchy))
        ask = _of_words(spec, data.train)
        seconds = time.process_time() - start
        return {"scores": _scores(spec, dev, test, {"dev": ask(dev), "test": ask(test)}), "seconds": round(seconds, 1)}
    with quiet():
        bertsmith.finetune(
            options.model, kind, folder / "run", train=files["train"], dev=files["dev"], seeds=1, seed=seed,
            hierarchy=hierarchy, epochs=options.epochs, learning_rate=options.rate, keep="last",
            evaluate_every=10**6, precision="fp32", baselines=False, tune_threshold=arm != "classes",
        )  # fmt: skip
        seconds = time.process_time() - start
        predictor = load_predictor(folder / "run", device="cpu")
        predictions = {"dev": list(predictor.predict(dev)), "test": list(predictor.predict(test))}
    return {"scores": _scores(predictor.task.spec, dev, test, predictions), "seconds": round(seconds, 1)}


def _of_words(spec: TaskSpec, train: Sequence[TextExample]) -> Callable[[Sequence[TextExample]], list[LabelPrediction]]:
    """Predictions of logistic regression on TF-IDF."""
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    columns = vectorizer.fit_transform([example.first for example in train])
    gold = with_parents(label_matrix([labels_of(example) for example in train], spec.labels), spec.labels, spec.parents)
    models = [LogisticRegression(C=PENALTY, solver="liblinear").fit(columns, of_label) for of_label in gold.T]

    def ask(examples: Sequence[TextExample]) -> list[LabelPrediction]:
        vectors = vectorizer.transform([example.first for example in examples])
        logits = np.stack([model.decision_function(vectors) for model in models], axis=1)
        chances = ClassificationTask(spec).probabilities(logits)
        return [
            LabelPrediction(
                label=spec.labels[row.argmax()],
                probability=row.max(),
                probabilities=tuple(row.tolist()),
                labels=spec.labels,
                chosen=(),
            )
            for row in chances
        ]

    return ask


def _scores(
    spec: Any, dev: list[Example], test: list[TextExample], predictions: dict[str, list[Any]]
) -> dict[str, float]:
    """The scores of predictions for the test questions."""
    every = {label: index for index, label in enumerate(spec.labels)}
    fine = [label for label in spec.labels if ":" in label]
    chances = np.array([prediction.probabilities for prediction in predictions["test"]])
    of_fine = chances[:, [every[label] for label in fine]]
    asked = [example.label if isinstance(example.label, str) else example.label[0] for example in test]
    # A kind that no training question has is one more label, which is never predicted.
    names = [*fine, *sorted(set(asked) - set(fine))]
    gold = label_matrix([(kind,) for kind in asked], names)
    padded = np.pad(of_fine, ((0, 0), (0, len(names) - len(fine))))
    at = scores_at(gold, padded)
    coarse = [_coarse(fine[index]) for index in of_fine.argmax(axis=1)]
    if spec.parents:
        above = sorted(set(spec.labels) - set(fine))
        coarse = [above[index] for index in chances[:, [every[label] for label in above]].argmax(axis=1)]
    numbers = {name: number for number, name in enumerate(sorted({_coarse(kind) for kind in names}))}
    result = {
        "fine, first": at["recall@1"],
        "fine, among 5": at["recall@5"],
        "coarse": accuracy([numbers[_coarse(kind)] for kind in asked], [numbers[kind] for kind in coarse]),
    }
    if spec.multi_label:
        present = gold.any(axis=0)
        for metric in ("micro_f1", "macro_f1"):
            for way in ("0.5", "common", "each"):
                settings = dataclasses.replace(
                    spec.settings, tune_threshold=way == "common", label_thresholds=way == "each"
                )
                untuned = dataclasses.replace(spec, metric=metric, settings=settings, threshold=None)
                task: Any = task_for(untuned)
                tuned: Any = task_for(task.tuned(dev, predictions["dev"]))
                chosen = label_matrix(
                    [prediction.chosen for prediction in tuned.averaged([predictions["test"]])], names
                )
                score = multi_label_scores(gold[:, present], chosen[:, present])
                if metric == "micro_f1":
                    score = multi_label_scores(gold, chosen)
                result[f"{metric}, {way}"] = score[metric]
    return {name: round(float(score), 4) for name, score in result.items()}


def _questions(path: Path) -> list[Row]:
    return [(" ".join(text.split()), kind) for text, kind in trec(path, fine=True)]


def _coarse(kind: str) -> str:
    return kind.split(":", maxsplit=1)[0]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with cls/nltk/qc/")
    parser.add_argument("--model", default="starter", help="the encoder to fine-tune [starter]")
    parser.add_argument("--label", help="the name of the model in the result [the folder's]")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--train", type=int, default=4_952, help="training questions [all others]")
    parser.add_argument("--dev", type=int, default=500, help="questions that thresholds are tuned on")
    parser.add_argument("--epochs", type=float, default=6.0)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
