"""Writers for vector files, .npy and .parquet, that append block by block.

Letters: r rows appended at once.

A writer works on partial files next to the final path and has positions: everything before a position is complete and
on disk, and writing can resume there. `VectorFile` decides when.
"""

import contextlib
import io
import json
import os
import re
import shutil
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bertsmith.base.core.errors import ConfigError, InputError, RunError, nearest
from bertsmith.base.storage.files import atomic_file

SUFFIXES = (".npy", ".parquet")
SPARSE_SUFFIX = ".npz"
VECTOR, SPARSE_VECTOR = "vector", "sparse"  # names of columns
SPARSE_FIELDS = ["indices", "values"]
_PART = re.compile(r"part-\d{6,}\.parquet")

Vectors = npt.NDArray[np.float32]
Columns = Mapping[str, pa.Array]
Position = Mapping[str, int]


class VectorWriter(ABC):
    """Base of the writers: appends blocks, resumes after a complete block, and finishes the file."""

    is_sparse = False  # whether vectors are matrices of scipy

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        self.path, self.width, self.index = path, width, index
        self.dtype = np.dtype("<f2" if half else "<f4")
        self.partial = path.with_name(f"{path.name}.partial")
        self.rows = 0

    @property
    def index_path(self) -> Path | None:
        """The separate file for columns, next to the final path; None if they are in the same file."""
        return None

    def partial_files(self) -> dict[Path, Path]:
        """The files in which the vectors and columns grow, each with its final path; none if parts are in a folder."""
        return {}

    def foreign_files(self) -> list[Path]:
        """Other files in the folder of the partial file."""
        return []

    @abstractmethod
    def begin(self, position: Position) -> None:
        """Prepares to write after `position`, a value of `whole`, or from the start; discards everything after it."""

    @abstractmethod
    def append(self, vectors: Vectors, columns: Columns) -> None:
        """Writes r rows: vectors [r, width] and arrays of r values. They are complete after a call of `whole`."""

    def stored(self, vectors: Vectors) -> npt.NDArray[Any]:
        """The vectors in the dtype of the file."""
        with np.errstate(over="ignore"):
            result = np.ascontiguousarray(vectors, dtype=self.dtype)
        is_finite = np.isfinite(result).all(axis=1)
        if not is_finite.all():
            row = int(np.argmin(is_finite))
            location = f"vector {self.rows + row + 1:,} of '{self.path}'"
            raise InputError(
                expected=f"numbers up to {np.finfo(self.dtype).max:,.6g} for {self.dtype} in {location}",
                found=f"{np.abs(vectors[row]).max():,.6g}",
                fix="write float32: leave out --float16 and start over with --replace",
            )
        return result

    @abstractmethod
    def whole(self) -> dict[str, int]:
        """Syncs everything appended to disk and returns the position after it."""

    @abstractmethod
    def end(self, position: Position) -> None:
        """Moves everything before `position` to the final path; if called again, it finishes what is left to do."""

    @abstractmethod
    def close(self) -> None:
        """Closes open files."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the partial files."""


class _GrowingFiles(VectorWriter):
    """Base of the writers whose partial files grow.

    Attributes:
        _places: the partial files, each with its final path.
        _files: the same, open.
    """

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        super().__init__(path, width, half=half, index=index)
        self._places: dict[Path, Path] = {}
        self._files: list[IO[bytes]] = []

    def partial_files(self) -> dict[Path, Path]:
        """See `VectorWriter`."""
        return dict(self._places)

    def _open(self, partial: Path, size: int) -> None:
        """Opens a partial file, of which everything after `size` is discarded."""
        partial.touch()
        _require_bytes(partial, size)
        file = partial.open("r+b")
        self._files.append(file)
        file.truncate(size)
        file.seek(size)

    def _sync(self) -> None:
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        """See `VectorWriter`."""
        # Data not yet on disk is not complete, so it may be lost; a full disk was already reported.
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()
        self._files = []

    def clear(self) -> None:
        """See `VectorWriter`."""
        for partial in self._places:
            partial.unlink(missing_ok=True)


