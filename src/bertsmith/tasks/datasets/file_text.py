"""The content of a task file: decompressed, decoded and checked as a whole, since such files fit into memory."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.base.core.progress import warn
from bertsmith.base.core.tables import table_name
from bertsmith.text.documents.encodings import UTF_8, decoded, encoding_of
from bertsmith.text.documents.sources import (
    BLOCK_BYTES,
    COMPRESSIONS,
    Source,
    SourceStream,
    UnreadableError,
    binary,
    shown,
)

_HEAD = 65_536  # bytes
MOST_LISTED = 20  # places that are listed individually


def warn_of_places(title: str, places: Sequence[tuple[str, str]]) -> None:
    """Writes a title and the first places with their reasons to stderr; nothing if there are no places."""
    if not places:
        return
    warn(title)
    for location, reason in places[:MOST_LISTED]:
        warn(f"  {location}: {reason}")
    if len(places) > MOST_LISTED:
        warn(f"  and {len(places) - MOST_LISTED:,} more")


def quoted(path: Path | str) -> str:
    """The path in quotes as messages show it, its odd characters escaped; of a table in memory, its name."""
    name = table_name(path)
    return f"'{shown(str(path))}'" if name is None else f"the table '{name}'"


def line_of(path: Path, number: int, unit: str = "line") -> str:
    """A location in a file, for errors and examples; lines count from 1."""
    return f"{unit if table_name(path) is None else 'row'} {number} of {quoted(path)}"


def suffix_of(path: Path) -> str:
    """The extension of a file name in lower case, not counting `.gz` and the like.

    >>> suffix_of(Path("train.CSV.gz"))
    '.csv'
    """
    ending = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if ending in COMPRESSIONS else ending


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Yields the bytes of a file as a seekable file, decompressed if the name ends in .gz or .zst."""
    source = Source(str(path.absolute()), "text", COMPRESSIONS.get(path.suffix.lower()), named=True, size=0)
    try:
        with SourceStream(source) as stream:
            file = stream.seekable()
            yield file
    except UnreadableError as reason:
        raise InputError(
            expected=f"a readable file at {quoted(path)}", found=str(reason), fix=nearest_path(path) or "check the path"
        ) from None


def file_head(path: Path, *, encoding: str = UTF_8) -> str:
    """The beginning of the text of a file, which distinguishes formats; what cannot be decoded is replaced."""
    with unpacked(path) as file:
        data = file.read(_HEAD)
    return data.decode(encoding_of(data, encoding), errors="replace").removeprefix("\ufeff")


def file_text(
    path: Path, *, kind: str, may_be_blank: bool = False, keep_ends: bool = False, encoding: str = UTF_8
) -> str:
    r"""The text of a file without its byte order mark; `\r\n`, or `\r` in files without `\n`, becomes `\n`."""

    def error(content: str, fix: str) -> InputError:
        return InputError(expected=f"{kind} in {quoted(path)}", found=content, fix=fix)

    parts = []
    with unpacked(path) as file:
        while part := file.read(BLOCK_BYTES):
            parts.append(part)
    data = b"".join(parts)
    if not (data.strip() or may_be_blank):
        raise error("an empty file", "name a file that holds examples")
    if encoding_of(data, encoding) == UTF_8 and (reason := binary(data)):
        raise error(reason, "name another file")
    text = decoded(data, name=shown(str(path)), content=kind, encoding=encoding)
    if not (text.strip() or may_be_blank):
        raise error("an empty file", "name a file that holds examples")
    if keep_ends:
        return text
    # A carriage return inside a line is part of its text; in a file without any `\n` it is the line end of old systems.
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with `\n` line ends; a line end at the end of the text starts no further line.

    >>> lines_of("a\n\nb\n")
    ['a', '', 'b']
    """
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines
