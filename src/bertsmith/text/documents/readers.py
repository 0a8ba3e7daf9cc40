"""Text files to documents, each a list of sentences.

Reading has two stages, so that several processes can share it. `read_blocks` finds the files and cuts them into blocks,
which is quick and preserves the order; `parsing.parse` extracts the sentences of one block. `read_documents` does both
in one process.

In `lines` form, a document is the text between blank lines; in prose, the whole file, unless blank lines or marks
divide it (see `forms`); in JSON Lines and Parquet, one record. It ends at the end of its file. (In BERT's original code
a document in `lines` form continues in the next file; `files_continue` enables that.)
"""

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import help_field, require_known
from bertsmith.text.documents.encodings import UTF_8, EncodingSettings, Utf8Stream
from bertsmith.text.documents.forms import BY_GAPS, BY_MARKS, FORMS, find_division, find_form
from bertsmith.text.documents.parquet import parquet_blocks
from bertsmith.text.documents.parsing import BlockCounts, TextBlock, parse
from bertsmith.text.documents.sources import (
    BLOCK_BYTES,
    LONGEST_LINE,
    LONGEST_RECORD,
    READABLE,
    Cuts,
    Skipped,
    Source,
    SourceStream,
    UnreadableError,
    binary,
    find_sources,
    refusal,
    shown,
    text_blocks,
)

_TABLES = (".csv", ".tsv", ".json")  # with labels and all, a table would be read as prose

