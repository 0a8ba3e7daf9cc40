"""BM25: ranks passages by the words they share with a query; rare words count more.

The score of a passage is the sum over the query's words w of idf(w) tf (k1 + 1) / (tf + k1 (1 - b + b length / mean)),
with idf(w) = ln(1 + (P - n + 0.5) / (n + 0.5)), where w occurs tf times in the passage and in n of P passages, and mean
is the mean length of the passages in words.

Letters: P passages, Q queries, V different words, k ranked passages.

Source: Robertson and Zaragoza, "The probabilistic relevance framework: BM25 and beyond" (2009), section 3; the
non-negative idf is Lucene's. There is no stop-word list and no stemming: words come from the tokenizer.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.settings import require, require_number
from bertsmith.inference.search.word_index import WordIndex, Words

K1, B = 0.9, 0.4
"""The values of Anserini; Robertson and Zaragoza suggest 1.2 to 2 and 0.5 to 0.8."""

Floats = npt.NDArray[np.float64]


def require_parameters(k1: float, b: float) -> None:
    """Refuses a k1 or b that is out of range."""
    require(k1 >= 0, expected="k1 of 0 or more", found=k1, fix="use 0.9, or up to 2")
    require_number("b", b, least=0, most=1)


def rarities(found_in: npt.NDArray[np.int64], num_passages: int) -> Floats:
    """The idf of words, by the number of passages that each is in."""
    return np.log1p((num_passages - found_in + 0.5) / (found_in + 0.5))


def dampings(lengths: npt.NDArray[Any], mean: float, k1: float, b: float) -> Floats:
    """k1 (1 - b + b length / mean), by the lengths of passages."""
    return k1 * (1 - b + b * lengths / mean)


class BM25(WordIndex):
    """A BM25 index of P passages.

    Args:
        k1: at least 0; with 0, the number of occurrences of a word in a passage is ignored.
        b: from 0 to 1; with 0, the length of a passage is ignored.
    """

    def __init__(self, passages: Iterable[str], *, words: Words | None = None, k1: float = K1, b: float = B) -> None:
        require_parameters(k1, b)
        self.k1, self.b = k1, b
        super().__init__(passages, words=words)

    def of_passages(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """See `WordIndex`."""
        num_passages, num_words = counts.shape
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)
        rarity = rarities(np.bincount(counts.indices, minlength=num_words), num_passages)
        damping = dampings(lengths, lengths.mean(), self.k1, self.b)
        weights = counts.copy()
        weights.data = rarity[counts.indices] * counts.data * (self.k1 + 1)
        weights.data /= counts.data + np.repeat(damping, np.diff(counts.indptr))
        return weights
