"""Input files: found in folders, opened with any supported compression, cut into blocks.

A block is a part of a file, about a megabyte, that can be parsed on its own: it ends at the end of a line (or of a
paragraph). Only one block of a file is in memory at a time, so a file may be as large as the disk.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bertsmith.base.core.errors import InputError, nearest_path, reason_of
from bertsmith.base.core.tables import table_name
from bertsmith.base.storage.addresses import address_of

if TYPE_CHECKING:
    from bertsmith.text.documents.encodings import Readable

BLOCK_BYTES = 2**20
LONGEST_LINE = 16 * 2**20  # bytes; longer lines are cut, and the cuts are counted
LONGEST_RECORD = 2**28  # bytes of one line of JSON
STDIN = "-"

KINDS = {".txt": "text", ".jsonl": "jsonl", ".parquet": "parquet"}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
READABLE = ", ".join(KINDS) + " (also .gz, .zst)"

_BLANK_LINES = re.compile(rb"\n[ \t]*+\n(?=[ \t]*+[^\s])")  # the last of them, so that no gap is cut
_WIKI = re.compile(r"wiki_\d+")  # the files of WikiExtractor, text or JSON Lines
_MAGIC = {
    b"\x1f\x8b": "gzip data (name it .gz)",
    b"\x28\xb5\x2f\xfd": "zstd data (name it .zst)",
    b"BZh": "bzip2 data (unpack it)",
    b"PK\x03\x04": "a zip archive (unpack it) or an office file such as .xlsx (save it as CSV or text)",
    b"%PDF": "a PDF file (extract its text)",
    b"PAR1": "Parquet data (name it .parquet)",
}
_UNDECODABLE_SHARE = 0.3


@dataclasses.dataclass(frozen=True)
class Source:
    """A file to read.

    Args:
        name: its path; `-` for stdin.
        kind: `text`, `jsonl`, `parquet` or `wiki`, a file of WikiExtractor.
        named: whether the user named it, rather than a folder that contains it.
    """

    name: str
    kind: str
    compression: str | None
    named: bool
    size: int

    @property
    def shown(self) -> str:
        """The name as it is reported, of a table in memory its own; bytes that are not UTF-8 are shown as escapes."""
        return table_name(self.name) or shown(self.name)


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A file that is not read, and why."""

    name: str
    reason: str


class UnreadableError(Exception):
    """Why a file cannot be read: an error for a file that was named, a line of the report for one in a folder."""


