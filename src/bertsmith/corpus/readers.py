"""Text files to documents, each a list of sentences.

Reading has two halves, so that several processes can share it. `read_blocks` finds the files and cuts them into blocks,
which is quick and keeps the order; `parse` makes sentences of one block, and needs nothing but the block.
`read_documents` does both in one process.

A document is: in `lines` form what stands between blank lines; in prose the whole file; in JSON lines and Parquet one
record. It ends where its file ends. (In BERT's original code a document of the `lines` form goes on in the next file;
`files_continue` asks for that.)
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.corpus.forms import FORMS, find_form, paragraphs_of
from bertsmith.corpus.parquet import parquet_blocks
from bertsmith.corpus.sentences import split_sentences
from bertsmith.corpus.sources import (
    BLOCK_BYTES,
    LONGEST_LINE,
    LONGEST_RECORD,
    Cuts,
    Skipped,
    Source,
    SourceStream,
    UnreadableError,
    encoding_errors,
    find_sources,
    refusal,
    shown,
    text_blocks,
)
from bertsmith.errors import InputError
from bertsmith.settings import help_field, require

MOST_SENTENCES = 200_000
"""Several times the longest novel. A longer document is cut into several, and that is counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingSettings:
    """How text files are read."""

    form: str = help_field(
        "auto",
        "how .txt files are laid out: auto, lines (a sentence a line, a blank line between documents), "
        "prose, wrapped, paragraphs or jsonl",
    )
    column: str = help_field(
        "", "column of .jsonl and .parquet files with a text or a list of sentences; default: found"
    )
    files_continue: bool = help_field(
        False, "in lines form a document goes on in the next file, as in the original code"
    )

    def __post_init__(self) -> None:
        require(
            self.form in FORMS, expected=f"a form of text, one of {', '.join(FORMS)}", found=self.form, fix="choose one"
        )


@dataclasses.dataclass(frozen=True)
class Document:
    """A document: where it came from, and its sentences in order."""

    source: str
    sentences: list[str]


@dataclasses.dataclass(frozen=True)
class Block:
    """A piece of a source that can be parsed alone.

    Args:
        source: the name of the file.
        form: `lines`, `wrapped`, `paragraphs`, `jsonl`, `records` or `documents`.
        data: bytes; for records, values of the column; for documents, `Document` objects.
        line: number of its first line or record, from 1.
        ends: whether a document that is open at its end, ends there.
        column: the wanted column of JSON lines, or "" to find it.
        split: whether text is cut into sentences, or left as it is (`lines`).
        read_bytes: what was read from the disk for it; for documents, their characters.
    """

    source: str
    form: str
    data: Any
    line: int
    ends: bool
    column: str = ""
    split: bool = True
    read_bytes: int = 0


class Part(NamedTuple):
    """Sentences of one document, or of the piece of it that lies in one block."""

    source: str
    sentences: list[str]
    ends: bool


@dataclasses.dataclass
class BlockCounts:
    """What was left out of a block."""

    encoding_errors: int = 0
    blank_lines: int = 0
    empty_documents: int = 0


@dataclasses.dataclass(frozen=True)
class FileRead:
    """A file that was read to its end."""

    name: str
    form: str
    bytes: int
    digest: str
    cuts: int


@dataclasses.dataclass
class ReadReport:
    """What was read and what was left out, over all files."""

    files: int = 0
    skipped_files: int = 0
    bytes: int = 0
    encoding_errors: int = dataclasses.field(default=0, metadata={"help": "bytes that are not UTF-8, dropped"})
    blank_lines: int = 0
    empty_documents: int = 0
    cut_lines: int = dataclasses.field(default=0, metadata={"help": f"lines over {LONGEST_LINE} bytes, cut"})
    cut_documents: int = dataclasses.field(
        default=0, metadata={"help": f"cuts of documents at {MOST_SENTENCES} sentences"}
    )

    def add_counts(self, counts: BlockCounts) -> None:
        """Adds what was left out of one block."""
        self.encoding_errors += counts.encoding_errors
        self.blank_lines += counts.blank_lines
        self.empty_documents += counts.empty_documents

    def add_file(self, file: FileRead | Skipped) -> None:
        """Adds one file."""
        if isinstance(file, Skipped):
            self.skipped_files += 1
        else:
            self.files += 1
            self.bytes += file.bytes
            self.cut_lines += file.cuts


