"""The test sets of GLUE, which have no labels, and the files that its evaluation server takes."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.glue import GLUE, write_submission
from bertsmith.tasks.specs.named_tasks import task_name
from bertsmith.tasks.specs.task import Prediction, TaskSpec
from bertsmith.tasks.task_data.task_files import read_examples


def glue_test(spec: TaskSpec, task: str | None) -> str:
    """The GLUE task whose test set a model answers: its own, or one that shares its model."""
    name = task_name(task or spec.name)
    require(
        name in GLUE and GLUE[name].trained_as == spec.name,
        expected="a GLUE task that the model was fine-tuned for",
        found=f"a model of {spec.name}" + (f" for the test set of {name}" if task else ""),
        fix="name a test set of the model's task (for MNLI: mnli, mnli-mm, ax), or pipe lines into the command",
    )
    return name


def read_test(name: str, path: Path) -> Sequence[Example]:
    """The examples of a GLUE test file, without labels."""
    return read_examples(name, path, gold=False).examples


def submission_place(name: str, folder: Path) -> Path:
    """The path of the submission file of a GLUE task in a folder."""
    return folder / GLUE[name].submission


def submit(name: str, answered: Iterable[tuple[Example, Prediction]], folder: Path) -> Path:
    """The path of the written submission file for the GLUE evaluation server."""
    rows = [(example.id, prediction.to_dict()) for example, prediction in answered]
    answers = [values["label"] if "label" in values else values["value"] for _, values in rows]
    return write_submission(GLUE[name], [id for id, _ in rows], answers, folder)
