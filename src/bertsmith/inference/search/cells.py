"""Cells of similar vectors, of which a search reads a few: faiss's inverted file with 8 bits a number.

The rows that the cells propose are ranked by their stored vectors, so the cells decide only which rows are looked at.
How many cells a search reads (its probes) is measured when they are built, on rows of the segment as queries.

Letters: n rows, D width, Q queries, k ranked rows.

Sources: Jégou, Douze and Schmid, "Product quantization for nearest neighbor search" (2011), section IV, for the
inverted file; Douze et al., "The Faiss library" (2024).
"""

import bisect
import dataclasses
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.base.storage.files import atomic_file
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, joined, nearest_vectors

CELLS = "cells.faiss"
RECALL = 0.95
SEED = 0
LEAST_ROWS = 20_000  # below, comparing all rows takes milliseconds
_TRAINING_ROWS = 48  # a cell
_ITERATIONS = 10  # of k-means
_BLOCK = 8192  # rows
_OF_CODES = 100_000  # the most rows from which faiss trains its codes
_OF_QUERIES = 60_000_000  # bytes that a comparison of _TRIED queries with all rows takes
_COPIES = 1.5  # lists of rows grow by doubling
_TRIED = 256  # rows as queries
RANKED = 10
_CANDIDATES = 4  # a ranked row, whose stored vectors are compared
_COMPARED = 2**14  # candidates whose vectors are in memory together
_TIE = 1e-5  # rows whose scores differ by less are as near

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[np.floating[Any]]
Mask = npt.NDArray[np.bool_]


def has_faiss() -> bool:
    """Whether faiss is installed."""
    return importlib.util.find_spec("faiss") is not None


def require_faiss() -> None:
    """Refuses an approximate search without faiss."""
    require(
        has_faiss(),
        expected="the package faiss, for approximate search",
        found="none",
        fix="install it (pip install 'bertsmith[index]') or search exactly",
    )


def _faiss() -> Any:
    """The module faiss, imported where it is needed."""
    return importlib.import_module("faiss")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuning:
    """How much a search reads.

    Attributes:
        probes: the number of cells, or of rows that are compared.
        recall: the share of the 10 nearest rows that it finds, on rows of the segment as queries.
    """

    probes: int
    recall: float


def _num_cells(rows: int) -> int:
    """The number of cells, n, of that many rows: a power of two near the square root of 16 n."""
    return 1 << round(math.log2(4 * math.sqrt(rows)))


def cell_bytes(rows: int, width: int) -> int:
    """The bytes of memory that building the cells of vectors takes, at most."""
    sample = min(rows, _TRAINING_ROWS * _num_cells(rows))
    training = 4 * width * (sample + min(sample, _OF_CODES))
    return max(_OF_QUERIES, training, int(_COPIES * rows * (width + 8))) + 12 * width * _BLOCK


def rows_within(memory: float, width: int, most: int) -> int:
    """The most rows, up to `most`, whose cells are built in that memory, in megabytes; refuses less than cells take."""
    least = math.ceil(cell_bytes(LEAST_ROWS, width) / 1e6)
    require(
        memory >= least,
        expected=f"--memory of at least {least} for vectors of width {width:,}",
        found=f"{memory:g}",
        fix="allow that much",
    )
    return bisect.bisect_right(range(most + 1), memory * 1e6, lo=1, key=lambda rows: cell_bytes(rows, width)) - 1


def new_cells(vectors: Stored, seed: int) -> Any:
    """The cells of normalized vectors [n, D], an index of faiss.

    Args:
        vectors: may be memory-mapped.
        seed: of the sample of rows and of k-means.
    """
    module = _faiss()
    n, width = vectors.shape
    count = _num_cells(n)
    index = module.index_factory(width, f"IVF{count},SQ8", module.METRIC_INNER_PRODUCT)
    index.cp.seed, index.cp.niter, index.cp.spherical = seed, _ITERATIONS, True
    index.cp.max_points_per_centroid = _TRAINING_ROWS
    sample = generator(seed, "cells", 0).choice(n, min(n, _TRAINING_ROWS * count), replace=False)
    index.train(np.asarray(vectors[np.sort(sample)], dtype=np.float32))
    del sample
    for start in range(0, n, _BLOCK):
        index.add(np.asarray(vectors[start : start + _BLOCK], dtype=np.float32))
    return index


