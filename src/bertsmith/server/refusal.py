"""What a server says when it does not answer: a status and one sentence, in the form of OpenAI's errors."""

from collections.abc import Mapping
from typing import Any

from fastapi import Response
from pydantic import TypeAdapter, ValidationError

from bertsmith.errors import BertsmithError, CheckpointError

# The kinds of error, by status.
KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_LONGEST = 400  # characters of a sentence
# What pydantic puts into a place beside names and numbers, where a value may be of several kinds.
_KINDS_OF_VALUES = ("str", "int")

_ANYTHING: TypeAdapter[Any] = TypeAdapter(Any)


class RefusalError(Exception):
    """A request that is not answered.

    Args:
        status: of the reply.
        message: one sentence for whoever asked.
        headers: of the reply.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.headers = status, message, dict(headers or {})

    def response(self) -> Response:
        """The reply."""
        return refused(self.status, self.message, self.headers)


class ClientGoneError(Exception):
    """The client went away; there is nobody to answer."""


def json_bytes(value: Any) -> bytes:
    """JSON in UTF-8; numbers that JSON lacks are null."""
    return _ANYTHING.dump_json(value)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A reply in JSON."""
    return Response(json_bytes(value), status, dict(headers or {}), "application/json")


def refused(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """The reply to a request that is not answered."""
    sentence = " ".join(message.split())
    if len(sentence) > _LONGEST:
        sentence = sentence[: _LONGEST - 1] + "…"
    kind = KINDS.get(status, KINDS[400] if status < 500 else KINDS[500])
    return json_response({"error": {"message": sentence, "type": kind}}, status, headers)


def of_user_error(error: BertsmithError) -> RefusalError:
    """The refusal for a mistake that the library found: 400 for the wrong model, 422 for the wrong input."""
    return RefusalError(400 if isinstance(error, CheckpointError) else 422, str(error))


def of_invalid_body(error: ValidationError) -> RefusalError:
    """The refusal for a body that is no JSON, 400, or not of the form that is asked for, 422.

    Where a value may be one of several kinds, there are complaints about each of them. Told is the one about the kind
    that it is, as far as it is one, and of several such ones that which came furthest.
    """
    complaints = error.errors(include_url=False, include_input=False, include_context=False)
    found = max(complaints, key=lambda one: (not one["type"].endswith("_type"), len(one["loc"])))
    message = found["msg"].removeprefix("Value error, ")
    if found["type"] == "json_invalid":
        return RefusalError(400, f"expected a body of JSON in UTF-8; found: {message.removeprefix('Invalid JSON: ')}")
    parts = [str(part) for part in found["loc"] if isinstance(part, int) or part.isidentifier()]
    place = ".".join(part for part in parts if part not in _KINDS_OF_VALUES)
    return RefusalError(422, f"{place}: {message[0].lower()}{message[1:]}" if place else message)
