"""The vectors of an index that are in a file already, of `embed` or another program."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bertsmith.base.core.errors import InputError
from bertsmith.inference.vectors.changes import is_vector, read_vectors, require_finite
from bertsmith.inference.vectors.files import made_of_vectors
from bertsmith.inference.vectors.jobs import VectorJob
from bertsmith.inference.vectors.writers import SPARSE_FIELDS, SPARSE_VECTOR, VECTOR, Columns, Vectors

# What the record of a vector file has besides the settings that decide the direction of a vector.
_OF_FILE = ("text", "block", "texts", "width", "numbers", "precision", "normalize", SPARSE_VECTOR)


class StoredVectors(VectorJob):
    """The vectors of a .npy file, or of the column `vector` of a .parquet file, row by row.

    Attributes:
        rows: their number in the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._vectors = path, read_vectors(path)
        self._chosen: npt.NDArray[np.int64] | None = None
        self.rows = len(self._vectors)
        require_finite(self._vectors, f"'{path}'")  # before anything is written that only --resume could finish
        recorded = made_of_vectors(path)
        self._made_of = {name: value for name, value in recorded.items() if name not in _OF_FILE}
        if recorded.get("width", self.width) != self.width:
            fault = f"width {self.width} instead of {recorded['width']}"
        else:
            fault = "vectors of words or pieces" if self._made_of and "pooling" not in self._made_of else ""
        if fault:
            raise InputError(
                expected=f"vectors of texts in '{path}', as its record says",
                found=fault,
                fix=f"write them again with `bertsmith embed`, or remove '{path.name}.json' if it is of other vectors",
            )

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return int(self._vectors.shape[1])

    @property
    def made_of(self) -> dict[str, Any]:
        """The settings that the vectors depend on, as the record of the file has them; empty without a record."""
        return dict(self._made_of)

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Vectors, Columns]]:
        """See `VectorJob`."""
        end = first + len(texts)
        part = slice(first, end) if self._chosen is None else self._chosen[first:end]
        yield np.asarray(self._vectors[part], dtype=np.float32), {}

    def narrowed(self, rows: npt.NDArray[np.int64]) -> "StoredVectors":
        """Some rows of the file alone, in this order."""
        narrowed = copy.copy(self)
        narrowed._chosen = rows
        return narrowed

    def numbers(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """The rows of the file that the vectors from `first` on are, int64."""
        return np.arange(first, first + count) if self._chosen is None else self._chosen[first : first + count]

    def counts(self) -> dict[str, int]:
        """See `VectorJob`."""
        return {}

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """See `VectorJob`."""
        return []


def vector_columns(path: Path) -> list[str]:
    """The columns of a .parquet file that are vectors: `vector`, lists, and `sparse`, indices and values."""
    try:
        schema = pq.read_schema(path) if path.suffix.lower() == ".parquet" else pa.schema([])
    except (OSError, pa.ArrowException):
        return []
    forms: Mapping[str, Callable[[pa.DataType], bool]] = {VECTOR: is_vector, SPARSE_VECTOR: _is_sparse}
    return [name for name, fits in forms.items() if name in schema.names and fits(schema.field(name).type)]


def _is_sparse(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [field.name for field in kind] == SPARSE_FIELDS
