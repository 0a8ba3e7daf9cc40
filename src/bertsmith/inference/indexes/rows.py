"""The rows of a segment on disk: ids, texts and other columns, memory-mapped.

::

    rows.arrow   id, text, and the other columns of the table, all large_string
    ids.npy      (hash, row) of every id, uint64 and uint32, sorted by hash; finds a row by its id

Letters: n rows.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.arrays import load_array
from bertsmith.base.storage.files import atomic_file
from bertsmith.inference.search.passages import Record
from bertsmith.inference.search.postings import located, value_at
from bertsmith.tasks.datasets.blocks import sized_blocks
from bertsmith.tasks.datasets.values import brief

ROWS, IDS = "rows.arrow", "ids.npy"
ID, TEXT = "id", "text"
_ID = np.dtype([("hash", "<u8"), ("row", "<u4")])
_BATCH = 4096  # rows

Ints = npt.NDArray[np.int64]


def write_rows(folder: Path, records: Iterable[Record], columns: Sequence[str]) -> int:
    """Writes the rows of a segment, and returns their number.

    Args:
        columns: the columns besides id and text.
    """
    schema = pa.schema([(name, pa.large_string()) for name in (ID, TEXT, *columns)])
    hashes: list[npt.NDArray[np.uint64]] = []
    with atomic_file(folder / ROWS) as file, pa.ipc.new_file(file, schema) as writer:
        for batch in sized_blocks(records, lambda record: len(record.text), _BATCH):
            ids = [record.id for record in batch]
            others = [[record.fields.get(name) for record in batch] for name in columns]
            values = [ids, [record.text for record in batch], *others]
            arrays = [pa.array(column, pa.large_string()) for column in values]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            hashes.append(_hashes(ids))
    whole = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
    table = np.empty(len(whole), _ID)
    order = np.argsort(whole, kind="stable")
    table["hash"], table["row"] = whole[order], order
    with atomic_file(folder / IDS) as file:
        np.save(file, table)
    return len(whole)


class Rows:
    """The rows of a segment; an InputError if a file is damaged, also where that is seen later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with refused_if_damaged(folder):
            self.table = pa.ipc.open_file(pa.memory_map(str(folder / ROWS))).read_all()
            self._ids = load_array(folder / IDS)
            if self._ids.dtype != _ID or len(self._ids) != len(self.table):
                raise ValueError(f"{len(self.table):,} rows and another number of ids")

    def texts(self, start: int, stop: int) -> list[str]:
        """The texts of some rows."""
        with refused_if_damaged(self._folder):
            texts = self.table[TEXT].slice(start, stop - start)
            texts.validate(full=True)
            return list(texts.to_pylist())

    def records(self, rows: Ints) -> Iterator[Record]:
        """Some rows, int64 [n], as records."""
        with refused_if_damaged(self._folder):
            self.table.validate(full=True)
        for start in range(0, len(rows), _BATCH):
            with refused_if_damaged(self._folder):
                batch = self.table.take(rows[start : start + _BATCH]).to_pylist()
            for values in batch:
                yield Record(values[ID], values[TEXT], "", values)

    def find(self, ids: Sequence[str]) -> tuple[Ints, Ints]:
        """The positions in `ids` of those that are in the segment, and their rows, both int64."""
        with refused_if_damaged(self._folder):
            hashes = _hashes(ids)
            stored = self._ids["hash"]
            starts, ends = np.searchsorted(stored, hashes, "left"), np.searchsorted(stored, hashes, "right")
            pairs = [
                (position, int(row))
                for position in np.flatnonzero(ends > starts).tolist()
                for row in self._ids["row"][starts[position] : ends[position]]
                if value_at(self.table[ID], int(row)) == ids[position]
            ]
        positions, rows = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return positions, rows

    def require_unique(self) -> None:
        """Refuses two rows with the same id."""
        hashes = self._ids["hash"]
        for position in np.flatnonzero(hashes[1:] == hashes[:-1]).tolist():
            first, second = self._ids_of(self._ids["row"][position : position + 2])
            if first == second:
                raise _twice(first)

    def shared_with(self, other: "Rows") -> list[str]:
        """The ids that another segment has, too."""
        shorter, longer = sorted((self._ids["hash"], other._ids["hash"]), key=len)
        common = np.unique(shorter[located(longer, shorter)[1]])
        with refused_if_damaged(self._folder):  # hashes that do not ascend lead past the last row
            rows = self._ids["row"][np.searchsorted(self._ids["hash"], common)]
        ids = self._ids_of(rows)
        return [ids[position] for position in other.find(ids)[0].tolist()]

    def _ids_of(self, rows: npt.NDArray[np.uint32]) -> list[str]:
        """The ids of some rows."""
        with refused_if_damaged(self._folder):
            return [str(value_at(self.table[ID], int(row))) for row in rows]

    def require_others(self, others: "Sequence[Rows]") -> None:
        """Refuses an id that one of the other segments has, too."""
        for other in others:
            for id in self.shared_with(other):
                raise _twice(id)


@contextlib.contextmanager
def refused_if_damaged(segment: Path) -> Iterator[None]:
    """Names the folder of a segment in the message if a file in it cannot be read."""
    try:
        yield
    except (OSError, EOFError, ValueError, IndexError, RuntimeError) as error:
        raise InputError(
            expected=f"a whole segment in '{segment}'", found=str(error), fix="build the index again, or restore it"
        ) from None


def _twice(id: str) -> InputError:
    return InputError(expected="a unique id for every text", found=f"{brief(id)} twice", fix="rename one")


def _hashes(ids: Sequence[str]) -> npt.NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest() for id in ids)
    return np.frombuffer(digests, dtype="<u8")
