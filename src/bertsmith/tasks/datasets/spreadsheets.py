"""The rows of an Excel workbook: its first sheet, whose first row names the columns, as `pandas` reads it.

A number, a date or a truth value becomes the text that Python shows for it, a formula its last computed value, an error
such as #N/A an empty cell.
"""

import warnings
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.cells import Row
from bertsmith.tasks.datasets.file_text import line_of, quoted, unpacked
from bertsmith.tasks.datasets.values import as_text, brief
from bertsmith.text.documents.names import require_unique


class _Sheets(NamedTuple):
    """The rows of the first sheet, each up to its last cell, the same with formulas, and the names of all sheets."""

    cells: list[list[Any]]
    formulas: list[list[Any]]
    names: list[str]


def read_sheet(path: Path) -> Iterator[Row]:
    """The rows of the first sheet below its header; rows after the last one with a value are not read."""
    sheets = _sheets(path)
    file = quoted(path)
    others = f"; not read: the sheets {', '.join(map(brief, sheets.names[1:]))}" if len(sheets.names) > 1 else ""
    tell(f"{file}: read as an Excel workbook, its sheet {brief(sheets.names[0])}{others}")
    rows = [
        [_text(value, formula, line_of(path, number, "row")) for value, formula in zip(*pair, strict=True)]
        for number, pair in enumerate(zip(sheets.cells, sheets.formulas, strict=True), start=1)
    ]
    while rows and not any(map(str.strip, rows[-1])):
        rows.pop()
    header = [name.strip() for name in rows[0]] if rows else []
    if len(rows) < 2 or not any(header):
        raise InputError(
            expected=f"a first row with the names of the columns, and rows below it, in {file}",
            found=counted(len(rows), "row"),
            fix="move the table to the first sheet and its names to the first row",
        )
    require_unique(header, line_of(path, 1, "row"))
    for number, row in enumerate(rows[1:], start=2):
        location = line_of(path, number, "row")
        yield Row(location, _named(header, row, location))


def _named(header: Sequence[str], row: Sequence[str], location: str) -> dict[str, str]:
    for column, (name, cell) in enumerate(zip_longest(header, row, fillvalue=""), start=1):
        if cell.strip() and not name:
            raise InputError(
                expected=f"a name above each column with values, in {location}",
                found=f"{brief(cell)} in column {column}, which has none",
                fix="name the column in the first row, or remove its values",
            )
    return {name: cell for name, cell in zip_longest(header, row[: len(header)], fillvalue="") if name}


def _text(value: Any, formula: Any, location: str) -> str:
    if value is None and isinstance(formula, str) and formula.startswith("="):
        raise InputError(
            expected=f"the value of each formula in {location}",
            found=f"{brief(formula)} without one",
            fix="open the workbook in a spreadsheet program, which computes it, and save it",
        )
    return as_text(value, location)


def _sheets(path: Path) -> _Sheets:
    try:
        import openpyxl
    except ImportError:
        raise InputError(
            expected=f"the package openpyxl, to read {quoted(path)}",
            found="none installed",
            fix="install it (pip install 'bertsmith[excel]'), or save the sheet as CSV",
        ) from None
    sheets: list[list[list[Any]]] = []
    with unpacked(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about styles and extensions that hold no values
        try:
            for data_only in (True, False):
                file.seek(0)
                book = openpyxl.load_workbook(file, data_only=data_only, read_only=True)
                sheet = book.worksheets[0]
                sheet.reset_dimensions()  # some programs write wrong ones
                sheets.append([["" if cell.data_type == "e" else cell.value for cell in row] for row in sheet])
            names = book.sheetnames
        except Exception:  # noqa: BLE001 - a damaged part of the archive ends in whatever reads it
            raise InputError(
                expected=f"an Excel workbook in {quoted(path)}",
                found="something else, or a damaged workbook, which openpyxl cannot read",
                fix="save it again as .xlsx, or as CSV",
            ) from None
    return _Sheets(sheets[0], sheets[1], names)
