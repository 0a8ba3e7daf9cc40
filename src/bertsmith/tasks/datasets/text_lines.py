"""The texts of a file of any size, one at a time: one per line, or one column of a table or of JSON records.

Row i of the output belongs to line (record, row) i of the file, so an empty line is a text, too. Only a line feed ends
a line, or a carriage return in a file without line feeds. Other encodings than UTF-8, and bytes that are not valid in
it, are treated as `EncodingSettings` says.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.progress import warn
from bertsmith.tasks.datasets.cells import (
    TEXT_COLUMNS,
    csv_rows,
    header_and_rows,
    is_blank_line,
    missing_column,
    show_columns,
    tsv_rows,
)
from bertsmith.tasks.datasets.file_text import quoted, suffix_of
from bertsmith.tasks.datasets.values import brief, clean, looks_like_json
from bertsmith.text.documents.encodings import EncodingSettings, LineDecoder, Readable, Utf8Stream
from bertsmith.text.documents.names import json_value, require_unique
from bertsmith.text.documents.parquet import parquet_blocks
from bertsmith.text.documents.sources import (
    BLOCK_BYTES,
    COMPRESSIONS,
    LONGEST_RECORD,
    STDIN,
    Source,
    SourceStream,
    UnreadableError,
    binary,
    refusal,
    shown,
)

T = TypeVar("T")

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
JSON_HEAD = 4096  # bytes that are checked for JSON


class TextLines:
    """The texts of a file; can be iterated any number of times, stdin only once.

    Args:
        path: a file, plain, .gz or .zst, or "-" for stdin. A file that ends in .csv, .tsv, .jsonl or .parquet is a
            table; any other file has one text per line.
        column: the column of a table; by default `text`, or the only column with a known name for texts. With a column,
            stdin is read as JSON lines.
        reading: the encoding of a text file without a byte order mark, and what to do with bytes that are not UTF-8.
        may_drop: whether the user can choose to drop such bytes.
        option: the one that names the column, for messages.

    Attributes:
        blank_records: blank lines between JSON records or CSV rows, which are not records, in the last iteration.
    """

    def __init__(
        self,
        path: str | Path,
        column: str | None = None,
        reading: EncodingSettings | None = None,
        *,
        may_drop: bool = True,
        option: str = "--column",
    ) -> None:
        self.path, self.column, self._option = str(path), column, option
        self.reading = EncodingSettings() if reading is None else reading
        self._may_drop = may_drop
        self.is_stdin = self.path == STDIN
        self.kind = ".jsonl" if self.is_stdin and column else "" if self.is_stdin else suffix_of(Path(self.path))
        if self.kind == ".json":
            raise self._json()
        if column and self.kind not in TABLES:
            raise ConfigError(
                expected=f"a table for the column {column!r}, a file that ends in {', '.join(TABLES)}",
                found=f"{quoted(self.path)}",
                fix="omit the column, or rename the file",
            )
        self.blank_records = 0
        self._decoder = LineDecoder(self.reading, name=shown(self.path), may_drop=self._may_drop)

    def __iter__(self) -> Iterator[str]:
        """The texts in file order."""
        return self._read(self._texts)

    def _read(self, content: Callable[[SourceStream], Iterator[T]]) -> Iterator[T]:
        """What is read of the open file."""
        self.blank_records = 0
        self._decoder = LineDecoder(self.reading, name=shown(self.path), may_drop=self._may_drop)
        packing = None if self.is_stdin else COMPRESSIONS.get(Path(self.path).suffix.lower())
        source = Source(self.path, "text", packing, named=True, size=0)
        try:
            with SourceStream(source) as stream:
                yield from content(stream)
        except UnreadableError as reason:
            raise InputError.at(quoted(self.path), "texts", str(reason), "name a file with text") from None

    def records(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The location and the values of each record of a file of JSON lines, whose names are those of its columns."""
        return (
            (location, {clean(name): value for name, value in record.items()})
            for location, record in self._read(self._json_records)
        )

    @property
    def plain_bytes(self) -> int | None:
        """The bytes of the file; None if it is packed, or stdin."""
        path = Path(self.path)
        is_packed = self.is_stdin or self.kind == ".parquet" or path.suffix.lower() in COMPRESSIONS
        return None if is_packed or not path.is_file() else path.stat().st_size

    def tell_notes(self) -> None:
        """Writes the notes on the last iteration to stderr."""
        for note in self.notes():
            warn(f"{quoted(self.path)}: {note}")

    def notes(self) -> list[str]:
        """Notes on the last iteration, one sentence each: dropped bytes, blank records."""
        notes = [note] if (note := self._decoder.note()) else []
        if self.blank_records:
            notes.append(f"blank lines skipped: {self.blank_records:,}")
        return notes

    def _texts(self, stream: SourceStream) -> Iterator[str]:
        if self.kind == ".parquet":
            number, column = 0, ""

            def choose(names: Sequence[str], texts: Sequence[str]) -> str:
                nonlocal column
                column = self._parquet_column(names, texts)
                return column

            for block, _ in parquet_blocks(stream, choose):
                for value in block:
                    number += 1
                    yield _text(value, column, f"row {number:,} of {quoted(self.path)}")
        elif self.kind == ".jsonl":
            yield from self._texts_of_records(stream)
        elif self.kind in (".csv", ".tsv"):
            yield from self._cells(self._lines(stream))
        else:
            for line in self._lines(stream):
                yield line.removesuffix("\n").removesuffix("\r")

    def _lines(self, stream: SourceStream) -> Iterator[str]:
        """Decoded lines, line feeds included."""
        text = Utf8Stream(stream.read, name=shown(self.path), encoding=self.reading.encoding)
        head = text.read(BLOCK_BYTES)
        if not head:
            raise UnreadableError("an empty file")
        if reason := (refusal if self.reading.bad_bytes == "drop" else binary)(head):
            raise UnreadableError(reason)
        if self.kind != ".jsonl" and looks_like_json(head[:JSON_HEAD].decode("utf-8-sig", errors="replace")):
            raise self._json()
        # Without any line feed, a carriage return is the line end of old systems.
        while b"\n" not in head and len(head) <= LONGEST_RECORD and (more := text.read(BLOCK_BYTES)):
            head += more
        end = b"\r" if b"\r" in head and b"\n" not in head else b"\n"
        for number, raw in enumerate(_raw_lines(text, head, end), start=1):
            yield self._decoder.text(raw, number)

    def _json_records(self, stream: SourceStream) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, line in enumerate(self._lines(stream), start=1):
            if not line.strip():
                self.blank_records += 1
                continue
            location = f"line {number:,} of {quoted(self.path)}"
            try:
                record = json_value(line)
            except (ValueError, RecursionError) as error:
                raise InputError.at(location, "JSON", f"{brief(line.strip())} ({error})", "fix this line") from None
            if not isinstance(record, dict):
                raise InputError.at(location, "a JSON record {...}", brief(record), "fix this line")
            yield location, record

    def _texts_of_records(self, stream: SourceStream) -> Iterator[str]:
        column = self.column
        for location, record in self._json_records(stream):
            column = column or self._column(list(record))
            if column not in record:
                raise missing_column(column, location, record)
            yield _text(record[column], column, location)

    def _cells(self, lines: Iterable[str]) -> Iterator[str]:
        rows = csv_rows(lines, self.path) if self.kind == ".csv" else tsv_rows(lines)
        header, rows = header_and_rows(rows, self.path)
        index = header.index(self._column(header))
        for _, cells in rows:
            if is_blank_line(cells, header):
                self.blank_records += 1
            else:
                yield cells[index]

    def _json(self) -> InputError:
        table = f"a {self.kind[1:].upper()} table" if self.kind in TABLES else "plain text"
        fix = "convert it to JSON lines, one record {...} per line, "
        fix += f"and set {self._option}" if self.is_stdin else "in a file that ends in .jsonl"
        return InputError(expected=f"{table} in {quoted(self.path)}", found="JSON", fix=fix)

    def _parquet_column(self, names: Sequence[str], texts: Sequence[str]) -> str:
        """The column with the texts, found as in other tables, but only among columns of type text."""
        require_unique(names, quoted(self.path))
        column = self._column(names if self.column is not None or not texts else texts)
        if column not in texts:
            raise InputError(
                expected=f"texts in the column {column!r} of {quoted(self.path)}",
                found="values of another type",
                fix=f"name one of the {show_columns(texts)}" if texts else "name a file with texts",
            )
        return column

    def _column(self, names: Sequence[str]) -> str:
        require_unique(names, quoted(self.path))
        if self.column is not None:
            if self.column in names:
                return self.column
            raise missing_column(self.column, quoted(self.path), names)
        known = [name for name in names if name.lower() in TEXT_COLUMNS]
        columns = ["text"] if "text" in names else known or list(names)
        if len(columns) != 1:
            raise InputError(
                expected=f"one column with a known name for texts in {quoted(self.path)}",
                found=show_columns(names),
                fix=f"name it with {self._option}",
            )
        return columns[0]


class RunningDigest:
    """The digest of a sequence of texts, available after any number of them."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, texts: Iterable[str]) -> None:
        """Adds texts to the digest."""
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._hash.update(len(data).to_bytes(8, "little"))
            self._hash.update(data)

    def __str__(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _raw_lines(stream: Readable, data: bytes, end: bytes) -> Iterator[bytes]:
    """The lines of `data` and of the rest of the stream, with their `end`, which the last line may lack."""
    waiting: list[bytes] = []
    number, size = 0, 0
    while data:
        *complete, rest = data.split(end)
        if complete:
            complete[0] = b"".join([*waiting, complete[0]])
            for line in complete:
                yield line + end
            number += len(complete)
            waiting, size = [], 0
        waiting.append(rest)
        size += len(rest)
        if size > LONGEST_RECORD:
            raise UnreadableError(f"more than {LONGEST_RECORD >> 20} MiB without a line end in line {number + 1:,}")
        data = stream.read(BLOCK_BYTES)
    if size:
        yield b"".join(waiting)


def _text(value: Any, column: str, location: str) -> str:
    """The text of a field; a missing value is an empty text."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InputError.at(location, f"text in the column {column!r}", brief(value), "name another column")
    return clean(value)
