"""Results of a search that are ranked again by the vectors of tokens in an index.

Letters: Q queries, k ranked rows.
"""

from collections.abc import Sequence

import numpy as np

from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, joined
from bertsmith.inference.search.token_search import query_tokens
from bertsmith.inference.vectors.token_embedder import TokenEmbedder


class IndexTokens:
    """The vectors of tokens of an index, which rank results again, see `SecondStage`.

    Args:
        embedder: gives those of queries.
    """

    def __init__(self, index: Index, embedder: TokenEmbedder) -> None:
        self._index, self._embedder = index, embedder

    def again(self, queries: Sequence[str], ranking: Ranking, top: int) -> Ranking:
        """See `SecondStage`."""
        asked, parts = query_tokens(queries, self._embedder), []
        for number in range(len(queries)):
            rows = np.sort(ranking.places[number][ranking.places[number] != NO_PASSAGE])
            scores = self._index.token_scores(asked.select(np.array([number])), rows)
            parts.append(best(scores[None], top, rows[None]))
        return joined(parts)