def write_cells(path: Path, vectors: Stored, seed: int) -> None:
    """Writes the cells of normalized vectors, see `new_cells`."""
    index = new_cells(vectors, seed)
    module = _faiss()
    with atomic_file(path) as file:
        module.write_index(index, module.PyCallbackIOWriter(file.write))


def cells_as_bytes(vectors: Stored) -> tuple[npt.NDArray[np.uint8], int]:
    """The cells of vectors as bytes, uint8, and how many of them a search reads for a recall of RECALL."""
    index = new_cells(vectors, SEED)
    return _faiss().serialize_index(index), Cells(index, vectors).tuned(RECALL, SEED).probes


class Cells:
    """Cells that are searched.

    Args:
        index: of `new_cells`.
        vectors: the stored vectors [n, D].
    """

    def __init__(self, index: Any, vectors: Stored) -> None:
        self._index, self.vectors = index, vectors

    @staticmethod
    def open(path: Path, vectors: Stored) -> "Cells":
        """The cells in a file, which is memory-mapped; a ValueError or RuntimeError if it is damaged."""
        module = _faiss()
        index = module.read_index(str(path), module.IO_FLAG_MMAP_IFC)
        if index.ntotal != len(vectors):
            raise ValueError(f"cells of {index.ntotal:,} rows and {len(vectors):,} vectors")
        return Cells(index, vectors)

    @staticmethod
    def of_bytes(data: npt.NDArray[np.uint8], vectors: Stored) -> "Cells":
        """The cells that `cells_as_bytes` returned."""
        return Cells(_faiss().deserialize_index(data), vectors)

    def search(self, queries: Floats, top: int, probes: int, allowed: Mask | None = None) -> Ranking:
        """The nearest rows in the `probes` cells next to each query.

        Args:
            queries: [Q, D], normalized.
            allowed: bool [n], the rows that may be ranked; None for all.
        """
        module = _faiss()
        settings = module.SearchParametersIVF(nprobe=min(probes, self._index.nlist))
        if allowed is not None:
            bits = np.packbits(allowed, bitorder="little")
            settings.sel = selector = module.IDSelectorBitmap(bits)  # noqa: F841  (must live until the search ends)
        count = min(max(_CANDIDATES * top, 4 * RANKED), len(self.vectors))
        parts, step = [], max(1, _COMPARED // count)
        for start in range(0, len(queries), step):
            part = np.ascontiguousarray(queries[start : start + step], dtype=np.float32)
            _, rows = self._index.search(part, count, params=settings)
            close = np.asarray(self.vectors[np.maximum(rows, 0)], dtype=np.float32)  # [q, count, D]
            scores = np.einsum("qcd,qd->qc", close, part)
            scores[rows < 0] = -np.inf
            parts.append(best(scores, top, np.where(rows < 0, NO_PASSAGE, rows)))
        return joined(parts)

    def tuned(self, recall: float, seed: int) -> Tuning:
        """The fewest cells, a power of two, that find a share of `recall` of the 10 nearest rows."""
        n = len(self.vectors)
        rows = np.sort(generator(seed, "cells", 1).choice(n, min(n, _TRIED), replace=False))
        queries = np.asarray(self.vectors[rows], dtype=np.float32)
        lowest = nearest_vectors(queries, self.vectors, RANKED + 1).scores[:, -1:]
        return fewest_probes(lambda probes: self.search(queries, RANKED + 1, probes), lowest, recall, self._index.nlist)


def fewest_probes(
    search: Callable[[int], Ranking], lowest: npt.NDArray[np.float64], recall: float, most: int, least: int = 1
) -> Tuning:
    """The fewest cells, or compared rows, with which a search finds a share of `recall` of the 10 nearest rows.

    Args:
        search: ranks RANKED + 1 rows for each query; the queries are rows, so each finds itself.
        lowest: the lowest of the RANKED + 1 highest scores of each query, [Q, 1].
        most: the search that finds all.
        least: the number from which on it is doubled.
    """
    probes = least
    while True:
        scores = search(probes).scores
        is_among = scores >= lowest - _TIE * np.maximum(1, np.abs(lowest))
        reached = float(np.mean((np.count_nonzero(is_among, axis=1) - 1) / RANKED))
        if reached >= recall or probes >= most:
            return Tuning(probes=probes, recall=reached)
        probes *= 2