class NpyWriter(_GrowingFiles):
    """Writes an array [rows, width]; columns go to `X.tokens.jsonl`, one object per row."""

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        super().__init__(path, width, half=half, index=index)
        self._places = {self.partial: path}
        if index:
            tokens = self.index_path
            self._places[tokens.with_name(f"{tokens.name}.partial")] = tokens

    @property
    def index_path(self) -> Path:
        """See `VectorWriter`."""
        return self.path.with_suffix(".tokens.jsonl")

    def begin(self, position: Position) -> None:
        """See `VectorWriter`."""
        self.rows = position.get("rows", 0)
        header = npy_header(self.rows, self.width, self.dtype)
        sizes = [len(header) + self.rows * self.width * self.dtype.itemsize, position.get("token_bytes", 0)]
        for partial, size in zip(self._places, sizes, strict=False):
            self._open(partial, size if self.rows else 0)
        if not self.rows:
            self._files[0].write(header)

    def append(self, vectors: Vectors, columns: Columns) -> None:
        """See `VectorWriter`."""
        self._files[0].write(self.stored(vectors).data)
        self.rows += len(vectors)
        if self.index:
            lines = (json.dumps(row, ensure_ascii=False) for row in pa.table(dict(columns)).to_pylist())
            self._files[1].write("".join(f"{line}\n" for line in lines).encode("utf-8"))

    def whole(self) -> dict[str, int]:
        """See `VectorWriter`."""
        self._sync()
        return {"rows": self.rows} | ({"token_bytes": self._files[1].tell()} if self.index else {})

    def end(self, position: Position) -> None:
        """See `VectorWriter`."""
        if self.partial.exists():
            with open(self.partial, "r+b") as file:
                file.write(npy_header(position["rows"], self.width, self.dtype))
                file.flush()
                os.fsync(file.fileno())
        for partial, target in reversed(self._places.items()):
            if partial.exists():
                os.replace(partial, target)


