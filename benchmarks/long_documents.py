"""Ways to read long texts, compared on excerpts of novels whose author is to be predicted.

    python benchmarks/long_documents.py --data DIR [--ways head windows hierarchical ...] [--seeds 1]

An excerpt is a stretch of consecutive words (--words) of a novel of Project Gutenberg; its label is the author. The dev
excerpts are from a novel of each author that no training excerpt is from. Every way fine-tunes the starter with rows of
128 tokens, the same labels, epochs and rates, by the automatic recipe with --reads mean; windows do not overlap.

A cell (way, seed) that is in the result file is not repeated. Everything runs on one thread; the processor seconds of
each cell are in the file.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import begun, write_result

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.uncertainty import spread

WAYS = ("head", "tail", "head_tail", "windows", "hierarchical", "hierarchical-bilstm")
ROW, STRIDE = 128, 126  # tokens of a row, and of text in it


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each way."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun("long_documents", options.out)
    settings = {key: getattr(options, key) for key in ("authors", "train", "dev", "words", "epochs")}
    with tempfile.TemporaryDirectory() as folder:
        for seed in options.seeds:
            files = _files(options, Path(folder), seed)
            for way in options.ways:
                key = f"{way}, seed {seed}"
                if key not in done:
                    done[key] = _cell(way, files, seed, options.epochs, Path(folder) / f"{way}-{seed}")
                    write_result(name, {"machine": described, "settings": settings, "cells": done})
    for way in options.ways:
        some = [cell for key, cell in done.items() if key.startswith(f"{way}, seed")]
        if some:
            score, seconds = spread([run["accuracy"] for run in some]), spread([run["seconds"] for run in some])
            print(f"{way}: accuracy {score.mean:.4f} ± {score.deviation:.4f}, {seconds.mean:.0f} processor seconds")


def _cell(way: str, files: tuple[Path, Path], seed: int, epochs: float, out: Path) -> dict[str, Any]:
    """The accuracy of a way, and the processor seconds of training and evaluation."""
    start = time.process_time()
    with quiet():
        result = bertsmith.finetune(
            "starter", "classification", out, train=files[0], dev=files[1], seeds=1, seed=seed, long_text=way,
            max_length=ROW, stride=STRIDE, reads="mean", epochs=epochs, precision="fp32", baselines=False,
        )  # fmt: skip
    report = result.report
    return {
        "accuracy": round(report["scores"]["accuracy"]["mean"], 4),
        "interval": report["intervals"].get("accuracy"),
        "train_examples": report["train_examples"],
        "dev_examples": report["dev_examples"],
        "seconds": round(time.process_time() - start, 1),
    }


def _files(options: argparse.Namespace, folder: Path, seed: int) -> tuple[Path, Path]:
    """Training and dev excerpts of the authors with the most novels, as TSV files."""
    novels: dict[str, list[Path]] = {}
    for file in sorted((options.data / "pretrain_gutenberg100").glob("*_*.txt")):
        novels.setdefault(file.stem.split("_")[0], []).append(file)
    authors = [author for author, some in novels.items() if len(some) >= 2 and author != "Anon"][: options.authors]
    places = (folder / f"train-{seed}.tsv", folder / f"dev-{seed}.tsv")
    for path, count, is_dev in zip(places, (options.train, options.dev), (False, True), strict=True):
        lines = ["text\tlabel"]
        for author in authors:
            of_side = novels[author][-1:] if is_dev else novels[author][:-1]
            words = [file.read_text(encoding="utf-8", errors="ignore").split() for file in of_side]
            draw = generator(0 if is_dev else seed, f"excerpts of {author}", is_dev)
            for _ in range(count):
                novel = words[int(draw.integers(len(words)))]
                begin = int(draw.integers(len(novel) - options.words))
                lines.append(" ".join(novel[begin : begin + options.words]) + f"\t{author}")
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return places


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_gutenberg100/")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--authors", type=int, default=3)
    parser.add_argument("--train", type=int, default=16, help="training excerpts of an author")
    parser.add_argument("--dev", type=int, default=20, help="dev excerpts of an author")
    parser.add_argument("--words", type=int, default=400, help="words of an excerpt")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