_NAMED_FILES = 3  # of those that are skipped, in a note
MOST_SENTENCES = 200_000
"""Several times the longest novel. A longer document is cut into several, and the cuts are counted."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadingSettings(EncodingSettings):
    """How text files are read."""

    form: str = help_field(
        "auto",
        "layout of .txt files: auto, lines (one sentence per line, a blank line between documents), "
        "prose, texts (prose, a blank line between documents), gaps (prose, two or more blank lines between "
        "documents), wrapped, paragraphs or jsonl",
    )
    column: str = help_field(
        "", "column of .jsonl and .parquet files with a text or a list of sentences; default: detected"
    )
    files_continue: bool = help_field(
        False, "with form lines: a document can continue in the next file, as in the original code"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known("form", self.form, FORMS)


@dataclasses.dataclass(frozen=True)
class Document:
    """A document: its source, its sentences in order, and its URL; "" if it has none, or was not read."""

    source: str
    sentences: list[str]
    url: str = ""


@dataclasses.dataclass(frozen=True)
class FileRead:
    """The record of a file that was read to its end; `division` is what divides its text into documents."""

    name: str
    form: str
    bytes: int
    digest: str
    cuts: int
    division: str = ""


@dataclasses.dataclass
class ReadReport:
    """Counts over all files: read and dropped."""

    files: int = 0
    skipped_files: int = 0
    bytes: int = 0
    encoding_errors: int = dataclasses.field(
        default=0, metadata={"help": "bytes that are not UTF-8, dropped (--bad-bytes drop)"}
    )
    blank_lines: int = 0
    empty_documents: int = 0
    cut_lines: int = dataclasses.field(default=0, metadata={"help": f"lines over {LONGEST_LINE} bytes, cut"})
    cut_documents: int = dataclasses.field(
        default=0, metadata={"help": f"cuts of documents at {MOST_SENTENCES} sentences"}
    )
    divisions: dict[str, int] = dataclasses.field(
        default_factory=dict, metadata={"help": "text files by what divides them into documents"}
    )

    def __post_init__(self) -> None:
        self._skipped: list[str] = []  # the first skipped files, and why
        self._damaged: dict[str, int] = {}  # the dropped bytes of the first files that have any

    @property
    def notes(self) -> list[str]:
        """The losses, one sentence each."""
        more = self.skipped_files - len(self._skipped)
        files = "; ".join([*self._skipped, *([f"{more:,} more"] if more else [])])
        dropped = [f"{name}: {count:,}" for name, count in self._damaged.items()]
        rest = self.encoding_errors - sum(self._damaged.values())
        damaged = "; ".join([*dropped, *([f"in other files: {rest:,}"] if rest else [])])
        named = (
            ("unusable files in the folders, skipped", self.skipped_files, f" ({files})"),
            ("bytes that are not UTF-8, dropped", self.encoding_errors, f" ({damaged})"),
            ("lines that are too long, cut", self.cut_lines, ""),
        )
        return [f"{loss}: {count}{details}" for loss, count, details in named if count]

    def add_counts(self, counts: BlockCounts, name: str) -> None:
        """Adds the counts of one block of the file `name`."""
        if counts.encoding_errors and (name in self._damaged or len(self._damaged) < _NAMED_FILES):
            self._damaged[name] = self._damaged.get(name, 0) + counts.encoding_errors
        self.encoding_errors += counts.encoding_errors
        self.blank_lines += counts.blank_lines
        self.empty_documents += counts.empty_documents

    def add_file(self, file: FileRead | Skipped) -> None:
        """Adds the record of one file."""
        if isinstance(file, Skipped):
            self.skipped_files += 1
            if len(self._skipped) < _NAMED_FILES:
                self._skipped.append(f"{file.name}: {file.reason}")
        else:
            self.files += 1
            self.bytes += file.bytes
            self.cut_lines += file.cuts
            if file.division:
                self.divisions[file.division] = self.divisions.get(file.division, 0) + 1


def read_documents(
    paths: Iterable[Path | str],
    settings: ReadingSettings | None = None,
    *,
    url_column: str | None = None,
    report: ReadReport | None = None,
) -> Iterator[Document]:
    """The documents of text files, folders and stdin (`-`), in order; empty ones are dropped and counted.

    Args:
        url_column: the column of .jsonl and .parquet files with the URL of a document. With None, no URLs are read,
            and none of the marks of WikiExtractor either.
    """
    report = report if report is not None else ReadReport()
    source, url, sentences = "", "", list[str]()
    for item in read_blocks(paths, settings or ReadingSettings(), url_column=url_column):
        if not isinstance(item, TextBlock):
            report.add_file(item)
            continue
        parts, counts = parse(item)
        report.add_counts(counts, item.source)
        for part in parts:
            source = source if sentences else part.source
            url = url or part.url
            sentences += part.sentences
            if sentences and (part.ends or len(sentences) >= MOST_SENTENCES):
                report.cut_documents += not part.ends
                yield Document(source, sentences, url)
                sentences = []
            if part.ends:
                url = ""
    if sentences:
        yield Document(source, sentences, url)


def read_blocks(
    paths: Iterable[Path | str], settings: ReadingSettings, *, url_column: str | None = None
) -> Iterator[TextBlock | FileRead | Skipped]:
    """The blocks of every file in order, each file followed by its record, and an entry for each skipped file."""
    for source in find_sources(paths):
        yield from source_blocks(source, settings, url_column=url_column)


def source_blocks(
    source: Source | Skipped, settings: ReadingSettings, *, url_column: str | None = None
) -> Iterator[TextBlock | FileRead | Skipped]:
    """The blocks of one of the files that `find_sources` finds, followed by its record."""
    if isinstance(source, Skipped):
        yield Skipped(shown(source.name), source.reason)
        return
    name = Path(source.name)
    ending = (name.with_suffix("") if source.compression else name).suffix.lower()
    if source.named and ending in _TABLES and settings.form != "jsonl":
        raise InputError(
            expected=f"text in '{source.shown}', a file that ends in {READABLE}",
            found=f"{ending}, a table or JSON by its name",
            fix='save its texts as JSON lines with a key "text", or one per line as .txt',
        )
    try:
        yield from _file_blocks(source, settings, url_column)
    except UnreadableError as reason:
        if source.named:
            raise InputError(
                expected=f"text in '{source.shown}'", found=str(reason), fix="use a file that contains text"
            ) from None
        yield Skipped(source.shown, str(reason))


def document_blocks(documents: Iterable[Document]) -> Iterator[TextBlock]:
    """Blocks of documents that have already been read, as `docstring_documents` returns them."""
    waiting: list[Document] = []
    size = 0
    for document in documents:
        waiting.append(document)
        size += sum(map(len, document.sentences))
        if size >= BLOCK_BYTES:
            yield TextBlock("", "documents", waiting, 1, ends=True, read_bytes=size)
            waiting, size = [], 0
    if waiting:
        yield TextBlock("", "documents", waiting, 1, ends=True, read_bytes=size)


def _file_blocks(source: Source, settings: ReadingSettings, url_column: str | None) -> Iterator[TextBlock | FileRead]:
    """The blocks of one file, the last of them marked, followed by the record of the file."""
    cuts = Cuts()
    with SourceStream(source) as stream:
        if source.kind == "parquet":
            form, division = "records", ""
            blocks: Iterator[Any] = parquet_blocks(stream, settings.column, url_column)
        else:
            text = Utf8Stream(stream.read, name=source.shown, encoding=settings.encoding)
            head = _head(text, settings)
            form, division = _form(source, settings, head)
            longest = LONGEST_RECORD if form == "jsonl" else LONGEST_LINE
            by_paragraph = form == "wrapped" or division == BY_GAPS
            blocks = text_blocks(text, cuts, head=head, by_paragraph=by_paragraph, longest=longest)
        line, before = 1, 0
        last_line_ends = not (settings.files_continue and form == "lines")
        for block, is_last in _with_last(blocks):
            data, urls = block if form == "records" else (block, ())
            yield TextBlock(
                source.shown,
                form,
                data,
                line,
                ends=is_last and last_line_ends,
                division=division,
                column=settings.column,
                split=settings.form != "lines",
                escaped=source.kind == "wiki" or division == BY_MARKS,
                drops=settings.bad_bytes == "drop",
                read_bytes=stream.count - before,
                url_column=url_column,
                urls=urls,
            )
            before = stream.count
            line += len(data) if form == "records" else data.count(b"\n")
        if line == 1 and form == "records":
            raise UnreadableError("no records")
        if form == "jsonl" and cuts.count:
            raise UnreadableError(f"a JSON line of more than {LONGEST_RECORD} bytes")
        yield FileRead(source.shown, form, stream.count, stream.digest, cuts.count, division)


def _head(stream: Utf8Stream, settings: ReadingSettings) -> bytes:
    head = stream.read(BLOCK_BYTES)
    if not head:
        raise UnreadableError("an empty file")
    if reason := (refusal if settings.bad_bytes == "drop" else binary)(head):
        raise UnreadableError(reason)
    return head


def _form(source: Source, settings: ReadingSettings, head: bytes) -> tuple[str, str]:
    """The form of a file, and what divides it into documents; "" for records."""
    if source.kind == "jsonl" or settings.form == "jsonl" or (source.kind == "wiki" and head.lstrip()[:1] == b"{"):
        return "jsonl", ""
    text = head.decode(UTF_8, "ignore").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    form = find_form(text, settings.form) if settings.form in ("auto", "prose", "texts", "gaps") else settings.form
    return form, find_division(text, form, settings.form)


def _with_last(blocks: Iterable[Any]) -> Iterator[tuple[Any, bool]]:
    """Each block, and whether it is the last."""
    ahead = iter(blocks)
    block = next(ahead, None)
    while block is not None:
        following = next(ahead, None)
        yield block, following is None
        block = following
