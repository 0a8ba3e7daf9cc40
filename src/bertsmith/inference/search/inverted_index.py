"""An inverted index: for each term, the passages that have it and its weight in them.

Terms are words (BM25, TF-IDF) or the pieces of a sparse encoder.

Letters: P passages, Q queries, V different terms, k ranked passages.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.inference.search.rankings import Ranking, best, joined

_SCORES_AT_ONCE = 2**24


class InvertedIndex:
    """P passages as weights of their terms; a query scores the sum of products of the weights of terms that both have.

    Args:
        weights: of each term in each passage, [P, V].
    """

    def __init__(self, weights: sp.csr_matrix) -> None:
        self.num_passages = weights.shape[0]
        self._weights = weights.T.tocsr()  # [V, P]

    def scores(self, queries: sp.csr_matrix) -> npt.NDArray[Any]:
        """The score of every passage for every query, [Q, P], from the weights of their terms, [Q, V]."""
        return np.asarray((queries @ self._weights).toarray())

    def search(self, queries: sp.csr_matrix, top: int) -> Ranking:
        """The best `top` passages of each query, [Q, V]; passages that share no term with it are not ranked."""
        size = max(1, _SCORES_AT_ONCE // self.num_passages)
        parts = []
        for start in range(0, queries.shape[0], size):
            scores = self.scores(queries[start : start + size])
            parts.append(best(np.where(scores > 0, scores, -np.inf), top))
        return joined(parts)
