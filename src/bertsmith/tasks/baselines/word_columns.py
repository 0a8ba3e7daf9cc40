"""Columns of words in their sentences, for a linear model that predicts tags without an encoder.

Letters: W words of all sentences, D columns.

A column says that a word has a spelling, a shape, a beginning or an ending, or a neighbor.

Source: Ratinov and Roth (2009), "Design Challenges and Misconceptions in Named Entity Recognition", section 5, for the
features; those of predicted tags and of gazetteers are left out.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.tasks.baselines.sparse_rows import SparseRows
from bertsmith.tasks.baselines.word_model import keys_of_word, shape_of_word
from bertsmith.tasks.datasets.examples import TaggedExample

if TYPE_CHECKING:
    import scipy.sparse as sp

_LEAST = 2  # words that have a column
_LETTERS = range(1, 5)  # of a beginning or an ending
_NEIGHBORS = (-2, -1, 1, 2)


def word_columns(sentences: Sequence[TaggedExample]) -> "sp.csr_array":
    """The columns of the words of all sentences, float32 [W, D], 1 or 0."""
    rows = [
        list(dict.fromkeys(_terms(sentence.words, position)))
        for sentence in sentences
        for position in range(len(sentence.words))
    ]
    counts = Counter(itertools.chain.from_iterable(rows))
    numbers = {term: number for number, term in enumerate(t for t, count in counts.items() if count >= _LEAST)}
    columns = [sorted(numbers[term] for term in row if term in numbers) for row in rows]
    flat = np.fromiter(itertools.chain.from_iterable(columns), dtype=np.int64)
    places = np.repeat(np.arange(len(rows)), [len(row) for row in columns])
    return SparseRows(places, flat, np.ones(len(flat)), (len(rows), max(1, len(numbers)))).matrix(np.float32)


def _terms(words: Sequence[str], position: int) -> Iterator[str]:
    for kind, key in keys_of_word(words[position]):
        yield f"{kind} {key}"
    lower = words[position].lower()
    for size in _LETTERS:
        yield f"{lower[:size]}-"
        yield f"-{lower[-size:]}"
    for distance in _NEIGHBORS:
        neighbor = position + distance
        if not 0 <= neighbor < len(words):
            yield f"{distance} none"
            continue
        yield f"{distance} word {words[neighbor].lower()}"
        if abs(distance) == 1:
            yield f"{distance} shape {shape_of_word(words[neighbor])}"
