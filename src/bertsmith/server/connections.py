"""How many are connected: the first are served, some more are told that they are too many, and the rest is aborted.

A connection is only refused in words when it asks something, so there is room for half as many again as are served;
each of these is closed with its first reply. When that room is full too, its eldest connection is aborted for
the newcomer: so sockets are bounded whoever holds them, and GET /health is answered however many are connected.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bertsmith.server.prometheus import Metrics

# Stands in the state of every request of a connection that is one too many.
EXTRA = "is_extra"


class ConnectionLimit:
    """Who is connected.

    Args:
        limit: connections that are served.
        metrics: what is counted.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._room, self._metrics = limit, (limit + 1) // 2, metrics
        self._served: set[asyncio.BaseProtocol] = set()
        self._extra: dict[asyncio.BaseProtocol, asyncio.Transport] = {}
        metrics.connections.set_function(lambda: len(self._served) + len(self._extra))

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.Transport) -> bool:
        """Takes a connection; the result is whether it is served."""
        if len(self._served) < self._limit:
            self._served.add(connection)
            return True
        if len(self._extra) >= self._room:
            eldest = next(iter(self._extra))
            self._extra.pop(eldest).abort()
            self._metrics.refused_connections.labels("aborted").inc()
        self._extra[connection] = transport
        return False

    def remove(self, connection: asyncio.BaseProtocol) -> None:
        """Forgets a connection that has ended."""
        self._served.discard(connection)
        self._extra.pop(connection, None)


def limited_protocol(limit: ConnectionLimit) -> type[asyncio.Protocol]:
    """What uvicorn makes of each connection: HTTP as it reads it, within a limit."""

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which one depends on what is installed
        app_state: dict[str, Any]  # of which every request is given a copy

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if not limit.add(self, transport):
                self.app_state = {**self.app_state, EXTRA: True}

        def connection_lost(self, exc: Exception | None) -> None:
            limit.remove(self)
            super().connection_lost(exc)

    return Connection
