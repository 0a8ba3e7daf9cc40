"""Tables in memory, where a file is expected: lists of records, frames of pandas and Polars, data sets of Hugging Face.

A table is written to a temporary file of JSON lines where a request is made, so that everything else reads it as it
reads files, by content and by digest. No library of tables is imported: a table is recognized by its public methods.
"""

import datetime as dt
import decimal
import hashlib
import json
import math
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Protocol

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted

_FOLDER = "bertsmith-table-"
_LIBRARIES = "a list of dicts, a frame of pandas or Polars, a table of pyarrow, or a data set of Hugging Face datasets"
_AS_JSON = frozenset({str, int, bool, type(None)})
_NO_CLASS = -1  # of a row without a label, in data sets of Hugging Face


class Frame(Protocol):
    """A frame of pandas or Polars, a table of pyarrow, or a data set of Hugging Face."""

    @property
    def shape(self) -> Any:
        """The numbers of rows and columns."""


Records = Sequence[Mapping[str, Any]]
Table = Frame | Records
File = str | Path | Frame | Records


class TableFile(str):
    """What the record of a run says about a table in memory: its rows and its digest.

    Attributes:
        path: of the file with its rows, which is deleted together with this object.
    """

    path: Path


def is_table(value: object) -> bool:
    """Whether a value may be a table in memory, and not a path."""
    return value is not None and not isinstance(value, str | os.PathLike)


def has_rows(value: object) -> bool:
    """Whether a value is a table in memory, and not a list or column of texts."""
    if isinstance(value, list | tuple):
        return bool(value) and isinstance(value[0], Mapping)
    return any(hasattr(value, name) for name in ("itertuples", "iter_rows", "column_names", "with_format"))


def local_path(file: File) -> Path:
    """The path of a file of a request, which has written a table in memory to one."""
    assert isinstance(file, str | Path), "a table is written where a request is made"
    return Path(file)


def table_name(path: Path | str) -> str | None:
    """The name of the table in memory that a file holds; None for any other file."""
    path = Path(path)
    return path.stem if path.parent.name.startswith(_FOLDER) else None


def as_file(table: object, name: str) -> TableFile:
    """A temporary file with the rows of a table, one JSON object on each line.

    Args:
        name: of the table in messages.
    """
    lines, count, digest = [], 0, hashlib.sha256()
    columns: Set[str] = frozenset()
    for count, record in enumerate(_records(table, name), start=1):
        location = f"row {count} of {name}"
        if isinstance(record, os.PathLike) or (isinstance(record, str) and os.path.exists(record)):
            raise InputError(
                expected=f"one file or one table as {name}",
                found=f"a list of paths, the first '{os.fspath(record)}'",
                fix=f"concatenate the files into one, and give {name} its path",
            )
        if not isinstance(record, Mapping):
            raise InputError(
                expected=f"a dict as {location}", found=f"a value of type {type(record).__name__}", fix="convert it"
            )
        if record.keys() != columns:
            _require_names(record, location)
            columns = record.keys()
        plain = {
            column: value if type(value) in _AS_JSON else _plain(value, f"column {column!r} of {location}")
            for column, value in record.items()
        }
        line = f"{json.dumps(plain)}\n".encode()  # ASCII, as which every encoding of a table reads it
        digest.update(line)
        lines.append(line)
    if not lines:
        raise InputError(expected=f"rows in {name}", found="none", fix="give a table that holds examples")
    folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
    path = folder / f"{name}.jsonl"
    path.write_bytes(b"".join(lines))
    file = TableFile(f"a table in memory of {counted(count, 'row')}, sha256:{digest.hexdigest()}")
    file.path = path
    weakref.finalize(file, shutil.rmtree, folder, ignore_errors=True)
    return file


def like(table: object, columns: Mapping[str, Sequence[Any]]) -> Any:
    """The columns as a table of the same library, for a frame of pandas with its index; records for a list of them."""
    frame: Any = table
    if isinstance(table, list | tuple):
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if hasattr(table, "itertuples"):
        return frame[[]].assign(**columns)
    kind: Any = type(table)
    build = getattr(kind, "from_dict", None) or getattr(kind, "from_pydict", None) or kind
    return build(columns)


