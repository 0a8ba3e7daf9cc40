"""Segments: the parts of an index, each with rows, vectors, and cells if it is large.

Letters: n rows, D width, Q queries, k ranked rows.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.storage.arrays import load_array
from bertsmith.inference.indexes.filters import Condition
from bertsmith.inference.indexes.rows import Rows, refused_if_damaged
from bertsmith.inference.indexes.sparse_vectors import TERMS, SparseRows, nearest_by_terms
from bertsmith.inference.indexes.words import SegmentWords
from bertsmith.inference.search.cells import CELLS, Cells, has_faiss
from bertsmith.inference.search.postings import Postings
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, nearest_vectors, no_rows

VECTORS = "vectors.npy"
_FEW = 1 / 16  # of the rows may be compared one by one

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SegmentRecord:
    """A segment as the manifest of its index has it.

    Attributes:
        name: of its folder.
        rows: those removed included.
        removed: the file of the removed rows in the folder; "" if there are none.
        num_removed: their number.
        probes: how many cells a search reads; 0 if all rows are compared.
        recall: the share of the nearest rows that this finds, see `Tuning`; 1 if all rows are compared.
        words: whether it has an inverted file of its words.
        sparse: whether its vectors are sparse.
    """

    name: str
    rows: int
    removed: str = ""
    num_removed: int = 0
    probes: int = 0
    recall: float = 1.0
    words: bool = False
    sparse: bool = False


class Segment:
    """A segment whose files are open, so that a change of the index that removes them does not disturb a search.

    Args:
        is_searched: whether its cells, words and terms are opened, too.

    Attributes:
        present: the rows that are not removed, bool [n]; None if all are there.
        cells: None if it has none, or faiss is not installed.
        words: None if it has none.
        vectors: float16 [n, D]; of sparse ones `SparseRows`, or None if they are searched.
        terms: the inverted file of sparse vectors; None if they are dense, or not searched.
    """

    def __init__(self, index: Path, record: SegmentRecord, *, is_searched: bool = True) -> None:
        self.folder, self.record = index / record.name, record
        self.rows = Rows(self.folder)
        with refused_if_damaged(self.folder):
            self.terms: Postings | None = None
            self.vectors: Any = None
            if not record.sparse:
                self.vectors = load_array(self.folder / VECTORS)
            elif is_searched:
                self.terms = Postings(self.folder, TERMS)
            else:
                self.vectors = SparseRows(self.folder)
            if not record.sparse and len(self.vectors) != record.rows:
                raise ValueError(f"{record.rows:,} rows and {len(self.vectors):,} vectors")
            if len(self.rows.table) != record.rows:
                raise ValueError(f"{len(self.rows.table):,} rows instead of {record.rows:,}")
            self.present: Mask | None = None
            removed = np.empty(0, np.uint32)
            if record.removed:
                removed = load_array(self.folder / record.removed, None)
                self.present = np.ones(record.rows, dtype=bool)
                self.present[removed] = False
            has_cells = is_searched and record.probes > 0 and has_faiss()
            self.cells = Cells.open(self.folder / CELLS, self.vectors) if has_cells else None
            has_words = is_searched and record.words
            self.words = SegmentWords(self.folder, record.rows, removed) if has_words else None

    def numbers(self) -> Ints:
        """The numbers of the rows that are not removed."""
        return np.arange(self.record.rows) if self.present is None else np.flatnonzero(self.present)

    def allowed(self, where: Sequence[Condition]) -> Mask | None:
        """The rows that are not removed and meet all conditions, bool [n]; None if all do."""
        allowed = self.present
        for condition in where:
            mask = condition.mask(self.rows.table)
            allowed = mask if allowed is None else allowed & mask
        return allowed

    def search(self, queries: Any, top: int, where: Sequence[Condition] = (), *, exact: bool = False) -> Ranking:
        """The nearest rows of each query by cosine, or the product of sparse vectors, at most `top`.

        Args:
            queries: [Q, D], normalized, or a sparse matrix.
            where: conditions that a row must meet.
            exact: all rows are compared, whether there are cells or not.
        """
        allowed = self.allowed(where)
        if self.terms is not None:
            return nearest_by_terms(self.terms, queries, self.record.rows, top, allowed)
        count = self.record.rows if allowed is None else int(np.count_nonzero(allowed))
        share = count / self.record.rows
        if self.cells is None or exact or share <= _FEW:
            return self._compared(queries, top, allowed)
        probes = math.ceil(self.record.probes / share)  # as many rows are compared as without conditions
        ranking = self.cells.search(queries, top, probes, allowed)
        # The cells next to a query may have fewer rows than are to be ranked.
        short = np.count_nonzero(ranking.places != NO_PASSAGE, axis=1) < min(top, count)
        if short.any():
            whole = self._compared(queries[short], top, allowed)
            ranking.places[short], ranking.scores[short] = whole.places, whole.scores
        return ranking

    def _compared(self, queries: Floats, top: int, allowed: Mask | None) -> Ranking:
        """The nearest rows of each query, of all that are allowed."""
        if allowed is None:
            return nearest_vectors(queries, self.vectors, top)
        numbers = np.flatnonzero(allowed)
        if not len(numbers):
            return no_rows(len(queries))
        ranking = nearest_vectors(queries, Chosen(self.vectors, numbers), top)  # type: ignore[arg-type]
        places = np.where(ranking.places == NO_PASSAGE, NO_PASSAGE, numbers[ranking.places])
        return dataclasses.replace(ranking, places=places)


class Chosen:
    """Some rows of an array, of which slices are read one by one."""

    def __init__(self, vectors: npt.NDArray[Any], rows: Ints) -> None:
        self._vectors, self._rows = vectors, rows
        self.shape, self.ndim = (len(rows), vectors.shape[1]), 2

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.asarray(self._vectors[self._rows[part]])
