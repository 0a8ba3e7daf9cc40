"""The kinds of task, by the name in a model's metadata.

A new kind needs one file with one class and an entry here; training, evaluation, prediction and serving look it up.
"""

from bertsmith.base.core.errors import ConfigError
from bertsmith.tasks.specs.choice import ChoiceTask
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.regression import RegressionTask
from bertsmith.tasks.specs.similarity import SimilarityTask
from bertsmith.tasks.specs.span import SpanTask
from bertsmith.tasks.specs.tagging import TaggingTask
from bertsmith.tasks.specs.task import Task, TaskSpec

KINDS: dict[str, type[Task]] = {
    task.kind: task for task in (ClassificationTask, RegressionTask, SimilarityTask, ChoiceTask, TaggingTask, SpanTask)
}


def task_for(spec: TaskSpec) -> Task:
    """The task for a spec."""
    if spec.kind not in KINDS:
        raise ConfigError.unknown("kind of task", spec.kind, KINDS)
    return KINDS[spec.kind](spec)
