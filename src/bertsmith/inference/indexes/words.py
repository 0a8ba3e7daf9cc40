"""The words of a segment, and BM25 over all rows of an index; the formula is in `inference.search.bm25`.

::

    words.arrow, words-rows.npy, words-weights.npy   an inverted file with the counts of the words
    words-lengths.npy                                the number of words of each row, uint32

Numbers of rows and mean lengths are those of the rows that are not removed, so that scores do not depend on what was
removed before or on how the rows are divided into segments.

Letters: n rows, Q queries, k ranked rows.
"""

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.arrays import load_array
from bertsmith.base.storage.files import atomic_file
from bertsmith.inference.indexes.rows import refused_if_damaged
from bertsmith.inference.search.bm25 import K1, B, Floats, dampings, rarities, require_parameters
from bertsmith.inference.search.postings import Mask, Postings, Summand, Term, best_rows, located, write_counts
from bertsmith.inference.search.rankings import Ranking, joined, merged, no_rows
from bertsmith.inference.search.word_index import Words

WORDS = "words"
LENGTHS = "words-lengths.npy"
_WORDS = Words()


def write_words(folder: Path, texts: Iterable[str]) -> None:
    """Writes the words of the texts of a segment."""
    lengths = write_counts(folder, WORDS, map(_words_of, texts))
    with atomic_file(folder / LENGTHS) as file:
        np.save(file, lengths.astype(np.uint32))


def _words_of(text: str) -> Sequence[str]:
    return cast("Sequence[str]", _WORDS.of(text))  # there is no tokenizer, which would number them


def has_words(folder: Path) -> bool:
    """Whether the words of a segment are written."""
    return (folder / LENGTHS).exists()


class SegmentWords:
    """The words of a segment, memory-mapped; a ValueError or OSError if a file is damaged.

    Args:
        rows: the number of rows.
        removed: the rows that are removed, ascending.

    Attributes:
        lengths: the number of words of each row, uint32 [n].
        num_rows, num_words: those that are not removed.
    """

    def __init__(self, folder: Path, rows: int, removed: npt.NDArray[np.uint32]) -> None:
        self.folder, self.postings = folder, Postings(folder, WORDS)
        self.lengths = load_array(folder / LENGTHS)
        if len(self.lengths) != rows:
            raise ValueError(f"{rows:,} rows and {len(self.lengths):,} lengths")
        self._remove(removed)

    def _remove(self, removed: npt.NDArray[np.uint32]) -> None:
        self._removed, self.num_rows = removed, len(self.lengths) - len(removed)
        self.num_words = int(self.lengths.sum(dtype=np.int64) - self.lengths[removed].sum(dtype=np.int64))

    def changed(self, removed: npt.NDArray[np.uint32]) -> "SegmentWords":
        """The same open words with other removed rows."""
        words = copy.copy(self)
        words._remove(removed)
        return words

    def num_rows_with(self, term: Term) -> int:
        """The number of rows with a word that are not removed."""
        shorter, longer = sorted((self._removed, term.rows), key=len)
        return len(term.rows) - int(np.count_nonzero(located(longer, shorter)[1]))


class IndexWords:
    """BM25 over the rows of several segments.

    Args:
        segments: the words of each.
        allowed: the rows of each that may be ranked, bool [n]; None for all. The weights of words are those among all
            rows that are not removed.
        k1, b: see `BM25`.
    """

    def __init__(
        self, segments: Sequence[SegmentWords], allowed: Sequence[Mask | None], *, k1: float = K1, b: float = B
    ) -> None:
        require_parameters(k1, b)
        self._segments, self._allowed, self._k1, self._b = segments, allowed, k1, b
        self._num_rows = sum(each.num_rows for each in segments)
        num_words = sum(each.num_words for each in segments)
        if not num_words:
            raise InputError(expected="passages with words", found="none", fix="search by vectors")
        self._mean = num_words / self._num_rows

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """The best `top` rows of each query; rows that share no word with it are not ranked."""
        return joined([self._ranked(Counter(_words_of(query)), top) for query in queries])

    def _ranked(self, query: Counter[str], top: int) -> Ranking:
        result, start = no_rows(1), 0
        terms = {word: [each.postings.of(word) for each in self._segments] for word in query}
        found_in = np.array([self._found_in(parts) for parts in terms.values()], dtype=np.int64)
        rarity = dict(zip(terms, rarities(found_in, self._num_rows).tolist(), strict=True))
        for number, (segment, allowed) in enumerate(zip(self._segments, self._allowed, strict=True)):
            summands = [
                self._summand(segment, term, times * rarity[word])
                for word, times in query.items()
                if (term := terms[word][number]) is not None
            ]
            least = float(result.scores[0, top - 1]) if result.scores.shape[1] >= top else -np.inf
            with refused_if_damaged(segment.folder):
                ranking = best_rows(summands, len(segment.lengths), top, allowed, least)
            result = merged([result, ranking], [0, start], top)
            start += len(segment.lengths)
        return result

    def _found_in(self, terms: Sequence[Term | None]) -> int:
        """The number of rows that have a word."""
        both = zip(self._segments, terms, strict=True)
        return sum(segment.num_rows_with(term) for segment, term in both if term is not None)

    def _summand(self, segment: SegmentWords, term: Term, weight: float) -> Summand:
        def scores(part: Any) -> Floats:
            damping = dampings(segment.lengths[term.rows[part]], self._mean, self._k1, self._b)
            counts = term.weights[part].astype(np.float64)
            return np.asarray(weight * (self._k1 + 1) * counts / (counts + damping))

        most = term.most / (term.most + self._k1 * (1 - self._b))
        return Summand(term.rows, scores, weight * (self._k1 + 1) * most)