def shown(name: str) -> str:
    r"""A path that can be written as UTF-8.

    >>> shown("caf\udce9.txt")
    'caf\\udce9.txt'
    """
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def find_sources(paths: Iterable[Path | str]) -> Iterator[Source | Skipped]:
    """The files at `paths`, with folders searched recursively in sorted order, each file once."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        if str(path) == STDIN:
            yield Source(STDIN, "text", None, named=True, size=0)
            continue
        if address := address_of(path):
            from bertsmith.base.storage.remote import require_host

            require_host(path)
            yield from _at_address(address)
            continue
        status = _status(Path(path))
        if stat.S_ISDIR(status.st_mode):
            readable = 0
            for source in _walk(Path(path)):
                if isinstance(source, Source):
                    readable += 1
                    source = _unless_seen(source, os.stat(source.name), seen)
                yield source
            if not readable:
                raise _nothing_in(path)
        else:
            yield _unless_seen(_source(Path(path), status, named=True), status, seen)


def _at_address(address: str) -> Iterator[Source | Skipped]:
    from bertsmith.base.storage.remote import find_files

    readable, (files, is_folder) = 0, find_files(address)
    for file in files:
        kind, compression = _endings(Path(file.address))
        if is_folder and kind is None:
            yield Skipped(file.address, "unknown extension")
        else:
            readable += 1
            yield Source(file.address, kind or "text", compression, not is_folder, file.size)
    if not readable:
        raise _nothing_in(address)


def _nothing_in(folder: Path | str) -> InputError:
    expected = f"{READABLE} files in '{folder}'"
    return InputError(expected=expected, found="none", fix="name the files directly or rename them")


def total_bytes(paths: Sequence[Path | str]) -> int | None:
    """The size of all files at `paths`, as stored; None if stdin is among them, whose size is unknown."""
    total = sum(source.size for source in find_sources(paths) if isinstance(source, Source))
    return None if any(str(path) == STDIN for path in paths) else total


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise InputError(
            expected=f"a file or folder at '{path}'",
            found=reason_of(error),
            fix=nearest_path(path) or "check the path and its permissions",
        ) from None


def _walk(folder: Path) -> Iterator[Source | Skipped]:
    """The files of a folder and of the folders in it, in sorted order, however deep they are."""
    waiting = [_entries(folder)]
    while waiting:
        entry = next(waiting[-1], None)
        if entry is None:
            waiting.pop()
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(_entries(Path(entry.path)))
            else:
                yield _of_entry(entry)
        except OSError as error:  # a link to itself, or a file that has just been removed
            yield Skipped(entry.path, reason_of(error))


def _entries(folder: Path) -> "Iterator[os.DirEntry[str]]":
    try:
        return iter(sorted(os.scandir(folder), key=lambda entry: entry.name))
    except OSError as error:
        raise InputError(
            expected=f"a readable folder at '{folder}'", found=reason_of(error), fix="check its permissions"
        ) from None


def _of_entry(entry: "os.DirEntry[str]") -> Source | Skipped:
    """A file in a folder, or why it is not read."""
    if entry.is_dir():
        return Skipped(entry.path, "a link to a folder")
    if not entry.is_file():
        return Skipped(entry.path, "not a file")
    if entry.name.startswith("."):
        return Skipped(entry.path, "hidden")
    if _endings(Path(entry.path))[0] is None:
        return Skipped(entry.path, "unknown extension")
    return _source(Path(entry.path), entry.stat(), named=False)


def _endings(path: Path) -> tuple[str | None, str | None]:
    """The kind and the compression given by a file name."""
    ending = path.suffix.lower()
    compression = COMPRESSIONS.get(ending)
    if compression:
        path = path.with_suffix("")
        ending = path.suffix.lower()
    return ("wiki" if _WIKI.fullmatch(path.name) else KINDS.get(ending)), compression


def has_text_ending(path: Path) -> bool:
    """Whether a file in a folder is read, by the ending of its name."""
    return _endings(path)[0] is not None


def _source(path: Path, status: os.stat_result, *, named: bool) -> Source:
    kind, compression = _endings(path)
    return Source(str(path), kind or "text", compression, named, status.st_size)


def _unless_seen(source: Source, status: os.stat_result, seen: set[tuple[int, int]]) -> Source | Skipped:
    key = status.st_dev, status.st_ino
    if key in seen:
        return Skipped(source.name, "the same file as an earlier one")
    seen.add(key)
    return source


def _opened(name: str) -> IO[bytes]:
    """A file on a local disk or at an address, to be read."""
    address = address_of(name)
    if address is None:
        return open(name, "rb")
    from bertsmith.base.storage.remote import open_address

    return open_address(address)


class _DigestingFile(io.RawIOBase):
    """A raw file that computes the digest of the bytes read from it."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self.file = file
        self.hash = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.hash.update(data)
        self.count += len(data)
        return len(data)