def _records(table: Any, name: str) -> Iterable[Any]:
    """The rows of a table as dicts."""
    if isinstance(table, list | tuple):
        return table
    if hasattr(table, "itertuples") and hasattr(table, "to_dict"):  # first: its columns are attributes as well
        names = list(table.columns)
        _require_names(names, name)
        return (dict(zip(names, row, strict=True)) for row in table.to_dict("split", index=False)["data"])
    if hasattr(table, "iter_rows") and hasattr(table, "columns"):
        return list(table.iter_rows(named=True))
    if hasattr(table, "features") and hasattr(table, "with_format") and hasattr(table, "__len__"):
        return _of_data_set(table.with_format(None))
    if hasattr(table, "to_pylist") and hasattr(table, "column_names"):
        _require_names(table.column_names, name)
        return list(table.to_pylist())
    fix = "give one of these"
    if isinstance(table, Mapping):
        fix = "name one of its parts, such as data['train'], or make a list of dicts of it"
    elif hasattr(table, "collect"):
        fix = "call its method collect()"
    raise InputError(
        expected=f"{name} as a path or a table: {_LIBRARIES}", found=f"a value of type {type(table).__name__}", fix=fix
    )


def _require_names(names: Iterable[Any], location: str) -> None:
    """Refuses names of columns that are not texts, or not different."""
    seen = set()
    for column in names:
        if not isinstance(column, str):
            raise InputError(
                expected=f"names of columns in {location} that are texts",
                found=f"{column!r}"[:60],
                fix="rename the column, for example with frame.columns = [...]",
            )
        if column in seen:
            raise InputError(
                expected=f"different names of columns in {location}", found=f"{column!r} twice", fix="rename one"
            )
        seen.add(column)


def _of_data_set(rows: Any) -> Iterable[Mapping[str, Any]]:
    """The rows of a data set of Hugging Face, with the names of its classes in place of their numbers."""
    classes = {column: _class_names(feature) for column, feature in (rows.features or {}).items()}
    for row in rows:
        yield {
            column: _named(value, names) if (names := classes.get(column)) else value for column, value in row.items()
        }


def _class_names(feature: Any) -> Sequence[str]:
    """The names of the classes of a column, or of the items of its lists; empty if it has other values."""
    if isinstance(feature, list) and len(feature) == 1:
        return _class_names(feature[0])
    names = getattr(feature, "names", None)
    if names is not None and hasattr(feature, "int2str"):
        return list(names)
    return _class_names(feature.feature) if hasattr(feature, "feature") else ()


def _named(value: Any, names: Sequence[str]) -> Any:
    """A value of a column of classes with names in place of numbers."""
    if isinstance(value, list | tuple):
        return [_named(item, names) for item in value]
    if type(value) is not int or not _NO_CLASS <= value < len(names):
        return value
    return None if value == _NO_CLASS else names[value]


def _plain(value: Any, location: str) -> Any:
    """A value as JSON has it, None for a missing one; a date or an exact decimal as a text."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item, location) for item in value]
    if isinstance(value, Mapping):
        _require_names(value, location)
        return {name: _plain(item, location) for name, item in value.items()}
    kind = type(value).__name__
    if hasattr(value, "tolist") and getattr(getattr(value, "dtype", None), "kind", "") not in ("m", "M"):  # of NumPy
        return _plain(value.tolist(), location)
    if kind in ("NAType", "NaTType"):
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, decimal.Decimal):
        return None if value.is_nan() else str(value)
    if isinstance(value, dt.date | dt.time | dt.timedelta):
        return str(value)
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            kind = "bytes that are not UTF-8"
    raise InputError(
        expected=f"texts, numbers, dates and lists in {location}", found=f"a value of type {kind}", fix="convert it"
    )
