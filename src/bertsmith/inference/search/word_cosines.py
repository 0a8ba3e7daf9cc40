"""One-hot and TF-IDF vectors of whole texts, compared by their cosine.

A one-hot vector has a 1 for each word of the text. A TF-IDF vector has tf (ln((1 + P) / (1 + n)) + 1), where the word
occurs tf times in the text and in n of P passages. They are the vectors of scikit-learn's
`CountVectorizer(binary=True)` and `TfidfVectorizer`, with length 1.

Source: Salton and Buckley (1988), "Term-weighting approaches in automatic text retrieval".
"""

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp

from bertsmith.inference.search.word_index import WordIndex, Words


class WordCosines(WordIndex):
    """P passages as one-hot or TF-IDF vectors of length 1.

    Args:
        one_hot: only whether a word occurs counts, and all words count the same.
    """

    def __init__(self, passages: Iterable[str], *, words: Words | None = None, one_hot: bool = False) -> None:
        self.one_hot = one_hot
        super().__init__(passages, words=words)

    def of_passages(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """See `WordIndex`."""
        found_in = np.bincount(counts.indices, minlength=counts.shape[1])
        self._rarity = np.log((1 + counts.shape[0]) / (1 + found_in)) + 1
        return self.of_queries(counts)

    def of_queries(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """See `WordIndex`."""
        weights = counts.copy()
        weights.data = np.ones_like(counts.data) if self.one_hot else counts.data * self._rarity[counts.indices]
        lengths = np.sqrt(np.asarray(weights.multiply(weights).sum(axis=1)).reshape(-1))
        weights.data /= np.repeat(lengths, np.diff(counts.indptr))
        return weights
