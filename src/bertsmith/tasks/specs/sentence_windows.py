"""Long sentences as windows, and windows extended by the rest of their document.

Training on a sample of a file (`--limit`), or holding part of it out, separates sentences from their neighbors. With
`document_context` each sentence therefore keeps the words of its whole document, which all its sentences share.

Letters: E sentences, P pieces of all words, N windows.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bertsmith.tasks.datasets.examples import Surroundings, TaggedExample
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


def with_surroundings(sentences: Sequence[TaggedExample]) -> list[TaggedExample]:
    """The sentences of a file, each with the words of its document."""
    result: list[TaggedExample] = []
    for first, past in _documents(sentences):
        words = tuple(sentence.words for sentence in sentences[first:past])
        result += [
            dataclasses.replace(sentence, surroundings=Surroundings(words, position))
            for position, sentence in enumerate(sentences[first:past])
        ]
    return result


def in_documents(sentences: Sequence[TaggedExample]) -> tuple[list[TaggedExample], Ints]:
    """The sentences in order, with the other sentences of their documents between them, and their positions, int64 [E].

    Consecutive sentences of one document share it; sentences without surroundings stay as they are.
    """
    result: list[TaggedExample] = []
    places: list[int] = []
    open_words: tuple[tuple[str, ...], ...] | None = None
    number = done = 0  # of the open document, and how many of its sentences are there
    for sentence in sentences:
        around = sentence.surroundings
        is_open = around is not None and around.sentences is open_words and around.index >= done
        if not is_open:
            result += _fillers(open_words or (), done, None, number)
            number, done, open_words = number + 1, 0, None if around is None else around.sentences
        if around is not None:
            result += _fillers(around.sentences, done, around.index, number)
            done = around.index + 1
        places.append(len(result))
        result.append(sentence if around is None else dataclasses.replace(sentence, document=-number))
    result += _fillers(open_words or (), done, None, number)
    return result, np.array(places, dtype=np.int64)


def _fillers(document: Sequence[tuple[str, ...]], first: int, past: int | None, number: int) -> Iterator[TaggedExample]:
    """Sentences of a document that are only context."""
    return (TaggedExample(id="", words=words, document=-number) for words in document[first:past])


def _documents(sentences: Sequence[TaggedExample]) -> Iterator[tuple[int, int]]:
    first = 0
    for position in range(1, len(sentences) + 1):
        if position == len(sentences) or sentences[position].document != sentences[first].document:
            yield first, position
            first = position
