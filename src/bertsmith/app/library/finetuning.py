"""The command `finetune` as a function."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.core.progress import counted, duration, quiet, recorded_warnings, said_once, tell, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import AUTO, require, require_other
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import in_process_group, on_first_rank, result_of_first_rank, started_before
from bertsmith.base.processes.workers import worker_pool
from bertsmith.base.storage.files import write_json
from bertsmith.base.storage.locks import require_new_or_started, require_new_run
from bertsmith.inference.predictors.named_labels import entity_labels
from bertsmith.inference.search.request import is_index
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.head_spec import MARGIN, RERANKING
from bertsmith.recipes.finetuning.base_model import require_lengths
from bertsmith.recipes.finetuning.job import BaseModel, FinetuningJob
from bertsmith.recipes.finetuning.recipes import (
    reads_of_run,
    recipe_of_run,
    resolved,
    search_grid,
    settings_from,
    situation_of,
)
from bertsmith.recipes.finetuning.request import FinetuneRequest
from bertsmith.recipes.finetuning.run import FinetuningResult, usual_seeds
from bertsmith.recipes.finetuning.run import finetune as run_finetuning
from bertsmith.recipes.finetuning.settings import BAG_ALONE, PROBE, SETFIT, FinetuningSettings, RecipeSettings
from bertsmith.recipes.results.finished_run import REPORT_FILE, TABLE_FILE, kept_scores, search_folder
from bertsmith.recipes.results.resampling import Part
from bertsmith.recipes.sentence_encoders import few_labels
from bertsmith.tasks.datasets.drawn_replies import with_negatives
from bertsmith.tasks.datasets.examples import FORMS, TRIPLETS, Example
from bertsmith.tasks.datasets.text_lines import TextLines
from bertsmith.tasks.specs.named_tasks import default_settings, with_metric
from bertsmith.tasks.specs.settings import ColumnSettings, SplitSettings, TaskSettings
from bertsmith.tasks.specs.task import GENERATION, TaskSpec
from bertsmith.tasks.task_data.sources import read_sources
from bertsmith.tasks.task_data.split import Source, TaskData
from bertsmith.tasks.task_data.task_files import data_warnings, read_task
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.training.loop.callbacks import warn_of_uncalled
from bertsmith.training.loop.run_folder import CONTINUED, FOLDS, SETTINGS_FILE, is_run

if TYPE_CHECKING:
    from bertsmith.recipes.finetuning.folds import CrossValidation


class Examples(NamedTuple):
    """The task and its examples, with the settings that made them what they are, for the record."""

    spec: TaskSpec
    data: TaskData
    prepared_by: Mapping[str, Any]


class Chosen(NamedTuple):
    """The settings of the trainings: those of the recipe, and those that were given.

    Attributes:
        values: all settings by name.
        settings, rates: the same as settings objects.
    """

    recipe: str
    values: Mapping[str, Any]
    settings: FinetuningSettings
    rates: RecipeSettings


@takes(FinetuneRequest)
@in_process_group
def finetune(request: FinetuneRequest) -> FinetuningResult:
    """The result of fine-tuning a model on a named task; OUT/model is the model that is kept, and `load(out)` loads it.

    Raises:
        BertsmithError: the model, a file, a setting or the run folder is invalid; the message says which.
    """
    out, rank = Path(request.out), Rank.from_environment()
    signs_of_start = (out / SETTINGS_FILE, out / CONTINUED, out / FOLDS, search_folder(out))
    resume = started_before(request.resume, rank, *signs_of_start)
    if not resume:
        on_first_rank(lambda: require_new_run(out), rank)
    examples = read_examples(request)
    folder = load_any(request.source)
    require_lengths(examples.spec, folder, request.given)
    chosen = choose_settings(request, examples, folder, rank, resume=resume)
    if request.folds is not None:
        with said_once():
            return _by_folds(request, examples, folder, chosen, rank, resume=resume)
    base, source = base_model(request, examples, folder, chosen, rank, resume=resume)
    spec, data, prepared = examples
    settings, rates, search = chosen.settings, chosen.rates, None
    with said_once() if request.search else contextlib.nullcontext():  # the run has the settings of a trial
        if request.search:
            from bertsmith.recipes.finetuning.tuning import tune

            base = FinetuningJob.prepare(base, spec, data, settings, rates, request.head)
            search = tune(
                base,
                spec,
                data,
                out,
                settings,
                rates,
                trials=request.trials,
                resume=resume,
                grid=search_grid(chosen.recipe, chosen.values),
                head=request.head,
            )
            settings, rates = search.settings, search.recipe
        result = run_finetuning(
            base,
            spec,
            data,
            out,
            settings,
            rates,
            seeds=request.seeds,
            # If what comes before the run was interrupted, there is no run yet.
            resume=resume if base is folder else result_of_first_rank(lambda: resume and is_run(out), rank),
            head=request.head,
            recipe_name=chosen.recipe,
            source_name=source,
            prepared_by=prepared,
            request=request,
        )
    if search is None:
        return result
    on_first_rank(lambda: write_json(out / TABLE_FILE, list(search.table)), rank)
    return dataclasses.replace(result, trials=search.table)


def _by_folds(
    request: FinetuneRequest, examples: Examples, folder: ModelFolder, chosen: Chosen, rank: Rank, *, resume: bool
) -> FinetuningResult:
    """The result of a run on all examples, after one for each fold, which trains on the others and is scored on it."""
    from bertsmith.recipes.finetuning.folds import cross_validation

    assert request.folds is not None, "a number of folds"
    parts: list[Part] = []
    writes = examples.spec.kind == GENERATION
    seeds = request.seeds or usual_seeds(len(examples.data.train), chosen.rates.keep, writes=writes)
    seconds: list[float] = []  # of the folds that were not finished before
    if request.workers > 1:
        _train_folds(request, chosen, rank, seeds=seeds, resume=resume)
        resume = True  # reads what the processes wrote; what one of them refused is refused here again
    for number in range(1, request.folds + 1):
        with quiet(warnings=True):  # those of the file were given for all examples
            of_fold = read_examples(request, number)
        fold = of_fold.data.fold
        assert fold is not None, "the examples of a fold"
        out = Path(request.out) / FOLDS / str(number)
        name, started, is_new = f"{fold}: training", time.monotonic(), not (out / REPORT_FILE).exists()
        result = _train(
            request.replaced(out=out), of_fold, folder, chosen, rank, seeds=seeds, resume=resume, label=name
        )
        parts.append((fold, of_fold.data.dev))
        if is_new:
            seconds.append(time.monotonic() - started)
        each = sum(seconds) / max(1, len(seconds))
        left = f"; about {duration(each * (request.folds + 1 - number))} left" if seconds else ""
        score = kept_scores(result.report).get(examples.spec.metric, 0.0)
        on_first_rank(lambda: tell(f"{fold}: {examples.spec.metric} {score:.4f}{left}"), rank)  # noqa: B023
    validation = on_first_rank(lambda: cross_validation(Path(request.out), examples.spec, parts), rank)
    return _train(
        request,
        examples,
        folder,
        chosen,
        rank,
        seeds=seeds,
        resume=resume,
        label="all examples: training",
        validation=validation,
    )


def _train_folds(request: FinetuneRequest, chosen: Chosen, rank: Rank, *, seeds: int, resume: bool) -> None:
    """Trains the folds in several processes; as many threads in each as in this one give the same bytes."""
    require(
        rank.count == 1,
        expected="one process for --workers",
        found=f"{rank.count} of torchrun",
        fix="leave --workers or torchrun out",
    )
    warn_of_uncalled(f"the trainings of folds by --workers {request.workers}")
    numbers = range(1, request.folds + 1) if request.folds else range(0)
    threads = torch.get_num_threads()
    with worker_pool(min(request.workers, len(numbers)), RunError, torch.set_num_threads, threads) as pool:
        folds = [pool.submit(_train_fold, request, chosen, number, seeds, resume) for number in numbers]
        for count, fold in enumerate(as_completed(folds), start=1):
            for warning in fold.result():
                warn(warning)  # each once, as the folds are trained within `said_once`
            tell(f"{count} of {counted(len(numbers), 'fold')} trained")


def _train_fold(request: FinetuneRequest, chosen: Chosen, number: int, seeds: int, resume: bool) -> list[str]:
    """The warnings of the training of a fold in a process of its own, which writes none itself."""
    warnings = list[str]()
    with quiet(warnings=True), contextlib.suppress(BertsmithError):
        examples = read_examples(request, number)  # whose warnings were given for all examples
        of_fold = request.replaced(out=Path(request.out) / FOLDS / str(number))
        with recorded_warnings() as warnings:
            _train(of_fold, examples, load_any(request.source), chosen, Rank(), seeds=seeds, resume=resume, label="")
    return warnings


def _train(
    request: FinetuneRequest,
    examples: Examples,
    folder: ModelFolder,
    chosen: Chosen,
    rank: Rank,
    *,
    seeds: int,
    resume: bool,
    label: str,
    validation: "CrossValidation | None" = None,
) -> FinetuningResult:
    """The result of the run of one fold, or, with the results of the folds, of the run on all examples."""
    out, settings = Path(request.out), chosen.settings
    if resume and settings.reads == PROBE:
        settings = dataclasses.replace(settings, reads=reads_of_run(out) or PROBE)
    is_started = result_of_first_rank(lambda: resume and (is_run(out) or (out / CONTINUED).is_dir()), rank)
    chosen = chosen._replace(settings=settings)
    base, source = base_model(request, examples, folder, chosen, rank, resume=is_started)
    fold = examples.data.fold
    return run_finetuning(
        base,
        examples.spec,
        examples.data,
        out,
        chosen.settings,
        chosen.rates,
        seeds=seeds,
        resume=result_of_first_rank(lambda: resume and is_run(out), rank),
        head=request.head,
        recipe_name=chosen.recipe,
        source_name=source,
        prepared_by={**examples.prepared_by, "folds": request.folds, **({} if fold is None else {"fold": fold.number})},
        request=request if fold is None else None,
        label=label,
        validation=validation,
    )


def read_examples(request: FinetuneRequest, fold: int = 0) -> Examples:
    """The task and its examples; with a teacher its scores take the place of labels, with negatives they are added.

    Args:
        fold: with folds, the one whose examples become the dev examples; 0 for none of them.
    """
    settings = dataclasses.replace(default_settings(request.task), **request.values(TaskSettings))
    with recorded_warnings() as warnings:
        spec, data = read_task(
            request.task,
            path_or_none(request.train),
            path_or_none(request.dev),
            columns=request.part(ColumnSettings),
            settings=settings,
            limit=request.limit,
            map_labels=request.map_labels,
            group_column=request.group_column,
            weight_column=request.weight_column,
            by_label=request.keep in (AUTO, BAG_ALONE),
            fold=None if request.folds is None else (fold, request.folds),
            also=() if request.task in FORMS else [Path(path) for path in request.also],
        )
        if request.task in FORMS and request.also:
            data = _with_sources(data, read_sources(request.also, request.part(ColumnSettings), settings))
        if request.labels is not None:
            described = dict(entity_labels(request.labels, request.encoding))
            unknown = [name for name in described if name not in spec.labels]
            if unknown:
                warn(f"labels with a description that the training files do not have: {', '.join(unknown)}")
            spec = dataclasses.replace(spec, descriptions=tuple(described.get(name, "") for name in spec.labels))
    data = dataclasses.replace(data, warnings=tuple(warnings))
    spec = spec if request.metric is None else with_metric(spec, request.metric)
    prepared: dict[str, Any] = request.values(SplitSettings)
    if request.weight_column is not None:
        prepared["weight_column"] = request.weight_column
    if request.hard_negatives:
        data = dataclasses.replace(data, train=_with_hard_negatives(request, data.train))
        named = ("hard_negatives", "miner", "negatives_from", "negative_ranks", "negative_margin")
        values = {name: getattr(request, name) for name in named if name in request.given}
        prepared |= {name: value if isinstance(value, int | float) else str(value) for name, value in values.items()}
    if request.teacher is not None:
        from bertsmith.recipes.sentence_encoders.teacher import taught

        prepared["teacher"] = str(request.teacher)
        name, scored = taught(request.teacher, spec.name, data.train, device=request.device)
        spec = dataclasses.replace(spec, name=name, labels=())
        data = dataclasses.replace(data, train=scored)
    if spec.ranks and spec.kind == "choice":
        prepared["negatives"] = request.negatives
        data = dataclasses.replace(data, train=with_negatives(data.train, request.negatives, request.hard_negatives))
    return Examples(spec, data, prepared)


def _with_sources(data: TaskData, sources: Sequence[Source]) -> TaskData:
    """The examples with those of further training files, and what is doubtful about these."""
    examples = [example for source in sources for example in source.examples]
    added = [warning for warning in data_warnings(examples, data.dev) if warning not in data.warnings]
    for warning in added:
        warn(warning)
    return dataclasses.replace(data, sources=sources, warnings=(*data.warnings, *added))


def _with_hard_negatives(request: FinetuneRequest, examples: Sequence[Example]) -> list[Example]:
    """The training examples with the hard negatives that a request asks for."""
    from bertsmith.inference.vectors.loading import load_embedder
    from bertsmith.recipes.sentence_encoders.hard_negatives import with_hard_negatives

    path, texts, index = path_or_none(request.negatives_from), list[str](), None
    if path is not None and is_index(path):
        from bertsmith.app.library.index_models import dense_index

        index, embedder = dense_index(path, request.miner, {"device": request.device})
    else:
        embedder = load_embedder(request.miner or request.source, device=request.device)
    if path is not None and index is None:
        lines = TextLines(path, None, EncodingSettings(encoding=request.encoding))
        texts = [line.strip() for line in lines if line.strip()]
        lines.tell_notes()
    return with_hard_negatives(
        examples,
        embedder,
        request.hard_negatives,
        ranks=request.ranks_of_negatives,
        margin=request.negative_margin,
        texts=texts,
        index=index,
    )


def choose_settings(
    request: FinetuneRequest, examples: Examples, folder: ModelFolder, rank: Rank, *, resume: bool
) -> Chosen:
    """The settings that were given, and those of the recipe: the one that was named, that of the run, or the usual."""
    spec, data, _ = examples
    values = {**request.values(FinetuningSettings), **request.values(RecipeSettings)}
    if request.teacher is not None and spec.name == TRIPLETS:
        values.setdefault("vector_loss", MARGIN)
    if request.teacher is not None and spec.kind == RERANKING:
        values.setdefault("list_loss", MARGIN)
    examples_of_all = len(data.train) + sum(len(source.examples) for source in data.sources)
    situation = situation_of(
        spec.name, spec.kind, examples_of_all, folder, own_head=request.head is not None, settings=spec.settings
    )
    recipe = request.recipe or (recipe_of_run(Path(request.out)) if resume else None)
    if recipe is None and request.is_plain and few_labels.is_default(spec, data.train, situation, folder, values):
        recipe = SETFIT
        on_first_rank(lambda: tell("few labels for a sentence encoder: the recipe is setfit, not auto"), rank)
    recipe = recipe or AUTO
    values = resolved(recipe, situation, values)
    if request.folds is not None:  # no dev examples choose a step of the training on all, so there is no second one
        values |= {"refit": False, "keep": values["keep"] if values.get("keep") in (AUTO, BAG_ALONE) else "last"}
    settings, rates = settings_from(values)
    if resume and not request.search and request.folds is None and settings.reads == PROBE:
        settings = dataclasses.replace(settings, reads=reads_of_run(Path(request.out)) or PROBE)
    return Chosen(recipe, values, settings, rates)


def base_model(
    request: FinetuneRequest, examples: Examples, folder: ModelFolder, chosen: Chosen, rank: Rank, *, resume: bool
) -> tuple[BaseModel, str]:
    """The model that the trainings start from, and its name for the record.

    It is the one in `folder`, or in OUT/continued that model after its vectors were trained on pairs of the examples
    (setfit) or its pre-training was continued on text of the task.
    """
    out, source = Path(request.out), str(request.source)
    spec, data, _ = examples
    settings, rates = chosen.settings, chosen.rates

    def checked() -> FinetuningJob:
        # Whatever is wrong with the examples is found before minutes are spent. What a probe chooses is decided on the
        # model that the pre-training changes.
        before = dataclasses.replace(settings, reads=None, start="random") if settings.reads == PROBE else settings
        return FinetuningJob.prepare(folder, spec, data, before, rates, request.head)

    if chosen.recipe == SETFIT:
        request.require_setfit_alone()
        few_labels.require_single_labels(spec)
        on_first_rank(lambda: require_new_or_started(out, resume=resume, parts=(CONTINUED,), besides=(FOLDS,)), rank)
        job = checked()
        kept = {name: getattr(settings, name) for name in ("device", "precision", "micro_tokens")}
        width = folder.config.hidden_size
        vectors = few_labels.train_on_pairs(
            folder, spec, data.train, out, width, settings=kept, seed=rates.seed, resume=resume
        )
        on_vectors = job.on_base(load_any(vectors), settings, rates)
        on_vectors.untrained = job.folder
        return on_vectors, source
    if (text_path := path_or_none(request.continue_on)) is not None:
        from bertsmith.recipes.adaptation.task_text import TaskText, continue_pretraining

        text = TaskText(
            path=text_path,
            task=request.task,
            train=path_or_none(request.train),
            columns=request.part(ColumnSettings),
            minutes=request.continue_minutes,
            steps=request.continue_steps,
        )
        job = checked()
        continued = continue_pretraining(
            request.source,
            out,
            text,
            device=settings.device,
            precision=settings.precision,
            seed=rates.seed,
            resume=resume,
        )
        return job.on_base(load_any(continued), settings, rates), str(continued)
    on_first_rank(lambda: _require_no_continuation(request, resume=resume), rank)
    return folder, source


def _require_no_continuation(request: FinetuneRequest, *, resume: bool) -> None:
    """Refuses a budget without text to continue on, and a folder in which pre-training was continued."""
    for name in ("continue_minutes", "continue_steps"):
        require_other(getattr(request, name) is None, f"--{name.replace('_', '-')}", "--continue-on")
    if resume and (Path(request.out) / CONTINUED).is_dir():
        raise RunError(
            expected=f"the options that the run in '{request.out}' was started with",
            found="no text to continue on",
            fix="give --continue-on again",
        )
