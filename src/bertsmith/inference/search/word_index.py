"""Search by words: texts as counts of their words, passages as weights of these words.

Letters: P passages, Q queries, V different words, k ranked passages.
"""

import abc
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.errors import InputError
from bertsmith.inference.search.inverted_index import InvertedIndex
from bertsmith.inference.search.rankings import Ranking
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.tokenizer import Tokenizer


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


class WordIndex(abc.ABC):
    """P passages as weights of their words; a query scores the sum of the weights of the words that both have."""

    def __init__(self, passages: Iterable[str], *, words: Words | None = None) -> None:
        self.words = words or Words()
        self._index: dict[str | int, int] = {}
        counts = self._counts(passages, learns=True)
        if not counts.nnz:
            raise InputError(expected="passages with words", found="none", fix="name a file with text")
        self._inverted = InvertedIndex(self.of_passages(counts))

    @abc.abstractmethod
    def of_passages(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """The weights of the words of passages, float64 [P, V]; called once.

        Args:
            counts: of each word in each passage, float64 [P, V].
        """

    def of_queries(self, counts: sp.csr_matrix) -> sp.csr_matrix:
        """The weights of the words of queries, float64 [Q, V]; by default their counts [Q, V]."""
        return counts

    def scores(self, queries: Sequence[str]) -> npt.NDArray[np.float64]:
        """The score of every passage for every query, float64 [Q, P]; 0 if they share no word."""
        return self._inverted.scores(self._asked(queries))

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """The best `top` passages of each query; passages that share no word with it are not ranked."""
        return self._inverted.search(self._asked(queries), top)

    def _asked(self, queries: Sequence[str]) -> sp.csr_matrix:
        return self.of_queries(self._counts(queries, learns=False))

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
