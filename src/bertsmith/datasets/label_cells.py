"""The labels in the cells of a table: one class, several classes, or a number."""

import math
from typing import Literal

from bertsmith.datasets.values import brief, clean, looks_like_json, parse_json
from bertsmith.documents.names import json_value
from bertsmith.errors import InputError

LONGEST_LABEL = 1000  # characters; a longer value is a text
NO_GOLD = "-"  # in a column `gold_label`: SNLI's mark of pairs on whose label the annotators did not agree
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


def gold_of_cell(cell: str, place: str, target: Target) -> str | float | tuple[str, ...]:
    """The label in a cell.

    Args:
        place: file and line, for messages.

    Raises:
        InputError: the cell is empty, is not a number or list where one is expected, or is too long for a label.
    """
    cell = cell.strip()
    if target == "labels":
        return _several(cell, place)
    if not cell:
        raise InputError(expected=f"a label in {place}", found="an empty cell", fix="fill it in, or remove the row")
    if target == "label":
        return _label(cell, place)
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or "_" in cell:
        raise InputError(expected=f"a number in {place}", found=brief(cell), fix="write it as 2.5")
    return number


def _several(cell: str, place: str) -> tuple[str, ...]:
    """The distinct names in a cell, in order."""
    if cell.startswith("["):
        names = parse_json(cell, place)
        if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
            raise InputError(expected=f"a list of names in {place}", found=brief(cell), fix='write ["a", "b"] or a|b')
    else:
        names = cell.split("|")
    names = dict.fromkeys(clean(str(name)).strip() for name in names)
    return tuple(_label(name, place) for name in names if name)


def _label(name: str, place: str) -> str:
    """The name of a label, if it is of a length that names have."""
    if len(name) > LONGEST_LABEL:
        raise InputError(
            expected=f"a label of at most {LONGEST_LABEL:,} characters in {place}",
            found=f"{brief(name)}, {len(name):,} characters",
            fix="check the label column (--label-column)",
        )
    return name
