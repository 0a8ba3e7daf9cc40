"""The commands `finetune`, `pretrain` and `report` as functions with paths and keyword settings."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.checkpoints.load import load_any
from bertsmith.errors import ConfigError, nearest
from bertsmith.files import write_json
from bertsmith.finetuning.finished_run import TABLE_FILE
from bertsmith.finetuning.recipes import recipe_of_run, require_recipe, resolved, search_grid, situation_of
from bertsmith.finetuning.report import is_finetuning, write_finetuning_report
from bertsmith.finetuning.run import FinetuningResult
from bertsmith.finetuning.run import finetune as run_finetuning
from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.finetuning.tuning import tune
from bertsmith.model.heads import OwnHead
from bertsmith.outputs import PAGE, require_output
from bertsmith.pretraining.run import pretrain as run_pretraining
from bertsmith.pretraining.run import settings_of_run
from bertsmith.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings
from bertsmith.progress import said_once
from bertsmith.reports.html import page_place
from bertsmith.settings import help_lines
from bertsmith.tasks.metric_choice import with_metric
from bertsmith.tasks.named_tasks import default_settings, read_task, task_name
from bertsmith.tasks.settings import ColumnSettings, TaskSettings
from bertsmith.training.loop import TrainResult
from bertsmith.training.settings import TrainSettings


def finetune(
    source: str | Path,
    task: str,
    out: str | Path,
    *,
    train: str | Path | None = None,
    dev: str | Path | None = None,
    seeds: int | None = None,
    limit: int | None = None,
    search: bool = False,
    trials: int = 12,
    resume: bool = False,
    head: type[OwnHead] | None = None,
    recipe: str | None = None,
    metric: str | None = None,
    **settings: Any,
) -> FinetuningResult:
    """The result of fine-tuning a model on a named task; OUT/model is the best model, and `load(out)` loads it.

    Args:
        source: the base model, anything that `load` accepts.
        task: the name of a task, such as "classification", "spam", "ner", "squad" or "cola".
        out: the run folder; new, unless `resume`.
        train: the training file; presets come with their own examples.
        dev: the dev file; by default a tenth of the training examples.
        seeds: number of trainings; by default three for fewer than 10,000 examples, else one.
        limit: train on a random sample of that many examples.
        search: first search the grid of learning rates, batch sizes and epochs (needs optuna), in OUT-search.
        trials: with `search`, number of settings to try.
        resume: resume the run in `out`, or its search.
        head: your own head in place of the linear layer, a subclass of `OwnHead`; `load(out, head=...)` needs it again.
        recipe: where the settings that are not given come from: "auto" (the default), which depends on the number of
            examples, the model and the task, or "2018", the paper's. A resumed run keeps its own.
        metric: the score by which the best model is selected; by default that of the task.
        settings: fields of FinetuningSettings, RecipeSettings, TaskSettings and ColumnSettings by name, such as
            epochs=1, learning_rate=3e-5, max_length=64, text_column="body".

    Raises:
        BertsmithError: the model, a file, a setting or the run folder is invalid; the message says which.
    """
    parts = split_settings(settings, [FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings])
    recipe = require_recipe(recipe or (recipe_of_run(out) if resume else "auto"))
    spec, data = read_task(
        task,
        None if train is None else Path(train),
        None if dev is None else Path(dev),
        columns=ColumnSettings(**parts[ColumnSettings]),
        settings=dataclasses.replace(default_settings(task_name(task)), **parts[TaskSettings]),
        limit=limit,
    )
    spec = spec if metric is None else with_metric(spec, metric)
    folder = load_any(source)
    situation = situation_of(spec.name, spec.kind, len(data.train), folder, own_head=head is not None)
    values = resolved(recipe, situation, {**parts[FinetuningSettings], **parts[RecipeSettings]})
    parts = split_settings(values, [FinetuningSettings, RecipeSettings])
    chosen, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    out = Path(out)
    named = {"recipe_name": recipe, "source_name": str(source)}
    if not search:
        return run_finetuning(folder, spec, data, out, chosen, rates, seeds=seeds, resume=resume, head=head, **named)
    with said_once():  # the run prepares the same model and data as the search
        grid = search_grid(recipe, values)
        found = tune(folder, spec, data, out, chosen, rates, trials=trials, resume=resume, grid=grid, head=head)
        # If the search was interrupted, there is no run yet.
        begun = resume and (out / "settings.json").exists()
        best, rates = found.settings, found.recipe
        result = run_finetuning(folder, spec, data, out, best, rates, seeds=seeds, resume=begun, head=head, **named)
    write_json(out / TABLE_FILE, list(found.table))
    return dataclasses.replace(result, trials=found.table)


def pretrain(corpus: str | Path, out: str | Path, *, resume: bool = False, **settings: Any) -> TrainResult:
    """The result of pre-training a model on a corpus folder; OUT/model is the model, and `load(out)` loads it.

    Args:
        corpus: a folder that `build_corpus` wrote.
        out: the run folder; new, unless `resume`.
        resume: resume the run in `out`; settings that are not given keep their values.
        settings: fields of PretrainingRunSettings, PretrainingDataSettings and TrainSettings by name, such as
            size="tiny", steps=20_000, rows_per_step=32, max_length=64.

    Raises:
        BertsmithError: the corpus, a setting or the run folder is invalid; the message says which.
    """
    parts = split_settings(settings, [PretrainingRunSettings, PretrainingDataSettings, TrainSettings])
    run, data, train = parts[PretrainingRunSettings], parts[PretrainingDataSettings], parts[TrainSettings]
    if resume:
        _, run_before, data_before, train_before = settings_of_run(out)
        chosen = (
            dataclasses.replace(run_before, **run),
            dataclasses.replace(data_before, **data),
            dataclasses.replace(train_before, **train),
        )
    else:
        chosen = PretrainingRunSettings(**run), PretrainingDataSettings(**data), TrainSettings(**train)
    return run_pretraining(corpus, out, *chosen, resume=resume)


def split_settings(values: Mapping[str, Any], classes: Sequence[type]) -> dict[type, dict[str, Any]]:
    """The values for each settings class, by its field names.

    Raises:
        ConfigError: no class has a field of that name.
    """
    names = {cls: help_lines(cls) for cls in classes}
    known = {name for fields in names.values() for name in fields}
    for name in values:
        if name not in known:
            raise ConfigError(expected="a known setting", found=repr(name), fix=nearest(name, known))
    return {cls: {name: values[name] for name in fields if name in values} for cls, fields in names.items()}


def write_report(
    runs: Sequence[str | Path],
    out: str | Path | None = None,
    on_line: Callable[[str], None] | None = None,
    *,
    replace: bool = False,
) -> Path:
    """The path of the report that was written.

    Pre-training runs are compared by their curves. Fine-tuning runs must have been scored on the same dev examples;
    each pair is compared: the difference, its 95% confidence interval, and whether it exceeds noise.

    Args:
        runs: run folders, all of the same kind.
        out: the file to write; by default RUN/report.html, or ./report-RUN-RUN.html for several runs.
        on_line: receives a line for each comparison of two fine-tuning runs.
        replace: overwrite `out`; the default file is always replaced.

    Raises:
        ConfigError: the runs are of both kinds.
        InputError: `out` does not end in .html, is not a page, or exists and `replace` is False.
        BertsmithError: a folder contains no run, or the runs cannot be compared.
    """
    from bertsmith.pretraining.report import write_report as write_curves

    paths, place = [Path(run) for run in runs], None if out is None else Path(out)
    usual = page_place(paths)
    require_output(place or usual, PAGE, replace=replace, may_exist=place is None or place.resolve() == usual.resolve())
    kinds = {is_finetuning(run): run for run in paths}
    if len(kinds) > 1:
        raise ConfigError(
            expected="runs of one kind",
            found=f"the fine-tuning '{kinds[True]}' and '{kinds[False]}', which is not",
            fix="write a report of each kind",
        )
    if True in kinds:
        return write_finetuning_report(paths, place, on_line=on_line)
    return write_curves(paths, out=place)
