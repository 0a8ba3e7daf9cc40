"""Splits blocks of text into sentences of documents; needs only the block, so any process can do it."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.text.documents.encodings import UTF_8, undecodable
from bertsmith.text.documents.forms import (
    BY_BLANK_LINES,
    BY_FILES,
    BY_MARKS,
    find_form,
    marks_of,
    paragraphs_of,
    texts_of,
    unescaped,
)
from bertsmith.text.documents.names import json_value
from bertsmith.text.documents.sentences import split_sentences
from bertsmith.text.documents.sources import encoding_errors
from bertsmith.text.documents.urls import url_of, url_of_mark

_SHOWN_FIELDS = 12  # of a record, in a message


@dataclasses.dataclass(frozen=True)
class TextBlock:
    """A part of a source that can be parsed on its own.

    Args:
        line: the number of its first line or record, from 1.
        division: what divides text into documents, see `forms`.
        split: whether text is split into sentences, or kept as it is (`lines`).
        escaped: whether it was written by WikiExtractor, which escapes `&`, `<` and `>`.
        drops: whether bytes that are not UTF-8 are dropped and counted, rather than refused.
        read_bytes: the bytes read from disk for it; for documents, their characters.
        url_column: the column of JSON Lines with the URL of a record; None if no URLs are read, of any form.
        urls: the URLs of records, one for each, or none.
    """

    source: str
    form: str
    data: Any
    line: int
    ends: bool
    division: str = BY_FILES
    column: str = ""
    split: bool = True
    escaped: bool = False
    drops: bool = False
    read_bytes: int = 0
    language: str = ""
    url_column: str | None = None
    urls: Sequence[str] = ()


class Part(NamedTuple):
    """Sentences of one document, or of the part of it in one block.

    The URL is in the part with which the document begins; "" if it has none, or URLs are not read.
    """

    source: str
    sentences: list[str]
    ends: bool
    url: str = ""


@dataclasses.dataclass
class BlockCounts:
    """The bytes, lines and documents dropped from a block."""

    encoding_errors: int = 0
    blank_lines: int = 0
    empty_documents: int = 0


def parse(block: TextBlock) -> tuple[list[Part], BlockCounts]:
    """The parts of documents in a block, and what was dropped."""
    counts = BlockCounts()
    if block.form == "documents":
        parts = [
            Part(document.source, _filled(document.sentences), ends=True, url=document.url) for document in block.data
        ]
        counts.empty_documents = sum(not part.sentences for part in parts)
        return parts, counts
    if block.form == "records":
        urls = block.urls or itertools.repeat("", len(block.data))
        return [_record(block, value, counts, url) for value, url in zip(block.data, urls, strict=True)], counts
    text = _text_of(block, counts)
    if block.form == "jsonl":
        return _json_lines(block, text, counts), counts
    if block.form == "lines" and block.division in (BY_BLANK_LINES, BY_FILES):
        return _documents_of_lines(block, text, counts), counts
    return _documents_of_prose(block, text), counts


def parse_lines(block: TextBlock) -> tuple[list[str], BlockCounts]:
    """The sentences of all documents in a block, and what was dropped; faster than `parse` in `lines` form.

    Blank lines are not counted.
    """
    if block.form == "lines" and block.division in (BY_BLANK_LINES, BY_FILES):
        counts = BlockCounts()
        return _filled(_text_of(block, counts).split("\n")), counts
    parts, counts = parse(block)
    return [sentence for part in parts for sentence in part.sentences], counts


def _text_of(block: TextBlock, counts: BlockCounts) -> str:
    """The text of a block of bytes; refuses bytes that are not UTF-8, or drops and counts them."""
    try:
        text: str = block.data.decode(UTF_8, "ignore" if block.drops else "strict")
    except UnicodeDecodeError as error:
        raise undecodable(error, name=block.source, line=block.line, may_drop=True) from None
    if block.drops:
        counts.encoding_errors = encoding_errors(block.data, text)
    return text.removeprefix("\ufeff") if block.line == 1 else text


def _filled(sentences: Iterable[str]) -> list[str]:
    return list(filter(None, map(str.strip, sentences)))


def _documents_of_lines(block: TextBlock, text: str, counts: BlockCounts) -> list[Part]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    parts: list[Part] = []
    for filled, group in itertools.groupby(map(str.strip, lines), key=bool):
        if filled:
            parts.append(Part(block.source, list(group), ends=False))
        else:
            counts.blank_lines += sum(1 for _ in group)
            # A blank line at the beginning of a block ends the document of the previous block.
            parts.append(parts.pop()._replace(ends=True) if parts else Part(block.source, [], ends=True))
    if block.ends:
        parts.append(Part(block.source, [], ends=True))
    return parts


def _documents_of_prose(block: TextBlock, text: str) -> list[Part]:
    """The texts of the documents in a block, as sentences; the last one may continue in the next block."""
    parts = []
    texts = texts_of(text, block.division)
    # What comes before the first mark belongs to the previous block.
    has_urls = block.division == BY_MARKS and block.url_column is not None
    urls = ["", *map(url_of_mark, marks_of(text))] if has_urls else [""] * len(texts)
    for document, url in zip(texts, urls, strict=True):
        paragraphs = paragraphs_of(unescaped(document) if block.escaped else document, block.form)
        if block.form == "lines":
            sentences = _filled(paragraphs)
        else:
            sentences = [sentence for paragraph in paragraphs for sentence in split_sentences(paragraph)]
        parts.append(Part(block.source, sentences, ends=True, url=url))
    return [*parts[:-1], parts[-1]._replace(ends=block.ends)]


def _json_lines(block: TextBlock, text: str, counts: BlockCounts) -> list[Part]:
    parts = []
    for number, line in enumerate(text.split("\n"), start=block.line):
        if not line.strip():
            continue
        where = f"line {number} of '{block.source}'"
        try:
            record = json_value(line)
        except (ValueError, RecursionError) as error:
            raise InputError(
                expected=f"JSON in {where}", found=f"{line[:40]!r} ({error})", fix="correct the line"
            ) from None
        url = ""
        if isinstance(record, str | list):
            value = record
        elif isinstance(record, dict):
            column = _column(record, block.column, where)
            value = record[column]
            if block.escaped and isinstance(value, str):
                value = unescaped(value)
            if block.url_column is not None and block.url_column != column:
                url = url_of(record.get(block.url_column))
        else:
            raise InputError(
                expected=f"an object, a string or a list in {where}", found=line[:40], fix="correct the line"
            )
        part = _record(block, value, counts, url, where)
        # JSON can escape a lone surrogate, which is not a character.
        parts.append(part if "\\u" not in line else _without_surrogates(part, counts))
    return parts


def _without_surrogates(part: Part, counts: BlockCounts) -> Part:
    sentences = [sentence.encode("utf-8", "ignore").decode("utf-8") for sentence in part.sentences]
    counts.encoding_errors += sum(map(len, part.sentences)) - sum(map(len, sentences))
    return part._replace(sentences=_filled(sentences))


def _column(record: dict[str, Any], wanted: str, where: str) -> str:
    texts = [name for name, value in record.items() if isinstance(value, str | list)]
    for name in [wanted] if wanted else ["text", "sentences", *(texts if len(texts) == 1 else [])]:
        if name in record:
            return name
    raise InputError(
        expected=f"a column {wanted or 'text'!r} in {where}",
        found=", ".join(map(repr, list(record)[:_SHOWN_FIELDS])) or "none",
        fix="name the column with the text (--column)",
    )


def _record(block: TextBlock, value: Any, counts: BlockCounts, url: str, where: str = "") -> Part:
    """The document of one record: a text, or a list of sentences."""
    if isinstance(value, str):
        sentences = _sentences(value, block.split)
    elif isinstance(value, Sequence) and all(isinstance(sentence, str) for sentence in value):
        sentences = _filled(value)
    elif value is None:
        sentences = []
    else:
        raise InputError(
            expected=f"a string or a list of strings in {where or repr(block.source)}",
            found=f"{str(value)[:40]!r}",
            fix="name the column with the text (--column)",
        )
    counts.empty_documents += not sentences
    return Part(block.source, sentences, ends=True, url=url)


def _sentences(text: str, split: bool) -> list[str]:
    text = text.replace("\r\n", "\n")
    if not split:
        return _filled(text.split("\n"))
    form = find_form(text, "prose") if "\n" in text else "paragraphs"
    return [sentence for paragraph in paragraphs_of(text, form) for sentence in split_sentences(paragraph)]
