"""The vectors of a segment, one class for each kind, and how they are stored.

::

    vectors.npy               dense: float16 [n, D], normalized; in a large segment also cells.faiss, see `search.cells`
    vectors.npz, terms*       sparse: see `sparse_vectors`
    tokens*                   of tokens: see `token_vectors`

Letters: n rows, D width, Q queries, k ranked rows.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.storage.arrays import load_array
from bertsmith.inference.search.cells import CELLS, Cells, has_faiss
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, nearest_vectors, no_rows

VECTORS = "vectors.npy"
_FEW = 1 / 16  # of the rows may be compared one by one

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class SegmentVectors(ABC):
    """The vectors of a segment, of one kind, whose files are open; a ValueError or OSError if one is damaged."""

    @abstractmethod
    def search(self, queries: Any, top: int, allowed: Mask | None, *, exact: bool = False) -> Ranking:
        """The best rows for each query, at most `top`.

        Args:
            queries: vectors of this kind.
            allowed: bool [n], the rows that may be ranked; None for all.
            exact: all rows are compared, even where a search usually reads some of them.
        """

    @abstractmethod
    def stored(self, rows: Ints) -> Any:
        """The vectors of some rows, int64 [r], as they are appended to the file of another segment."""


class DenseVectors(SegmentVectors):
    """Vectors that are compared by cosine.

    Args:
        probes: how many cells a search reads; 0 for none.
    """

    def __init__(self, folder: Path, rows: int, probes: int) -> None:
        self.array = load_array(folder / VECTORS)
        if len(self.array) != rows:
            raise ValueError(f"{rows:,} rows and {len(self.array):,} vectors")
        self._probes = probes
        self._cells = Cells.open(folder / CELLS, self.array) if probes and has_faiss() else None

    def search(self, queries: Floats, top: int, allowed: Mask | None, *, exact: bool = False) -> Ranking:
        """See `SegmentVectors`."""
        count = len(self.array) if allowed is None else int(np.count_nonzero(allowed))
        share = count / len(self.array)
        if self._cells is None or exact or share <= _FEW:
            return self._compared(queries, top, allowed)
        probes = math.ceil(self._probes / share)  # as many rows are compared as without conditions
        ranking = self._cells.search(queries, top, probes, allowed)
        # The cells next to a query may have fewer rows than are to be ranked.
        short = np.count_nonzero(ranking.places != NO_PASSAGE, axis=1) < min(top, count)
        if short.any():
            whole = self._compared(queries[short], top, allowed)
            ranking.places[short], ranking.scores[short] = whole.places, whole.scores
        return ranking

    def _compared(self, queries: Floats, top: int, allowed: Mask | None) -> Ranking:
        """The nearest rows of each query, of all that are allowed."""
        if allowed is None:
            return nearest_vectors(queries, self.array, top)
        numbers = np.flatnonzero(allowed)
        if not len(numbers):
            return no_rows(len(queries))
        ranking = nearest_vectors(queries, Chosen(self.array, numbers), top)  # type: ignore[arg-type]
        places = np.where(ranking.places == NO_PASSAGE, NO_PASSAGE, numbers[ranking.places])
        return dataclasses.replace(ranking, places=places)

    def stored(self, rows: Ints) -> Floats:
        """See `SegmentVectors`."""
        return np.asarray(self.array[rows], dtype=np.float32)


class Chosen:
    """Some rows of an array, of which slices are read one by one."""

    def __init__(self, vectors: npt.NDArray[Any], rows: Ints) -> None:
        self._vectors, self._rows = vectors, rows
        self.shape, self.ndim = (len(rows), vectors.shape[1]), 2

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.asarray(self._vectors[self._rows[part]])
