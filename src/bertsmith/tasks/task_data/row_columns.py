"""Columns of a table that say something about its examples besides what they are: groups and weights."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, quiet, tell
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.cells import missing_column
from bertsmith.tasks.datasets.examples import Example, TextExample
from bertsmith.tasks.datasets.file_text import quoted
from bertsmith.tasks.datasets.tables import read_table
from bertsmith.tasks.datasets.values import brief, number_in
from bertsmith.tasks.specs.kinds import KINDS
from bertsmith.text.documents.encodings import UTF_8

LARGEST_WEIGHT = 1e6  # weight of an example


def locations_of(examples: Sequence[Example], path: Path, rows: Sequence[str]) -> Sequence[str]:
    """The location of the row of each example.

    Args:
        rows: the locations of all rows of their table.
    """
    locations = [example.location for example in examples]
    if len(set(locations)) == len(locations) and set(rows).issuperset(locations):
        return locations
    if len(locations) == len(rows) and set(rows).isdisjoint(locations):
        return rows  # questions are found by their ids, and none is left out
    raise InputError(
        expected=f"one example in each row of {quoted(path)}",
        found=f"{counted(len(locations), 'example')} in {counted(len(rows), 'row')}",
        fix="name a table with a row for each example",
    )


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


def weighted(
    examples: Sequence[Example], path: Path, column: str, kind: str, *, encoding: str = UTF_8
) -> tuple[TextExample, ...]:
    """The examples with the weights in a column of their table; those of weight 0 are left out.

    Args:
        kind: of their task.
    """
    require(
        KINDS[kind].weighs_examples,
        expected="a classification or regression, for --weight-column",
        found=f"a task of the kind {kind}",
        fix="leave it out",
    )
    kept = []
    for example, cell in zip(examples, cells_of(examples, path, column, "weight", encoding=encoding), strict=True):
        weight = number_in(cell)
        if not 0 <= weight <= LARGEST_WEIGHT:
            raise InputError.at(
                example.location,
                f"a weight from 0 to {LARGEST_WEIGHT:g} in column {column!r}",
                brief(cell),
                "correct it",
            )
        if weight:
            assert isinstance(example, TextExample), "an example of such a task"
            kept.append(dataclasses.replace(example, weight=weight))
    if not kept:
        raise InputError.at(quoted(path), f"a weight above 0 in column {column!r}", "none", "correct it")
    left_out = len(examples) - len(kept)
    note = f"; {counted(left_out, 'example')} of weight 0 left out" if left_out else ""
    tell(f"{quoted(path)}: weights of the loss from {column!r}{note}; scores count every example once")
    return tuple(kept)


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
    for example, location in zip(examples, locations_of(examples, path, list(rows)), strict=True):
        cell = rows[location].cell(column).strip()
        if not cell:
            raise InputError.at(example.location, f"a {content} in column {column!r}", "none", "fill it in")
        cells.append(cell)
    return cells
