"""File descriptors: as many as the connections need, and no flood of log lines when they run out."""

import asyncio
import errno
import os
import time
from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.progress import warn

if os.name == "posix":
    import resource

# Connections that wait to be accepted; the event loop accepts as many at once, and as many again before
# any excess one is closed.
BACKLOG = 128
_OTHERS = 64  # descriptors for models, libraries and the event loop
_OUT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_SECONDS_BETWEEN = 60.0  # of warnings


def descriptors_for(connections: int) -> int:
    """The file descriptors that a server needs for that many connections, and half as many that it refuses."""
    return connections + (connections + 1) // 2 + 2 * BACKLOG + _OTHERS


def raise_descriptor_limit(connections: int) -> None:
    """Raises the soft limit of this process so that it can hold that many connections.

    Raises:
        ConfigError: the hard limit is too low.
    """
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
