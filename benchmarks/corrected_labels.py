"""What the corrected table of an audit is worth: fine-tuning on noisy labels, on corrected ones and on the right ones.

    python benchmarks/corrected_labels.py --data DIR [--rows 1000] [--noise 0.2]

The first rows of a random order of TREC's training questions get another random label with probability --noise. `audit`
writes the corrected table; the starter is fine-tuned on each table with one seed, and scored on the 500 test questions.
The differences are those of the paired test that `report` prints. One thread; processor seconds in all.
"""

import argparse
import csv
import json
import tempfile
import time
from pathlib import Path

import torch
from harness import begun, write_result
from labelled_rows import trec

import bertsmith
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator

SEED = 1


def main() -> None:
    """Trains on the three tables, and prints the scores and the tests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of data sets")
    parser.add_argument("--rows", type=int, default=1000, help="training questions")
    parser.add_argument("--noise", type=float, default=0.2, help="the share of labels that are replaced")
    options = parser.parse_args()
    torch.set_num_threads(1)
    described, name, done = begun("corrected_labels")
    train, test = (trec(options.data / f"cls/nltk/qc/{part}.txt") for part in ("train", "test"))
    draws = generator(SEED, "noisy labels")
    names = sorted({label for _, label in train})
    chosen = [train[number] for number in draws.permutation(len(train))[: options.rows].tolist()]
    noisy = [
        str(draws.choice([name for name in names if name != label])) if draws.random() < options.noise else label
        for _, label in chosen
    ]
    right, dev = rows_of(chosen), rows_of(test)
    tables = {"noisy": [row | {"label": label} for row, label in zip(right, noisy, strict=True)]}
    start, lines = time.process_time(), list[str]()
    with tempfile.TemporaryDirectory() as folder, quiet():
        root = Path(folder)
        audit = bertsmith.audit_labels(tables["noisy"], root / "audit", model="starter")
        with open(audit.folder / "corrected.csv", newline="", encoding="utf-8") as file:
            tables["corrected"] = [{"text": row["text"], "label": row["label"]} for row in csv.DictReader(file)]
        tables["right"] = right
        cell: dict[str, object] = {"errors_estimated": round(audit.report["errors"], 4)}
        for kind, rows in tables.items():
            bertsmith.finetune(
                "starter", "classification", root / kind, train=rows, dev=dev, seeds=1, keep="last", baselines=False
            )
            report = json.loads((root / kind / "report.json").read_text(encoding="utf-8"))
            wrong = sum(row["label"] != other["label"] for row, other in zip(rows, right, strict=True))
            cell[kind] = {"wrong_labels": wrong, "accuracy": report["runs"][0]["scores"]["accuracy"]}
            print(kind, cell[kind], flush=True)
        bertsmith.write_report([root / kind for kind in tables], root / "report.html", on_line=lines.append)
        cell |= {"tests": lines, "seconds": round(time.process_time() - start, 1)}
    done[f"trec, {options.rows:,} rows, noise {options.noise}"] = cell
    print("\n".join(lines))
    write_result(name, {"machine": described, "settings": {"seed": SEED, "model": "starter"}, "cells": done})


def rows_of(pairs: list[tuple[str, str]]) -> list[dict[str, str]]:
    """Texts and labels as rows of a table."""
    return [{"text": text, "label": label} for text, label in pairs]


if __name__ == "__main__":
    main()
