"""Checks that names of columns and JSON keys are unique: of two equal ones, one would be lost silently."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bertsmith.base.core.errors import InputError


def doubled(names: Sequence[str]) -> str:
    """The first name that occurs again later, as a message shows it, or "" if there is none; blank names may repeat.

    >>> doubled(["a", "b", "", "b", "a", ""])
    "the column 'a' twice"
    """
    counts = Counter(names)
    return next((f"the column {name[:40]!r} twice" for name in names if name and counts[name] > 1), "")


def require_unique(names: Sequence[str], table: str) -> None:
    """Checks that no two columns have the same name."""
    if problem := doubled(names):
        raise InputError(
            expected=f"unique column names in {table}", found=problem, fix="give each column a unique name"
        )


def json_value(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or an object in it has two equal keys.

    >>> json_value('{"text": "first", "text": "second"}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'text' twice
    """
    return _DECODER.decode(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0][:40]!r} twice")
    return values


# One decoder for all texts: `json.loads` with a hook builds a new one for each, which takes most of its time.
_DECODER = json.JSONDecoder(object_pairs_hook=_object)
