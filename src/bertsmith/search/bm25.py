"""BM25: ranks passages by the words they share with a query; rare words count more.

The score of a passage is the sum over the query's words w of idf(w) tf (k1 + 1) / (tf + k1 (1 - b + b length / mean)),
with idf(w) = ln(1 + (P - n + 0.5) / (n + 0.5)), where w occurs tf times in the passage and in n of P passages, and mean
is the mean length of the passages in words.

Letters: P passages, Q queries, V different words, k ranked passages.

Source: Robertson and Zaragoza, "The probabilistic relevance framework: BM25 and beyond" (2009), section 3; the
non-negative idf is Lucene's. There is no stop-word list and no stemming: the words are those of the tokenizer.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.errors import InputError
from bertsmith.search.rankings import Ranking, best, joined
from bertsmith.settings import require
from bertsmith.text.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizer import Tokenizer

K1, B = 0.9, 0.4
"""The values of Anserini; Robertson and Zaragoza suggest 1.2 to 2 and 0.5 to 0.8."""

_SCORES_AT_ONCE = 2**24


class Words:
    """Splits texts into words: BERT's basic tokens, or the pieces of a tokenizer.

    Args:
        tokenizer: splits texts into its pieces; if None, into basic tokens, lower-cased and without accents.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer
        self._rules = TextRules()

    def of(self, text: str) -> Sequence[str] | Sequence[int]:
        """The words of a text, in order; words outside the tokenizer's vocabulary are dropped."""
        if self.tokenizer is None:
            return basic_tokens(text, self._rules)
        unknown = self.tokenizer.vocabulary.unk_id
        return [piece for piece in self.tokenizer.encode(text).tolist() if piece != unknown]


class BM25:
    """A BM25 index of P passages.

    Args:
        passages: the texts.
        words: splits texts into words.
        k1: at least 0; with 0, the number of occurrences of a word in a passage is ignored.
        b: from 0 to 1; with 0, the length of a passage is ignored.

    Raises:
        InputError: no passage has a word.
        ConfigError: `k1` or `b` is out of range.
    """

    def __init__(self, passages: Iterable[str], *, words: Words | None = None, k1: float = K1, b: float = B) -> None:
        require(k1 >= 0, expected="k1 of 0 or more", found=k1, fix="use 0.9, or up to 2")
        require(0 <= b <= 1, expected="b from 0 to 1", found=b, fix="use 0.4, or up to 0.75")
        self.words = words or Words()
        self._index: dict[str | int, int] = {}
        counts = self._counts(passages, learns=True)
        if not counts.nnz:
            raise InputError(expected="passages with words", found="none", fix="name a file with text")
        lengths = np.asarray(counts.sum(axis=1), dtype=np.float64).reshape(-1)
        self.num_passages = len(lengths)
        found_in = np.bincount(counts.indices, minlength=counts.shape[1])
        rarity = np.log1p((self.num_passages - found_in + 0.5) / (found_in + 0.5))
        damping = k1 * (1 - b + b * lengths / lengths.mean())
        weights = counts.copy()
        weights.data = rarity[counts.indices] * counts.data * (k1 + 1)
        weights.data /= counts.data + np.repeat(damping, np.diff(counts.indptr))
        self._weights = weights.T.tocsr()  # [V, P]

    def scores(self, queries: Sequence[str]) -> npt.NDArray[np.float64]:
        """The score of every passage for every query, float64 [Q, P]; 0 if they share no word."""
        return np.asarray((self._counts(queries, learns=False) @ self._weights).toarray())

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """The best `top` passages of each query; passages that share no word with it are not ranked."""
        size = max(1, _SCORES_AT_ONCE // self.num_passages)
        parts = []
        for start in range(0, len(queries), size):
            scores = self.scores(queries[start : start + size])
            parts.append(best(np.where(scores > 0, scores, -np.inf), top))
        return joined(parts)

    def _counts(self, texts: Iterable[str], *, learns: bool) -> sp.csr_matrix:
        """Counts of each word in each text, float64 [texts, V]; words that occur in no passage are omitted."""
        rows, columns, index = [0], [], self._index
        for text in texts:
            for word in self.words.of(text):
                number = index.setdefault(word, len(index)) if learns else index.get(word)
                if number is not None:
                    columns.append(number)
            rows.append(len(columns))
        shape = (len(rows) - 1, len(index))
        counts = sp.csr_matrix((np.ones(len(columns)), np.array(columns, dtype=np.int64), np.array(rows)), shape=shape)
        counts.sum_duplicates()
        return counts
