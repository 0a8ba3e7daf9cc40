"""Error replies: a status and a one-sentence message, in OpenAI's error format."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter, ValidationError

from bertsmith.base.core.errors import BertsmithError, CheckpointError, NotFiniteError, RunError, nearest

# Error types by status.
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_LONGEST = 400  # characters of a message
_PARAMETER = re.compile(r"`(\w+)=([^`]+)`")  # of the library, with its value
# What pydantic adds to a location, besides names and indexes, if a value may be of several types.
_KINDS_OF_VALUES = ("str", "int", "Document")
_MOST_COMPLAINTS = 64  # that are read; only unknown keys can cause more
_LONGEST_SHOWN = 60  # characters of what was found
_LARGEST_SHOWN = 10**15
_FORM = "GET /docs shows the form"
# What was expected, by pydantic's error type, filled in with pydantic's context values.
_EXPECTED: Mapping[str, str] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "list_type": "a list",
    "tuple_type": "a pair of texts",
    "too_long": "a pair of texts",
    "model_type": "an object",
    "dict_type": "an object",
    "too_short": "a list of at least {min_length}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "none_required": "null, since it is not supported",
}

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class RefusalError(Exception):
    """A request that is refused.

    Args:
        status: of the reply.
        message: one sentence for the client.
        headers: of the reply.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> Response:
        """The reply."""
        return refused(self.status, self.message, self.headers)


class ClientGoneError(Exception):
    """The client disconnected; no reply is needed."""


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8; NaN and infinity become null."""
    return _ANYTHING.dump_json(value)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON reply."""
    return Response(json_bytes(value), status, dict(headers or {}), "application/json")


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error reply."""
    sentence = " ".join(message.split())
    if len(sentence) > _LONGEST:
        sentence = sentence[: _LONGEST - 1] + "…"
    kind = KINDS.get(status, KINDS[400] if status < 500 else KINDS[500])
    return json_response({"error": {"message": sentence, "type": kind}}, status, headers)


def of_user_error(error: BertsmithError) -> RefusalError:
    """The refusal for an error raised by the library.

    Its status is 400 for the wrong model, 409 for a folder in use or without space, 422 for an invalid item.
    """
    is_of_model = isinstance(error, CheckpointError) and not isinstance(error, NotFiniteError)
    status = 409 if isinstance(error, RunError) else 400 if is_of_model else 422
    return RefusalError(status, _PARAMETER.sub(_as_field, str(error)))


def _as_field(match: "re.Match[str]") -> str:
    """A parameter with its value, as a key of a body with its value.

    >>> _PARAMETER.sub(_as_field, 'add `multi_label=True`')
    'add "multi_label": true'
    """
    return f'"{match[1]}": {({"True": "true", "False": "false"}).get(match[2], match[2])}'


def of_invalid_body(error: ValidationError, known: Iterable[str]) -> RefusalError:
    """The refusal for a body that is not JSON, 400, or does not match the schema, 422.

    If a value may be of several types, pydantic reports errors for each of them. The message uses the errors for the
    type that the value has, if it has one of them, and among those the ones deepest in the body.

    Args:
        known: the keys that a body may have.
    """
    if error.error_count() > _MOST_COMPLAINTS:
        wrong = f"more than {_MOST_COMPLAINTS} wrong or missing keys"
        return RefusalError(422, f"expected the keys of this route; found {wrong}; {_FORM}")
    complaints: list[Any] = error.errors(include_url=False)
    furthest = max(map(_reach, complaints))
    deepest = [complaint for complaint in complaints if _reach(complaint) == furthest]
    kind, where, message = deepest[0]["type"], deepest[0]["loc"], deepest[0]["msg"]
    if kind == "json_invalid":
        return RefusalError(
            400, f"expected a body of JSON in UTF-8; found something else ({message.removeprefix('Invalid JSON: ')})"
        )
    if kind == "value_error":
        return RefusalError(422, message.removeprefix("Value error, "))
    if kind == "extra_forbidden":
        key = str(where[-1])[:_LONGEST_SHOWN]
        fix = nearest(key, known) if len(where) == 1 else _FORM
        return RefusalError(422, f"{_path_of(where[:-1])}expected a known key; found {key!r}; {fix}")
    if kind == "missing" and isinstance(where[-1], str):
        return RefusalError(422, f"{_path_of(where[:-1])}expected the key {where[-1]!r}; found none; {_FORM}")
    if kind == "missing":
        return RefusalError(422, f"{_path_of(where[:-1])}expected a pair of texts; found fewer; {_FORM}")
    # Error types that are not in the table use pydantic's message.
    expected = dict.fromkeys(
        _EXPECTED.get(problem["type"], f"a valid value ({problem['msg']})").format_map(problem.get("ctx", {}))
        for problem in deepest
    )
    return RefusalError(422, f"{_path_of(where)}expected {' or '.join(expected)}; found {_shown(deepest[0])}; {_FORM}")


def _reach(complaint: Mapping[str, Any]) -> tuple[bool, int, list[int]]:
    """A sort key: how well a value matched the type that an error is about; later items of a list rank higher."""
    where = complaint["loc"]
    return not complaint["type"].endswith("_type"), len(where), [part for part in where if isinstance(part, int)]


def _path_of(where: Sequence[int | str]) -> str:
    parts = [str(part) for part in where if isinstance(part, int) or part.isidentifier()]
    path = ".".join(part for part in parts if part not in _KINDS_OF_VALUES)
    return f"{path}: " if path else ""


def _shown(complaint: Mapping[str, Any]) -> str:
    """A short description of the value that was found."""
    value = complaint["input"]
    if value is None or isinstance(value, bool):
        return json_bytes(value).decode()
    if isinstance(value, int | float):
        return str(value) if -_LARGEST_SHOWN < value < _LARGEST_SHOWN else "another number"
    if isinstance(value, str):
        return repr(value) if complaint["type"] == "literal_error" and len(value) <= _LONGEST_SHOWN else "a text"
    if isinstance(value, dict):
        return "an object"
    return f"a list of {len(value)}" if value else "an empty list"
