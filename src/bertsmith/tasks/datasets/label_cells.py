"""The labels in the cells of a table: one class, several classes, a number, or zeros and ones for all labels."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json, number_in, parse_json
from bertsmith.text.documents.names import json_value

LONGEST_LABEL = 1000  # characters; a longer value is a text
NO_GOLD = "-"  # in a column `gold_label`: SNLI's mark of pairs on whose label the annotators did not agree
_PYTHON_LIST = re.compile(r"\[\s*(?:'[^']*'|\"[^\"]*\")\s*(?:,.*)?\]", re.DOTALL)  # as pandas writes lists into CSV
BORDERS = (("start", "end"), ("start_offset", "end_offset"))  # keys of a marked span

Target = Literal["label", "labels", "number"]
Cells = Sequence[tuple[str, Mapping[str, str]]]
"""The place of each row, and its cells by the name of their column."""

_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


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
    number = number_in(cell)
    if not math.isfinite(number):
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


def binary_columns(rows: Cells, names: Sequence[str]) -> list[str]:
    """Those columns whose cells are all 0 or 1, or true or false, if there are at least two; else none."""
    binary = [name for name in names if all(row.get(name, "").strip().lower() in _YES + _NO for _, row in rows)]
    return binary if len(binary) > 1 else []


def names_of_ones(rows: Cells, columns: Sequence[str]) -> list[str]:
    """The names of the columns that are 1 in each row, as a JSON list."""
    result = []
    for location, row in rows:
        for name in columns:
            if row.get(name, "").strip().lower() not in _YES + _NO:
                raise InputError(
                    expected=f"0 or 1 in the label column {name!r} in {location}",
                    found=brief(row.get(name, "")),
                    fix="correct the cell, or name other columns with --label-column",
                )
        result.append(json.dumps([name for name in columns if row[name].strip().lower() in _YES], ensure_ascii=False))
    return result


def width_of_ones(cells: Sequence[tuple[str, str]], expected: int | None = None) -> int:
    """How many labels lists of zeros and ones stand for; 0 if the cells hold something else, such as class numbers.

    A list such as [0, 1, 0], with a number twice, has a number for each label: a list of classes would not repeat one.
    Without such a list, all must be of zeros and ones and equally long.

    Args:
        expected: the width in the training file, 0 if its lists name labels; None if these cells decide.
    """
    lists = [(location, _numbers(cell, location)) for location, cell in cells if cell.strip()]
    binary = [(location, values) for location, values in lists if values is not None and set(values) <= {0, 1}]
    repeating = next((values for _, values in binary if len(set(values)) < len(values)), None)
    if expected == 0 and repeating is not None:
        raise InputError(
            expected="lists of the names of labels, as in the training file",
            found=f"{brief(repeating)}, a 0 or 1 for each label",
            fix="write the labels of both files in the same way",
        )
    width = expected or len(repeating or (binary[0][1] if binary else ()))
    other = next(
        (
            (location, values)
            for location, values in lists
            if values is None or not set(values) <= {0, 1} or len(values) != width
        ),
        None,
    )
    if expected == 0:
        return 0
    if repeating is None and not expected:
        return width if other is None and width > 1 else 0
    if other is not None:
        rows = "the training file" if expected else "other rows"
        raise InputError(
            expected=f"a list of {width} zeros and ones in {other[0]}, as in {rows}",
            found="other values" if other[1] is None else brief(other[1]),
            fix="write the labels of both files in the same way"
            if expected
            else "write the names of the labels instead",
        )
    return width


def positions_of_ones(cell: str, location: str) -> str:
    """The positions of the ones in a list, from 0, as a JSON list of names; an empty cell stays empty.

    >>> positions_of_ones("[0, 1, 1]", "")
    '["1", "2"]'
    """
    values = _numbers(cell, location) or [] if cell.strip() else []
    return json.dumps([str(number) for number, value in enumerate(values) if value])


def _numbers(cell: str, location: str) -> list[float] | None:
    """The numbers of a list; None if it is not a list, or one of other values."""
    if not cell.lstrip().startswith("["):
        return None
    values = parse_json(cell, location)
    if len(set(map(str, values))) < len(values) and all(value in ("0", "1") for value in values):
        return [float(value) for value in values]
    return values if all(isinstance(value, int | float) for value in values) else None
