"""The labels in the cells of a table: one class, several classes, or a number."""

import math
import re
from typing import Literal

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json, parse_json
from bertsmith.text.documents.names import json_value

LONGEST_LABEL = 1000  # characters; a longer value is a text
NO_GOLD = "-"  # in a column `gold_label`: SNLI's mark of pairs on whose label the annotators did not agree
_PYTHON_LIST = re.compile(r"\[\s*(?:'[^']*'|\"[^\"]*\")\s*(?:,.*)?\]", re.DOTALL)  # as pandas writes lists into CSV
BORDERS = (("start", "end"), ("start_offset", "end_offset"))  # keys of a marked span

Target = Literal["label", "labels", "number"]


def holds_spans(value: str) -> bool:
    """Whether a JSON text is a list of marked spans.

    >>> holds_spans('[[0, 4, "PER"]]'), holds_spans('[{"start": 0, "end": 4}]'), holds_spans('["a", "b"]')
    (True, True, False)
    """
    if not value.startswith("[") or not looks_like_json(value):
        return False
    try:
        first = next(iter(json_value(value)), None)
    except (ValueError, RecursionError):
        return False
    if isinstance(first, list):
        return len(first) == 3 and all(type(border) is int for border in first[:2])
    return isinstance(first, dict) and any(start in first and end in first for start, end in BORDERS)


def gold_of_cell(cell: str, location: str, target: Target) -> str | float | tuple[str, ...] | None:
    """The label in a cell; None if there is none where one class or a number is expected.

    A list in JSON is read as its names, `{"choices": [...]}` of Label Studio as its choices, and a record of numbers,
    such as `cats` of spaCy, as the names with 1.
    """
    cell = cell.strip()
    if target == "labels":
        return _several(cell, location)
    if not cell:
        return None
    if target == "label":
        names = _listed(cell, location)
        if names is None:
            return _label(cell, location)
        if len(names) > 1:
            raise InputError(
                expected=f"one label in {location}",
                found=f"{len(names)}: {brief(cell)}",
                fix="use --task multi-label for texts with several labels",
            )
        return _label(names[0], location) if names else None
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or "_" in cell:
        raise InputError(expected=f"a number in {location}", found=brief(cell), fix="write it as 2.5")
    return number


def _several(cell: str, location: str) -> tuple[str, ...]:
    """The distinct names in a cell, in order."""
    names = _listed(cell, location, strict=True)
    names = cell.split("|") if names is None else names
    stripped = dict.fromkeys(name.strip() for name in names)
    return tuple(_label(name, location) for name in stripped if name)


def _listed(cell: str, location: str, *, strict: bool = False) -> list[str] | None:
    """The names in a list or record in JSON; None if the cell is neither."""
    if not cell.startswith(("[", "{")):
        return None
    try:
        value = json_value(cell)
    except (ValueError, RecursionError):
        if strict and cell.startswith("["):
            parse_json(cell, location)
        if not _PYTHON_LIST.fullmatch(cell):
            return None
        value = cell
    if isinstance(value, dict):
        if value.keys() == {"choices"}:
            value = value["choices"] if isinstance(value["choices"], list) else [value["choices"]]
        elif value and all(isinstance(flag, int | float) and flag in (0, 1) for flag in value.values()):
            value = [name for name, chosen in value.items() if chosen]
    if not isinstance(value, list) or not all(map(_is_name, value)):
        raise InputError(
            expected=f"a {'list of names' if strict else 'label'} in {location}",
            found=brief(cell),
            fix='write ["a", "b"] or a|b' if strict else "write the name of the label",
        )
    return [clean(str(name)) for name in value]


def _is_name(value: object) -> bool:
    """Whether a value in a list may be the name of a label: a number such as 0.7 is a score."""
    return isinstance(value, str) or (isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0)


def _label(name: str, location: str) -> str:
    """The name of a label, if it is of a length that names have."""
    if len(name) > LONGEST_LABEL:
        raise InputError(
            expected=f"a label of at most {LONGEST_LABEL:,} characters in {location}",
            found=f"{brief(name)}, {len(name):,} characters",
            fix="check the label column (--label-column)",
        )
    return name
