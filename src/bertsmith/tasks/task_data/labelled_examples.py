"""Labelled examples from a file, to score a model on: read as the task of the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.progress import warn
from bertsmith.base.storage.files import digest_file
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.label_map import LabelMap
from bertsmith.tasks.specs import named_tasks
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.spec_of_model import require_spec
from bertsmith.tasks.task_data.task_files import columns_for, read_examples


class Labelled(NamedTuple):
    """Labelled examples for scoring a model."""

    task: str
    # the model's spec, with that task's official metrics if the model does not say what it was trained on
    spec: TaskSpec
    examples: Sequence[Example]


def read_labelled(
    folder: ModelFolder,
    path: Path,
    task: str | None = None,
    columns: ColumnSettings | None = None,
    map_labels: LabelMap | None = None,
) -> Labelled:
    """Labelled examples from a file, to score a fine-tuned model on."""
    spec = require_spec(folder)
    is_ours = folder.metadata.spec is not None
    return labelled_of(spec, path, task, columns, map_labels, is_ours=is_ours)


def labelled_of(
    spec: TaskSpec,
    path: Path,
    task: str | None = None,
    columns: ColumnSettings | None = None,
    map_labels: LabelMap | None = None,
    *,
    is_ours: bool = True,
) -> Labelled:
    """As `read_labelled`, for the task of a model; `is_ours` says whether it was stored with the model."""
    name = named_tasks.task_name(task or named_tasks.form_of(spec))
    named_tasks.require_kind(name, spec)
    if not is_ours:
        spec = named_tasks.official_spec(name, spec)
    columns = columns_for(spec.columns, path, columns)
    example_file = read_examples(name, path, columns, scheme=spec.scheme, map_labels=map_labels, known=spec.labels)
    return Labelled(name, spec, example_file.examples)


def warn_of_training_file(
    metadata: ModelMetadata, data: Path, effect: str = "scores on examples that it has seen say little about others"
) -> None:
    """Warns if the examples are in the training file of the model, byte by byte.

    Args:
        effect: what is wrong with that.
    """
    if data.is_file() and digest_file(data) == metadata.trained_on.get("train"):
        warn(f"{quoted(data)} is the training file of this model: {effect}")
