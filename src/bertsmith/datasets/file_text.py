"""The content of a task file: decompressed, decoded and checked as a whole, since such files fit into memory."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bertsmith.datasets.values import parse_json
from bertsmith.documents.encodings import UTF_8, decoded, encoding_of
from bertsmith.documents.sources import BLOCK_BYTES, COMPRESSIONS, Source, SourceStream, UnreadableError, binary, shown
from bertsmith.errors import InputError
from bertsmith.progress import warn

MOST_LISTED = 20  # places that are listed individually


def warn_of_places(title: str, places: Sequence[tuple[str, str]]) -> None:
    """Writes a title and the first places with their reasons to stderr; nothing if there are no places."""
    if not places:
        return
    warn(title)
    for place, reason in places[:MOST_LISTED]:
        warn(f"  {place}: {reason}")
    if len(places) > MOST_LISTED:
        warn(f"  and {len(places) - MOST_LISTED:,} more")


def line_of(path: Path, number: int, unit: str = "line") -> str:
    """A place in a file, for errors and for `place` of examples; lines count from 1."""
    return f"{unit} {number} of '{shown(str(path))}'"


def suffix_of(path: Path) -> str:
    """The extension of a file name in lower case, not counting that of a compression format.

    >>> suffix_of(Path("train.CSV.gz"))
    '.csv'
    """
    ending = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if ending in COMPRESSIONS else ending


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Yields the bytes of a file as a seekable file, decompressed if the name ends in .gz or .zst.

    Raises:
        InputError: the file is missing, or its compressed data is damaged.
    """
    source = Source(str(path.absolute()), "text", COMPRESSIONS.get(path.suffix.lower()), named=True, size=0)
    try:
        with SourceStream(source) as stream:
            file = stream.whole()
            yield file
    except UnreadableError as reason:
        raise InputError(
            expected=f"a readable file at '{shown(str(path))}'", found=str(reason), fix="check the path"
        ) from None


def file_text(path: Path, *, what: str, may_be_blank: bool = False, encoding: str = UTF_8) -> str:
    r"""The text of a file without its byte order mark; `\r\n`, or `\r` in files without `\n`, becomes `\n`.

    Args:
        what: what the file should contain, for messages.
        may_be_blank: whether the file may have nothing but white space.
        encoding: of a file without a byte order mark.

    Raises:
        InputError: the file is missing, empty, binary, or in another encoding; the message names the line.
    """

    def error(found: str, fix: str) -> InputError:
        return InputError(expected=f"{what} in '{shown(str(path))}'", found=found, fix=fix)

    parts = []
    with unpacked(path) as file:
        while part := file.read(BLOCK_BYTES):
            parts.append(part)
    data = b"".join(parts)
    if not (data.strip() or may_be_blank):
        raise error("an empty file", "name a file that holds examples")
    if encoding_of(data, encoding) == UTF_8 and (reason := binary(data)):
        raise error(reason, "name another file")
    text = decoded(data, name=shown(str(path)), what=what, encoding=encoding)
    if not (text.strip() or may_be_blank):
        raise error("an empty file", "name a file that holds examples")
    # A carriage return inside a line is part of its text; in a file without any `\n` it is the line end of old systems.
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with `\n` line ends; a line end at the end of the text starts no further line.

    >>> lines_of("a\n\nb\n")
    ['a', '', 'b']
    """
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def separator_of(header: str, path: Path | str = "") -> str:
    """What separates the cells of a CSV file with this first line: a comma, unless it has only semicolons or tabs.

    Raises:
        InputError: it is a line for Excel that names the separator, not the columns.

    >>> separator_of("text,label"), separator_of("text;label"), separator_of('"a;b",label'), separator_of("text")
    (',', ';', ',', ',')
    """
    if re.fullmatch(r'"?sep=.?"?[,;\t]*\s*', header, re.IGNORECASE):
        raise InputError(
            expected=f"the names of the columns in the first line of '{shown(str(path))}'",
            found=f"{header.strip()!r}, which is for Excel",
            fix="remove this line",
        )
    outside = re.sub(r'"[^"]*"', "", header)
    others = [mark for mark in ";\t" if mark in outside]
    return others[0] if len(others) == 1 and "," not in outside else ","


def json_records(path: Path, text: str, *, lines: bool) -> Iterator[tuple[str, Any]]:
    """Each value of a JSON file with its place: one value per line, or the items of one list.

    Args:
        text: the content of the file.
        lines: the values are on lines even if the text starts with a list.

    Raises:
        InputError: a line, or the text, is not JSON; the message gives its place.
    """
    if not lines and text.lstrip().startswith("["):
        for number, item in enumerate(parse_json(text, f"'{shown(str(path))}'"), start=1):
            yield line_of(path, number, "record"), item
        return
    for number, line in enumerate(lines_of(text), start=1):
        if line.strip():
            place = line_of(path, number)
            yield place, parse_json(line, place)
