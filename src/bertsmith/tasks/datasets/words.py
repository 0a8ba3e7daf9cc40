"""Words of a text from its characters, and the tags that marked spans give them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import TaggedExample
from bertsmith.tasks.datasets.values import brief
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens_with_offsets

_RULES = TextRules(lowercase=False)


class MarkedSpan(NamedTuple):
    """The characters from `start` to `end` (exclusive) of a text, counted in code points, and the type they have."""

    start: int
    end: int
    label: str


def words_of(text: str, *, id: str = "0", location: str = "") -> TaggedExample:
    """The words of a plain text with their character offsets, ready to be tagged.

    Words are basic tokens: split at white space, around punctuation and around Chinese characters, as most annotated
    sentences are. Splitting at white space alone would leave commas and quotes in the entities. Words are spelled as in
    the text, whatever the tokenizer does to them. A text without words gives an empty example.

    >>> words_of('In "Paris", 1900').words
    ('In', '"', 'Paris', '"', ',', '1900')
    """
    tokens = basic_tokens_with_offsets(text, _RULES)
    offsets = tuple((token.starts[0], token.ends[-1]) for token in tokens)
    return TaggedExample(
        id=id, words=tuple(text[start:end] for start, end in offsets), offsets=offsets, location=location
    )


def tags_of_spans(
    text: str, sentence: TaggedExample, spans: Sequence[MarkedSpan]
) -> tuple[tuple[str, ...], list[MarkedSpan]]:
    """The tags (IOB2) of the words of a text, and the spans that cut a word, which were widened to its ends.

    White space at the ends of a span is no part of it.

    >>> text = "from New Yorkers"
    >>> tags_of_spans(text, words_of(text), [MarkedSpan(5, 13, "LOC")])
    (('O', 'B-LOC', 'I-LOC'), [MarkedSpan(start=5, end=13, label='LOC')])
    """
    assert sentence.offsets is not None, "the words of a text"
    starts, ends = np.array(sentence.offsets, dtype=np.int64).reshape(-1, 2).T
    tags = ["O"] * len(sentence.words)
    owners: dict[int, MarkedSpan] = {}
    widened = []
    for span in sorted(spans):
        named = f"{span.label!r} at {span.start} to {span.end}"
        if not 0 <= span.start < span.end <= len(text):
            raise InputError(
                expected=f"spans of at least one of the {len(text):,} characters in {sentence.location}",
                found=named,
                fix="correct or remove the span: its end is one past its last character, counted in code points",
            )
        first = int(np.searchsorted(ends, span.start, side="right"))
        past = int(np.searchsorted(starts, span.end, side="left"))
        if first >= past:
            raise InputError(
                expected=f"a word in every span in {sentence.location}",
                found=f"{named}, {brief(text[span.start : span.end])}",
                fix="correct or remove the span",
            )
        if other := owners.get(first):  # sorted spans can only share the first word of the later one
            raise InputError(
                expected=f"spans that share no word in {sentence.location}",
                found=f"{other.label!r} at {other.start} to {other.end} and {named}",
                fix="remove one of the two: a word has one tag",
            )
        if starts[first] < span.start or ends[past - 1] > span.end:
            widened.append(span)
        owners |= dict.fromkeys(range(first, past), span)
        tags[first:past] = [f"B-{span.label}", *[f"I-{span.label}"] * (past - first - 1)]
    return tuple(tags), widened


def without_overlaps(
    sentence: TaggedExample, spans: Sequence[MarkedSpan]
) -> tuple[tuple[MarkedSpan, ...], list[MarkedSpan]]:
    """(the spans that remain if a word may only be in one, the outermost; the spans that are left out).

    Of two spans of the same words, the first one remains. A span that is given twice remains once.

    >>> text = "University of Oslo"
    >>> without_overlaps(words_of(text), [MarkedSpan(14, 18, "LOC"), MarkedSpan(0, 18, "ORG")])
    ((MarkedSpan(start=0, end=18, label='ORG'),), [MarkedSpan(start=14, end=18, label='LOC')])
    """
    assert sentence.offsets is not None, "the words of a text"
    starts, ends = np.array(sentence.offsets, dtype=np.int64).reshape(-1, 2).T
    ranges = [
        (int(np.searchsorted(ends, span.start, side="right")), int(np.searchsorted(starts, span.end, side="left")))
        for span in spans
    ]
    by_length = sorted(range(len(spans)), key=lambda number: ranges[number][0] - ranges[number][1])
    owners: dict[int, MarkedSpan] = {}
    kept, left_out = [], []
    for number in by_length:
        span, words = spans[number], range(*ranges[number])
        taken = {owners[word] for word in words if word in owners}
        if not taken:
            owners |= dict.fromkeys(words, span)
            kept.append(span)
        elif taken != {span}:
            left_out.append(span)
    return tuple(sorted(kept)), left_out
