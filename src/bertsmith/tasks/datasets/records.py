"""The records of JSON tables, in the shapes that other tools write, and the tasks of Label Studio among them.

=============  ========================================================================================
Label Studio   tasks with `data` and `annotations`; the choices become the column `label`, or, if there are
               several questions, a column for each
pandas         `DataFrame.to_json` with any `orient` that has the names of the columns
Prodigy        records whose `answer` is `reject` or `ignore` have no gold
spaCy          `[text, {"cats": ...}]`
=============  ========================================================================================
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell, warn
from bertsmith.tasks.datasets.file_text import line_of, lines_of, quoted
from bertsmith.tasks.datasets.values import brief, parse_json
from bertsmith.text.documents.names import json_value, require_unique

ANNOTATION_KEYS = ("annotations", "completions")  # the second one in old versions
_REFUSALS = ("reject", "ignore")
_ROW_LABEL = re.compile(r"-?\d+")


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
        raise InputError.at(location, f"a list of annotations under {key!r}", brief(values), "export the tasks again")
    wrong = next((value for value in values if not isinstance(value, dict)), None)
    if wrong is not None:
        raise InputError.at(location, "annotations {...}", brief(wrong), "export the tasks again as JSON")
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
        raise InputError.at(location, "a list of results", brief(results), "export the tasks again as JSON")
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
    """The choices of an annotation by the name of the question, and the spans that it marks."""
    choices: dict[str, list[str]] = {}
    spans: list[Any] = []
    for result in results_of(annotation, location):
        value = result.get("value") if isinstance(result, dict) else None
        if isinstance(value, dict) and "choices" in value:
            names = value["choices"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise InputError.at(location, "a list of choices", brief(names), "export the tasks again as JSON")
            choices.setdefault(str(result.get("from_name", "label")), []).extend(names)
        elif isinstance(value, dict) and "labels" in value and "start" in value:
            spans.append(value)
        else:
            unread[str(result.get("type", "unnamed")) if isinstance(result, dict) else "unnamed"] += 1
    return choices, spans


class Record(NamedTuple):
    """A record of a table."""

    location: str
    values: Mapping[str, Any]
    unused: str = ""  # why its label is not gold; empty if it is


def read_records(path: Path, text: str, *, lines: bool, columns: Sequence[str]) -> Iterator[Record]:
    """The records of a JSON file in file order."""
    values = _values(path, text, lines=lines, columns=columns)
    first = next(values, None)
    if first is None:
        return
    values = itertools.chain([first], values)
    if is_task(first[1]):
        yield from _of_tasks(path, values)
        return
    for location, value in values:
        if _is_spacy_pair(value):
            value = {**value[1], "text": value[0]}
        if not isinstance(value, dict):
            raise InputError.at(location, "a JSON record {...}", brief(value), "write one record per example")
        yield Record(location, value, rejection(value))


def json_records(path: Path, text: str, *, lines: bool) -> Iterator[tuple[str, Any]]:
    """Each value of a JSON file with its place: one value per line, or the items of one list.

    Args:
        lines: the values are on lines even if the text starts with a list.
    """
    if not lines and text.lstrip().startswith("["):
        for number, item in enumerate(parse_json(text, f"{quoted(path)}"), start=1):
            yield line_of(path, number, "record"), item
        return
    for number, line in enumerate(lines_of(text), start=1):
        if line.strip():
            location = line_of(path, number)
            yield location, parse_json(line, location)


def rejection(record: Mapping[str, Any]) -> str:
    """Why a record of Prodigy has no gold: its answer; empty if it was accepted, or comes from another tool."""
    answer = record.get("answer")
    is_text = "question" in record  # the answer to a question may be any word
    return f"the answer {answer!r} of the annotator" if answer in _REFUSALS and not is_text else ""


def _values(path: Path, text: str, *, lines: bool, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each value of the file; the rows of a table of pandas, which is a single object."""
    content = text.strip()
    if not content.startswith("{") or not _is_one_object(content, lines=lines):
        yield from json_records(path, text, lines=lines)
        return
    file = quoted(path)
    value = parse_json(content, file)
    rows = _rows_of_frame(value, file, columns)
    if rows is None:
        yield line_of(path, 1), value
        return
    for number, row in enumerate(rows, start=1):
        yield line_of(path, number, "record"), row


