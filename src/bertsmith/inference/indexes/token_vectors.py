"""The vectors of the tokens of a segment, as codes, and which rows have tokens near a centroid.

::

    tokens.npy                 uint8 [T, bytes], the code of each vector, see `TokenCodes.stored`
    tokens-ends.npy            int64 [n], where the vectors of each row end
    tokens-coder.safetensors   the coder; what is added to an index has that of its first segment
    tokens-cells.arrow, tokens-cells-rows.npy, tokens-cells-weights.npy
                               in a large segment, an inverted file: the rows with tokens in the cell of each centroid,
                               and how many

A search of a large segment compares the rows whose scores are the highest as far as the centroids nearest to the tokens
of the query tell. How many it compares is measured when the inverted file is written.

Letters: n rows, T vectors of all of them, C centroids, K width, Q queries, t vectors of one query, k ranked rows.

Sources: Santhanam et al. (2022), "PLAID: An Efficient Engine for Late Interaction Retrieval", section 4, for candidates
by centroids; Lee et al. (2023), "Rethinking the Role of Token Retrieval in Multi-Vector Retrieval", section 3.2, for a
token of the query of which a row has no centroid.
"""

import functools
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.arrays import load_array
from bertsmith.inference.indexes.segment_vectors import Ints, Mask, SegmentVectors
from bertsmith.inference.search.cells import RANKED, Tuning, fewest_probes
from bertsmith.inference.search.postings import Postings, write_weights
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, joined, no_rows
from bertsmith.inference.search.token_codes import TokenCoder, TokenCodes
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

TOKEN_VECTORS, ENDS, CODER = "tokens.npy", "tokens-ends.npy", "tokens-coder.safetensors"
TOKEN_CELLS = "tokens-cells"
BITS = 2  # of each number
LEAST_ROWS = 2_000  # below, comparing all rows takes a tenth of a second
_PROBES = 32  # centroids for each token of a query; more of them hardly change which rows are compared
_BLOCK = 1024  # rows whose vectors are compared together
_TRIED, _TOKENS = 32, 16  # rows as queries, and how many of their vectors
_LEAST_COMPARED = 64
_MARGIN = 2  # rows that are queries find each other more easily than questions find rows


