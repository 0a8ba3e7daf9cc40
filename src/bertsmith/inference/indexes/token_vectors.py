"""The vectors of the tokens of a segment, as codes.

::

    tokens.npy                 uint8 [T, bytes], the code of each vector, see `TokenCodes.stored`
    tokens-ends.npy            int64 [n], where the vectors of each row end
    tokens-coder.safetensors   the coder; what is added to an index has that of its first segment

Letters: n rows, T vectors of all of them, Q queries, k ranked rows.
"""

from pathlib import Path

import numpy as np

from bertsmith.base.storage.arrays import load_array
from bertsmith.inference.indexes.segment_vectors import Ints, Mask, SegmentVectors
from bertsmith.inference.search.rankings import Ranking, best, no_rows
from bertsmith.inference.search.token_codes import TokenCoder, TokenCodes
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

TOKEN_VECTORS, ENDS, CODER = "tokens.npy", "tokens-ends.npy", "tokens-coder.safetensors"
BITS = 2  # of each number
_BLOCK = 1024  # rows whose vectors are compared together


class TokenVectors(SegmentVectors):
    """Vectors of tokens, of which a score is the sum of the largest product of each one of the query (MaxSim).

    Attributes:
        coder: of the codes.
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.coder = TokenCoder.load(folder / CODER)
        self._codes, ends = load_array(folder / TOKEN_VECTORS), load_array(folder / ENDS)
        if len(ends) != rows or len(self._codes) != (ends[-1] if rows else 0):
            raise ValueError(f"{rows:,} rows, {len(ends):,} ends and {len(self._codes):,} codes of tokens")
        self._offsets = offsets_of(np.diff(ends, prepend=0))

    def search(self, queries: TokenMatrix, top: int, allowed: Mask | None, *, exact: bool = False) -> Ranking:
        """See `SegmentVectors`; all rows are compared."""
        numbers = np.arange(len(self._offsets) - 1) if allowed is None else np.flatnonzero(allowed)
        result = no_rows(len(queries))
        for start in range(0, len(numbers), _BLOCK):
            rows = numbers[start : start + _BLOCK]
            scores = max_sim(queries, self.stored(rows))
            places = np.hstack([result.places, np.broadcast_to(rows, scores.shape)])
            result = best(np.hstack([result.scores, scores]), top, places)
        return result

    def stored(self, rows: Ints) -> TokenCodes:
        """See `SegmentVectors`."""
        starts = self._offsets[rows]
        lengths = self._offsets[rows + 1] - starts
        return TokenCodes.of_stored(self.coder, self._codes[places_of(starts, lengths)], lengths)
