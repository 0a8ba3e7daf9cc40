"""Extractive summaries with the starter, against baselines and the oracle.

    python benchmarks/extracts.py --scitldr FOLDER --aeslc FOLDER [--layers 2 0]

FOLDER has train.jsonl, dev.jsonl and test.jsonl of SciTLDR-A (github.com/allenai/scitldr, SciTLDR-Data/SciTLDR-A), or
aeslc_train.jsonl and aeslc_dev.jsonl with `body` and `subject` (github.com/ryanzhumich/AESLC). Of SciTLDR, whose dev
and test texts have several references, each score is the highest over them; the sentences to learn are our own, not
those that the file marks. A cell (data set, layers over sentences) that is in the result file is not repeated, and with
--runs a training that was interrupted is resumed. Everything runs on one thread.

Source: Cachola et al. (2020), "TLDR: Extreme Summarization of Scientific Documents"; Zhang and Tetreault (2019), "This
Email Could Save Your Life: Introducing the Task of Email Subject Line Generation".
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.storage.files import read_json_lines
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.tasks.baselines.written import chosen_by
from bertsmith.tasks.datasets.examples import DocumentExample
from bertsmith.tasks.metrics.rouge import mean_rouge
from bertsmith.tasks.specs.task import CHOSEN
from bertsmith.tasks.task_data.task_files import read_examples

TASK = "extractive-summarization"


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("extracts", options.out)
    settings = {key: getattr(options, key) for key in ("epochs", "limit")}
    with tempfile.TemporaryDirectory() as scratch:
        for data in ("scitldr", "aeslc"):
            folder = getattr(options, data)
            for layers in options.layers if folder else ():
                key = f"{data}, {layers} layers over sentences"
                if key not in done:
                    runs = options.runs or Path(scratch)
                    done[key] = _cell(_files(data, folder, runs), layers, options, runs / f"{data}-{layers}")
                    write_result(name, {"machine": described, "settings": settings, "cells": done})
    for key, cell in done.items():
        for part in ("dev", "test"):
            for system, scores in cell.get(part, {}).items():
                print(f"{key}, {part}, {system}: " + ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        print(f"{key}, against the best baseline on dev texts: {cell['best_baseline']}")


def _cell(files: dict[str, Path], layers: int, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The scores of a training and of the baselines, and the test against the best of them."""
    more = {"limit": options.limit} if options.limit else {}
    with quiet():
        result = bertsmith.finetune(
            "starter", TASK, out, train=files["train"], dev=files["dev"], seeds=1, epochs=options.epochs,
            sentence_layers=layers, resume=out.exists(), **more,
        )  # fmt: skip
    report = result.report
    cell: dict[str, Any] = {
        "train_examples": report["train_examples"],
        "dev_examples": report["dev_examples"],
        "dev": {
            "model": {name: round(value["mean"], 4) for name, value in report["scores"].items()},
            **{system["name"]: system["scores"] for system in report["baselines"]},
        },
        "intervals": report["intervals"],
        "best_baseline": read_metadata(out / "model").baseline,
    }
    if "test" in files:
        cell["test"] = _of_test(files, out)
    return cell


def _of_test(files: dict[str, Path], out: Path) -> dict[str, dict[str, float]]:
    """The scores of the model and of the baselines on the test texts."""
    with quiet():
        model = bertsmith.load(out)
        train, test = (_documents(files[part], training=part == "train") for part in ("train", "test"))
        chosen: dict[str, list[str]] = {"model": [answer.text for answer in model.extract([row.texts for row in test])]}
    for name in CHOSEN:
        numbers = chosen_by(name, train, test, 1)
        chosen[name] = [" ".join(row.texts[n] for n in some) for row, some in zip(test, numbers, strict=True)]
    return {name: mean_rouge(texts, [row.targets for row in test]) for name, texts in chosen.items()}


def _documents(path: Path, *, training: bool) -> list[DocumentExample]:
    examples = read_examples(TASK, path, training=training).examples
    return [example for example in examples if isinstance(example, DocumentExample)]


def _files(data: str, folder: Path, runs: Path) -> dict[str, Path]:
    """The files of a data set; those of SciTLDR with the columns that are read alone."""
    if data == "aeslc":
        return {part: folder / f"aeslc_{part}.jsonl" for part in ("train", "dev")}
    files = {}
    for part in ("train", "dev", "test"):
        rows = read_json_lines(folder / f"{part}.jsonl")
        lines = [json.dumps({"id": row["paper_id"], "source": row["source"], "target": row["target"]}) for row in rows]
        files[part] = runs / f"{part}.jsonl"
        files[part].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scitldr", type=Path, help="folder of SciTLDR-A")
    parser.add_argument("--aeslc", type=Path, help="folder of AESLC")
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 0], help="Transformer layers over sentences")
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--limit", type=int, default=1000, help="training examples; 0: all")
    parser.add_argument("--runs", type=Path, help="folder of the trainings, which are then resumed")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
