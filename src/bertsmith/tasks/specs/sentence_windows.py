"""Long sentences as windows, and windows extended by the rest of their document.

Letters: E sentences, P pieces of all words, N windows.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bertsmith.tasks.datasets.examples import TaggedExample
from bertsmith.tasks.encoding.units import Ints


@dataclasses.dataclass(frozen=True)
class SentenceWindows:
    """N windows over all pieces, in order; each is inside one sentence.

    Args:
        sentences: int64 [N], the sentence of each.
        begins: int64 [N], its first piece, counted over all sentences.
        ends: int64 [N], one past its last piece.
        last_scored: int64 [N], ascending: a window scores the words that begin after the previous window's
            `last_scored`, up to its own.
    """

    sentences: Ints
    begins: Ints
    ends: Ints
    last_scored: Ints


def sentence_windows(borders: Ints, room: int, stride: int) -> SentenceWindows:
    """Windows of at most `room` pieces over sentences with borders [E + 1]."""
    lengths = np.diff(borders)
    step = max(1, min(stride, room // 2))
    excess = np.maximum(lengths - room, 0)
    counts = np.where(lengths > 0, 1 + -(-excess // step), 0)
    sentences = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(sentences)) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = borders[sentences] + np.minimum(number * step, excess[sentences])
    ends = np.minimum(begins + room, borders[sentences + 1])
    is_last = np.diff(sentences, append=len(lengths)) > 0
    # For two windows of equal size, the midpoint between their middles separates what is nearer to which.
    last_scored = np.where(is_last, ends - 1, (begins + np.roll(begins, -1) + room - 1) // 2)
    return SentenceWindows(sentences, begins, ends, last_scored)


def document_borders(sentences: Sequence[TaggedExample], borders: Ints) -> tuple[Ints, Ints]:
    """The piece positions where the document of each sentence begins and ends, int64 [E] each."""
    documents = np.array([sentence.document for sentence in sentences], dtype=np.int64)
    is_first = np.diff(documents, prepend=documents[:1] - 1) != 0
    firsts = np.append(np.flatnonzero(is_first), len(documents))
    run = np.cumsum(is_first) - 1
    return borders[firsts[run]], borders[firsts[run + 1]]


def with_context(
    begins: Ints, ends: Ints, lowest: Ints, highest: Ints, word_borders: Ints, room: int
) -> tuple[Ints, Ints]:
    """The windows [N], extended by whole words to at most `room` pieces, within the pieces `lowest` to `highest`."""
    spare = room - (ends - begins)
    before = np.minimum(spare // 2, begins - lowest)
    after = np.minimum(spare - before, highest - ends)
    before = np.minimum(spare - after, begins - lowest)
    wider_begins = word_borders[np.searchsorted(word_borders, begins - before)]
    wider_ends = word_borders[np.searchsorted(word_borders, ends + after, side="right") - 1]
    # A full window may begin or end inside a word.
    return np.where(before > 0, wider_begins, begins), np.where(after > 0, wider_ends, ends)
