"""What `classify` gives without labels and with a few, next to a bag of words and a linear model on frozen vectors.

    python benchmarks/zero_shot.py --data DIR [--model starter] [--tasks banking77 snips trec] [--labels 0 1 5 20]
    bertsmith finetune --model MODEL --task classification --train mnli_train.tsv --text-column sentence1 \
        --pair-column sentence2 --label-column label --reads pair --keep last --seeds 1 --out RUN
    python benchmarks/zero_shot.py --data DIR --model RUN --label NAME [--most 100]

BANKING77 (500 of its 3,080 test texts, drawn at random; 77 classes), SNIPS (the 700 validation texts; 7) and TREC (the
500 test questions; 6). Names of BANKING77 are its own; SNIPS and TREC also have the descriptions in this file. Examples
of each class are drawn from the training texts; accuracies are means over the draws. The linear model is that of
`finetune` on frozen vectors, without names; the bag of words is that of `finetune`. A model of entailment takes neither
examples nor names that are not words: it reads `card_arrival` as "card arrival".

Each text is embedded once. A cell (model, task) that is in the result file is not repeated. One thread.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result

from bertsmith import Model, load
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.inference.predictors.named_labels import NamedLabel
from bertsmith.inference.predictors.zero_shot import LabelVectors
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.tasks.baselines.bag_of_words import BagOfWords
from bertsmith.tasks.baselines.linear import PENALTIES_OF_BAGS, fit_linear
from bertsmith.tasks.datasets.examples import named_texts
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.settings import TaskSettings

Rows = Sequence[tuple[str, str]]  # text and label
MOST_SCORED = 700  # texts; of BANKING77 500
DESCRIPTIONS = {
    "AddToPlaylist": "add a song or an artist to a playlist",
    "BookRestaurant": "reserve a table at a restaurant",
    "GetWeather": "ask for the weather forecast",
    "PlayMusic": "play music, a song or an album",
    "RateBook": "give a book a rating",
    "SearchCreativeWork": "find a creative work such as a book, a film, a game or an album",
    "SearchScreeningEvent": "find films and their times in cinemas",
    "abbreviation": "what an abbreviation stands for, or the abbreviation of an expression",
    "description": "a definition, a description, a reason or a manner",
    "entity": "a thing, such as an animal, a color, a film, a food, a language, a sport or a word",
    "human": "a person, a group or an organization: who",
    "location": "a place, such as a city, a country or a mountain: where",
    "number": "a number, such as a count, a date, a distance, money or a percentage: how many, when",
}
_TREC = dict(zip("ABBR DESC ENTY HUM LOC NUM".split(), list(DESCRIPTIONS)[7:], strict=True))


class _Once:
    """An embedder that computes each text once."""

    def __init__(self, embedder: Embedder) -> None:
        self.encoder, self._embedder = embedder.encoder, embedder
        self._known: dict[str, np.ndarray] = {}

    def encode(self, texts: Sequence[str]) -> Sequence[str]:
        return texts

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= zip(new, self._embedder.embed(new), strict=True)
        return np.stack([self._known[text] for text in texts])

    def embed_encoded(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return self.embed(texts), np.zeros(len(texts), dtype=np.int64)


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", default="starter")
    parser.add_argument("--label", help="name of the model in the result [that of its folder]")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--labels", nargs="+", type=int, default=[0, 1, 5, 20], help="examples of each class")
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--most", type=int, help="score no more texts than that")
    parser.add_argument("--out", help="name of the result file, without .json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("zero_shot", options.out)
    model = load(options.model)
    embedder = None if model.task else _Once(load_embedder(options.model))
    for task in options.tasks:
        key = f"{options.label or Path(options.model).name}, {task}"
        if key not in done:
            start = time.process_time()
            with quiet():
                train, test = TASKS[task](options.data)
                test = test[: options.most]
                if embedder is None:
                    report = read_json(Path(options.model) / "report.json")
                    accuracy = round(report["scores"]["accuracy"]["mean"], 3)
                    trained = {"pairs": report["train_examples"], "dev_pairs": report["dev_examples"]}
                    cell = _cell_of_entailment(model, train, test) | {"trained": {**trained, "accuracy": accuracy}}
                else:
                    cell = _cell(embedder, train, test, options.labels, options.draws)
            done[key] = {**cell, "seconds": round(time.process_time() - start, 1)}
            write_result(name, {"machine": described, "settings": {"draws": options.draws}, "cells": done})
        print(key, json.dumps(done[key]), flush=True)


def _cell_of_entailment(model: Model, train: Rows, test: Rows) -> dict[str, Any]:
    """Accuracies of a model of entailment, without labelled texts."""
    names = sorted({label for _, label in train})
    systems = {"classify, names": {name: NamedLabel(name=name).in_words for name in names}}
    if names[0] in DESCRIPTIONS:
        systems["classify, descriptions"] = {name: DESCRIPTIONS[name] for name in names}
    accuracies = {}
    for system, labels in systems.items():
        answers = model.classify_by_labels([text for text, _ in test], labels)
        right = np.mean([answer.label == label for answer, (_, label) in zip(answers, test, strict=True)])
        accuracies[system] = {"0": round(float(right), 3)}
    return {"scored": len(test), "classes": len(names), "accuracy": accuracies}


def _cell(embedder: Any, train: Rows, test: Rows, counts: Sequence[int], draws: int) -> dict[str, Any]:
    """Accuracies of all systems, by the number of examples of each class."""
    names = sorted({label for _, label in train})
    gold = np.array([names.index(label) for _, label in test])
    texts = named_texts([text for text, _ in test])
    accuracies: dict[str, dict[str, list[float]]] = {}

    def count(system: str, examples: int, scores: np.ndarray) -> None:
        right = float((scores.argmax(axis=1) == gold).mean())
        accuracies.setdefault(system, {}).setdefault(str(examples), []).append(right)

    for examples in counts:
        for draw in range(draws if examples else 1):
            order = generator(draw, "zero shot").permutation(len(train)).tolist()
            drawn = {name: [train[i][0] for i in order if train[i][1] == name][:examples] for name in names}
            labels = [NamedLabel(name=name, examples=tuple(drawn[name])) for name in names]
            described = [
                NamedLabel(name=name, description=DESCRIPTIONS.get(name, ""), examples=tuple(drawn[name]))
                for name in names
            ]
            count("classify, names", examples, LabelVectors(embedder, labels, multi_label=False).scores(texts)[0])
            if names[0] in DESCRIPTIONS:
                scorer = LabelVectors(embedder, described, multi_label=False)
                count("classify, descriptions", examples, scorer.scores(texts)[0])
            if not examples:
                continue
            used = [(text, number) for number, name in enumerate(names) for text in drawn[name]]
            golds = np.array([number for _, number in used])
            linear = fit_linear(unit(embedder.embed([text for text, _ in used])), golds, num_outputs=len(names))
            wanted = unit(embedder.embed([text.first for text in texts]))
            count("linear on frozen vectors", examples, linear.outputs(wanted))
            rows = named_texts([text for text, _ in used])
            bag = BagOfWords(rows, TaskSettings(), len(names))
            linear = fit_linear(bag.columns(rows), golds, num_outputs=len(names), penalties=PENALTIES_OF_BAGS)
            count("bag of words", examples, linear.outputs(bag.columns(texts)))
    means = {
        system: {number: round(float(np.mean(values)), 3) for number, values in by_count.items()}
        for system, by_count in accuracies.items()
    }
    return {"scored": len(test), "classes": len(names), "accuracy": means}


def _lines(path: Path) -> Rows:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(record["text"], record["label"]) for record in records]


def _intents(name: str, test: str, most: int) -> Callable[[Path], tuple[Rows, Rows]]:
    def read(data: Path) -> tuple[Rows, Rows]:
        train, rows = (_lines(data / "intents" / f"{name}_{part}.jsonl") for part in ("train", test))
        order = generator(0, "zero shot, scored").permutation(len(rows))[:most]
        return train, [rows[number] for number in order.tolist()]

    return read


def _questions(data: Path) -> tuple[Rows, Rows]:
    def read(name: str) -> Rows:
        lines = (data / "cls" / "nltk" / "qc" / name).read_text(encoding="latin-1").splitlines()
        parts = [line.strip().split(" ", 1) for line in lines if line.strip()]
        return [(text, _TREC[label.partition(":")[0]]) for label, text in parts]

    return read("train.txt"), read("test.txt")


TASKS = {
    "snips": _intents("snips", "valid", MOST_SCORED),
    "trec": _questions,
    "banking77": _intents("banking77", "test", 500),
}

if __name__ == "__main__":
    main()
