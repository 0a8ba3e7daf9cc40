"""Selecting models by another metric than the task's."""

import dataclasses

from bertsmith.base.core.settings import require_known
from bertsmith.tasks.metrics.labels import AT_METRICS, CLASS_METRICS
from bertsmith.tasks.metrics.numbers import NUMBER_METRICS
from bertsmith.tasks.specs.named_tasks import SEVERAL, kind_of
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.specs.vector_gold import LABELLED, PARTNERS, SCORES, TRIPLETS

_MULTI_LABEL = ("micro_f1", "macro_f1", "subset_accuracy", *AT_METRICS)
_ENTITIES, _WORDS = ("precision", "recall", "f1", "accuracy"), ("accuracy",)
_ANSWERS, _ENDINGS = ("exact", "f1"), ("accuracy",)


def metrics_of(spec: TaskSpec) -> tuple[str, ...]:
    """The scores by which a model of this task can be selected.

    >>> metrics_of(TaskSpec(kind="span", name="squad"))
    ('exact', 'f1')
    """
    if spec.kind == "classification":
        if spec.multi_label:
            return _MULTI_LABEL
        return tuple(name for name in CLASS_METRICS if name != "f1" or len(spec.labels) == 2)
    if spec.kind == "tagging":
        return _ENTITIES if spec.scheme else _WORDS
    if spec.kind == "similarity":
        return spec.metrics
    # With unanswerable questions, epochs are compared by the F1 at their best threshold.
    answers = ("f1",) if spec.unanswerable else _ANSWERS
    return {"regression": tuple(NUMBER_METRICS), "span": answers}.get(spec.kind, _ENDINGS)


def require_metric(task: str, name: str) -> None:
    """Refuses a score that no examples of a named task have, before any are read."""
    broadest = TaskSpec(
        kind=kind_of(task),
        name=task,
        labels=("no", "yes"),
        multi_label=task in SEVERAL,
        scheme="any",
        unanswerable=task == "squad2",
        metrics=(*SCORES, *LABELLED, *PARTNERS, *TRIPLETS),
    )
    with_metric(broadest, name)


def with_metric(spec: TaskSpec, name: str) -> TaskSpec:
    """The spec with another score for selection, which is computed with the others of the task."""
    known = metrics_of(spec)
    require_known(f"metric of {spec.name}:", name, known)
    metrics = spec.metrics if name in spec.metrics else (*spec.metrics, name)
    return dataclasses.replace(spec, metric=name, metrics=metrics)
