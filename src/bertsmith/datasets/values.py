"""Single values of task files: JSON, and how messages show them."""

import re
from typing import Any

from bertsmith.documents.names import json_value
from bertsmith.errors import InputError

LONGEST_SHOWN = 40  # characters of a value that a message shows

_JSON_START = re.compile(r'\s*(?:\{\s*"|\[\s*[{\[])')


def brief(value: object) -> str:
    """A value as shown in a message, cut if it is long.

    >>> brief("five"), len(brief("a" * 100))
    ("'five'", 41)
    """
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def looks_like_json(text: str) -> bool:
    """Whether a text starts like JSON records.

    >>> looks_like_json('{"data": []}'), looks_like_json('[ O')
    (True, False)
    """
    return _JSON_START.match(text) is not None


def parse_json(text: str, place: str) -> Any:
    """The parsed value of a JSON text.

    Raises:
        InputError: the text is not JSON, or an object in it has two equal keys; the message names `place`.
    """
    try:
        return json_value(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            expected=f"JSON in {place}", found=f"{brief(text.strip())} ({error})", fix="fix it, or name another file"
        ) from None


def clean(text: str) -> str:
    r"""The text with each lone surrogate, which JSON can express and UTF-8 cannot, replaced by U+FFFD.

    >>> clean("a\ud83d b")
    'a\ufffd b'
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
