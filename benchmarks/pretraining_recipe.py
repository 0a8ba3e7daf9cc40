"""What each part of the default pre-training recipe contributes: the recipe with one part changed at a time.

    python benchmarks/pretraining_recipe.py CORPUS --steps 600

Every arm trains the same shape on the same corpus with the same number of steps, one after another in one thread, and
is scored on the same held-out rows with the same masks (15 %). The seconds are those the processor worked, so arms can
be compared by time as well. CORPUS is a folder that `bertsmith corpus` wrote, with held-out documents; the figures in
docs/pretraining-recipe.md are from the docstrings corpus of `benchmarks/learning_speed.py`. Each run appends a line to
results/NAME.jsonl; runs that are already there are skipped.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from harness import RESULTS, machine, machine_label
from learning_speed_report import append_line, read_lines

from bertsmith.app.library.training import pretrain
from bertsmith.inference.predictors.loading import load_pretraining_heads
from bertsmith.text.corpus.shards import Corpus
from bertsmith.training.pretraining.held_out_scores import HeldOutRows

ARMS: Mapping[str, Mapping[str, Any]] = {
    "auto": {},
    "random initialization": {"initialization": "random"},
    "Adam": {"optimizer": "adam", "learning_rate": 3e-3},
    "2 heads": {"heads": 2},
    "4 heads": {"heads": 4},
    "15 % masks": {"masked_share": 0.15},
    "20 % masks": {"masked_share": 0.2},
    "40 % masks": {"masked_share": 0.4},
    "whole-word masks": {"whole_word": True},
    "dropout 0.1": {"dropout": 0.1},
    "next sentence": {"objective": "mlm+nsp"},
    "sentence order": {"objective": "mlm+sop"},
    "learning rate 1.5e-3": {"learning_rate": 1.5e-3},
    "learning rate 6e-3": {"learning_rate": 6e-3},
    "matrix rate 0.01": {"muon_rate": 0.01},
    "matrix rate 0.03": {"muon_rate": 0.03},
    "no bias correction": {"bias_correction": False},
    "beta2 0.999": {"beta2": 0.999},
    "warm-up 5 %": {"warmup_share": 0.05},
    "warm-up 20 %": {"warmup_share": 0.2},
    "constant rate": {"schedule": "constant"},
    "cosine schedule": {"schedule": "cosine"},
    "static masks": {"dynamic": False},
    "2018": {"recipe": "2018", "rows_per_step": 32},
}


def run(arm: str, options: argparse.Namespace, rows: HeldOutRows) -> dict[str, Any]:
    """The line of one run."""
    with tempfile.TemporaryDirectory() as folder:
        out, start = Path(folder) / "run", time.process_time()
        settings = {"size": options.size, "steps": options.steps, "max_length": options.length, **ARMS[arm]}
        quietly = {"evaluate_every": options.steps, "evaluate_at_start": False, "save_minutes": None}
        result = pretrain(
            options.corpus, out, precision="fp32", evaluation_rows=1, seed=options.seed, **quietly, **settings
        )
        seconds = time.process_time() - start
        scores = rows.scores(load_pretraining_heads(str(out / "model")).model)
    return {
        "arm": arm,
        "size": options.size,
        "steps": options.steps,
        "seed": options.seed,
        "loss": round(scores.loss, 4),
        "accuracy": round(scores.accuracy, 4),
        "top5": round(scores.top, 4),
        "tokens": result.tokens,
        "seconds": round(seconds, 1),
    }


def options_of(description: str, *, steps: int) -> argparse.ArgumentParser:
    """The options of benchmarks that train one shape on one corpus for a number of steps.

    Args:
        steps: their default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("corpus", metavar="CORPUS", type=Path)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--length", type=int, default=64, help="maximum tokens per row [64]")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> None:
    """Runs all arms that have no line yet, and prints the table."""
    parser = options_of(__doc__.splitlines()[0], steps=600)
    parser.add_argument("--arms", type=lambda text: text.split(","), default=list(ARMS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = HeldOutRows.of(Corpus.open(options.corpus), length=options.length, rows=512)
    out = RESULTS / f"pretraining_recipe_{machine_label(machine())}.jsonl"
    known = ("arm", "size", "steps", "seed")
    for arm in options.arms:
        mine = (arm, options.size, options.steps, options.seed)
        if all(tuple(line[name] for name in known) != mine for line in read_lines(out)):
            append_line(out, run(arm, options, rows))
    print(f"{'arm':24} {'loss':>7} {'top 5':>7} {'seconds':>8}")
    for line in sorted(read_lines(out), key=lambda line: line["loss"]):
        print(f"{line['arm']:24} {line['loss']:7.3f} {line['top5']:7.1%} {line['seconds']:8.0f}")


if __name__ == "__main__":
    main()
