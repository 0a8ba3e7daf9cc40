"""The commands `finetune`, `pretrain` and `report` as functions with paths and keyword settings."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertsmith.app.library.inputs import require_path
from bertsmith.base.core.errors import ConfigError, RunError
from bertsmith.base.core.progress import recorded_warnings, said_once, tell
from bertsmith.base.core.settings import (
    AUTO,
    require,
    require_counts,
    require_number,
    require_other,
    require_recipe,
    split_settings,
)
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.pages.html import page_place
from bertsmith.base.processes.distributed import in_process_group, on_first_rank, result_of_first_rank, started_before
from bertsmith.base.storage.files import write_json
from bertsmith.base.storage.locks import require_new_or_started, require_new_run
from bertsmith.base.storage.outputs import PAGE, require_output
from bertsmith.base.storage.remote import require_host
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.parts.our_names import MARGIN
from bertsmith.recipes.adaptation.task_text import TaskText, continue_pretraining
from bertsmith.recipes.finetuning.job import BaseModel, FinetuningJob
from bertsmith.recipes.finetuning.recipes import (
    FINETUNING_RECIPES,
    SETFIT,
    reads_of_run,
    recipe_of_run,
    resolved,
    search_grid,
    situation_of,
)
from bertsmith.recipes.finetuning.run import FinetuningResult
from bertsmith.recipes.finetuning.run import finetune as run_finetuning
from bertsmith.recipes.finetuning.settings import PROBE, FinetuningSettings, RecipeSettings
from bertsmith.recipes.finetuning.tuning import search_folder, tune
from bertsmith.recipes.results.finished_run import TABLE_FILE
from bertsmith.recipes.results.report import is_finetuning, write_finetuning_report
from bertsmith.recipes.sentence_encoders import few_labels
from bertsmith.recipes.sentence_encoders.few_labels import require_single_labels, train_on_pairs
from bertsmith.recipes.sentence_encoders.hard_negatives import with_hard_negatives
from bertsmith.recipes.sentence_encoders.teacher import taught
from bertsmith.tasks.datasets.examples import PAIRS, TRIPLETS
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs.metric_choice import require_metric, with_metric
from bertsmith.tasks.specs.named_tasks import default_settings, task_name
from bertsmith.tasks.specs.settings import ColumnSettings, TaskSettings
from bertsmith.tasks.task_data.task_files import read_task
from bertsmith.training.loop.loop import TrainResult
from bertsmith.training.loop.run_folder import CONTINUED, SETTINGS_FILE, is_run
from bertsmith.training.loop.settings import BUDGETS, TrainSettings
from bertsmith.training.pretraining.recipes import AUTO_SIZE, settings_from_recipe
from bertsmith.training.pretraining.report import write_report as write_curves
from bertsmith.training.pretraining.run import pretrain as run_pretraining
from bertsmith.training.pretraining.run import settings_of_run
from bertsmith.training.pretraining.settings import PretrainingDataSettings, PretrainingRunSettings


@in_process_group
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
    map_labels: LabelMap | None = None,
    continue_on: str | Path | None = None,
    continue_minutes: float | None = None,
    continue_steps: int | None = None,
    recipe: str | None = None,
    metric: str | None = None,
    teacher: str | Path | None = None,
    hard_negatives: int = 0,
    **settings: Any,
) -> FinetuningResult:
    """The result of fine-tuning a model on a named task; OUT/model is the model that is kept, and `load(out)` loads it.

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
        map_labels: new names of the labels in the files, such as {"1": "Claim", "0": "Not Claim"}; every label of the
            files needs one, and the model stores the new names. For entities, of their types.
        continue_on: first continue the pre-training on this text of the task, in OUT/continued: .txt, .jsonl, .parquet,
            a folder of them, or the training file itself, whose texts are read without their labels.
        continue_minutes, continue_steps: how long; by default two minutes.
        recipe: where the settings that are not given come from: "auto", which depends on the number of examples,
            the model and the task, "2018", the paper's, "ulmfit", or "setfit", which first trains the vectors on pairs
            of the labelled texts, in OUT/continued. By default "auto", or "setfit" with at most 100 labels and a
            sentence encoder; a resumed run keeps its own.
        metric: the score by which the best model is selected; by default that of the task.
        teacher: of the tasks similarity, pairs and triplets: a sentence encoder or a model of pairs, whose scores take
            the place of labels.
        hard_negatives: of the task pairs: for each pair, find this many texts that the base model takes for its second
            one.
        settings: fields of FinetuningSettings, RecipeSettings, TaskSettings and ColumnSettings by name, such as
            epochs=1, learning_rate=3e-5, max_length=64, text_column="body".

    Raises:
        BertsmithError: the model, a file, a setting or the run folder is invalid; the message says which.
    """
    require_path(source, "the model")
    require_path(out, "the run folder")
    for name, path in {"train": train, "dev": dev, "continue_on": continue_on, "teacher": teacher}.items():
        if path is not None:
            require_path(path, name)
    require_counts(seeds=seeds, limit=limit, trials=trials)
    require_number("hard_negatives", hard_negatives, least=0)
    rank = Rank.from_environment()
    started_at = (Path(out) / SETTINGS_FILE, Path(out) / CONTINUED, search_folder(Path(out)))
    resume = started_before(resume, rank, *started_at)
    parts = split_settings(settings, [FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings])
    asked = recipe or (recipe_of_run(out) if resume else None)
    recipe = require_recipe(asked or AUTO, FINETUNING_RECIPES)
    # What is given is checked before a file is read, or a model, which may take minutes or the network.
    task = task_name(task)
    if metric is not None:
        require_metric(task, metric)
    FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    require(
        not hard_negatives or (task == PAIRS and teacher is None),
        expected=f"the task {PAIRS} without a teacher for hard negatives",
        found=task if teacher is None else "--teacher",
        fix="leave --hard-negatives out",
    )
    columns = ColumnSettings(**parts[ColumnSettings])
    task_settings = dataclasses.replace(default_settings(task), **parts[TaskSettings])
    out = Path(out)
    if not resume:
        on_first_rank(lambda: require_new_run(out), rank)
    with recorded_warnings() as warnings:
        spec, data = read_task(
            task,
            None if train is None else Path(train),
            None if dev is None else Path(dev),
            columns=columns,
            settings=task_settings,
            limit=limit,
            map_labels=map_labels,
        )
    data = dataclasses.replace(data, warnings=tuple(warnings))
    spec = spec if metric is None else with_metric(spec, metric)
    prepared: dict[str, Any] = {}
    if teacher is not None:
        prepared["teacher"] = str(teacher)
        name, taught_examples = taught(
            teacher, spec.name, data.train, device=parts[FinetuningSettings].get("device", "auto")
        )
        spec = dataclasses.replace(spec, name=name, labels=())
        data = dataclasses.replace(data, train=taught_examples)
        if name == TRIPLETS:
            parts[FinetuningSettings].setdefault("vector_loss", MARGIN)
    if hard_negatives:
        prepared["hard_negatives"] = hard_negatives
        embedder = load_embedder(source, device=parts[FinetuningSettings].get("device", "auto"))
        data = dataclasses.replace(data, train=with_hard_negatives(data.train, embedder, hard_negatives))
    folder = load_any(source)
    situation = situation_of(
        spec.name, spec.kind, len(data.train), folder, own_head=head is not None, settings=spec.settings
    )
    is_resumed = resume
    given = {**parts[FinetuningSettings], **parts[RecipeSettings]}
    alone = not search and continue_on is None and continue_minutes is None and continue_steps is None
    if asked is None and alone and few_labels.is_default(spec, data.train, situation, folder, given):
        recipe = SETFIT
        on_first_rank(lambda: tell("few labels for a sentence encoder: the recipe is setfit, not auto"), rank)
    values = resolved(recipe, situation, given)
    parts = split_settings(values, [FinetuningSettings, RecipeSettings])
    chosen, rates = FinetuningSettings(**parts[FinetuningSettings]), RecipeSettings(**parts[RecipeSettings])
    if resume and not search and chosen.reads == PROBE:
        chosen = dataclasses.replace(chosen, reads=reads_of_run(out) or PROBE)
    if recipe == SETFIT:
        others = {
            "--continue-on": continue_on,
            "--continue-minutes": continue_minutes,
            "--continue-steps": continue_steps,
            "--search": search or None,
            "--head": head,
        }
        refused = [name for name, value in others.items() if value is not None]
        fix = f"leave {'it' if len(refused) == 1 else 'them'} out, or choose another --recipe"
        require(not refused, expected="the recipe setfit by itself", found=", ".join(refused), fix=fix)
        require_single_labels(spec)
        on_first_rank(lambda: require_new_or_started(out, resume=resume, parts=(CONTINUED,)), rank)
        # Whatever is wrong with the examples is found before the vectors are trained.
        checked = FinetuningJob.prepare(folder, spec, data, _before_probe(chosen), rates)
        kept = {name: getattr(chosen, name) for name in ("device", "precision", "micro_tokens")}
        width = folder.config.hidden_size
        place = train_on_pairs(folder, spec, data.train, out, width, settings=kept, seed=rates.seed, resume=resume)
        on_vectors = checked.on_base(load_any(place), chosen, rates)
        on_vectors.untrained = checked.folder
        base: BaseModel = on_vectors
        is_resumed = result_of_first_rank(lambda: resume and is_run(out), rank)
    elif continue_on is not None:
        text = TaskText(
            path=Path(continue_on),
            task=task,
            train=None if train is None else Path(train),
            columns=columns,
            minutes=continue_minutes,
            steps=continue_steps,
        )
        # Whatever is wrong with the examples is found before minutes are spent. A probe waits for the continued model.
        checked = FinetuningJob.prepare(folder, spec, data, _before_probe(chosen), rates, head)
        source = continue_pretraining(
            source, out, text, device=chosen.device, precision=chosen.precision, seed=rates.seed, resume=resume
        )
        base = checked.on_base(load_any(source), chosen, rates)
        # If the continued pre-training was interrupted, there is no run yet.
        is_resumed = result_of_first_rank(lambda: resume and is_run(out), rank)
    else:
        base = folder
        on_first_rank(lambda: _require_no_continuation(out, continue_minutes, continue_steps, resume=resume), rank)
    named: dict[str, Any] = {"recipe_name": recipe, "source_name": str(source), "prepared_by": prepared}
    if not search:
        return run_finetuning(base, spec, data, out, chosen, rates, seeds=seeds, resume=is_resumed, head=head, **named)
    with said_once():  # the run has the settings of a trial
        grid = search_grid(recipe, values)
        base = FinetuningJob.prepare(base, spec, data, chosen, rates, head)
        found = tune(base, spec, data, out, chosen, rates, trials=trials, resume=resume, grid=grid, head=head)
        # If the search was interrupted, there is no run yet.
        is_resumed = result_of_first_rank(lambda: resume and is_run(out), rank)
        best, rates = found.settings, found.recipe
        result = run_finetuning(base, spec, data, out, best, rates, seeds=seeds, resume=is_resumed, head=head, **named)
    on_first_rank(lambda: write_json(out / TABLE_FILE, list(found.table)), rank)
    return dataclasses.replace(result, trials=found.table)


def _require_no_continuation(out: Path, minutes: float | None, steps: int | None, *, resume: bool) -> None:
    """Refuses a budget without text to continue on, and a folder in which pre-training was continued.

    Raises:
        ConfigError, RunError: one of them.
    """
    require_other(minutes is None and steps is None, "a budget to continue", "text, with --continue-on")
    if resume and (out / CONTINUED).is_dir():
        raise RunError(
            expected=f"the options that the run in '{out}' was started with",
            found="no text to continue on",
            fix="give --continue-on again",
        )


@in_process_group
def pretrain(
    corpus: str | Path, out: str | Path, *, recipe: str | None = None, resume: bool = False, **settings: Any
) -> TrainResult:
    """The result of pre-training a model on a corpus folder; OUT/model is the model, and `load(out)` loads it.

    Args:
        corpus: a folder that `build_corpus` wrote, or its address.
        out: the run folder; new, unless `resume`.
        recipe: where the settings that are not given come from: "auto" (the default) or "2018", the paper's. A resumed
            run keeps its own.
        resume: resume the run in `out`; settings that are not given keep their values. Those that are given must be the
            same, but a run that was stopped while steps were timed for its minutes may get another budget.
        settings: fields of PretrainingRunSettings, PretrainingDataSettings and TrainSettings by name, such as
            size="tiny", steps=20_000, rows_per_step=32, max_length=64.

    Raises:
        BertsmithError: the corpus, a setting or the run folder is invalid; the message says which.
    """
    require_path(corpus, "the corpus")
    require_host(corpus)
    require_path(out, "the run folder")
    if recipe is not None:
        settings["recipe"] = recipe
    rank = Rank.from_environment()
    if not started_before(resume, rank, Path(out) / SETTINGS_FILE):
        return run_pretraining(corpus, out, *settings_from_recipe(settings))
    if settings.get("size") == AUTO_SIZE:
        del settings["size"]  # the run has the size that was chosen when it started
    parts = split_settings(settings, [PretrainingRunSettings, PretrainingDataSettings, TrainSettings])
    _, run, data, train = settings_of_run(out)
    budget = dict.fromkeys(BUDGETS) if parts[TrainSettings].keys() & set(BUDGETS) else {}
    return run_pretraining(
        corpus,
        out,
        dataclasses.replace(run, **parts[PretrainingRunSettings]),
        dataclasses.replace(data, **parts[PretrainingDataSettings]),
        dataclasses.replace(train, **{**budget, **parts[TrainSettings]}),
        resume=True,
    )


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


def _before_probe(chosen: FinetuningSettings) -> FinetuningSettings:
    """Settings that can be checked before it is known what the head reads, and so where it can start from."""
    return dataclasses.replace(chosen, reads=None, start="random") if chosen.reads == PROBE else chosen
