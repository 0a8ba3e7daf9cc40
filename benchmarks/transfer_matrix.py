"""What a model that was fine-tuned on one task gains on another: a matrix of tasks for each encoder.

    python benchmarks/transfer_matrix.py --model bert=RUN/model [--model lstm=...] --task NAME[:FORM]=TRAIN,DEV
        --task ... --work WORK [--labels 300] [--most 8000] [--seeds 3] [--direct]

Every model is first fine-tuned on all labels of each task (at most --most), then its encoder starts each of the other
tasks, with a new head and --labels labels. A row of the matrix is the first task (or none), a column the second; its
cells are the mean of the score over the seeds, its standard deviation, and the gain over no first task. Everything that
was measured is a file in WORK, so that a stopped run resumes, and more models, tasks and seeds may be added later.

With --direct the tasks are one task on several data sets with the same labels: a model that has learned one data set is
scored on the others as it is, and on its own; a bag of words that has learned the same examples is scored next to it. A
seed is another order of the training and another start of the head.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from harness import machine, machine_label, write_result
from pretraining_gain import add_training_options, parts_of, without_folders

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.predictors.ensemble import load_ensemble
from bertsmith.recipes.comparison.linear import CountedColumns, fit_on_features
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.recipes.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.finished_run import MODEL_FOLDER
from bertsmith.recipes.results.resampling import scored_lines
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import default_settings, spec_for
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import TaskData
from bertsmith.tasks.task_data.task_files import read_examples

BAG_OF_WORDS = "bag of words"
NOTHING = "nothing"  # the first task of a model that is only pre-trained
STEPS, MOST_EPOCHS = 100, 20.0  # of small sets, as in `pretraining_gain.py`


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Measures what is missing and writes the result; returns it."""
    options = _options(arguments)
    models = dict(pair.split("=", 1) for pair in options.model)
    tasks = {name: (form, files) for name, form, files in map(parts_of, options.task)}
    if len(tasks) < 2:
        sys.exit("expected two tasks or more; found one; give --task again")
    if unknown := set(options.first) - tasks.keys():
        sys.exit(f"expected the name of a task for --first; found {unknown.pop()}; name one of {', '.join(tasks)}")
    options.work.mkdir(parents=True, exist_ok=True)
    _require_same(options)
    matrix = _measured_directly(models, tasks, options) if options.direct else _measured(models, tasks, options)
    described = machine()
    name = options.out or f"transfer_matrix_{machine_label(described)}_torch-{torch.__version__.split('+')[0]}"
    command = {key: without_folders(str(value)) for key, value in vars(options).items()}
    result = {"machine": described, "command": command, "matrix": matrix}
    write_result(name, result)
    return result


def _measured(
    models: Mapping[str, str], tasks: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, dict[str, Any]]]:
    """The matrix, after every cell that is missing was measured."""
    for model, first, second in _cells(models, tasks, options):
        for seed in range(1, options.seeds + 1):
            path = options.work / "cells" / f"{model}_{first}_{second}_{seed}.json"
            if path.is_file():
                continue
            start = models[model] if first == NOTHING else _first(model, models[model], first, tasks[first], options)
            cell = _score(start, *tasks[second], options, seed)
            path.parent.mkdir(exist_ok=True)
            write_json(path, cell)
            print(model, first, second, seed, json.dumps(cell), flush=True)
    return _matrix(options, models, tasks)


def _measured_directly(
    models: Mapping[str, str], tasks: Mapping[str, tuple[str, list[str]]], options: argparse.Namespace
) -> dict[str, dict[str, dict[str, Any]]]:
    """The scores of each model, and of a bag of words, on every data set after learning one, as they are."""
    examples = {name: _examples(*files, options.most, options.dev) for name, files in tasks.items()}
    if len({spec.labels for spec, _, _ in examples.values()}) > 1:
        sys.exit("expected data sets with the same labels for --direct; found others; rename them in the files")
    matrix: dict[str, dict[str, dict[str, Any]]] = {}
    for model, first in itertools.product((*models, BAG_OF_WORDS), tasks):
        seeds = range(1, 2 if model == BAG_OF_WORDS else options.seeds + 1)
        cells = []
        for seed in seeds:
            path = options.work / "cells" / f"direct_{model.replace(' ', '-')}_{first}_{seed}.json"
            if not path.is_file():
                path.parent.mkdir(exist_ok=True)
                if model == BAG_OF_WORDS:
                    scores = _scores_of_words(first, examples)
                else:
                    folder = _first(model, models[model], first, tasks[first], options, seed)
                    predictor = load_ensemble([folder])
                    scores = {
                        second: predictor.evaluate(dev)[0][spec.metric] for second, (spec, _, dev) in examples.items()
                    }
                write_json(path, scores)
                print(model, first, seed, json.dumps(scores), flush=True)
            cells.append(read_json(path))
        matrix.setdefault(model, {})[first] = {
            second: {"metric": spec.metric, "examples": len(dev), **_spread([cell[second] for cell in cells])}
            for second, (spec, _, dev) in examples.items()
        }
    return matrix


def _scores_of_words(first: str, examples: Mapping[str, tuple[TaskSpec, list[Any], list[Any]]]) -> dict[str, float]:
    """The scores of a linear model on the words of texts, weighted by TF-IDF, on every data set after learning one."""
    spec, train, dev = examples[first]
    task = task_for(spec)
    fitted = fit_on_features(task, CountedColumns(train, spec, one_hot=False), train, dev, seed=1)
    return {
        second: scored_lines(task, scored, fitted.answer(scored))[0][spec.metric]
        for second, (_, _, scored) in examples.items()
    }


