"""Benefit of pre-training: a model that was pre-trained here against the same network trained from scratch.

    python benchmarks/pretraining_gain.py --model RUN --task sst-2=TRAIN,DEV [--task ...] [--arm NAME=MODEL ...]

All arms have the same shape, vocabulary, recipe and examples; only the initial parameters differ. `--intermediate
TASK=TRAIN,DEV` adds the pre-trained model after fine-tuning on another task with all its labels (at most --most): its
encoder starts the task, with a new head. `--arm` adds models that exist, such as RUN/continued/run/model of
`bertsmith finetune --continue-on`, whose pre-training continued on text of the task. With few labels there are more
epochs (at most 20), so that there are enough steps. All arms get the same number, and the bias-corrected optimizer
that short runs need (Mosbach et al., 2021). 0 means all labels (up to --most). The result is a table and a curve with
standard deviations over seeds. Tasks may be run one by one; the result file keeps the others.
"""

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, machine, machine_label, write_result
from matplotlib.figure import Figure

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.finished_run import MODEL_FOLDER
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for, task_name
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_examples

STEPS = 100  # minimum, reached with more epochs if there are few labels
MOST_EPOCHS = 20.0


def main() -> None:
    """Runs all arms on every task and writes table and curve."""
    options = _options()
    described = machine()
    name = options.out or f"pretraining_gain_{machine_label(described)}_torch-{torch.__version__.split('+')[0]}"
    command = {key: without_folders(str(value)) for key, value in vars(options).items()}
    arms = {"pre-trained": options.model, **dict(arm.split("=", 1) for arm in options.arm)}
    if not options.no_scratch:
        arms["from scratch"] = ""
    with tempfile.TemporaryDirectory() as folder:
        for number, argument in enumerate(options.intermediate):
            task, form, files = parts_of(argument)
            if task in {parts_of(other)[0] for other in options.task}:
                sys.exit(f"expected an intermediate task that is not measured; found {task}; name another one")
            arms[f"first fine-tuned on {task}"] = _intermediate(form, files, options, Path(folder) / str(number))
        _measure(options, arms, name, described, command)


def _measure(
    options: argparse.Namespace, arms: dict[str, str], name: str, described: dict[str, Any], command: dict[str, str]
) -> None:
    """Runs all arms on every task and writes the results after each."""
    for argument in options.task:
        task, form, files = parts_of(argument)
        rows = _curve(form, files, options, arms)
        path = RESULTS / f"{name}.json"
        before = read_json(path)["tasks"] if path.exists() else {}
        write_result(name, {"machine": described, "tasks": {**before, task: {"command": command, "rows": rows}}})
        _draw(rows, list(arms), task, RESULTS / f"{name}_{task}.svg")


def parts_of(argument: str) -> tuple[str, str, list[str]]:
    """The name of a task, its format, and its files, from NAME=TRAIN,DEV or NAME:FORM=TRAIN,DEV."""
    title, files = argument.split("=", 1)
    task, _, form = title.partition(":")
    return task, task_name(form or task), files.split(",")


def _intermediate(task: str, files: list[str], options: argparse.Namespace, path: Path) -> str:
    """The pre-trained model after fine-tuning on all labels of another task; the folder of its model."""
    with quiet():
        train = read_examples(task, Path(files[0]), training=True).examples
        dev = read_examples(task, Path(files[1])).examples[: options.dev]
        order = generator(0, "labels of the curve").permutation(len(train))[: options.most]
        chosen = [train[index] for index in sorted(order.tolist())]
        spec = spec_for(task, train, default_settings(task))
        recipe = RecipeSettings(learning_rate=options.rate, bias_correction=True, epsilon=1e-8)
        settings = FinetuningSettings(epochs=options.epochs, dropout=0.1)
        job = FinetuningJob.prepare(options.model, spec, TaskData(train=chosen, dev=dev), settings, recipe)
        trained = job.train_once(path, seed=1)
    print("intermediate", task, json.dumps({"labels": len(chosen), "scores": trained.scores}), flush=True)
    return str(path / MODEL_FOLDER)


