"""The rows of Parquet files, and the names of classes that files of Hugging Face `datasets` store as numbers.

The features of a data set are in the metadata of the file's schema, under `huggingface`. A class of -1 means that the
row has none, as in test sets whose labels are secret.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.file_text import line_of, quoted, suffix_of, unpacked
from bertsmith.tasks.datasets.values import brief
from bertsmith.text.documents.names import json_value, require_unique

_KEY = b"huggingface"
_NO_CLASS = -1
_ROWS = 1024  # that are converted together


def parquet_records(path: Path, without: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """The place of each row of a Parquet file, and its values by the name of their column.

    Args:
        without: columns that are not read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with unpacked(path) as stream:
        try:
            number = 0
            file = pq.ParquetFile(stream)
            names = file.schema_arrow.names
            require_unique(names, f"{quoted(path)}")
            columns = [name for name in names if name not in without]
            for batch in file.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False):
                for record in batch.to_pylist():
                    number += 1
                    yield line_of(path, number, "row"), record
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError.at(quoted(path), "Parquet data", f"something else ({error})", "save it again") from None


def class_names(path: Path) -> Mapping[str, tuple[str, ...]]:
    """The names of the classes of each column that has some; empty if the file is of another format."""
    if suffix_of(path) != ".parquet":
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    with unpacked(path) as file:
        try:
            metadata = pq.read_schema(file).metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise InputError.at(quoted(path), "Parquet data", f"something else ({error})", "save it again") from None
    try:
        stored = json_value(metadata.get(_KEY, b"{}").decode("utf-8"))
    except (ValueError, RecursionError):
        return {}
    features = stored.get("info", {}).get("features", {}) if isinstance(stored, dict) else {}
    names = {column: _names(feature) for column, feature in features.items()} if isinstance(features, dict) else {}
    return {column: classes for column, classes in names.items() if classes}


def with_names(cell: str, names: Sequence[str], location: str) -> str:
    """The cell of a column of classes with names in place of numbers; a number in a list becomes a name in one.

    >>> with_names("1", ["neg", "pos"], ""), with_names("[0, 1]", ["neg", "pos"], ""), with_names("-1", ["neg"], "")
    ('pos', '["neg", "pos"]', '')
    """
    try:
        value = json_value(cell) if cell.strip() else None
    except (ValueError, RecursionError):
        return cell
    if isinstance(value, list):
        return json.dumps([name_of_class(number, names, location) for number in value], ensure_ascii=False)
    if value is None or value == _NO_CLASS:
        return ""
    return name_of_class(value, names, location)


def name_of_class(value: Any, names: Sequence[str], location: str) -> str:
    """The name of the class with a number; a name stays."""
    if isinstance(value, str):
        return value
    if type(value) is not int or not 0 <= value < len(names):
        raise InputError.at(location, f"a number of a class, 0 to {len(names) - 1},", brief(value), "correct it")
    return names[value]


def _names(feature: Any) -> tuple[str, ...]:
    """The names of the classes of a feature, or of the items of a list."""
    if isinstance(feature, list) and len(feature) == 1:
        return _names(feature[0])
    if not isinstance(feature, dict):
        return ()
    names = feature.get("names")
    if feature.get("_type") == "ClassLabel" and isinstance(names, list):
        return tuple(map(str, names))
    return _names(feature.get("feature"))