def _spread(values: Sequence[float]) -> dict[str, Any]:
    over = spread(values)
    return {"mean": round(over.mean, 4), "deviation": round(over.deviation, 4), "values": list(over.values)}


def _matrix(
    options: argparse.Namespace, models: Mapping[str, str], tasks: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    """For each model, first task and second task: mean, deviation, values and gain over no first task."""
    entries: dict[str, dict[str, dict[str, Any]]] = {}
    for model, first, second in _cells(models, tasks, options):
        cells = [
            read_json(options.work / "cells" / f"{model}_{first}_{second}_{seed}.json")
            for seed in range(1, options.seeds + 1)
        ]
        entry = {"metric": cells[0]["metric"], **_spread([cell["score"] for cell in cells])}
        entries.setdefault(model, {}).setdefault(first, {})[second] = entry
        entry["gain"] = round(entry["mean"] - entries[model][NOTHING][second]["mean"], 4)
    return entries


def _cells(
    models: Mapping[str, str], tasks: Mapping[str, Any], options: argparse.Namespace
) -> Iterator[tuple[str, str, str]]:
    """Each model with each pair of a first task, or none, and a second one."""
    for model, second in itertools.product(models, [name for name in tasks if name not in options.first]):
        for first in (NOTHING, *(name for name in options.first or tasks if name != second)):
            yield model, first, second


def _first(
    model: str, source: str, task: str, files: tuple[str, list[str]], options: argparse.Namespace, seed: int = 1
) -> str:
    """The model after fine-tuning on all labels of a task, trained once for a seed; its folder."""
    folder = options.work / "first" / (f"{model}_{task}" if seed == 1 else f"{model}_{task}_{seed}")
    done = folder.with_suffix(".json")
    if not done.is_file():
        spec, train, dev = _examples(*files, options.most, options.dev)
        run = FinetuningSettings(epochs=options.epochs, dropout=0.1, baselines=False)
        recipe = RecipeSettings(learning_rate=options.rate, bias_correction=True, epsilon=1e-8)
        folder.parent.mkdir(exist_ok=True)
        with quiet():
            job = FinetuningJob.prepare(source, spec, TaskData(train=train, dev=dev), run, recipe)
            # A run that was stopped is resumed: the folder of a run that has begun is there.
            result = job.train_once(folder, seed, resume=folder.is_dir())
        write_json(done, {"labels": len(train), "scores": result.scores})
        print(model, "first", task, json.dumps({"labels": len(train), "scores": result.scores}), flush=True)
    return str(folder / MODEL_FOLDER)


def _score(start: str, form: str, files: list[str], options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """The score of a model after fine-tuning on --labels labels; the seed draws them too."""
    spec, train, dev = _examples(form, files, options.labels, options.dev, seed)
    epochs = min(MOST_EPOCHS, max(options.epochs, STEPS * 32 / len(train)))
    run = FinetuningSettings(epochs=epochs, dropout=0.1, baselines=False)
    recipe = RecipeSettings(learning_rate=options.rate, bias_correction=True, epsilon=1e-8)
    with quiet(), tempfile.TemporaryDirectory() as folder:
        job = FinetuningJob.prepare(start, spec, TaskData(train=train, dev=dev), run, recipe)
        trained = job.train_once(Path(folder) / "run", seed)
    return {"metric": spec.metric, "score": round(trained.scores[spec.metric], 4), "seconds": round(trained.seconds, 1)}


def _examples(
    form: str, files: list[str], labels: int, dev: int, seed: int = 0
) -> tuple[TaskSpec, list[Any], list[Any]]:
    """A task, at most `labels` training examples and at most `dev` examples to score, both drawn at random."""
    with quiet():
        train, scored = (read_examples(form, Path(path), training=not number) for number, path in enumerate(files))
    spec = spec_for(form, train.examples, default_settings(form))
    parts = []
    for purpose, source, most, drawn_by in (("labels", train, labels, seed), ("dev", scored, dev, 0)):
        order = generator(drawn_by, f"{purpose} of a transfer").permutation(len(source.examples))[:most]
        parts.append([source.examples[index] for index in sorted(order.tolist())])
    return spec, parts[0], parts[1]


def _require_same(options: argparse.Namespace) -> None:
    """Ends the script if WORK has cells of other settings."""
    names = ("labels", "most", "dev", "epochs", "rate")
    settings, path = {name: getattr(options, name) for name in names}, options.work / "settings.json"
    if path.is_file() and read_json(path) != settings:
        sys.exit(f"expected the settings of {path}; found others; use another --work")
    write_json(path, settings)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--model", action="append", required=True, help="NAME=FOLDER; may be repeated")
    parser.add_argument("--task", action="append", required=True, help="NAME[:FORM]=TRAIN,DEV; two or more")
    parser.add_argument("--work", type=Path, required=True, help="folder of what was measured; a run resumes from it")
    parser.add_argument("--first", action="append", default=[], help="a task that only comes first [all come as both]")
    parser.add_argument("--labels", type=int, default=300, help="of the second task")
    parser.add_argument("--most", type=int, default=8000, help="labels of the first task, at most")
    parser.add_argument(
        "--direct", action="store_true", help="one task on several data sets, without a second training"
    )
    add_training_options(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
