"""Tasks of Label Studio's JSON export: which annotation counts, and the choices in it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.values import brief

ANNOTATION_KEYS = ("annotations", "completions")  # the second one in old versions


class Annotations(NamedTuple):
    """The annotations of a task that count; or, if `skipped` is not empty, why there are none."""

    kept: tuple[Mapping[str, Any], ...] = ()
    skipped: str = ""


def is_task(record: Any) -> bool:
    """Whether a record of a file is a task of Label Studio."""
    return isinstance(record, dict) and isinstance(record.get("data"), dict)


def annotations_of(task: Mapping[str, Any], location: str) -> Annotations:
    """The annotations that were not cancelled; if some are marked as ground truth, only those."""
    key = next((key for key in ANNOTATION_KEYS if key in task), ANNOTATION_KEYS[0])
    values = task.get(key) or []
    if not isinstance(values, list):
        raise InputError(
            expected=f"a list of annotations under {key!r} in {location}",
            found=brief(values),
            fix="export the tasks again",
        )
    wrong = next((value for value in values if not isinstance(value, dict)), None)
    if wrong is not None:
        raise InputError(
            expected=f"annotations {{...}} in {location}", found=brief(wrong), fix="export the tasks again as JSON"
        )
    kept = [value for value in values if not (value.get("was_cancelled") or value.get("skipped"))]
    kept = [value for value in kept if value.get("ground_truth")] or kept
    if not kept:
        return Annotations(skipped="only cancelled annotations" if values else "no annotation")
    return Annotations(tuple(kept))


def results_of(annotation: Mapping[str, Any], location: str) -> Sequence[Any]:
    """The results of an annotation; empty if there are none."""
    results = annotation.get("result")
    if results is None:
        return ()
    if not isinstance(results, list):
        raise InputError(
            expected=f"a list of results in {location}", found=brief(results), fix="export the tasks again as JSON"
        )
    return results


def require_equal(parts: Sequence[Any], location: str) -> Any:
    """The results of all annotations of a task."""
    if any(part != parts[0] for part in parts):
        raise InputError(
            expected=f"one annotation of the task in {location}",
            found=f"{len(parts)} that differ",
            fix="mark one of them as ground truth, or remove the others",
        )
    return parts[0]


def choices_of(
    annotation: Mapping[str, Any], location: str, unread: "Counter[str]"
) -> tuple[dict[str, list[str]], list[Any]]:
    """The choices of an annotation by the name of the question, and the spans that it marks.

    Args:
        unread: counts the results of other types.
    """
    choices: dict[str, list[str]] = {}
    spans: list[Any] = []
    for result in results_of(annotation, location):
        value = result.get("value") if isinstance(result, dict) else None
        if isinstance(value, dict) and "choices" in value:
            names = value["choices"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError(
                    expected=f"a list of choices in {location}",
                    found=brief(names),
                    fix="export the tasks again as JSON",
                )
            choices.setdefault(str(result.get("from_name", "label")), []).extend(names)
        elif isinstance(value, dict) and "labels" in value and "start" in value:
            spans.append(value)
        else:
            unread[str(result.get("type", "unnamed")) if isinstance(result, dict) else "unnamed"] += 1
    return choices, spans