def without_folders(text: str) -> str:
    """The text with the folders of its paths removed, which mean nothing on another machine."""
    return re.sub(r"[^\s=,'\[\]]*/", "", text)


def _from_scratch(model: str, path: Path, seed: int) -> str:
    folder = load_any(model)
    assert folder.tokenizer is not None
    save_pretrained(path, untrained(folder.config, seed), folder.tokenizer, ModelMetadata.from_dict({"task": "none"}))
    return str(path)


def _curve(task: str, files: list[str], options: argparse.Namespace, arms: dict[str, str]) -> list[dict[str, Any]]:
    with quiet():
        train = read_examples(task, Path(files[0]), training=True).examples
        scored = read_examples(task, Path(files[1])).examples
    drawn = generator(0, "dev examples of the curve").permutation(len(scored))[: options.dev]
    dev = [scored[index] for index in sorted(drawn.tolist())]
    spec = spec_for(task, train, default_settings(task))
    order = generator(0, "labels of the curve").permutation(len(train))[: options.most]
    rows = []
    for wanted in options.labels:
        count = min(wanted or len(order), len(order))
        chosen = [train[index] for index in sorted(order[:count].tolist())]
        epochs = min(MOST_EPOCHS, max(options.epochs, STEPS * 32 / count))
        row: dict[str, Any] = {"labels": count, "epochs": round(epochs, 1)}
        for arm, source in arms.items():
            values, seconds = [], 0.0
            for seed in range(1, options.seeds + 1):
                # One evaluation halfway and one at the end; the better one counts, in all arms.
                recipe = RecipeSettings(
                    learning_rate=options.rate,
                    bias_correction=True,
                    epsilon=1e-8,
                    evaluate_every=max(1, int(count / 32 * epochs) // 2),
                )
                settings = FinetuningSettings(epochs=epochs, dropout=0.1)
                with quiet(), tempfile.TemporaryDirectory() as folder:
                    start = source or _from_scratch(options.model, Path(folder) / "scratch", seed)
                    job = FinetuningJob.prepare(start, spec, TaskData(train=chosen, dev=dev), settings, recipe)
                    trained = job.train_once(Path(folder) / "run", seed)
                values.append(trained.scores[spec.metric])
                seconds += trained.seconds
            found_spread = spread(values)
            row[arm] = {
                "mean": round(found_spread.mean, 4),
                "deviation": round(found_spread.deviation, 4),
                "values": [round(value, 4) for value in values],
                "seconds": round(seconds, 1),
            }
        row["metric"] = spec.metric
        rows.append(row)
        print(task, json.dumps(row), flush=True)
    return rows


def _draw(rows: list[dict[str, Any]], arms: list[str], title: str, path: Path) -> None:
    """Draws the score by number of labels, one line per arm, with standard deviations over seeds as error bars."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    labels = [row["labels"] for row in rows]
    for arm in arms:
        means, deviations = ([row[arm][key] for row in rows] for key in ("mean", "deviation"))
        axes.errorbar(labels, means, yerr=deviations, marker="o", capsize=4, label=arm)
    axes.set_xscale("log")
    axes.set(xlabel="labels", ylabel=rows[0]["metric"], title=title)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", required=True, help="a model that was pre-trained here")
    parser.add_argument("--no-scratch", action="store_true", help="leave out the network trained from scratch")
    parser.add_argument("--arm", action="append", default=[], help="NAME=MODEL; may be repeated")
    parser.add_argument("--intermediate", action="append", default=[], help="as --task; may be repeated")
    parser.add_argument(
        "--task",
        action="append",
        required=True,
        help="NAME=TRAIN,DEV or NAME:FORM=TRAIN,DEV, as in trec:classification=...",
    )
    parser.add_argument("--labels", type=lambda text: [int(part) for part in text.split(",")], default=[100, 1000, 0])
    parser.add_argument("--most", type=int, default=8000, help="number of labels that counts as all")
    add_training_options(parser)
    return parser.parse_args()


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of fine-tunings, and the name of the result."""
    parser.add_argument("--dev", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--out")


if __name__ == "__main__":
    main()
