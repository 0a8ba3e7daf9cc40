"""Co-occurrence counts of the pieces of a corpus, and vectors computed from them without training.

A piece is described by the pieces around it: the matrix of positive pointwise mutual information (PPMI) has a row per
piece, and a truncated singular value decomposition compresses the rows to vectors, from which the word
table of a new encoder can start.

V pieces, D width.

Source: Levy, Goldberg and Dagan, "Improving distributional similarity with lessons learned from word embeddings"
(2015): the smoothed contexts, and the square root of the singular values; Halko, Martinsson and Tropp, "Finding
structure with randomness" (2011), for the decomposition.
"""

import copy
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bertsmith.base.core.progress import counted, tell
from bertsmith.text.corpus.pair_counts import PairCounts
from bertsmith.text.corpus.shards import Corpus

WINDOW = 5  # pieces to each side
CONTEXT_POWER = 0.75  # of the counts of the contexts: rare ones count less
MOST_TOKENS = 20_000_000  # of the corpus that are counted, about, to bound the time
UNIT = 2**34  # of counts that are fractions; 1 / 1000 is then more precise than float32, and 5e8 is not too large
_CHUNK_TOKENS = 2**21
_FETCHED = 1000  # documents of a corpus at an address that are fetched together
_MEMORY = 2e9  # bytes for counting
_BYTES_OF_PAIR = 16  # of the matrix in memory: two entries
_BLOCK_PAIRS = 2**18  # that are in memory at once, however small the limit is; about 40 MB while they are computed
_EXTRA = 20  # directions that the decomposition follows in addition to those that are kept
_ROUNDS = 3  # power iterations

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]
_NO_PIECE = -1


def cooccurrences(corpus: Corpus, *, window: int = WINDOW, most_tokens: int = MOST_TOKENS) -> sparse.csr_matrix:
    """How often two pieces of one document are at most `window` tokens apart, a symmetric matrix [V, V] of float32.

    Of a corpus with more than `most_tokens` tokens, documents spread evenly over it are counted, and a line says so.
    """
    size = len(corpus.vocabulary)
    documents = _spread(corpus, most_tokens)
    if len(documents) < corpus.num_documents:
        tokens = int(corpus.document_lengths[documents].sum())
        tell(
            f"neighboring pieces are counted in {tokens:,} of {counted(corpus.num_tokens, 'token')}, in documents "
            "spread evenly over the corpus"
        )
    with tempfile.TemporaryDirectory() as folder:
        counts = PairCounts(Path(folder), _MEMORY)
        for ids in _runs(corpus, documents, window):
            count_neighbors(ids, size, counts, window=window)
        return neighbor_matrix(counts, size)


def count_neighbors(
    ids: npt.NDArray[Any], size: int, counts: PairCounts, *, window: int, by_distance: bool = False
) -> None:
    """Counts how often two ids are at most `window` positions apart.

    The key of a pair is `lower * V + higher`. `neighbor_blocks` gives the counts back.

    Args:
        ids: ids below `size`; -1 is not an id, and `window` of them in a row separate what is not counted together.
        counts: receives the counts, in whole parts of one `UNIT`.
        by_distance: ids that are d places apart count 1 / d, as in GloVe.
    """
    ids = ids.astype(np.int64)
    for distance in range(1, window + 1):
        left, right = ids[:-distance], ids[distance:]
        both = (left >= 0) & (right >= 0)
        left, right = left[both], right[both]
        counts.add(
            np.minimum(left, right) * size + np.maximum(left, right), round(UNIT / distance) if by_distance else UNIT
        )


def neighbor_blocks(counts: PairCounts, size: int) -> Iterator[tuple[Ids, Ids, Floats]]:
    """(lower ids, higher ids, counts) of all pairs in blocks, int32, int32, float32; a pair of equal ids counts twice.

    That is half of a symmetric matrix, its diagonal included.
    """
    for keys, sums in counts.blocks():
        low, high = np.divmod(keys, size)
        doubled = np.where(low == high, 2.0, 1.0)
        yield low.astype(np.int32), high.astype(np.int32), (sums / UNIT * doubled).astype(np.float32)


def neighbor_matrix(counts: PairCounts, size: int) -> sparse.csr_matrix:
    """All counts as a symmetric matrix [V, V] of float32, in memory."""
    blocks = list(neighbor_blocks(counts, size))
    if not blocks:
        return sparse.csr_matrix((size, size), dtype=np.float32)
    low, high, values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    values[low == high] /= 2
    half = sparse.coo_matrix((values, (low, high)), shape=(size, size)).tocsr()
    return (half + half.T).tocsr()


