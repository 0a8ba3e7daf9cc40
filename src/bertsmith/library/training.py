"""Training with paths and keyword settings: what the commands `finetune` and `pretrain` do, as two calls."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ConfigError, nearest
from bertsmith.finetuning.run import FinetuningResult
from bertsmith.finetuning.run import finetune as run_finetuning
from bertsmith.finetuning.settings import FinetuningSettings, RecipeSettings
from bertsmith.model.heads import OwnHead
from bertsmith.pretraining.run import PretrainingRunSettings
from bertsmith.pretraining.run import pretrain as run_pretraining
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.settings import help_lines
from bertsmith.tasks.named_tasks import ColumnSettings, default_settings, read_task, task_name
from bertsmith.tasks.task import TaskSettings
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
    resume: bool = False,
    head: type[OwnHead] | None = None,
    **settings: Any,
) -> FinetuningResult:
    """Fine-tunes a model on a task of the catalogue; OUT/model is the best model, and `load(out)` loads it.

    Args:
        source: the base model, anything that `load` takes.
        task: a name of the catalogue, such as "classification", "spam", "ner", "squad" or "cola".
        out: the run folder; new, unless `resume`.
        train: the training file; presets have examples of their own.
        dev: the file to choose by; a tenth of the training examples if not given.
        seeds: trainings; three for less than 10,000 examples, else one.
        limit: draw so many training examples only.
        resume: go on with the run in `out`.
        head: your own head in place of the linear layer, a subclass of `OwnHead`; `load(out, head=...)` needs it again.
        settings: fields of FinetuningSettings, RecipeSettings, TaskSettings and ColumnSettings by name, such as
            epochs=1, learning_rate=3e-5, max_length=64, text_column="body".

    Raises:
        BertsmithError: model, files, settings or run folder do not fit; the message says which.
    """
    parts = split_settings(settings, [FinetuningSettings, RecipeSettings, TaskSettings, ColumnSettings])
    spec, data = read_task(
        task,
        None if train is None else Path(train),
        None if dev is None else Path(dev),
        columns=ColumnSettings(**parts[ColumnSettings]),
        settings=dataclasses.replace(default_settings(task_name(task)), **parts[TaskSettings]),
        limit=limit,
    )
    return run_finetuning(
        source,
        spec,
        data,
        out,
        FinetuningSettings(**parts[FinetuningSettings]),
        RecipeSettings(**parts[RecipeSettings]),
        seeds=seeds,
        resume=resume,
        head=head,
    )


def pretrain(corpus: str | Path, out: str | Path, *, resume: bool = False, **settings: Any) -> TrainResult:
    """Pre-trains a model on a corpus folder; OUT/model is the model, and `load(out)` loads it.

    Args:
        corpus: a folder that `build_corpus` wrote.
        out: the run folder; new, unless `resume`.
        resume: go on with the run in `out`.
        settings: fields of PretrainingRunSettings, PretrainingDataSettings and TrainSettings by name, such as
            size="tiny", steps=20_000, rows_per_step=32, max_length=64.

    Raises:
        BertsmithError: corpus, settings or run folder do not fit; the message says which.
    """
    parts = split_settings(settings, [PretrainingRunSettings, PretrainingDataSettings, TrainSettings])
    return run_pretraining(
        corpus,
        out,
        PretrainingRunSettings(**parts[PretrainingRunSettings]),
        PretrainingDataSettings(**parts[PretrainingDataSettings]),
        TrainSettings(**parts[TrainSettings]),
        resume=resume,
    )


def split_settings(values: Mapping[str, Any], classes: Sequence[type]) -> dict[type, dict[str, Any]]:
    """The values that each settings class has a field for.

    Raises:
        ConfigError: none has.
    """
    names = {cls: help_lines(cls) for cls in classes}
    known = {name for fields in names.values() for name in fields}
    for name in values:
        if name not in known:
            raise ConfigError(expected="a known setting", found=repr(name), fix=nearest(name, known))
    return {cls: {name: values[name] for name in fields if name in values} for cls, fields in names.items()}
