"""Words of plain texts, and texts with marked spans as tagged sentences, whatever format they were read from."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.examples import EntityExample, ExampleFile, TaggedExample, WordSpan
from bertsmith.tasks.datasets.file_text import warn_of_places
from bertsmith.tasks.datasets.labels import labels_of
from bertsmith.tasks.datasets.values import brief, clean
from bertsmith.tasks.metrics.entities import convert_tags
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens_with_offsets

_RULES = TextRules(lowercase=False)
OWN_SCHEME = "IOB2"
SPANS = "spans"  # in place of a scheme: entities instead of tags
NO_WORDS = "a text without words"  # why it is skipped


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
    words = tuple(text[start:end] for start, end in offsets)
    return TaggedExample(id=id, words=words, offsets=offsets, location=location, text=text)


def words_of_spans(
    text: str, sentence: TaggedExample, spans: Sequence[MarkedSpan]
) -> tuple[list[WordSpan], list[MarkedSpan]]:
    """The words of each span of a text, and the spans that cut a word, which were widened to its ends.

    White space at the ends of a span is not part of it.

    >>> text = "from New Yorkers"
    >>> words_of_spans(text, words_of(text), [MarkedSpan(5, 13, "LOC")])
    ([WordSpan(start=1, end=3, label='LOC')], [MarkedSpan(start=5, end=13, label='LOC')])
    """
    assert sentence.offsets is not None, "the words of a text"
    starts, ends = np.array(sentence.offsets, dtype=np.int64).reshape(-1, 2).T
    result, widened = [], []
    for span in spans:
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
        if starts[first] < span.start or ends[past - 1] > span.end:
            widened.append(span)
        result.append(WordSpan(first, past, span.label))
    return result, widened


def tags_of_spans(
    text: str, sentence: TaggedExample, spans: Sequence[MarkedSpan]
) -> tuple[tuple[str, ...], list[MarkedSpan]]:
    """The tags (IOB2) of the words of a text, and the spans that cut a word; see `words_of_spans`.

    >>> text = "from New Yorkers"
    >>> tags_of_spans(text, words_of(text), [MarkedSpan(5, 13, "LOC")])
    (('O', 'B-LOC', 'I-LOC'), [MarkedSpan(start=5, end=13, label='LOC')])
    """
    tags = ["O"] * len(sentence.words)
    owners: dict[int, MarkedSpan] = {}
    spans = sorted(spans)
    placed, widened = words_of_spans(text, sentence, spans)
    for span, (first, past, label) in zip(spans, placed, strict=True):
        if other := owners.get(first):  # sorted spans can only share the first word of the later one
            raise InputError(
                expected=f"spans that share no word in {sentence.location}",
                found=f"{other.label!r} at {other.start} to {other.end} and {label!r} at {span.start} to {span.end}",
                fix="use --task nested-ner, or remove one of the two: a word has one tag",
            )
        owners |= dict.fromkeys(range(first, past), span)
        tags[first:past] = [f"B-{label}", *[f"I-{label}"] * (past - first - 1)]
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


class MarkedText(NamedTuple):
    """A text with its spans."""

    location: str
    text: str = ""
    spans: tuple[MarkedSpan, ...] = ()
    skipped: str = ""
    document: str = ""  # what the texts of one document have in common; by default each text is a document


def sentences_of(
    file: str,
    texts: Iterable[MarkedText],
    *,
    scheme: str = OWN_SCHEME,
    flat: bool = True,
    read_as: str = "",
    fix: str = "annotate them",
) -> ExampleFile:
    """The texts of a file as sentences with tags.

    Args:
        scheme: of the tags; SPANS for the entities themselves, which may then share words.
        flat: spans that share a word are errors; otherwise the outermost one is kept, and the others are listed.
    """
    examples: list[TaggedExample] = []
    skipped: list[tuple[str, str]] = []
    widened: list[tuple[str, str]] = []
    inner: list[tuple[str, str]] = []
    types = Counter[str]()
    document, number = "", -1
    for marked in texts:
        sentence = words_of(marked.text, id=str(len(examples)), location=marked.location)
        if marked.skipped or not (sentence.words or marked.spans):
            skipped.append((marked.location, marked.skipped or NO_WORDS))
            continue
        spans = marked.spans
        if scheme == SPANS:
            entities, cut = words_of_spans(marked.text, sentence, spans)
            sentence = EntityExample.of(sentence, entities)
        elif not flat:
            spans, left_out = without_overlaps(sentence, spans)
            inner += [(marked.location, named_span(marked.text, span)) for span in left_out]
        if scheme != SPANS:
            tags, cut = tags_of_spans(marked.text, sentence, spans)
            converted = tags if scheme == OWN_SCHEME else tuple(convert_tags(tags, OWN_SCHEME, scheme))
            sentence = dataclasses.replace(sentence, tags=converted)
        widened += [(marked.location, named_span(marked.text, span)) for span in cut]
        types.update(span.label for span in spans)
        number += not (marked.document and marked.document == document)
        document = marked.document
        examples.append(dataclasses.replace(sentence, document=number))
    if not examples:
        raise InputError(
            expected=f"texts with spans in {file}",
            found=f"{counted(len(skipped), 'record')} without" + (f": {skipped[0][1]}" if skipped else ""),
            fix=fix,
        )
    empty = sum(not set(labels_of(example)) - {"O"} for example in examples)
    without = "texts without a span" + ("" if scheme == SPANS else ", so all O")
    tell(
        f"{file}: {f'read as {read_as}: ' if read_as else ''}{counted(len(examples), 'text')}, "
        f"{counted(types.total(), 'span')} of {counted(len(types), 'type')}; {without}: {empty:,}"
    )
    shared = f"{file}: {counted(len(inner), 'span')} shared words with a longer or an earlier one and left out: "
    warn_of_places(f"{shared}a word has one tag", inner)
    warn_of_places(f"{file}: {counted(len(widened), 'span')} cut a word, widened to its ends", widened)
    return ExampleFile(examples=tuple(examples), skipped=tuple(skipped))


def named_span(text: str, span: MarkedSpan) -> str:
    """A span as a message shows it."""
    return f"{span.label!r} {brief(text[span.start : span.end])}"


def require_text(text: str, span: MarkedSpan, stated: str, location: str) -> None:
    """Checks that a span has the text that its file states, apart from white space, which formats write differently."""
    marked = text[max(span.start, 0) : max(span.end, 0)]
    if _letters(stated) != _letters(marked):
        raise InputError(
            expected=f"{brief(stated)} at {span.start} to {span.end} in {location}",
            found=brief(marked),
            fix="correct the span: its ends count code points of the text as it is, an emoji as one",
        )


def _letters(text: str) -> str:
    return "".join(clean(text).replace("\\n", " ").split())
