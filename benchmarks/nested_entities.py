"""Entities inside one another: a model of spans against models of tags, on nested and on flat data.

    python benchmarks/nested_entities.py --nne FOLDER --wnut FOLDER [--model DIR] [--epochs 5] [--rate 1e-4]

The first folder has nne_train.jsonl, nne_dev.jsonl and nne_test.jsonl: sentences of NNE as words with entities. Models
of tags learn the outermost or the innermost entities of a sentence, and are scored on all of them, as the model of
spans is. The second folder has the files of WNUT-17, whose entities share no words. Each training runs on one thread
with one seed; one that is in --runs is not repeated. Processor seconds are those of training with its evaluations.

Source: Ringland et al. (2019), "NNE: A Dataset for Nested Named Entity Recognition in English Newswire".
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.recipes.results.resampling import DRAWS, f1_of_counts
from bertsmith.tasks.datasets.examples import EntityExample
from bertsmith.tasks.metrics.entities import counts_of_spans, share_words, span_scores
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, paired_test
from bertsmith.tasks.task_data.task_files import read_examples

PARTS = ("train", "dev", "test")
SPANS, OUTERMOST, INNERMOST, TAGS = "spans", "outermost tags", "innermost tags", "tags"
WNUT = ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated")


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("nested_entities", options.out)
    settings = {"model": Path(options.model).name, "epochs": options.epochs, "rate": options.rate}
    counts: dict[str, Any] = {}
    for title, task, files, test in _trainings(options):
        counts[title], cell = _cell(options, title, task, files, test)
        done[title] = {**done.get(title, {}), **cell}
        print(f"{title}: {done[title]}", flush=True)
        write_result(name, {"machine": described, "settings": settings, "cells": done})
    for data, systems in (("NNE", (OUTERMOST, INNERMOST)), ("WNUT-17", (TAGS,))):
        for other in systems:
            first, second = counts[f"{data}, {SPANS}"], counts[f"{data}, {other}"]
            test = paired_test(first, second, draws=DRAWS, statistic=f1_of_counts)
            done[f"{data}, {SPANS}"][f"against {other}"] = dataclasses.asdict(test)
    write_result(name, {"machine": described, "settings": settings, "cells": done})


def _trainings(options: argparse.Namespace) -> list[tuple[str, str, list[Path], Path]]:
    """The title, the task, the files and the test file of each training."""
    nne = [options.nne / f"nne_{part}.jsonl" for part in PARTS]
    wnut = [options.wnut / name for name in WNUT]
    tags = {
        title: (f"NNE, {title}", "ner", [_written_tags(path, options.runs, title) for path in nne], nne[2])
        for title in (OUTERMOST, INNERMOST)
    }
    return [
        (f"NNE, {SPANS}", "nested-ner", nne, nne[2]),
        tags[OUTERMOST],
        (f"WNUT-17, {SPANS}", "nested-ner", wnut, wnut[2]),
        (f"WNUT-17, {TAGS}", "ner", wnut, wnut[2]),
        tags[INNERMOST],
    ]


def _written_tags(path: Path, folder: Path, title: str) -> Path:
    """A file with the entities of another one as tags, as far as a word can have only one."""
    file = folder / f"{path.stem}-{title.split(maxsplit=1)[0]}.jsonl"
    lines = []
    for sentence in read_examples("nested-ner", path).examples:
        assert isinstance(sentence, EntityExample)
        tags = ["O"] * len(sentence.words)
        by_length = sorted(sentence.entities, key=lambda span: (span.end - span.start) * (-1) ** (title == OUTERMOST))
        kept: list[Any] = []
        for span in by_length:
            if not any(share_words(span, other) for other in kept):
                kept.append(span)
                tags[span.start : span.end] = [f"B-{span.label}", *[f"I-{span.label}"] * (span.end - span.start - 1)]
        lines.append(json.dumps({"tokens": sentence.words, "ner_tags": tags}) + "\n")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), encoding="utf-8")
    return file


def _cell(
    options: argparse.Namespace, title: str, task: str, files: Sequence[Path], test: Path
) -> tuple[Any, dict[str, Any]]:
    """The counts of the entities of each test sentence, and the scores of a training."""
    out, start = options.runs / title.replace(", ", "-").replace(" ", "-"), time.process_time()
    trained = {}
    with quiet():
        if not (out / "report.json").is_file():
            bertsmith.finetune(
                options.model, task, out, train=files[0], dev=files[1], seeds=1, epochs=options.epochs,
                learning_rate=options.rate, device="cpu", resume=out.exists(),
            )  # fmt: skip
            trained["processor_seconds"] = round(time.process_time() - start, 1)
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        sentences = read_examples("nested-ner", test).examples
        start = time.process_time()
        answers = bertsmith.load(out).tag([list(sentence.words) for sentence in sentences])
        seconds = time.process_time() - start
    pairs = []
    for sentence, answer in zip(sentences, answers, strict=True):
        assert isinstance(sentence, EntityExample)
        predicted = {(entity.start, entity.end, entity.type) for entity in answer.entities}
        pairs.append(({tuple(span) for span in sentence.entities}, predicted))
    counts = counts_of_spans(pairs).astype(np.float64)
    shared = [({*gold} - _flat(gold), predicted) for gold, predicted in pairs]  # those inside others
    inside = counts_of_spans(shared)
    return counts, {
        **trained,
        "dev": {name: value["mean"] for name, value in report["scores"].items()},
        "baselines": {system["name"]: system["scores"] for system in report.get("baselines", ())},
        "test": span_scores(counts.sum(axis=0)),
        "test_f1_interval": list(bootstrap_interval(counts, f1_of_counts, draws=DRAWS)),
        "recall_inside_others": float(inside[:, 0].sum() / max(1, inside[:, 1].sum())),
        "processor_seconds_of_test": round(seconds, 2),
    }


def _flat(spans: set[Any]) -> set[Any]:
    """The spans that no other one contains."""
    return {
        span
        for span in spans
        if not any(other != span and other[0] <= span[0] and span[1] <= other[1] for other in spans)
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nne", type=Path, required=True, help="folder of NNE")
    parser.add_argument("--wnut", type=Path, required=True, help="folder of WNUT-17")
    parser.add_argument("--model", default="starter", help="model to start from")
    parser.add_argument("--runs", type=Path, required=True, help="folder of the trainings, which are then resumed")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=1e-4, help="peak learning rate")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
