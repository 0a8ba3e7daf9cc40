"""Read request bodies with limits on size and time, and validate them against their schemas.

A gzip body is decompressed chunk by chunk, so that a small body cannot become a large one.
"""

import asyncio
import contextlib
import re
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from bertsmith.app.server.held import HeldMemory, Lease
from bertsmith.app.server.refusal import ClientGoneError, RefusalError, of_invalid_body
from bertsmith.app.server.settings import ServerSettings

Asked = TypeVar("Asked", bound=BaseModel)

# A client that is refused while it is still sending may not read the reply, so up to this many times the limit is read
# and discarded first.
_PATIENCE = 8
# The marks that JSON is counted by, and those among them that begin a list, an object or the value of a key. An
# unterminated string extends to the end of the body.
_NODES = (b"[", b"{", b":")
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[,:\[{]', re.DOTALL)

_GZIP = frozenset({"gzip", "x-gzip"})
_WITH_HEADER = 16 + zlib.MAX_WBITS  # zlib's value for gzip


class BodyReader:
    """Reads the bodies of all requests to a server.

    Args:
        settings: limits.
        held: the memory of open requests.
    """

    def __init__(self, settings: ServerSettings, held: HeldMemory) -> None:
        self._settings, self._held = settings, held

    @contextlib.asynccontextmanager
    async def read(self, request: Request, schema: type[Asked]) -> AsyncIterator[Asked]:
        """The body of a request as an object of `schema`; its bytes count as held until the block exits.

        Raises:
            RefusalError: 400, not JSON or damaged gzip; 408, too slow; 413, too large; 415, wrong content type or
                encoding; 422, does not match the schema; 429, too many bytes are held already.
            ClientGoneError: the client disconnected.
        """
        _require_json(request.headers)
        held = Lease(self._held)
        try:
            try:
                async with asyncio.timeout(self._settings.read_seconds):
                    data = await self._bytes(request, held)
            except TimeoutError:
                late = f"the body did not arrive within {self._settings.read_seconds:g} s"
                raise RefusalError(408, late, {"connection": "close"}) from None
            self._require_few_values(data)
            try:
                body = schema.model_validate_json(data)
            except ValidationError as error:
                raise of_invalid_body(error, schema.model_fields) from None
            yield body
        finally:
            held.end()

    async def throw_away(self, request: Request) -> None:
        """Reads and discards the body of a refused request, unless it is too large or too slow."""
        left = 0 if "expect" in request.headers else _PATIENCE * self._settings.max_body
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.read_seconds):
                while left > 0:
                    message = await request.receive()
                    left -= len(message.get("body", b""))
                    if not message.get("more_body", False):
                        break

    async def _bytes(self, request: Request, held: Lease) -> bytes:
        most = self._settings.max_body
        announced = _announced(request.headers)
        if announced > most and "expect" in request.headers:
            raise self._too_large()
        unpacked = decompressor(request.headers)
        data = bytearray()
        thrown_away = 0
        is_full = False
        while True:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            chunk = message.get("body", b"")
            is_full = is_full or self._held.is_full
            if unpacked is not None and not (is_full or thrown_away or announced > most):
                chunk = unpacked.bytes(chunk, most - len(data))
            if is_full or thrown_away or announced > most or len(data) + len(chunk) > most:
                thrown_away += len(data) + len(chunk)
                data.clear()
                held.end()
            else:
                data += chunk
                held.add(len(chunk))
            if thrown_away > _PATIENCE * most or not message.get("more_body", False):
                break
        if is_full:
            raise RefusalError(429, "too many requests are in progress; try again in 1 s", {"retry-after": "1"})
        if thrown_away or announced > most:
            raise self._too_large()
        if unpacked is not None:
            unpacked.end()
        return bytes(data)

    def _require_few_values(self, data: bytes) -> None:
        """Returns if a body has no more values than its texts and tokens can need.

        The parser creates an object for each value, in the event loop, before any can be checked: 8 MB of `[],` would
        block the loop for seconds and take a hundred times as much memory.

        Raises:
            RefusalError: 413, the body has more values.
        """
        most_nodes, most_marks = self._settings.max_nodes, self._settings.max_marks
        nodes = sum(map(data.count, _NODES))
        if nodes <= most_nodes and nodes + data.count(b",") + data.count(b'"') <= most_marks:
            return
        # Most marks may be inside texts, so count exactly.
        nodes = 0
        for marks, mark in enumerate(_MARK.finditer(data), start=1):
            nodes += mark[0] in _NODES
            if nodes > most_nodes or marks > most_marks:
                few = f"{most_nodes:,} lists, objects and keys" if nodes > most_nodes else f"{most_marks:,} values"
                raise RefusalError(413, f"expected a body of at most {few}; found more; split the request")

    def _too_large(self) -> RefusalError:
        limit = f"{self._settings.max_body:,}"
        return RefusalError(413, f"the body is larger than {limit} bytes; split the request", {"connection": "close"})


def _require_json(headers: Mapping[str, str]) -> None:
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        sent = repr(kind[:60]) if kind else "none"
        raise RefusalError(415, f"expected the header content-type: application/json; found {sent}")


def _announced(headers: Mapping[str, Any]) -> int:
    """The length in the content-length header; 0 if there is none."""
    said = headers.get("content-length", "")
    return int(said) if said.isascii() and said.isdigit() else 0


class Decompressor:
    """Turns the chunks of a gzip body into the bytes that were compressed."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_WITH_HEADER)

    def bytes(self, chunk: bytes, most: int) -> bytes:
        """The decompressed bytes of a chunk: if they are more than `most`, one more, and the rest is not computed.

        Raises:
            RefusalError: 400, the chunk is not gzip, or something follows the end.
        """
        try:
            result = self._member.decompress(chunk, most + 1)
        except zlib.error:
            raise _damaged() from None
        # A second member is allowed by the format and sent by no client; thousands of empty ones would be slow.
        if self._member.unused_data:
            raise _damaged()
        return result

    def end(self) -> None:
        """Returns if the body was complete.

        Raises:
            RefusalError: 400, it ended early.
        """
        if not self._member.eof:
            raise _damaged()


def decompressor(headers: Mapping[str, str]) -> Decompressor | None:
    """The decompressor for a body with these headers; None if it is not compressed.

    Raises:
        RefusalError: 415, it is compressed in another way.
    """
    said = headers.get("content-encoding", "").strip().lower()
    if said in ("", "identity"):
        return None
    if said in _GZIP:
        return Decompressor()
    sentence = f"expected content-encoding: gzip, or none; found {said[:60]!r}; send the body as it is"
    raise RefusalError(415, sentence, {"accept-encoding": "gzip"})


def _damaged() -> RefusalError:
    return RefusalError(400, "expected one complete stream of gzip; found a damaged body; send the body as it is")
