"""Labels written as zeros and ones: a column for each label, or a list with a number for each label."""

import json
from collections.abc import Mapping, Sequence

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.values import brief, parse_json

Cells = Sequence[tuple[str, Mapping[str, str]]]
"""The place of each row, and its cells by the name of their column."""

_YES, _NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")


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
    """The numbers of a list; None if it is no list, or one of other values."""
    if not cell.lstrip().startswith("["):
        return None
    values = parse_json(cell, location)
    if len(set(map(str, values))) < len(values) and all(value in ("0", "1") for value in values):
        return [float(value) for value in values]
    return values if all(isinstance(value, int | float) for value in values) else None