class TokenVectors(SegmentVectors):
    """Vectors of tokens, of which a score is the sum of the largest product of each one of the query (MaxSim).

    Args:
        compared: how many rows a search compares for the 10 nearest; 0 for all.

    Attributes:
        coder: of the codes.
    """

    def __init__(self, folder: Path, rows: int, compared: int = 0) -> None:
        self.coder = TokenCoder.load(folder / CODER)
        self._codes, ends = load_array(folder / TOKEN_VECTORS), load_array(folder / ENDS)
        if len(ends) != rows or len(self._codes) != (ends[-1] if rows else 0):
            raise ValueError(f"{rows:,} rows, {len(ends):,} ends and {len(self._codes):,} codes of tokens")
        lengths = np.diff(ends, prepend=0)
        if lengths.min(initial=0) < 0:
            raise ValueError("ends of vectors of tokens that do not ascend")
        self._offsets = offsets_of(lengths)
        self._compared, self._cells = compared, Postings(folder, TOKEN_CELLS) if compared else None

    def search(self, queries: TokenMatrix, top: int, allowed: Mask | None, *, exact: bool = False) -> Ranking:
        """See `SegmentVectors`."""
        numbers = np.arange(len(self._offsets) - 1) if allowed is None else np.flatnonzero(allowed)
        compared = self._compared * math.ceil(top / RANKED)
        if self._cells is None or exact or len(numbers) <= compared:
            return self._ranked(queries, numbers, top)
        return self._near(queries, numbers, compared, top)

    def _ranked(self, queries: TokenMatrix, numbers: Ints, top: int) -> Ranking:
        """The best of some rows, ascending, all of which are compared."""
        result = no_rows(len(queries))
        for start in range(0, len(numbers), _BLOCK):
            rows = numbers[start : start + _BLOCK]
            scores = max_sim(queries, self.stored(rows))
            places = np.hstack([result.places, np.broadcast_to(rows, scores.shape)])
            result = best(np.hstack([result.scores, scores]), top, places)
        return result

    def _near(self, queries: TokenMatrix, numbers: Ints, compared: int, top: int) -> Ranking:
        """The best of some rows, of which those are compared that seem the best by their centroids."""
        centroids, parts = unit(self.coder.centroids), []
        for number in range(len(queries)):
            query = queries.select(np.array([number]))
            products = query.rows(0, len(query.vectors)) @ centroids.T  # [t, C]
            likely = best(self._sums(products)[None, numbers], compared, numbers[None]).places[0]
            parts.append(self._ranked(query, np.sort(likely[likely != NO_PASSAGE]), top))
        return joined(parts)

    def _sums(self, products: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """How much the products of a query with the centroids add to the score of each row, float32 [n].

        A row without a token in the cells next to a token of the query has the product with the farthest of them, which
        is 0 here, as it is the same for all rows.

        Args:
            products: [t, C].
        """
        assert self._cells is not None, "a large segment"
        rows_of = functools.cache(self._cells.of)  # the same cells are next to several tokens
        sums = np.zeros(len(self._offsets) - 1, np.float32)
        for row in products:
            nearest = np.argpartition(row, -min(_PROBES, len(row)))[-_PROBES:]
            nearest = nearest[np.argsort(row[nearest])]  # the nearest last, as it decides
            largest = np.zeros_like(sums)
            for cell in nearest.tolist():
                if (term := rows_of(str(cell))) is not None:
                    largest[term.rows] = row[cell] - row[nearest[0]]
            sums += largest
        return sums

    def stored(self, rows: Ints) -> TokenCodes:
        """See `SegmentVectors`."""
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        return TokenCodes.of_stored(self.coder, self._codes[places_of(starts, lengths)], lengths)

    def counts(self) -> Iterator[sp.csr_matrix]:
        """How many tokens each row has in the cell of each centroid, blocks of them [r, C]."""
        for start in range(0, len(self._offsets) - 1, _BLOCK):
            codes = self.stored(np.arange(start, min(start + _BLOCK, len(self._offsets) - 1)))
            parts = np.ones(len(codes.numbers)), codes.numbers.astype(np.int64), offsets_of(codes.lengths)
            block = sp.csr_matrix(parts, shape=(len(codes.lengths), len(self.coder.centroids)))
            block.sum_duplicates()
            yield block

    def tuned(self, recall: float, seed: int) -> Tuning:
        """How many rows a search compares to find a share of `recall` of the 10 nearest."""
        numbers = np.arange(len(self._offsets) - 1)
        chosen = np.sort(generator(seed, "token cells").choice(numbers, min(len(numbers), _TRIED), replace=False))
        starts, lengths = self._offsets[chosen], np.minimum(np.diff(self._offsets)[chosen], _TOKENS)
        codes = TokenCodes.of_stored(self.coder, self._codes[places_of(starts, lengths)], lengths)
        queries = TokenMatrix(codes.rows(0, len(codes.numbers)), lengths)
        lowest = self._ranked(queries, numbers, RANKED + 1).scores[:, -1:]

        def search(compared: int) -> Ranking:
            return self._near(queries, numbers, compared, RANKED + 1)

        enough = fewest_probes(search, lowest, recall, len(numbers), _LEAST_COMPARED)
        # Any recall is enough here: what is measured is that of the larger number.
        return fewest_probes(search, lowest, 0.0, len(numbers), _MARGIN * enough.probes)


def write_token_cells(folder: Path, vectors: TokenVectors) -> None:
    """Writes which rows of a segment have tokens in the cell of each centroid."""
    write_weights(folder, TOKEN_CELLS, vectors.counts(), len(vectors.coder.centroids), np.uint32)
