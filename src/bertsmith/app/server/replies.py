"""How replies are sent: as JSON in pieces, or as events while their text is being written."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

from fastapi import Response

from bertsmith.app.server.connections import ABORT, Receive, Scope, Send
from bertsmith.app.server.held import Lease

_PIECE = 262_144  # bytes of a reply that are sent at once


class ModelReply(Response):
    """A JSON reply, sent in pieces as fast as the client reads them; until then its memory counts as held.

    Args:
        content: the JSON.
        lease: holds the bytes of the answers.
        seconds: if the client has not read the reply after that time, its connection is aborted.
    """

    def __init__(self, content: bytes, lease: Lease, seconds: float) -> None:
        super().__init__(content, media_type="application/json")
        self._lease, self._seconds = lease, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the reply."""
        try:
            async with asyncio.timeout(self._seconds):
                body = bytes(self.body)
                start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                await send(start)
                for begin in range(0, len(body), _PIECE):
                    more = begin + _PIECE < len(body)
                    await send({"type": "http.response.body", "body": body[begin : begin + _PIECE], "more_body": more})
        except TimeoutError:
            await _abort(scope, receive)
        finally:
            self._lease.end()


@dataclasses.dataclass(frozen=True)
class Streamed:
    """A reply that is sent while it is computed.

    Attributes:
        events: the JSON of each event.
        task: computes them; it is cancelled when the client is gone.
    """

    events: AsyncIterator[bytes]
    task: "asyncio.Task[None]"


class StreamReply(Response):
    """Server-sent events, each as soon as it is there; until the end, the memory of the answers counts as held.

    Args:
        streamed: the events.
        lease: holds the bytes of the answers.
        seconds: if the client has not read an event after that time, its connection is aborted.
    """

    def __init__(self, streamed: Streamed, lease: Lease, seconds: float) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-cache"})
        del self.headers["content-length"]
        self._streamed, self._lease, self._seconds = streamed, lease, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in self._streamed.events:
                async with asyncio.timeout(self._seconds):
                    await send({"type": "http.response.body", "body": b"data: %s\n\n" % event, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._streamed.task.cancel()
            await _abort(scope, receive)
        finally:
            self._streamed.task.cancel()
            self._lease.end()


async def _abort(scope: Scope, receive: Receive) -> None:
    """Aborts a connection whose client reads too slowly."""
    scope["state"][ABORT]()
    # uvicorn would log a reply that ends early, unless it knows that the connection is gone.
    while (await receive())["type"] != "http.disconnect":
        pass
