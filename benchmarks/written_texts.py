"""Texts out of texts against their baselines: subject lines of e-mails, and trees of sentences.

    python benchmarks/written_texts.py subjects --data DIR --runs DIR [--model starter]
    python benchmarks/written_texts.py trees --data DIR --runs DIR [--model starter] [--sentences 500] [--epochs 6]
    python benchmarks/written_texts.py rates --data DIR --runs DIR [--model starter] [--rates 1 2 4 8]

Subjects: `summarization/aeslc_{train,dev,test}.jsonl` of DIR, e-mails and their subject lines (Zhang and Tetreault
2019). Every 36th training row is held out to choose the step; dev and test rows are not seen before the end.

Trees: `nltk/treebank.jsonl` of DIR, the sample of the Penn Treebank that comes with NLTK: files 1 to 160 are learned
(with --sentences, that many of their sentences at equal distances), 161 to 180 choose the step, and those from 181 on
are the test.

Rates: 100 steps of 16 e-mails, each seen once, with several `--decoder-rate`. The loss, with smoothed labels, is the
mean of the last 30 steps.

The model of subjects and trees is that of `bertsmith finetune` with its defaults, except for --epochs. An interrupted
run is resumed by the same command. The result has the scores of the model and of each baseline with 95% intervals, the
paired bootstrap of the difference to the best baseline (of subjects also with the search that is best on the held-out
rows), the seconds of the processor that training and decoding took. The texts stay with the runs, as the rows do.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.storage.files import read_json, read_json_lines, write_json
from bertsmith.recipes.results.comparison import tested
from bertsmith.recipes.results.resampling import Line, intervals, scored_lines
from bertsmith.tasks.baselines.written import written_by
from bertsmith.tasks.datasets.examples import SequenceExample
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.specs.predictions import TextPrediction
from bertsmith.tasks.specs.task import CENTRAL, FIRST, NEAREST, RIGHT_BRANCHING, TaskSpec

HELD_OUT = 36  # of subjects, every one of this many training rows
LAST_OF_TRAINING, LAST_OF_DEV = 160, 180  # numbers of files of the Treebank
SEARCHES = [
    {"length_penalty": penalty, "min_target_length": least, "no_repeat_ngram": 2}
    for penalty in (0.0, 1.0, 2.0, 3.0)
    for least in (0, 3)
]
SHORT = 1600  # e-mails of a short training

Rows = list[dict[str, str]]


def subjects(data: Path) -> dict[str, Rows]:
    """E-mails and subject lines: what is trained on, what chooses the step, and both sets that are scored."""
    rows = {
        split: [
            {"source": row["body"], "target": row["subject"]}
            for row in read_json_lines(data / "summarization" / f"aeslc_{split}.jsonl")
            if row["body"].strip() and row["subject"].strip()
        ]
        for split in ("train", "dev", "test")
    }
    every = rows["train"]
    return {
        "train": [row for number, row in enumerate(every) if number % HELD_OUT],
        "held-out": every[::HELD_OUT],
        "dev": rows["dev"],
        "test": rows["test"],
    }


def trees(data: Path, sentences: int | None) -> dict[str, Rows]:
    """Sentences and trees: what is trained on, what chooses the step, and the test."""
    splits: dict[str, Rows] = {"train": [], "held-out": [], "test": []}
    for row in read_json_lines(data / "nltk" / "treebank.jsonl"):
        number = int(row["doc"].rpartition("_")[2])
        split = "train" if number <= LAST_OF_TRAINING else "held-out" if number <= LAST_OF_DEV else "test"
        splits[split].append({"source": " ".join(row["tokens"]), "target": row["tree"]})
    if sentences is not None:
        distance = len(splits["train"]) // sentences
        splits["train"] = splits["train"][::distance][:sentences]
    return splits


def compared(spec: TaskSpec, rows: Rows, texts: dict[str, list[str]], ours: tuple[str, ...]) -> dict[str, Any]:
    """The scores of all systems on the same rows, and each of ours against the best of the others."""
    lines, systems = dict[str, list[Line]](), dict[str, dict[str, Any]]()
    for name, written in texts.items():
        scores, lines[name] = scored(spec, rows, written)
        systems[name] = {
            "scores": scores,
            "intervals": intervals(spec.kind, scores, lines[name]),
            "words": round(float(np.mean([len(text.split()) for text in written])), 2),
        }
    best = max((name for name in systems if name not in ours), key=lambda name: systems[name]["scores"][spec.metric])
    for name in ours:
        systems[name]["against the best baseline"] = tested(spec, [lines[name]], [lines[best]])
    return {"rows": len(rows), "best baseline": best, "systems": systems}


def baselines(names: tuple[str, ...], train: Rows, rows: Rows) -> Iterator[tuple[str, list[str]]]:
    """What each baseline writes for rows."""
    pairs, sources = [(row["source"], [row["target"]]) for row in train], [row["source"] for row in rows]
    for name in names:
        yield name, written_by(name, pairs, sources)


def trained(name: str, model: str, out: Path, splits: dict[str, Rows], options: dict[str, Any]) -> dict[str, Any]:
    """Trains a model, or resumes that, and gives what is known of the training."""
    out.mkdir(parents=True, exist_ok=True)
    for split in ("train", "held-out"):
        path = out / f"{split}.jsonl"
        lines = "".join(json.dumps(row) + "\n" for row in splits[split])
        if not path.is_file() or path.read_text(encoding="utf-8") != lines:
            path.write_text(lines, encoding="utf-8")
    run, clock = out / "run", out / "processor-seconds.json"
    before = read_json(clock)["seconds"] if clock.is_file() else 0.0
    begin = time.process_time()
    try:
        bertsmith.finetune(
            model,
            name,
            run,
            train=out / "train.jsonl",
            dev=out / "held-out.jsonl",
            resume=run.exists(),
            device="cpu",
            baselines=False,
            **options,
        )
    finally:
        seconds = before + time.process_time() - begin
        clock.write_text(json.dumps({"seconds": round(seconds, 1)}), encoding="utf-8")
    settings = read_json(run / "settings.json")["settings"]
    names = ("epochs", "batch_size", "decoder_rate")
    return {
        "options": {key: value for key, value in options.items() if key != "seeds"},
        "settings": {key: settings["run"][key] for key in names}
        | {"learning_rate": settings["train"]["learning_rate"], "steps": settings["train"]["steps"]},
        "processor seconds": round(seconds, 1),
        "held-out": {
            key: round(value, 4) for key, value in read_json(run / "seed-1" / "report.json")["scores"].items()
        },
    }


def texts_of(model: Any, rows: Rows, search: dict[str, Any]) -> list[str]:
    """What a model writes for rows."""
    return [answer.text for answer in model.generate([row["source"] for row in rows], **search)]


def scored(spec: TaskSpec, rows: Rows, texts: list[str]) -> tuple[dict[str, float], list[Line]]:
    """The scores of texts, and their lines."""
    examples = [
        SequenceExample(id=str(number), source=row["source"], targets=(row["target"],))
        for number, row in enumerate(rows)
    ]
    predictions = [TextPrediction(text=text, score=0.0, answers=((text, 0.0),)) for text in texts]
    return scored_lines(task_for(spec), examples, predictions)


def loss_with(rate: float, model: str, out: Path, splits: dict[str, Rows]) -> dict[str, float]:
    """The loss of a short training with a decoder rate."""
    files = {}
    for split, option, count in (("train", "train", SHORT), ("held-out", "dev", 20)):
        files[option] = out / f"short-{split}.jsonl"
        files[option].write_text("".join(json.dumps(row) + "\n" for row in splits[split][:count]), encoding="utf-8")
    run, begin = out / f"rate-{rate:g}", time.process_time()
    options = {"epochs": 1, "batch_size": 16, "max_length": 64, "seeds": 1, "decoder_rate": rate, "baselines": False}
    bertsmith.finetune(model, "summarization", run, device="cpu", **files, **options)
    lines = read_json_lines(run / "seed-1" / "metrics.jsonl")
    losses = [line["loss"] for line in lines if line["kind"] == "train"]
    return {"loss": round(float(np.mean(losses[-3:])), 3), "processor seconds": round(time.process_time() - begin, 1)}


def main() -> None:
    """Trains one model, decodes, and writes what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("subjects", "trees", "rates"))
    parser.add_argument("--data", type=Path, required=True, help="a folder with `summarization` and `nltk`")
    parser.add_argument("--runs", type=Path, required=True, help="where trainings are kept, to be resumed")
    parser.add_argument("--model", default="starter")
    parser.add_argument("--name", help="of the model in the results [its folder or id]")
    parser.add_argument("--sentences", type=int, help="trees: learn from this many sentences [all]")
    parser.add_argument("--epochs", type=float, help="subjects and trees [the default of the task]")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 2.0, 4.0, 8.0], help="rates: of the decoder")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    about, path, cells = begun("written_texts")
    name = arguments.name or Path(arguments.model).name
    if arguments.task == "rates":
        arguments.runs.mkdir(parents=True, exist_ok=True)
        for rate in arguments.rates:
            losses = loss_with(rate, arguments.model, arguments.runs, subjects(arguments.data))
            cells[f"decoder rate {rate:g}, {name}"] = {"machine": about, **losses}
            write_result(path, {"cells": cells})
        return
    if arguments.task == "subjects":
        task, splits = "summarization", subjects(arguments.data)
        names, known = (FIRST, NEAREST, CENTRAL), [*splits["train"], *splits["held-out"]]
        options: dict[str, Any] = {"max_length": 128, "max_target_length": 32, "seeds": 1}
    else:
        task, splits = "parsing", trees(arguments.data, arguments.sentences)
        names, known = (RIGHT_BRANCHING,), splits["train"]
        # An evaluation writes all trees, which takes as long as a hundred steps.
        every = 640 if arguments.sentences is None else 160
        options = {"max_target_length": 384, "seeds": 1, "evaluate_every": every}
    if arguments.epochs is not None:
        options["epochs"] = arguments.epochs
    key = f"{arguments.task}{'' if arguments.sentences is None else f' from {arguments.sentences} sentences'}, {name}"
    out = arguments.runs / key.replace(", ", "-").replace(" ", "-")
    training = trained(task, arguments.model, out, splits, options)
    model, spec = bertsmith.load(out / "run", device="cpu"), spec_for(task, ())
    result: dict[str, Any] = {"machine": about, "rows": len(splits["train"]), "training": training}
    searches: dict[str, dict[str, Any]] = {name: {}}
    if arguments.task == "subjects":
        result["searches on held-out rows"] = tried = [
            {**how, **scored(spec, splits["held-out"], texts_of(model, splits["held-out"], how))[0]} for how in SEARCHES
        ]
        best = max(range(len(tried)), key=lambda number: tried[number][spec.metric])
        searches[f"{name}, search chosen on held-out rows"] = SEARCHES[best]
    for split in ("dev", "test"):
        if rows := splits.get(split):
            texts = dict(baselines(names, known, rows))
            begin = time.process_time()
            texts |= {system: texts_of(model, rows, how) for system, how in searches.items()}
            result[split] = {"processor seconds": round(time.process_time() - begin, 1)}
            result[split] |= compared(spec, rows, texts, tuple(searches))
            written = [
                {"gold": row["target"]} | {system: several[number] for system, several in texts.items()}
                for number, row in enumerate(rows)
            ]
            write_json(out / f"{split}-texts.json", written)
    write_result(path, {"cells": cells | {key: result}})


if __name__ == "__main__":
    main()