class SourceStream:
    """The decompressed bytes of a source, with the digest and size of the bytes on disk; a context manager.

    Raises:
        UnreadableError: opening or reading fails, or compressed data is damaged.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._stack = contextlib.ExitStack()
        self._failures: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)

    def __enter__(self) -> "SourceStream":
        if self.source.name == STDIN:
            if sys.stdin is None:
                raise UnreadableError("nothing: it is closed")
            file: IO[bytes] = sys.stdin.buffer
        else:
            try:
                file = self._stack.enter_context(_opened(self.source.name))
            except OSError as error:
                reason = "a folder" if isinstance(error, IsADirectoryError) else reason_of(error)
                raise UnreadableError(reason) from None
        self._raw = _DigestingFile(file)
        buffered = io.BufferedReader(self._raw, BLOCK_BYTES)
        if self.source.compression == "gzip":
            self._stream: Any = self._stack.enter_context(gzip.GzipFile(fileobj=buffered))
        elif self.source.compression == "zstd":
            import pyarrow as pa

            self._failures += (pa.ArrowException,)
            stream = pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), "zstd")
            self._stream = self._stack.enter_context(stream)
        else:
            self._stream = buffered
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def digest(self) -> str:
        """`sha256:` followed by the digest of the bytes read from disk."""
        return f"sha256:{self._raw.hash.hexdigest()}"

    @property
    def count(self) -> int:
        """The number of bytes read from disk so far."""
        return self._raw.count

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end."""
        try:
            data: bytes = self._stream.read(size)
        except self._failures as error:
            raise UnreadableError(f"{self.source.compression or 'data'} that cannot be read ({error})") from None
        return data

    def seekable(self) -> IO[bytes]:
        """All bytes as a seekable file, for formats with an index at their end.

        Plain files are read through once for their digest; compressed ones are unpacked to a temporary file.
        """
        if self.source.compression is None:
            while self.read(BLOCK_BYTES):
                pass
            return self._stack.enter_context(_opened(self.source.name))
        file: IO[bytes] = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        while data := self.read(BLOCK_BYTES):
            file.write(data)
        file.seek(0)
        return file


@dataclasses.dataclass
class Cuts:
    """The number of lines or paragraphs that were too long and were cut."""

    count: int = 0


def text_blocks(stream: "Readable", cuts: Cuts, *, head: bytes, by_paragraph: bool, longest: int) -> Iterator[bytes]:
    r"""Blocks that end with a line end, or with a blank line if `by_paragraph`; line ends are normalized to `\n`.

    Args:
        longest: maximum bytes of a line or paragraph; a longer one is cut, at a line end or space if possible.
    """
    rest, carriage = b"", b""
    data = head
    while data:
        data = carriage + data
        # A carriage return at the end may be half of a line end.
        carriage = b"\r" if data.endswith(b"\r") else b""
        rest += _unix(data.removesuffix(b"\r"))
        cut = _last_blank_line(rest) if by_paragraph else rest.rfind(b"\n") + 1
        if not cut and len(rest) > longest:
            cut = _somewhere(rest)
            cuts.count += 1
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        # A long line is scanned again only once it has doubled, which keeps the work linear.
        data = stream.read(max(BLOCK_BYTES, len(rest)))
    rest += b"\n" if carriage else b""
    if rest:
        yield rest


def binary(head: bytes) -> str | None:
    r"""The content of a file that is not text, by its first bytes; None if they may be text in UTF-8.

    >>> binary("Ärger".encode()), binary(b"%PDF-1.7"), binary(b"a\x00b")
    (None, 'a PDF file (extract its text)', 'binary data')
    """
    meaning = next((meaning for magic, meaning in _MAGIC.items() if head.startswith(magic)), None)
    return meaning or ("binary data" if b"\x00" in head[: 2**16] else None)


def refusal(head: bytes) -> str | None:
    """Why a file is not text in UTF-8, even if some bytes are not valid, by its first bytes; None if it may be."""
    sample = head[: 2**16]
    lost = encoding_errors(sample, sample.decode("utf-8", "ignore"))
    if not (reason := binary(head)) and lost > _UNDECODABLE_SHARE * len(sample) and lost > 3:
        return (
            f"bytes that are not UTF-8 ({lost} of the first {len(sample)}); name the encoding, as in --encoding cp1252"
        )
    return reason


def encoding_errors(data: bytes, text: str) -> int:
    """The number of bytes of `data` missing from `text`, which was decoded from it with errors ignored."""
    return 0 if text.isascii() and len(text) == len(data) else len(data) - len(text.encode("utf-8"))


def _unix(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _last_blank_line(data: bytes) -> int:
    return max((match.end() for match in _BLANK_LINES.finditer(data)), default=0)


def _somewhere(data: bytes) -> int:
    """Where an overlong line is cut: after a line end or space, otherwise between two characters."""
    cut = max(data.rfind(b"\n"), data.rfind(b" ")) + 1
    if not cut:
        cut = len(data)
        while cut > 1 and (data[cut - 1] & 0xC0) == 0x80:
            cut -= 1
        cut -= 1 if cut > 1 else 0
    return cut