def read_documents(
    paths: Iterable[Path | str],
    settings: ReadingSettings | None = None,
    *,
    report: ReadReport | None = None,
) -> Iterator[Document]:
    """The documents of text files, folders and stdin (`-`), in order; empty ones are dropped and counted.

    Args:
        paths: .txt, .jsonl and .parquet files, plain or .gz or .zst, and folders of them.
        report: counts are added to it while documents are taken.

    Raises:
        InputError: a file is missing, empty, binary, damaged, or lacks the column.
    """
    report = report if report is not None else ReadReport()
    source, sentences = "", list[str]()
    for item in read_blocks(paths, settings or ReadingSettings()):
        if not isinstance(item, Block):
            report.add_file(item)
            continue
        parts, counts = parse(item)
        report.add_counts(counts)
        for part in parts:
            source = source if sentences else part.source
            sentences += part.sentences
            if sentences and (part.ends or len(sentences) >= MOST_SENTENCES):
                report.cut_documents += not part.ends
                yield Document(source, sentences)
                sentences = []
    if sentences:
        yield Document(source, sentences)


def read_blocks(paths: Iterable[Path | str], settings: ReadingSettings) -> Iterator[Block | FileRead | Skipped]:
    """The blocks of every file in order; after the blocks of a file what it was, and a word on each file left out.

    Raises:
        InputError: a named file is missing, empty, binary or damaged.
    """
    for found in find_sources(paths):
        if isinstance(found, Skipped):
            yield Skipped(shown(found.name), found.reason)
            continue
        try:
            yield from _file_blocks(found, settings)
        except UnreadableError as reason:
            if found.named:
                raise InputError(
                    expected=f"text in '{found.shown}'", found=str(reason), fix="name a file that holds text"
                ) from None
            yield Skipped(found.shown, str(reason))


def document_blocks(documents: Iterable[Document]) -> Iterator[Block]:
    """Blocks of documents that are there already, such as those of `docstring_documents`."""
    waiting: list[Document] = []
    size = 0
    for document in documents:
        waiting.append(document)
        size += sum(map(len, document.sentences))
        if size >= BLOCK_BYTES:
            yield Block("", "documents", waiting, 1, ends=True, read_bytes=size)
            waiting, size = [], 0
    if waiting:
        yield Block("", "documents", waiting, 1, ends=True, read_bytes=size)


def parse(block: Block) -> tuple[list[Part], BlockCounts]:
    """The parts of documents in a block, and what was left out.

    Raises:
        InputError: a line is not JSON, or a record lacks the column.
    """
    counts = BlockCounts()
    if block.form == "documents":
        parts = [Part(document.source, _filled(document.sentences), ends=True) for document in block.data]
        counts.empty_documents = sum(not part.sentences for part in parts)
        return parts, counts
    if block.form == "records":
        return [_record(block, value, counts) for value in block.data], counts
    text = block.data.decode("utf-8", "ignore")
    counts.encoding_errors = encoding_errors(block.data, text)
    if block.line == 1:
        text = text.removeprefix("\ufeff")
    if block.form == "jsonl":
        return _json_lines(block, text, counts), counts
    if block.form == "lines":
        return _documents_of_lines(block, text, counts), counts
    sentences = [sentence for paragraph in paragraphs_of(text, block.form) for sentence in split_sentences(paragraph)]
    return [Part(block.source, sentences, block.ends)], counts


def _file_blocks(source: Source, settings: ReadingSettings) -> Iterator[Block | FileRead]:
    """The blocks of one file, the last of them marked, and the record of the file."""
    cuts = Cuts()
    with SourceStream(source) as stream:
        if source.kind == "parquet":
            form = "records"
            blocks: Iterator[Any] = parquet_blocks(stream, settings.column)
        else:
            head = _head(stream)
            form = _form(source, settings, head)
            longest = LONGEST_RECORD if form == "jsonl" else LONGEST_LINE
            blocks = text_blocks(stream, cuts, head=head, by_paragraph=form == "wrapped", longest=longest)
        line, before = 1, 0
        last_line_ends = not (settings.files_continue and form == "lines")
        for data, is_last in _with_last(blocks):
            yield Block(
                source.shown,
                form,
                data,
                line,
                ends=is_last and last_line_ends,
                column=settings.column,
                split=settings.form != "lines",
                read_bytes=stream.count - before,
            )
            before = stream.count
            line += len(data) if form == "records" else data.count(b"\n")
        if line == 1 and form == "records":
            raise UnreadableError("no records")
        if form == "jsonl" and cuts.count:
            raise UnreadableError(f"a line of JSON of more than {LONGEST_RECORD} bytes")
        yield FileRead(source.shown, form, stream.count, stream.digest, cuts.count)


