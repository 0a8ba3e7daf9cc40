"""Texts with marked spans as tagged sentences, whatever the format that they were read from."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, tell
from bertsmith.tasks.datasets.examples import ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import warn_of_places
from bertsmith.tasks.datasets.values import brief, clean
from bertsmith.tasks.datasets.words import MarkedSpan, tags_of_spans, without_overlaps, words_of
from bertsmith.tasks.metrics.entities import convert_tags

OWN_SCHEME = "IOB2"


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
            skipped.append((marked.location, marked.skipped or "a text without words"))
            continue
        spans = marked.spans
        if not flat:
            spans, left_out = without_overlaps(sentence, spans)
            inner += [(marked.location, named_span(marked.text, span)) for span in left_out]
        tags, cut = tags_of_spans(marked.text, sentence, spans)
        widened += [(marked.location, named_span(marked.text, span)) for span in cut]
        types.update(span.label for span in spans)
        number += not (marked.document and marked.document == document)
        document = marked.document
        examples.append(
            TaggedExample(
                id=sentence.id,
                words=sentence.words,
                tags=tags if scheme == OWN_SCHEME else tuple(convert_tags(tags, OWN_SCHEME, scheme)),
                document=number,
                location=marked.location,
                offsets=sentence.offsets,
            )
        )
    if not examples:
        raise InputError(
            expected=f"texts with spans in {file}",
            found=f"{counted(len(skipped), 'record')} without" + (f": {skipped[0][1]}" if skipped else ""),
            fix=fix,
        )
    empty = sum(set(example.tags or ()) == {"O"} for example in examples)
    tell(
        f"{file}: {f'read as {read_as}: ' if read_as else ''}{counted(len(examples), 'text')}, "
        f"{counted(types.total(), 'span')} of {counted(len(types), 'type')}; texts without a span, so all O: {empty:,}"
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