class ParquetWriter(VectorWriter):
    """Writes a table of the columns and `vector`, a fixed-size list; one part per block, joined at the end."""

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        super().__init__(path, width, half=half, index=index)
        # The parts are moved there before they are removed, so that half of them are never taken for all.
        self._gone = path.with_name(f"{path.name}.old.partial")
        self._parts = 0
        self._writer: pq.ParquetWriter | None = None

    def foreign_files(self) -> list[Path]:
        """See `VectorWriter`."""
        folders = [folder for folder in (self.partial, self._gone) if os.path.lexists(folder)]
        entries = [entry for folder in folders for entry in (sorted(folder.iterdir()) if folder.is_dir() else [folder])]
        return [entry for entry in entries if not _PART.fullmatch(entry.name)]

    def begin(self, position: Position) -> None:
        """See `VectorWriter`."""
        self.rows, self._parts = position.get("rows", 0), position.get("parts", 0)
        self.partial.mkdir(exist_ok=True)
        paths = self._paths(self._parts)
        for part in set(self.partial.iterdir()) - set(paths):
            part.unlink()
        for part in paths:
            _require_bytes(part, 1)

    def append(self, vectors: Vectors | None, columns: Columns) -> None:
        """See `VectorWriter`; without vectors, the columns alone."""
        arrays = dict(columns)
        if vectors is not None:
            flat = pa.array(self.stored(vectors).reshape(-1))
            arrays[VECTOR] = pa.FixedSizeListArray.from_arrays(flat, self.width)
        table = pa.table(arrays)
        if self._writer is None:
            self._writer = _parquet(str(self._paths(self._parts + 1)[-1]), table.schema)
        self._writer.write_table(table, row_group_size=max(len(table), 1))
        self.rows += len(table)

    def whole(self) -> dict[str, int]:
        """See `VectorWriter`."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._parts += 1
            with open(self._paths(self._parts)[-1], "rb") as file:
                os.fsync(file.fileno())
        return {"rows": self.rows, "parts": self._parts}

    def end(self, position: Position) -> None:
        """See `VectorWriter`."""
        if self.partial.exists():
            parts = self._paths(position["parts"])
            with atomic_file(self.path) as file, _parquet(file, pq.read_schema(parts[0])) as writer:
                for part in parts:
                    with pq.ParquetFile(part) as source:
                        for group in range(source.num_row_groups):
                            table = source.read_row_group(group)
                            writer.write_table(table, row_group_size=max(len(table), 1))
            os.replace(self.partial, self._gone)
        shutil.rmtree(self._gone, ignore_errors=True)

    def close(self) -> None:
        """See `VectorWriter`."""
        if self._writer is not None:
            # This part is incomplete anyway, whether closing it succeeds or not.
            with contextlib.suppress(OSError):
                self._writer.close()
            self._writer = None

    def clear(self) -> None:
        """See `VectorWriter`."""
        shutil.rmtree(self.partial, ignore_errors=True)
        shutil.rmtree(self._gone, ignore_errors=True)

    def _paths(self, count: int) -> list[Path]:
        return [self.partial / f"part-{number:06d}.parquet" for number in range(count)]


class NpzWriter(_GrowingFiles):
    """Writes a sparse matrix [rows, width] by its rows, as `scipy.sparse.save_npz` does, without compression."""

    is_sparse = True

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        super().__init__(path, width, half=half, index=index)
        # The numbers of the matrix; `indptr` has the end of each row, without the 0 before the first.
        self._names = ("data", "indices", "indptr")
        self._places = dict.fromkeys((path.with_name(f"{path.name}.{name}.partial") for name in self._names), path)
        self._types: tuple[np.dtype[Any], ...] = (self.dtype, np.dtype("<i4"), np.dtype("<i8"))
        self._entries = 0

    def begin(self, position: Position) -> None:
        """See `VectorWriter`."""
        self.rows, self._entries = position.get("rows", 0), position.get("entries", 0)
        for partial, count, kind in zip(self._places, self._counts(position), self._types, strict=True):
            self._open(partial, count * kind.itemsize)

    def append(self, vectors: Any, columns: Columns) -> None:
        """See `VectorWriter`; the vectors are a sparse matrix."""
        matrix = vectors.tocsr()
        ends = matrix.indptr[1:].astype(np.int64) + self._entries
        data = self.stored(matrix.data.reshape(-1, 1)).reshape(-1)
        for file, values, kind in zip(self._files, (data, matrix.indices, ends), self._types, strict=True):
            file.write(np.ascontiguousarray(values, dtype=kind).data)
        self.rows += matrix.shape[0]
        self._entries += len(data)

    def whole(self) -> dict[str, int]:
        """See `VectorWriter`."""
        self._sync()
        return {"rows": self.rows, "entries": self._entries}

    def end(self, position: Position) -> None:
        """See `VectorWriter`."""
        if all(partial.exists() for partial in self._places):
            rows = position["rows"]
            with atomic_file(self.path) as file, zipfile.ZipFile(file, "w") as archive:
                first = np.zeros(1, dtype="<i8").tobytes()
                for partial, name, count, kind in zip(
                    self._places, self._names, self._counts(position), self._types, strict=True
                ):
                    start = first if name == "indptr" else b""
                    with _entry(archive, name) as target, open(partial, "rb") as source:
                        target.write(array_header((count + bool(start),), kind) + start)
                        shutil.copyfileobj(source, target)
                for name, values in (("format", np.array(b"csr")), ("shape", np.array((rows, self.width), "<i8"))):
                    with _entry(archive, name) as target:
                        np.lib.format.write_array(target, values, allow_pickle=False)
        self.clear()

    @staticmethod
    def _counts(position: Position) -> tuple[int, int, int]:
        entries = position.get("entries", 0)
        return entries, entries, position.get("rows", 0)


class CodesWriter(_GrowingFiles):
    """Writes the codes of the vectors of the tokens of texts, see `TokenCodes`: X.npy, and where each text ends.

    X.npy is uint8 [vectors, width], and X-ends.npy int64 [rows].
    """

    def __init__(self, path: Path, width: int, *, half: bool = False, index: bool = False) -> None:
        super().__init__(path, width, half=half, index=index)
        ends = path.with_name(f"{path.stem}-ends.npy")
        self._places = {target.with_name(f"{target.name}.partial"): target for target in (path, ends)}
        self._vectors = 0

    def begin(self, position: Position) -> None:
        """See `VectorWriter`."""
        self.rows, self._vectors = position.get("rows", 0), position.get("vectors", 0)
        sizes = (self._vectors * self.width, self.rows * 8)
        for partial, size, header in zip(self._places, sizes, self._headers(), strict=True):
            self._open(partial, len(header) + size if self.rows else 0)
            if not self.rows:
                self._files[-1].write(header)

    def append(self, vectors: Any, columns: Columns) -> None:
        """See `VectorWriter`; the vectors are codes of r texts."""
        ends = self._vectors + np.cumsum(vectors.lengths)
        self._files[0].write(np.ascontiguousarray(vectors.stored).data)
        self._files[1].write(ends.astype("<i8").data)
        self.rows += len(ends)
        self._vectors += len(vectors.numbers)

    def whole(self) -> dict[str, int]:
        """See `VectorWriter`."""
        self._sync()
        return {"rows": self.rows, "vectors": self._vectors}

    def end(self, position: Position) -> None:
        """See `VectorWriter`."""
        self.rows, self._vectors = position["rows"], position["vectors"]
        for (partial, target), header in zip(self._places.items(), self._headers(), strict=True):
            if partial.exists():
                with open(partial, "r+b") as file:
                    file.write(header)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, target)

    def _headers(self) -> tuple[bytes, bytes]:
        codes = array_header((self._vectors, self.width), np.dtype(np.uint8))
        return codes, array_header((self.rows,), np.dtype("<i8"))


def _entry(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """An array in an archive, with the same date whenever it is written."""
    return archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True)


_WRITERS: Mapping[str, type[VectorWriter]] = {".npy": NpyWriter, ".parquet": ParquetWriter, SPARSE_SUFFIX: NpzWriter}


def writer_for(path: Path) -> type[VectorWriter]:
    """The writer class for a file name."""
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise ConfigError(
            expected=f"an output that ends in {', '.join(SUFFIXES)} or, for sparse vectors, {SPARSE_SUFFIX}",
            found=f"'{path.name}'",
            fix=nearest(suffix, _WRITERS) if suffix else "add the ending",
        )
    return _WRITERS[suffix]


def npy_header(rows: int, width: int, dtype: np.dtype[Any]) -> bytes:
    """The header of a .npy file; numpy pads it, so its size does not depend on the number of rows."""
    return array_header((rows, width), dtype)


def array_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The header of an array in the format of numpy."""
    stream = io.BytesIO()
    about = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


def _parquet(target: Any, schema: pa.Schema) -> pq.ParquetWriter:
    # Values of vectors are nearly all different: neither dictionaries nor compression make them smaller.
    names = [name for name in schema.names if name not in (VECTOR, SPARSE_VECTOR)]
    packing = dict.fromkeys(names, "zstd") | {f"{VECTOR}.list.element": "none"}
    return pq.ParquetWriter(target, schema, compression=packing, use_dictionary=names, write_statistics=names)


def _require_bytes(path: Path, size: int) -> None:
    length = path.stat().st_size if path.exists() else 0
    if length < size:
        raise RunError(
            expected=f"at least {size:,} completed bytes in '{path}'",
            found=f"{length:,}",
            fix="restore it, or start over with --replace",
        )
