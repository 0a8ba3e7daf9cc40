"""The search of an index by vectors of tokens, which compares what other searches find if the index is large.

Letters: Q queries, k ranked rows.
"""

from collections.abc import Sequence

import numpy as np

from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, joined
from bertsmith.inference.search.retrieval import VectorSearch
from bertsmith.inference.search.token_search import query_tokens
from bertsmith.inference.vectors.token_embedder import TokenEmbedder


class IndexTokens(VectorSearch):
    """The search of an index by vectors of tokens, see `SecondStage`.

    Args:
        index: searched by that kind of vectors.
        embedder: gives those of queries.
    """

    def __init__(self, index: Index, embedder: TokenEmbedder) -> None:
        super().__init__(index, lambda queries: query_tokens(queries, embedder))
        self._rows = index

    @property
    def reads_all(self) -> bool:
        """Whether a search compares all rows: they are few, or that was asked for."""
        return self._rows.compares_all

    def among(self, queries: Sequence[str], candidates: Sequence[Ranking], top: int) -> Ranking:
        """See `SecondStage`."""
        asked, parts = self.vectors(queries), []
        for number in range(len(queries)):
            rows = np.unique(np.concatenate([each.places[number] for each in candidates]))
            rows = rows[rows != NO_PASSAGE]
            scores = self._rows.token_scores(asked.select(np.array([number])), rows)
            parts.append(best(scores[None], top, rows[None]))
        return joined(parts)