def _head(stream: SourceStream) -> bytes:
    head = stream.read(BLOCK_BYTES)
    if not head:
        raise UnreadableError("an empty file")
    if reason := refusal(head):
        raise UnreadableError(reason)
    return head


def _form(source: Source, settings: ReadingSettings, head: bytes) -> str:
    if source.kind == "jsonl" or settings.form == "jsonl":
        return "jsonl"
    if settings.form in ("auto", "prose"):
        text = head.decode("utf-8-sig", "ignore").replace("\r\n", "\n").replace("\r", "\n")
        return find_form(text, settings.form)
    return settings.form


def _with_last(blocks: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Each block, with whether it is the last."""
    ahead = iter(blocks)
    block = next(ahead, None)
    while block is not None:
        following = next(ahead, None)
        yield block, following is None
        block = following


def _filled(sentences: Iterable[str]) -> list[str]:
    return [sentence for sentence in map(str.strip, sentences) if sentence]


def _documents_of_lines(block: Block, text: str, counts: BlockCounts) -> list[Part]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    parts: list[Part] = []
    for filled, group in itertools.groupby(map(str.strip, lines), key=bool):
        if filled:
            parts.append(Part(block.source, list(group), ends=False))
        else:
            counts.blank_lines += sum(1 for _ in group)
            # A blank line at the beginning of a block ends the document of the block before.
            parts.append(parts.pop()._replace(ends=True) if parts else Part(block.source, [], ends=True))
    if block.ends:
        parts.append(Part(block.source, [], ends=True))
    return parts


def _json_lines(block: Block, text: str, counts: BlockCounts) -> list[Part]:
    parts = []
    for number, line in enumerate(text.split("\n"), start=block.line):
        if not line.strip():
            continue
        where = f"line {number} of '{block.source}'"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(expected=f"JSON in {where}", found=f"{line[:40]!r} ({error})", fix="repair it") from None
        if isinstance(record, str | list):
            value = record
        elif isinstance(record, dict):
            value = record[_column(record, block.column, where)]
        else:
            raise InputError(expected=f"an object, a text or a list in {where}", found=line[:40], fix="repair it")
        part = _record(block, value, counts, where)
        # JSON can spell half of a pair of surrogates, which is no character.
        parts.append(part if "\\u" not in line else _without_surrogates(part, counts))
    return parts


def _without_surrogates(part: Part, counts: BlockCounts) -> Part:
    whole = [sentence.encode("utf-8", "ignore").decode("utf-8") for sentence in part.sentences]
    counts.encoding_errors += sum(map(len, part.sentences)) - sum(map(len, whole))
    return part._replace(sentences=_filled(whole))


def _column(record: dict[str, Any], wanted: str, where: str) -> str:
    texts = [name for name, value in record.items() if isinstance(value, str | list)]
    for name in [wanted] if wanted else ["text", "sentences", *(texts if len(texts) == 1 else [])]:
        if name in record:
            return name
    raise InputError(
        expected=f"a column {wanted or 'text'!r} in {where}",
        found=f"{', '.join(map(repr, record)) or 'none'}",
        fix="name the column that holds the text (--column)",
    )


def _record(block: Block, value: Any, counts: BlockCounts, where: str = "") -> Part:
    """The document of one record: a text, or a list of sentences."""
    if isinstance(value, str):
        sentences = _sentences(value, block.split)
    elif isinstance(value, Sequence) and all(isinstance(one, str) for one in value):
        sentences = _filled(value)
    elif value is None:
        sentences = []
    else:
        raise InputError(
            expected=f"a text or a list of texts in {where or repr(block.source)}",
            found=f"{str(value)[:40]!r}",
            fix="name the column that holds the text (--column)",
        )
    counts.empty_documents += not sentences
    return Part(block.source, sentences, ends=True)


def _sentences(text: str, split: bool) -> list[str]:
    text = text.replace("\r\n", "\n")
    if not split:
        return _filled(text.split("\n"))
    form = find_form(text, "prose") if "\n" in text else "paragraphs"
    return [sentence for paragraph in paragraphs_of(text, form) for sentence in split_sentences(paragraph)]
