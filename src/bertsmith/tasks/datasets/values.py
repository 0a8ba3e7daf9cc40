"""Single values of task files: JSON, their texts, and how messages show them."""

import datetime as dt
import decimal
import json
import math
import re
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.text.documents.names import json_value

LONGEST_SHOWN = 40  # characters of a value that a message shows

_JSON_START = re.compile(r'\s*(?:\{\s*"|\[\s*[{\[])')


def number_in(cell: str) -> float:
    """The number in a cell; NaN for any other text, also for one that only Python reads as a number.

    >>> number_in(" 2.5"), number_in("1_0"), number_in("many")
    (2.5, nan, nan)
    """
    try:
        return math.nan if "_" in cell else float(cell)
    except ValueError:
        return math.nan


def brief(value: object) -> str:
    """A value as shown in a message, cut if it is long.

    >>> brief("five"), len(brief("a" * 100))
    ("'five'", 41)
    """
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def brief_apart(first: object, second: object) -> tuple[str, str]:
    """Two values as shown in a message; where both would look the same, from shortly before they differ.

    >>> brief_apart("a", "b"), brief_apart("x" * 50 + "a", "x" * 50 + "b")
    (("'a'", "'b'"), ("…xxxxxxxxxxa'", "…xxxxxxxxxxb'"))
    """
    shown, texts = (brief(first), brief(second)), (repr(first), repr(second))
    if shown[0] != shown[1] or texts[0] == texts[1]:
        return shown
    differing = (at for at, (left, right) in enumerate(zip(*texts, strict=False)) if left != right)
    start = next(differing, min(map(len, texts))) - 10
    first_part, second_part = (f"…{text[start : start + LONGEST_SHOWN]}" for text in texts)
    return first_part, second_part


def looks_like_json(text: str) -> bool:
    """Whether a text starts like JSON records.

    >>> looks_like_json('{"data": []}'), looks_like_json('[ O')
    (True, False)
    """
    return _JSON_START.match(text) is not None


def parse_json(text: str, location: str) -> Any:
    """The parsed value of a JSON text."""
    try:
        return json_value(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            expected=f"JSON in {location}", found=f"{brief(text.strip())} ({error})", fix="fix it, or name another file"
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


def as_text(value: object, location: str) -> str:
    """A value of a typed table as a text: empty if it is missing, JSON if it is a number, a list or a record.

    >>> as_text(None, ""), as_text(float("nan"), ""), as_text(b"good", ""), as_text(decimal.Decimal("1.50"), "")
    ('', '', 'good', '1.50')
    >>> as_text(dt.date(2024, 5, 1), ""), as_text(["a", 1], "")
    ('2024-05-01', '["a", 1]')
    """
    if isinstance(value, str):
        return clean(value)
    if value is None or value != value:  # NaN is what tables of numbers have in an empty cell
        return ""
    text = _plain(value, location) if not isinstance(value, bool | int | float | list | tuple | dict) else None
    return clean(
        json.dumps(value, ensure_ascii=False, default=lambda part: _plain(part, location)) if text is None else text
    )


def _plain(value: object, location: str) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError.at(
                location, "text", f"bytes that are not UTF-8, {brief(value)}", "store it as text"
            ) from None
    if isinstance(value, decimal.Decimal | dt.date | dt.time | dt.timedelta):
        return str(value)
    raise InputError.at(location, "texts, numbers and lists", f"a value of type {type(value).__name__}", "convert it")
