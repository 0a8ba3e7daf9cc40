"""A server as a process: its socket, its key, its models, and how it stops.

After SIGTERM or Ctrl-C the server says at GET /ready that it is not, and closes each connection with its reply. After
`leave_seconds` it takes no new connection, answers what it has accepted, and ends with code 0 (Ctrl-C: 130). A second
signal does not wait for connections that are still unused.
"""

import ipaddress
import re
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from bertsmith.errors import ConfigError, InputError
from bertsmith.library import Model, load
from bertsmith.model.heads import OwnHead
from bertsmith.progress import tell, warn
from bertsmith.server.app import create_app
from bertsmith.server.connections import ConnectionLimit, limited_protocol
from bertsmith.server.service import Service
from bertsmith.server.settings import ServerSettings

_KEEP_ALIVE = 75  # seconds; longer than clients keep a connection, so that it is they who close it
_BACKLOG = 2048
_TICKS_A_SECOND = 10  # of uvicorn
_NAMED = re.compile(r"([\w.-]+)=(.+)")
_SHORTEST_KEY = 16


def load_models(
    sources: Sequence[str], *, device: str = "auto", precision: str = "fp32", head: type[OwnHead] | None = None
) -> dict[str, Model]:
    """The models by the names under which they are served.

    Args:
        sources: anything that `load` takes, or NAME=SOURCE.
        head: the head of the user with which all of them were fine-tuned.

    Raises:
        ConfigError: two would have the same name.
        BertsmithError: a model cannot be loaded.
    """
    models: dict[str, Model] = {}
    for source in sources:
        named = None if Path(source).exists() else _NAMED.fullmatch(source)
        model = load(source if named is None else named[2], device=device, precision=precision, head=head)
        name = model.name if named is None else named[1]
        if name in models:
            raise ConfigError(
                expected="a name of its own for each model",
                found=f"two models called {name!r}",
                fix=f"name one of them: --model NAME={source if named is None else named[2]}",
            )
        models[name] = model
    return models


def read_key(path: Path) -> str:
    """The key in a file: its first line.

    Raises:
        InputError: there is no file, or no key that could be kept secret or sent in a header.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(expected=f"a file with the key, '{path}'", found="no such file", fix="write one") from None
    except UnicodeDecodeError:
        raise InputError(expected=f"a key in UTF-8 in '{path}'", found="other bytes", fix="write a new one") from None
    key = lines[0].strip() if lines else ""
    if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            expected=f"a key of at least {_SHORTEST_KEY} letters and digits in the first line of '{path}'",
            found=f"{len(key)} characters" if len(key) < _SHORTEST_KEY else "other characters",
            fix=f"make one: openssl rand -hex 32 > '{path}'",
        )
    return key


def serve(
    models: Mapping[str, Model],
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    settings: ServerSettings | None = None,
    key: str | None = None,
) -> None:
    """Serves models until SIGTERM or Ctrl-C, and returns when all that was accepted is answered.

    Args:
        models: by name.
        host: an address of this machine; the default is one that only this machine can reach.
        port: 0 for any that is free; the address is told on stderr.
        settings: limits.
        key: that requests must bear.

    Raises:
        ConfigError: the address cannot be had.
        KeyboardInterrupt: it was stopped by Ctrl-C.
    """
    settings = settings or ServerSettings()
    listener = _listener(host, port, settings)
    if key is None and not _is_loopback(host):
        warn(f"anybody who can reach {host} may ask these models; --api-key-file asks for a key")
    app = create_app(models, settings, key)
    config = uvicorn.Config(
        app,
        ws="none",
        # Of each malformed request, and of each wish for a websocket, uvicorn warns: anybody could fill the log.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        http=limited_protocol(ConnectionLimit(settings.max_connections, app.service.metrics)),
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=int(settings.request_seconds + settings.read_seconds) + 1,
    )
    shown = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
    server = _Server(config, app.service, f"serving {', '.join(models)} at {shown}")
    # When it has stopped, uvicorn raises the signal once more, for whoever listened before: nobody, for SIGTERM.
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)


class _Server(uvicorn.Server):
    """A server that says that it is leaving while it still takes connections, and that hangs up on who says nothing."""

    def __init__(self, config: uvicorn.Config, service: Service, greeting: str) -> None:
        super().__init__(config)
        self._service, self._greeting = service, greeting
        self._closing_time: float | None = None
        self._silent_since: dict[Any, tuple[Any, float]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        tell(self._greeting)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._closing_time is None:
            self._service.leave()
            self._closing_time = time.monotonic() + self._service.settings.leave_seconds
            self._captured_signals.append(sig)
        else:
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_SECOND == 0:
            self._hang_up_on_silence()
        is_over = self._closing_time is not None and time.monotonic() >= self._closing_time
        return await super().on_tick(counter) or is_over

    def _hang_up_on_silence(self) -> None:
        """Ends connections without a whole request for too long; uvicorn does so only where nothing at all comes."""
        now, before = time.monotonic(), self._silent_since
        self._silent_since = {}
        for connection in list(self.server_state.connections):
            cycle: Any = getattr(connection, "cycle", None)
            if cycle is not None and not cycle.response_complete:
                continue
            known, since = before.get(connection, (cycle, now))
            since = since if known is cycle else now
            patience = self._service.settings.read_seconds + (0 if cycle is None else _KEEP_ALIVE)
            if now - since > patience:
                connection.shutdown()
            else:
                self._silent_since[connection] = cycle, since


def _listener(host: str, port: int, settings: ServerSettings) -> socket.socket:
    """A socket that is bound, but takes no connection yet.

    Raises:
        ConfigError: the address cannot be had.
    """
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Connections inherit it: the system ends those whose client does not take what was sent.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.write_seconds * 1000))
        listener.bind(address)
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        raise ConfigError(
            expected=f"to listen at {host}, port {port}",
            found=getattr(error, "strerror", None) or str(error),
            fix="choose another --port or --host, or stop who has it",
        ) from None
    return listener


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
