"""Long sentences as windows, and windows extended by the rest of their document.

Training on a sample of a file (`--limit`), or holding part of it out, separates sentences from their neighbors. With
`document_context` each sentence therefore keeps the words of its whole document, which all its sentences share.

Letters: E sentences, P pieces of all words, N windows.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.tasks.datasets.examples import Example, Surroundings, TaggedExample
from bertsmith.tasks.encoding.units import PER_POSITION, EncodedExamples, Ints
from bertsmith.tasks.specs.settings import HIERARCHICAL, TaskSettings
from bertsmith.tasks.specs.tokenized import encoded_texts
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of, places_of
from bertsmith.text.tokenizers.pack import pack_rows, room_for_text
from bertsmith.text.tokenizers.tokenizer import Tokenizer


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


def encoded_sentences(
    sentences: Sequence[TaggedExample],
    targets: Ints | None,
    settings: TaskSettings,
    tokenizer: Tokenizer,
) -> EncodedExamples:
    """Sentences as windows, each one unit, of which a head reads the first piece of every word.

    A sentence that fits has one window. The windows of a longer sentence are full, and each starts at most `stride`
    pieces and at most half a row after the previous one, so every word has a quarter of a row of context on each
    side, or all that the sentence has. With `document_context`, rows are filled with the words around the sentence,
    equally from both sides, as far as the document reaches; consecutive sentences with the same document number
    form a document.

    Args:
        targets: of each word of all sentences, first axis W; None without gold.
    """
    chosen = sentences
    places = None
    if settings.document_context:
        sentences, places = in_documents(chosen)
    words = encoded_texts(sentences, tokenizer)
    borders = words.offsets[offsets_of([len(sentence.words) for sentence in sentences])]  # [E + 1], in pieces
    room = room_for_text(settings.max_length, tokenizer.template, texts=1)
    if settings.long_text == "error":
        rows_of_chosen = slice(None) if places is None else places
        _refuse_long(chosen, np.diff(borders)[rows_of_chosen], room)
    cut = sentence_windows(borders, room, settings.stride)
    first_pieces = words.offsets[:-1]
    if places is not None:  # the words of other sentences are context only
        counts = np.array([len(sentence.words) for sentence in sentences], dtype=np.int64)
        is_chosen = np.zeros(len(sentences), dtype=np.bool_)
        is_chosen[places] = True
        first_pieces = first_pieces[np.repeat(is_chosen, counts)]
    kept, window_of_word = np.unique(
        np.searchsorted(cut.last_scored, first_pieces), return_inverse=True
    )  # windows in which no word is classified are dropped
    begins, ends, sentence_of_row = cut.begins[kept], cut.ends[kept], cut.sentences[kept]
    if settings.document_context:
        document_begins, document_ends = document_borders(sentences, borders)
        begins, ends = with_context(
            begins, ends, document_begins[sentence_of_row], document_ends[sentence_of_row], words.offsets, room
        )
    rows = pack_rows(
        Encoded(words.ids[places_of(begins, ends - begins)], offsets_of(ends - begins)),
        template=tokenizer.template,
        max_length=settings.max_length,
        truncation="error",
    )
    return EncodedExamples(
        rows=rows,
        rows_per_unit=np.ones(len(rows), dtype=np.int64),
        example_of_row=sentence_of_row if places is None else np.searchsorted(places, sentence_of_row),
        read=rows.offsets[window_of_word] + len(tokenizer.template.start) + first_pieces - begins[window_of_word],
        targets=targets,
        targets_per=PER_POSITION,
    )


def tagged(examples: Sequence[Example]) -> list[TaggedExample]:
    """The examples, which are sentences."""
    sentences = [example for example in examples if isinstance(example, TaggedExample)]
    assert len(sentences) == len(examples), "this task takes sentences of words"
    return sentences


def tokenized_words(sentences: Sequence[TaggedExample], tokenizer: Tokenizer) -> list[TaggedExample]:
    """The sentences with the pieces of their words."""
    parts = encoded_texts(sentences, tokenizer).split(len(sentence.words) for sentence in sentences)
    return [dataclasses.replace(sentence, pieces=part) for sentence, part in zip(sentences, parts, strict=True)]


def require_words(sentences: Sequence[TaggedExample]) -> None:
    """Checks that every sentence has words."""
    for sentence in sentences:
        if not sentence.words:
            raise InputError(expected=f"a sentence in {sentence.location}", found="no words", fix="remove it")


def require_no_cutting(settings: TaskSettings, kind: str) -> None:
    """Checks that `long_text` keeps every word."""
    if settings.long_text in ("head", "tail", "head_tail", *HIERARCHICAL):
        raise ConfigError.must_be(
            f"long_text of {kind}, which keeps every word,", "windows or error", settings.long_text
        )


def _refuse_long(sentences: Sequence[TaggedExample], lengths: Ints, room: int) -> None:
    if len(lengths) and lengths.max() > room:
        longest = int(np.argmax(lengths > room))
        raise InputError(
            expected=f"at most {room} pieces in {sentences[longest].location}",
            found=str(lengths[longest]),
            fix="raise max_length or choose windows as long_text",
        )


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