class PpmiOfCounts:
    """The matrix of `ppmi` in bounded memory; it has what `reduced` needs of a matrix.

    It consists of blocks of pairs, whose sizes do not depend on the memory. If they all fit they stay in memory;
    otherwise every product reads the counts again. Either way, the numbers are the same.
    """

    def __init__(self, counts: PairCounts, size: int, *, memory: float) -> None:
        self.shape, self._counts, self._is_transposed = (size, size), counts, False
        self.pairs, of_rows = 0, np.zeros(size)
        for low, high, values in self._counted():
            self.pairs += len(low)
            values = np.where(low == high, values / 2, values)
            of_rows += np.bincount(low, values, minlength=size) + np.bincount(high, values, minlength=size)
        contexts = of_rows**CONTEXT_POWER
        self._of_rows, self._shares = of_rows, contexts / max(contexts.sum(), 1e-300)
        self._held: list[sparse.csr_matrix] | None = None
        needed = self.pairs * _BYTES_OF_PAIR
        if needed <= memory:
            self._held = list(self._blocks())
        else:
            tell(f"the matrix of {counted(self.pairs, 'pair')} would take {needed / 1e6:,.0f} MB: it is read from disk")

    @property
    def T(self) -> "PpmiOfCounts":  # noqa: N802 - the name of NumPy and SciPy
        """The transposed matrix, a view of the same counts."""
        other = copy.copy(self)
        other._is_transposed = not self._is_transposed
        return other

    @property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which rows are not empty, bool [V]."""
        result = np.zeros(self.shape[0], dtype=np.bool_)
        for block in self._held or self._blocks():
            result |= np.diff(block.indptr) > 0
        return result

    def __matmul__(self, other: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The product with `other` [V, K]."""
        total = np.zeros((self.shape[0], other.shape[1]), dtype=other.dtype)
        for block in self._held or self._blocks():
            total += (block.T if self._is_transposed else block) @ other
        return total

    def _blocks(self) -> Iterator[sparse.csr_matrix]:
        """The entries above 0 of both halves, in blocks [V, V] of float32."""
        for low, high, counts in self._counted():
            other = low != high
            rows, columns = np.concatenate([low, high[other]]), np.concatenate([high, low[other]])
            values = np.concatenate([counts, counts[other]]).astype(np.float64)
            values = np.log(values / self._of_rows[rows] / self._shares[columns])
            kept = values > 0
            entries = (values[kept].astype(np.float32), (rows[kept], columns[kept]))
            yield sparse.csr_matrix(entries, shape=self.shape)

    def _counted(self) -> Iterator[tuple[Ids, Ids, Floats]]:
        """As `neighbor_blocks`, in blocks of `_BLOCK_PAIRS` pairs."""
        kinds = (np.int32, np.int32, np.float32)
        left: list[npt.NDArray[Any]] = [np.empty(0, dtype=kind) for kind in kinds]
        for block in neighbor_blocks(self._counts, self.shape[0]):
            left = [np.concatenate(both) for both in zip(left, block, strict=True)]
            full = len(left[0]) // _BLOCK_PAIRS * _BLOCK_PAIRS
            for start in range(0, full, _BLOCK_PAIRS):
                low, high, values = (part[start : start + _BLOCK_PAIRS] for part in left)
                yield low, high, values
            left = [part[full:] for part in left]
        if len(left[0]):
            yield left[0], left[1], left[2]


def ppmi(counts: sparse.csr_matrix) -> sparse.csr_matrix:
    """The positive pointwise mutual information of rows and columns in nats, [V, V]; 0 where it would be negative."""
    filled = counts.tocoo()
    of_rows = np.asarray(counts.sum(axis=1), dtype=np.float64).ravel()
    contexts = of_rows**CONTEXT_POWER
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(
            filled.data.astype(np.float64) / of_rows[filled.row] / (contexts / max(contexts.sum(), 1e-300))[filled.col]
        )
    kept = values > 0
    return sparse.csr_matrix(
        (values[kept].astype(np.float32), (filled.row[kept], filled.col[kept])), shape=counts.shape
    )


def reduced(matrix: sparse.csr_matrix | PpmiOfCounts, width: int, rng: np.random.Generator) -> Floats:
    """Unit vectors [V, D] whose products approximate those of a symmetric matrix's rows; 0 for an empty row.

    They are the left singular vectors times the square roots of the singular values, rotated at random so that no
    column stands out.
    """
    size = matrix.shape[0]
    directions = min(size, width + _EXTRA)
    image = matrix @ rng.standard_normal((size, directions), dtype=np.float32)
    for _ in range(_ROUNDS):
        image = matrix @ (matrix.T @ np.linalg.qr(image)[0])
    basis = np.linalg.qr(image)[0]
    left, values, _ = np.linalg.svd((matrix.T @ basis).T, full_matrices=False)
    vectors = np.zeros((size, width), dtype=np.float32)
    kept = min(width, len(values))
    vectors[:, :kept] = (basis @ left)[:, :kept] * np.sqrt(values[:kept])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    is_seen = matrix.seen if isinstance(matrix, PpmiOfCounts) else np.diff(matrix.indptr) > 0
    vectors = np.where(is_seen[:, None] & (lengths > 0), vectors / np.maximum(lengths, 1e-30), 0)
    rotation = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return np.asarray(vectors @ rotation, dtype=np.float32)


def _spread(corpus: Corpus, most_tokens: int) -> list[int]:
    """The numbers of documents, evenly spread, that have about `most_tokens` tokens; all if there are no more."""
    share = min(1.0, most_tokens / max(1, corpus.num_tokens))
    numbers = range(corpus.num_documents)
    return [number for number in numbers if int((number + 1) * share) > int(number * share)] or list(numbers[:1])


def _runs(corpus: Corpus, documents: Sequence[int], window: int) -> Iterator[npt.NDArray[np.int64]]:
    """Documents joined to long arrays of ids, with `window` empty positions between them."""
    gap = np.full(window, _NO_PIECE, dtype=np.int64)
    parts: list[npt.NDArray[Any]] = []
    held = 0
    for position, document in enumerate(documents):
        if position % _FETCHED == 0:
            corpus.prefetch(np.asarray(documents[position : position + _FETCHED]))
        tokens = corpus.document_tokens(document).astype(np.int64)
        parts += [tokens, gap]
        held += len(tokens)
        if held >= _CHUNK_TOKENS:
            yield np.concatenate(parts)
            parts, held = [], 0
    if parts:
        yield np.concatenate(parts)
