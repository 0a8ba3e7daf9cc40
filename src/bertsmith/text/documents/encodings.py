"""Text files in other encodings than UTF-8: which one a file has, and its content as text or as UTF-8.

The rule is the same for every file of text or of a table: a byte order mark says UTF-8, UTF-16 or UTF-32; without one,
the file is in the encoding that the user names, UTF-8 by default. A byte that is not valid in that encoding is refused
with its line, since a letter would be lost; `bad_bytes="drop"` drops such bytes of UTF-8 and counts them.
"""

import codecs
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.settings import help_field, require_known, require_other

UTF_8 = "utf-8"
BAD_BYTES = ("refuse", "drop")
# The mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: UTF_8,
}

_OF_HOST_NAMES = ("idna", "punycode")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableEncoding:
    """How the bytes of tables become characters."""

    encoding: str = help_field(
        UTF_8,
        "encoding of text files, such as cp1252 or shift_jis; a byte order mark of UTF-8, UTF-16 or UTF-32 in a file "
        "takes precedence",
    )

    def __post_init__(self) -> None:
        require_encoding(self.encoding)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodingSettings(TableEncoding):
    """How the bytes of text files become characters."""

    bad_bytes: str = help_field(
        "refuse", "what to do with bytes that are not valid UTF-8: refuse the file, or drop them and count them"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known("bad_bytes", self.bad_bytes, BAD_BYTES)
        require_other(
            self.bad_bytes == "refuse" or require_encoding(self.encoding) == UTF_8,
            "--bad-bytes drop",
            "--encoding utf-8",
            "leave one of them out",
        )


def require_encoding(name: str) -> str:
    """The name that Python uses for an encoding of text.

    >>> require_encoding("UTF8"), require_encoding("windows-1252")
    ('utf-8', 'cp1252')
    """
    try:
        "a".encode(name)  # refuses what encodes bytes as bytes, such as "base64"
        actual = codecs.lookup(name).name
    except (LookupError, ValueError):
        actual = ""
    if actual in ("", *_OF_HOST_NAMES):
        raise ConfigError(
            expected="the name of an encoding of text", found=repr(name), fix="use a name such as utf-8, cp1252 or gbk"
        )
    return actual


def has_mark(head: bytes) -> bool:
    """Whether a file that begins with `head` begins with a byte order mark."""
    return head.startswith(tuple(_MARKS))


def encoding_of(head: bytes, encoding: str = UTF_8) -> str:
    r"""The encoding of a file that begins with `head`: named by its byte order mark, or else by `encoding`.

    >>> encoding_of(b"\xff\xfea\0"), encoding_of(b"caf\xe9", "latin-1"), encoding_of(b"cafe")
    ('utf-16', 'iso8859-1', 'utf-8')
    """
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), "")
    actual = marked or require_encoding(encoding)
    if head and not marked and actual in _MARKS.values() and actual != UTF_8:
        raise ConfigError(
            expected=f"a byte order mark at the beginning of text in {actual}",
            found="none",
            fix=f"name the order of its bytes, {actual}-le or {actual}-be",
        )
    return actual


def decoded(data: bytes, *, name: str, content: str = "text", encoding: str = UTF_8) -> str:
    r"""The text of the bytes of a whole file, without its byte order mark.

    >>> decoded("caf\u00e9".encode("utf-16"), name="a.txt") == decoded(b"caf\xe9", name="a.txt", encoding="cp1252")
    True
    """
    actual = encoding_of(data, encoding)
    try:
        return data.decode(actual).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise undecodable(error, name=name, content=content, encoding=actual) from None


def undecodable(
    error: UnicodeDecodeError,
    *,
    name: str,
    content: str = "text",
    encoding: str = UTF_8,
    line: int = 1,
    may_drop: bool = False,
) -> InputError:
    """The error for bytes that are not valid."""
    line += error.object[: error.start].decode(encoding, "ignore").count("\n")
    shown = "UTF-8" if encoding == UTF_8 else encoding
    return InputError(
        expected=f"{content} in '{name}'",
        found=f"the byte 0x{error.object[error.start]:02x} in line {line}, not {shown}",
        fix="save it as UTF-8, or name its encoding, as in --encoding cp1252"
        + (", or drop such bytes with --bad-bytes drop" if may_drop else ""),
    )


class LineDecoder:
    r"""Decodes lines of UTF-8: a byte that is not valid is refused, or dropped and counted.

    >>> decoder = LineDecoder(EncodingSettings(bad_bytes="drop"), name="a.txt")
    >>> decoder.text(b"caf\xe9\nnoir", 7), decoder.note()
    ('caf\nnoir', 'bytes that are not UTF-8, dropped: 1, the first in line 7')
    """

    def __init__(self, reading: EncodingSettings, *, name: str, may_drop: bool = True) -> None:
        self._drops, self._name, self._may_drop = reading.bad_bytes == "drop", name, may_drop
        self.dropped = self._first = 0

    def text(self, data: bytes, line: int) -> str:
        """The text of one or more lines, without the byte order mark of the first line of a file."""
        try:
            text = data.decode(UTF_8)
        except UnicodeDecodeError as error:
            if not self._drops:
                raise undecodable(error, name=self._name, line=line, may_drop=self._may_drop) from None
            text = data.decode(UTF_8, "ignore")
            self.dropped += len(data) - len(text.encode(UTF_8))
            self._first = self._first or line + data[: error.start].count(b"\n")
        return text.removeprefix("\ufeff") if line == 1 else text

    def note(self) -> str:
        """The number of dropped bytes and the first line with one, as a sentence; empty if there are none."""
        if not self.dropped:
            return ""
        return f"bytes that are not UTF-8, dropped: {self.dropped:,}, the first in line {self._first:,}"


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes; none only at the end."""
        ...


class Utf8Stream:
    """The bytes of a text file in any encoding, as UTF-8; UTF-8 itself is passed on unchecked."""

    def __init__(self, read: Callable[[int], bytes], *, name: str, encoding: str = UTF_8) -> None:
        self._read, self._name, self._encoding = read, name, encoding
        self._decoder: Any = None
        self._has_begun = False
        self._line = 1

    def read(self, size: int) -> bytes:
        """The next bytes as UTF-8, about `size`; none only at the end."""
        data = self._read(size)
        if not self._has_begun:
            self._has_begun = True
            self._encoding = encoding_of(data, self._encoding)
            if self._encoding != UTF_8:
                self._decoder = codecs.getincrementaldecoder(self._encoding)()
        if self._decoder is None:
            return data
        while True:
            try:
                text: str = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                raise undecodable(error, name=self._name, encoding=self._encoding, line=self._line) from None
            if text or not data:
                self._line += text.count("\n")
                return text.encode(UTF_8)
            data = self._read(size)
