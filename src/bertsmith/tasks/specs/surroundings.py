"""The document of each sentence, kept when sentences are sampled: the context comes from the file.

Letter: E examples. Training on a sample of a file (`--limit`), or holding part of it out, separates sentences from
their neighbors. With `document_context` each sentence therefore keeps the words of its whole document, which all
sentences of the document share.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bertsmith.tasks.datasets.examples import Surroundings, TaggedExample
from bertsmith.tasks.encoding.units import Ints


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
