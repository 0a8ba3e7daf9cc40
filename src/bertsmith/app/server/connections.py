"""Connections: their limit, their file descriptors, and clients that close their side before they have the reply.

The limit: serve up to it, answer some excess connections with 503, and abort the rest.

A connection can only get a 503 once it sends a request, so half as many connections as the limit are accepted in
excess; each is closed after its first reply. When that room is full too, its oldest connection is aborted to make room
for the new one. This bounds the number of sockets, and GET /health is answered however many clients are connected.

Half-closed: a client may close its sending side after a request and still wait for the reply (`nc -N` does). A client
that is gone looks the same. So it gets an interim `100 Continue`, which a client of HTTP/1.1 skips: if the client is
gone, its system answers with a reset, and the request is dropped.
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from bertsmith.app.server.prometheus import Metrics
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import warn

if os.name == "posix":
    import resource

# Of ASGI applications.
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
_LOOK_SECONDS = 0.25  # between looks at a half-closed connection
# Keys in the state of requests: on an excess connection, and the function that aborts the connection.
EXTRA = "is_extra"
ABORT = "abort"

# Connections that wait to be accepted; the event loop accepts as many at once, and as many again before
# any excess one is closed.
BACKLOG = 128
_OTHERS = 64  # descriptors for models, libraries and the event loop
_OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SECONDS_BETWEEN = 60.0  # of warnings


class ConnectionLimit:
    """The open connections of a server.

    Args:
        limit: maximum number of connections that are served.
        metrics: counters to update.
    """

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit, self._room, self._metrics = limit, (limit + 1) // 2, metrics
        self._served: set[asyncio.BaseProtocol] = set()
        self._extra: dict[asyncio.BaseProtocol, asyncio.Transport] = {}
        metrics.connections.set_function(lambda: len(self._served) + len(self._extra))

    def add(self, connection: asyncio.BaseProtocol, transport: asyncio.Transport) -> bool:
        """Registers a connection; returns whether it is served."""
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
        """Removes a closed connection."""
        self._served.discard(connection)
        self._extra.pop(connection, None)


def limited_protocol(limit: ConnectionLimit) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn: its own HTTP protocol, with a connection limit."""

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which one depends on what is installed
        app_state: dict[str, Any]  # every request gets a copy
        is_half_closed = False

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.app_state = {**self.app_state, ABORT: transport.abort}
            if not limit.add(self, transport):
                self.app_state[EXTRA] = True

        def connection_lost(self, exc: Exception | None) -> None:
            limit.remove(self)
            super().connection_lost(exc)

        def eof_received(self) -> bool:
            """Whether the connection stays open: if a whole request waits for its reply."""
            self.is_half_closed = self._is_busy() and not self.cycle.more_body
            if self.is_half_closed and not self.cycle.response_started and self.cycle.scope["http_version"] == "1.1":
                self.transport.write(_INTERIM)
                self._look()
            return self.is_half_closed

        def send_400_response(self, msg: str) -> None:
            """Refuses what is not HTTP, unless the request before it is whole and still waits for its reply.

            That one is the last of its connection (`connection: close`), and is answered. A request with a damaged body
            is refused here, so the application, which has its head, must not answer it as well.
            """
            if self._is_busy() and not self.cycle.more_body:
                return
            if self._is_busy():
                self.cycle.disconnected = True
                self.cycle.message_event.set()
                if self.cycle.response_started:
                    self.transport.close()
                    return
            super().send_400_response(msg)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.is_half_closed and not self._is_busy():
                self.transport.close()

        def _is_busy(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _look(self) -> None:
            """Aborts the connection if its client is gone; looks again until the reply."""
            if self.transport.is_closing() or not self._is_busy():
                return
            if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.transport.abort()
            else:
                self.loop.call_later(_LOOK_SECONDS, self._look)

    return Connection


def descriptors_for(connections: int) -> int:
    """The file descriptors that a server needs for that many connections, and half as many that it refuses."""
    return connections + (connections + 1) // 2 + 2 * BACKLOG + _OTHERS


def raise_descriptor_limit(connections: int) -> None:
    """Raises the soft limit of this process so that it can hold that many connections."""
    if os.name != "posix":  # no such limit
        return
    needed = descriptors_for(connections)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _covers(soft, needed):
        return
    if _covers(hard, needed):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        except (OSError, ValueError):  # some systems have a limit below the hard one
            hard = soft
        else:
            return
    most = max(0, (hard - 2 * BACKLOG - _OTHERS) * 2 // 3)
    raise ConfigError(
        expected=f"at most {most:,} for --max-connections, as this system allows a process {hard:,} open files",
        found=f"{connections:,}",
        fix="lower --max-connections, or raise the limit (ulimit -Hn)",
    )


def silence_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Replaces the report of each connection that cannot be accepted by one line a minute.

    The event loop reports every failed attempt with its traceback, and tries again many times a second.
    """
    last = -_SECONDS_BETWEEN

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal last
        error = context.get("exception")
        if not (isinstance(error, OSError) and error.errno in _OUT_OF and "socket" in context):
            loop.default_exception_handler(context)
        elif time.monotonic() - last >= _SECONDS_BETWEEN:
            last = time.monotonic()
            warn(f"connections cannot be accepted: {error.strerror}; lower --max-connections or raise ulimit -n")

    loop.set_exception_handler(handle)


def _covers(limit: int, needed: int) -> bool:
    return limit == resource.RLIM_INFINITY or limit >= needed