def _is_one_object(content: str, *, lines: bool) -> bool:
    """Whether a text is a single object, on one line, or, unless there is one on each, on several."""
    first = lines_of(content)[0]
    if len(first) == len(content):
        return True
    if lines:
        return False
    try:
        json_value(first)
    except (ValueError, RecursionError):
        return True
    return False


def _rows_of_frame(value: Any, file: str, columns: Sequence[str]) -> list[Any] | None:
    """The rows of a table that pandas wrote as one object; None if it is no such table."""
    if not isinstance(value, dict):
        return None
    data, names = value.get("data"), value.get("columns")
    if value.keys() == {"schema", "data"} and isinstance(data, list):
        return data
    if {"columns", "data"} <= value.keys() <= {"columns", "index", "data"} and isinstance(data, list):
        if (
            not isinstance(names, list)
            or not all(isinstance(name, str) for name in names)
            or not all(isinstance(row, list) and len(row) == len(names) for row in data)
        ):
            raise InputError(
                expected=f"the names of the columns and as many values in each row in {file}",
                found=brief(names),
                fix="write the table again, with orient='records'",
            )
        require_unique(names, file)
        return [dict(zip(names, row, strict=True)) for row in data]
    parts = list(value.values())
    if not parts or not all(isinstance(part, dict) and part.keys() == parts[0].keys() for part in parts):
        return None
    outer, inner = list(value), list(parts[0])
    is_columns = [_are_columns(outer, inner, columns), _are_columns(inner, outer, columns)]
    if sum(is_columns) != 1:
        raise InputError(
            expected=f"a table whose columns have known names in {file}",
            found=f"an object of objects with the keys {', '.join(map(brief, outer[:3]))} and "
            f"{', '.join(map(brief, inner[:3]))}",
            fix="write it again, with DataFrame.to_json(orient='records', lines=True)",
        )
    if is_columns[1]:
        return parts
    return [{name: value[name][label] for name in outer} for label in inner]


def _are_columns(names: Sequence[str], labels: Sequence[str], known: Sequence[str]) -> bool:
    """Whether the outer names are names of columns, and the inner labels labels of rows."""
    numbered = [all(_ROW_LABEL.fullmatch(name) for name in part) for part in (names, labels)]
    return numbered == [False, True] or (numbered == [False, False] and any(name.lower() in known for name in names))


def _is_spacy_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], dict)


def _of_tasks(path: Path, tasks: Iterator[tuple[str, Any]]) -> Iterator[Record]:
    """The tasks of Label Studio as records of their data and choices."""
    unread = Counter[str]()
    read: list[tuple[str, Mapping[str, Any], dict[str, list[str]], list[Any], str]] = []
    for location, task in tasks:
        if not is_task(task):
            raise InputError.at(location, "a task with 'data'", brief(task), "export the tasks again")
        kept, skipped = annotations_of(task, location)
        parts = [
            choices_of(annotation, location, unread if not number else Counter())
            for number, annotation in enumerate(kept)
        ]
        choices, spans = require_equal(parts, location) if parts else ({}, [])
        read.append((location, task["data"], choices, spans, skipped))
    questions = list(dict.fromkeys(name for _, _, choices, _, _ in read for name in choices))
    file = quoted(path)
    tell(
        f"{file}: read as tasks of Label Studio: {len(read):,}, with choices for {counted(len(questions), 'question')}"
    )
    if unread:
        warn(f"{file}: results of other types are not read: {', '.join(f'{n:,} {kind}' for kind, n in unread.items())}")
    for location, data, choices, spans, skipped in read:
        names = {"label" if len(questions) == 1 else name: choices.get(name, []) for name in questions}
        yield Record(location, {**data, **names, **({"spans": spans} if spans else {})}, skipped)
