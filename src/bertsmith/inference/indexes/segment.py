"""Segments: the parts of an index, each with rows, words, and vectors of one or several kinds.

Letters: n rows, Q queries, k ranked rows.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.storage.arrays import load_array
from bertsmith.base.storage.files import file_state
from bertsmith.inference.indexes.filters import Condition
from bertsmith.inference.indexes.rows import ROWS, Rows, refused_if_damaged
from bertsmith.inference.indexes.segment_vectors import DenseVectors, SegmentVectors
from bertsmith.inference.indexes.sparse_vectors import SparseVectors
from bertsmith.inference.indexes.token_vectors import TokenVectors
from bertsmith.inference.indexes.words import SegmentWords
from bertsmith.inference.search.rankings import Ranking
from bertsmith.inference.search.request import DENSE, SPARSE, TOKENS, WORDS

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentRecord:
    """A segment as the manifest of its index has it.

    Attributes:
        name: of its folder.
        rows: those removed included.
        removed: the file of the removed rows in the folder; "" if there are none.
        num_removed: their number.
        probes: of dense vectors, how many cells a search reads; 0 if all rows are compared.
        compared: of vectors of tokens, how many rows a search compares for the 10 nearest; 0 for all.
        recall: the share of the nearest rows that this finds, see `Tuning`, by the worse of both; 1 if all rows are
            compared.
        parts: what it has besides its rows: WORDS, and kinds of vectors.
    """

    name: str
    rows: int
    removed: str = ""
    num_removed: int = 0
    probes: int = 0
    compared: int = 0
    recall: float = 1.0
    parts: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorsRecord:
    """Vectors of an index, as its manifest has them.

    Attributes:
        model: what was given as the model; a search loads it unless it is given another place. "" if none was.
        made_of: the digest of the model, pooling and other settings that the vectors depend on; empty if the vectors
            were read from a file that does not say.
        width: numbers in a vector.
    """

    model: str
    made_of: Mapping[str, Any]
    width: int


class Segment:
    """A segment whose files are open, so that a change of the index that removes them does not disturb a search.

    Args:
        is_searched: whether the files that only a search reads are opened, too: cells, words and terms.

    Attributes:
        present: the rows that are not removed, bool [n]; None if all are there.
        vectors: by kind.
        words: None if it has none.
    """

    def __init__(self, index: Path, record: SegmentRecord, *, is_searched: bool = True) -> None:
        self.folder, self.record = index / record.name, record
        self._state = file_state(self.folder / ROWS)
        self.rows = Rows(self.folder)
        with refused_if_damaged(self.folder):
            if len(self.rows.table) != record.rows:
                raise ValueError(f"{len(self.rows.table):,} rows instead of {record.rows:,}")
            self.vectors: Mapping[str, SegmentVectors] = {
                kind: self._opened(kind, is_searched=is_searched) for kind in record.parts if kind != WORDS
            }
            removed = self._remove()
            has_words = is_searched and WORDS in record.parts
            self.words = SegmentWords(self.folder, record.rows, removed) if has_words else None

    def _remove(self) -> npt.NDArray[np.uint32]:
        """The removed rows, ascending, once they are left out of `present`."""
        self.present: Mask | None = None
        if not self.record.removed:
            return np.empty(0, np.uint32)
        removed: npt.NDArray[np.uint32] = load_array(self.folder / self.record.removed, None)
        self.present = np.ones(self.record.rows, dtype=bool)
        self.present[removed] = False
        return removed

    def is_of(self, record: SegmentRecord) -> bool:
        """Whether this is the segment of a record, apart from removed rows, and its files are those on the disk."""
        same = dataclasses.replace(self.record, removed=record.removed, num_removed=record.num_removed) == record
        return same and self._state == file_state(self.folder / ROWS)

    def changed(self, record: SegmentRecord) -> "Segment":
        """The same open segment with the removed rows of another record."""
        if record == self.record:
            return self
        segment = copy.copy(self)
        segment.record = record
        with refused_if_damaged(self.folder):
            removed = segment._remove()
        segment.words = None if self.words is None else self.words.changed(removed)
        return segment

    def _opened(self, kind: str, *, is_searched: bool) -> SegmentVectors:
        folder, rows = self.folder, self.record.rows
        if kind == DENSE:
            return DenseVectors(folder, rows, self.record.probes if is_searched else 0)
        if kind == SPARSE:
            return SparseVectors(folder, rows, is_searched=is_searched)
        if kind == TOKENS:
            return TokenVectors(folder, rows, self.record.compared if is_searched else 0)
        raise ValueError(f"vectors of an unknown kind, {kind!r}")

    def numbers(self) -> Ints:
        """The numbers of the rows that are not removed."""
        return np.arange(self.record.rows) if self.present is None else np.flatnonzero(self.present)

    def allowed(self, where: Sequence[Condition]) -> Mask | None:
        """The rows that are not removed and meet all conditions, bool [n]; None if all do."""
        allowed = self.present
        for condition in where:
            with refused_if_damaged(self.folder):
                mask = condition.mask(self.rows.table)
            allowed = mask if allowed is None else allowed & mask
        return allowed

    def search(
        self, kind: str, queries: Any, top: int, where: Sequence[Condition] = (), *, exact: bool = False
    ) -> Ranking:
        """The best rows for each query by vectors of one kind, see `SegmentVectors.search`.

        Args:
            where: conditions that a row must meet.
        """
        with refused_if_damaged(self.folder):
            return self.vectors[kind].search(queries, top, self.allowed(where), exact=exact)
