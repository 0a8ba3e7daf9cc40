"""The content of one task file: unpacked, decoded and checked as a whole, since such files fit into memory."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from bertsmith.corpus.sources import BLOCK_BYTES, COMPRESSIONS, Source, SourceStream, UnreadableError, refusal, shown
from bertsmith.errors import InputError
from bertsmith.progress import warn

LONGEST_SHOWN = 40  # characters of a value that stand in a message
MOST_LISTED = 20  # places that are named one by one

_JSON_START = re.compile(r'\s*(?:\{\s*"|\[\s*[{\[])')


def warn_of_places(title: str, places: Sequence[tuple[str, str]]) -> None:
    """Writes a title and the first of some places with their reasons to stderr; nothing where there are none."""
    if not places:
        return
    warn(title)
    for place, reason in places[:MOST_LISTED]:
        warn(f"  {place}: {reason}")
    if len(places) > MOST_LISTED:
        warn(f"  and {len(places) - MOST_LISTED:,} more")


def line_of(path: Path, number: int, unit: str = "line") -> str:
    """Where something stands, for errors and for `place` of examples; lines count from 1."""
    return f"{unit} {number} of '{shown(str(path))}'"


def brief(value: object) -> str:
    """A value as a message shows it, cut where it is long.

    >>> brief("five"), len(brief("a" * 100))
    ("'five'", 41)
    """
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def suffix_of(path: Path) -> str:
    """The ending of a file name in small letters, without that of a compression.

    >>> suffix_of(Path("train.CSV.gz"))
    '.csv'
    """
    ending = path.suffix.lower()
    return path.with_suffix("").suffix.lower() if ending in COMPRESSIONS else ending


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """Yields the bytes of a file, unpacked if it ends in .gz or .zst, as a file that can be read from anywhere.

    Raises:
        InputError: the file is missing, or its packing is damaged.
    """
    source = Source(str(path.absolute()), "text", COMPRESSIONS.get(path.suffix.lower()), named=True, size=0)
    try:
        with SourceStream(source) as stream:
            file = stream.whole()
            yield file
    except UnreadableError as reason:
        raise InputError(
            expected=f"a file at '{shown(str(path))}' that can be read", found=str(reason), fix="check the path"
        ) from None


def file_text(path: Path, *, what: str) -> str:
    r"""The text of a UTF-8 file without a byte order mark; `\r\n` becomes `\n`, and so does `\r` where it stands alone.

    Args:
        what: what the file should hold, for messages.

    Raises:
        InputError: the file is missing, empty, binary, or not UTF-8; the message names the line.
    """

    def error(found: str, fix: str) -> InputError:
        return InputError(expected=f"{what} in '{shown(str(path))}'", found=found, fix=fix)

    parts = []
    with unpacked(path) as file:
        while part := file.read(BLOCK_BYTES):
            parts.append(part)
    data = b"".join(parts)
    if not data.strip():
        raise error("an empty file", "name a file that holds examples")
    if reason := refusal(data):
        raise error(reason, "name another file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise error(f"the byte 0x{data[problem.start]:02x} in line {line}, not UTF-8", "save it as UTF-8") from None
    if not text.strip():
        raise error("an empty file", "name a file that holds examples")
    # A carriage return inside a line belongs to its text; in a file without any `\n` it is the line end of old systems.
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def lines_of(text: str) -> list[str]:
    r"""The lines of a text with `\n` as line end; what follows the last one is a line only if there is something.

    >>> lines_of("a\n\nb\n")
    ['a', '', 'b']
    """
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def looks_like_json(text: str) -> bool:
    """True if a text begins as JSON records do.

    >>> looks_like_json('{"data": []}'), looks_like_json('[ O')
    (True, False)
    """
    return _JSON_START.match(text) is not None


def parse_json(text: str, place: str) -> Any:
    """The value of a JSON text.

    Raises:
        InputError: it is not JSON; the message names `place`.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            expected=f"JSON in {place}", found=f"{brief(text.strip())} ({error})", fix="mend it, or name another file"
        ) from None


def clean(text: str) -> str:
    r"""The text without halves of surrogate pairs, which JSON can name and UTF-8 cannot; each becomes U+FFFD.

    >>> clean("a\ud83d b")
    'a\ufffd b'
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
