"""Errors of a worker as plain values in its rows, so that they arrive after all results before them."""

from typing import Any

import bertsmith.base.core.errors
from bertsmith.base.core.errors import BertsmithError, NotFiniteError


def record_of(error: BertsmithError) -> dict[str, Any]:
    """An error as plain values for JSON.

    >>> record_of(bertsmith.base.core.errors.InputError(expected="text", found="none", fix="name a file"))
    {'kind': 'InputError', 'expected': 'text', 'found': 'none', 'fix': 'name a file'}
    """
    found = {"kind": type(error).__name__, "expected": error.expected, "found": error.found, "fix": error.fix}
    return found | ({"index": error.index} if isinstance(error, NotFiniteError) else {})


def error_of(record: dict[str, Any]) -> BertsmithError:
    """The error of a record.

    >>> error_of(record_of(bertsmith.base.core.errors.InputError(expected="text", found="none", fix="name a file")))
    InputError('expected text; found none; name a file')
    """
    parts = {name: str(record[name]) for name in ("expected", "found", "fix")}
    if record["kind"] == NotFiniteError.__name__:
        error = NotFiniteError(int(record["index"]))
        BertsmithError.__init__(error, **parts)
        return error
    kind = getattr(bertsmith.base.core.errors, record["kind"])
    found: BertsmithError = kind(**parts)
    return found


def raise_any(record: dict[str, Any] | None) -> None:
    """Raises the error of a record, if there is one."""
    if record is not None:
        raise error_of(record)
