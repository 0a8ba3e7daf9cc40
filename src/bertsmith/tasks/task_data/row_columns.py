"""Columns of a table that say something about its examples besides what they are: groups and weights."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import quiet
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.cells import missing_column
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.text.documents.encodings import UTF_8


def groups_of(
    examples: Sequence[Example], path: Path, column: str | None, dev: Path | None, *, encoding: str = UTF_8
) -> list[str] | None:
    """The group of each example, which is in a column of their table; None without a column.

    Args:
        dev: a dev file, with which there is nothing to split.
    """
    if column is None:
        return None
    require(
        dev is None,
        expected="dev examples from the training file, for --group-column",
        found=f"--dev {quoted(dev or '')}",
        fix="leave one of the two out",
    )
    return cells_of(examples, path, column, "group", encoding=encoding)


def cells_of(examples: Sequence[Example], path: Path, column: str, content: str, *, encoding: str = UTF_8) -> list[str]:
    """The cell of each example in a column of their table.

    Args:
        content: what a cell holds, for messages.
    """
    with quiet():  # the table was read before
        rows = {row.location: row for row in read_table(path, encoding=encoding)}
    columns = next(iter(rows.values())).values
    if column not in columns:
        raise missing_column(column, quoted(path), list(columns))
    cells = []
    for example in examples:
        if example.location not in rows:
            raise InputError(
                expected=f"an example in each row of {quoted(path)}, with the column {column!r}",
                found=f"one in {example.location}",
                fix="name a table with a row for each example",
            )
        cell = rows[example.location].cell(column).strip()
        if not cell:
            raise InputError.at(example.location, f"a {content} in column {column!r}", "none", "fill it in")
        cells.append(cell)
    return cells
