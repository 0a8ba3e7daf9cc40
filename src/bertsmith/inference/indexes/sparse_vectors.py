"""Sparse vectors of a segment: by rows, as scipy stores them, and as an inverted file that is searched.

::

    vectors.npz                                   the rows, float16, as `scipy.sparse.save_npz` writes them
    terms.arrow, terms-rows.npy, terms-weights.npy   an inverted file of them

Letters: n rows, V terms, Q queries, k ranked rows.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.storage.arrays import mapped_arrays
from bertsmith.inference.indexes.rows import refused_if_damaged
from bertsmith.inference.indexes.segment_vectors import SegmentVectors
from bertsmith.inference.search.postings import Floats, Mask, Postings, Summand, Term, best_rows, write_weights
from bertsmith.inference.search.rankings import Ranking, joined
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

SPARSE_VECTORS, TERMS = "vectors.npz", "terms"
_BLOCK = 4096  # rows


class SparseRows:
    """The sparse vectors of a segment, read when they are asked for; rows [n] of it are float32 [n, V]."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @functools.cached_property
    def _arrays(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], tuple[int, int]]:
        """Numbers, terms, the first number of each row, and [n, V]."""
        with refused_if_damaged(self._folder):
            data, indices, starts, shape = mapped_arrays(
                self._folder / SPARSE_VECTORS, ("data", "indices", "indptr", "shape")
            )
            rows, width = shape.tolist()
            if len(starts) != rows + 1 or not len(data) == len(indices) == starts[-1]:
                raise ValueError(f"{len(data):,} numbers of {rows:,} vectors")
        return data, indices, starts, (rows, width)

    @property
    def shape(self) -> tuple[int, int]:
        """[n, V]."""
        return self._arrays[3]

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> sp.csr_matrix:
        data, indices, starts, (_, width) = self._arrays
        with refused_if_damaged(self._folder):
            lengths = starts[rows + 1] - starts[rows]
            places = places_of(starts[rows], lengths)
            terms = indices[places]
            if terms.min(initial=0) < 0 or terms.max(initial=0) >= width:  # scipy would not check them
                raise ValueError(f"terms that are not among {width:,}")
        parts = data[places].astype(np.float32), terms, offsets_of(lengths)
        return sp.csr_matrix(parts, shape=(len(rows), width))

    def blocks(self) -> Iterator[sp.csr_matrix]:
        """All rows in order."""
        for start in range(0, self.shape[0], _BLOCK):
            yield self[np.arange(start, min(start + _BLOCK, self.shape[0]))]


class SparseVectors(SegmentVectors):
    """Sparse vectors that are compared by their products.

    Args:
        is_searched: the inverted file is opened; otherwise the rows can be read.
    """

    def __init__(self, folder: Path, rows: int, *, is_searched: bool) -> None:
        self._num_rows, self._rows = rows, SparseRows(folder)
        self._terms = Postings(folder, TERMS) if is_searched else None

    def search(self, queries: Any, top: int, allowed: Mask | None, *, exact: bool = False) -> Ranking:
        """See `SegmentVectors`; rows without a term of the query are not ranked."""
        assert self._terms is not None, "opened to be searched"
        return nearest_by_terms(self._terms, queries, self._num_rows, top, allowed)

    def stored(self, rows: npt.NDArray[np.int64]) -> sp.csr_matrix:
        """See `SegmentVectors`."""
        return self._rows[rows]


def write_terms(folder: Path) -> None:
    """Writes the inverted file of the sparse vectors of a segment."""
    rows = SparseRows(folder)
    write_weights(folder, TERMS, rows.blocks(), rows.shape[1])


def nearest_by_terms(postings: Postings, queries: sp.csr_matrix, n: int, top: int, allowed: Mask | None) -> Ranking:
    """The rows with the largest products with each query [Q, V], at most `top`; without a common term, none.

    Args:
        n: the number of rows.
        allowed: bool [n], the rows that may be ranked; None for all.
    """
    rankings = []
    for query in queries:
        pairs = [(postings.of(str(term)), weight) for term, weight in zip(query.indices, query.data, strict=True)]
        summands = [_summand(term, float(weight)) for term, weight in pairs if term is not None and weight > 0]
        rankings.append(best_rows(summands, n, top, allowed, -np.inf))
    return joined(rankings)


def _summand(term: Term, weight: float) -> Summand:
    def scores(part: Any) -> Floats:
        return np.asarray(weight * term.weights[part].astype(np.float64))

    return Summand(term.rows, scores, weight * term.most)
