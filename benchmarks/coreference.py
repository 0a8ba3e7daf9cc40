"""Pronouns of GAP: models that learn from its development texts, chosen by validation texts, on its test texts.

    python benchmarks/coreference.py --gap FOLDER [--models starter ...] [--epochs 4] [--rate 5e-5]

FOLDER has gap-development.tsv, gap-validation.tsv and gap-test.tsv, of
github.com/google-research-datasets/gap-coreference.
A model whose scores are in the result file is not trained again; a training in --runs is resumed. All runs on one
thread; the processor seconds of each training are in the file.

Source: Webster et al. (2018), "Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns".
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
from bertsmith.models.model_files.metadata import read_metadata
from bertsmith.recipes.results.resampling import intervals, scored_lines
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import spec_for
from bertsmith.tasks.task_data.task_files import read_examples

TASK = "coreference"


def main() -> None:
    """Fills in the cells that are missing, and prints a line for each."""
    options = _options()
    torch.set_num_threads(1)
    described, name, done = begun(TASK, options.out)
    settings = {key: getattr(options, key) for key in ("epochs", "rate", "limit")}
    if "baselines" not in done:
        done["baselines"] = {"test": _by_rules(options.gap / "gap-test.tsv")}
    with tempfile.TemporaryDirectory() as scratch:
        for number, model in enumerate(options.models):
            title = options.names[number] if options.names else Path(model).name
            if title not in done:
                done[title] = _cell(model, options, (options.runs or Path(scratch)) / title)
            write_result(name, {"machine": described, "settings": settings, "cells": done})
    write_result(name, {"machine": described, "settings": settings, "cells": done})
    for system, scores in done["baselines"]["test"].items():
        print(f"test, {system}: {_shown(scores)}")
    for title, cell in done.items():
        for part in ("validation", "test") if title != "baselines" else ():
            print(f"{title}, {part}: {_shown(cell[part])}")


def _cell(model: str, options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """The scores of a training on both other parts."""
    start = time.process_time()
    more = {"limit": options.limit} if options.limit else {}
    with quiet():
        result = bertsmith.finetune(
            model, TASK, out, train=options.gap / "gap-development.tsv", dev=options.gap / "gap-validation.tsv",
            seeds=1, epochs=options.epochs, learning_rate=options.rate, resume=out.exists(), **more,
        )  # fmt: skip
        seconds, report = time.process_time() - start, result.report
        test = bertsmith.evaluate(out, options.gap / "gap-test.tsv")
    return {
        "train_examples": report["train_examples"],
        "seconds": round(seconds, 1),
        "validation": {name: value["mean"] for name, value in report["scores"].items()},
        "validation_intervals": report["intervals"],
        "best_baseline": read_metadata(out / "model").baseline,
        "test": test.scores,
        "test_intervals": test.intervals,
    }


def _by_rules(path: Path) -> dict[str, dict[str, Any]]:
    """The scores of the baselines."""
    examples = read_examples(TASK, path).examples
    task, results = task_for(spec_for(TASK, ())), {}
    for name in task.baselines:
        answers = task.answers_by_rule(name, examples)
        assert answers is not None, "rules learn nothing"
        scores, lines = scored_lines(task, examples, answers)
        results[name] = {**scores, "intervals": intervals(task.kind, scores, lines)}
    return results


def _shown(scores: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in scores.items() if name != "intervals")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gap", type=Path, required=True, help="folder of GAP")
    parser.add_argument("--models", nargs="*", default=["starter"], help="models to start from")
    parser.add_argument("--names", nargs="+", help="their names in the result")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--rate", type=float, default=5e-5, help="peak learning rate")
    parser.add_argument("--limit", type=int, default=0, help="training examples; 0: all")
    parser.add_argument("--runs", type=Path, help="folder of the trainings, which are then resumed")
    parser.add_argument("--out", help="name of the result file, without .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
