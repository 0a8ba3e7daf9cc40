"""The kinds of task, by the name in a model's metadata.

A new kind needs one file with one class and an entry here; training, evaluation, prediction and serving look it up.
"""

from bertsmith.errors import ConfigError, nearest
from bertsmith.tasks.choice import ChoiceTask
from bertsmith.tasks.classification import ClassificationTask
from bertsmith.tasks.regression import RegressionTask
from bertsmith.tasks.similarity import SimilarityTask
from bertsmith.tasks.span import SpanTask
from bertsmith.tasks.tagging import TaggingTask
from bertsmith.tasks.task import Task, TaskSpec

KINDS: dict[str, type[Task]] = {
    task.kind: task for task in (ClassificationTask, RegressionTask, SimilarityTask, ChoiceTask, TaggingTask, SpanTask)
}


def task_for(spec: TaskSpec) -> Task:
    """The task for a spec.

    Raises:
        ConfigError: its kind is unknown.
    """
    if spec.kind not in KINDS:
        raise ConfigError(expected="a known kind of task", found=repr(spec.kind), fix=nearest(spec.kind, KINDS))
    return KINDS[spec.kind](spec)
