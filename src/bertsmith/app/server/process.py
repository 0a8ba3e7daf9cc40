"""The server process: its socket, its keys, its models, and graceful shutdown.

After SIGTERM or Ctrl-C, GET /ready answers 503, and each connection is closed after its reply. After `leave_seconds`
the server accepts no new connections, finishes the accepted requests, and exits with code 0 (Ctrl-C: 130). A second
signal closes idle connections immediately.
"""

import asyncio
import signal
import socket
import time
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from bertsmith.app.library.loading import load_indexes, load_models, name_and_source
from bertsmith.app.server.app import create_app
from bertsmith.app.server.connections import (
    BACKLOG,
    ConnectionLimit,
    limited_protocol,
    raise_descriptor_limit,
    silence_accept_errors,
)
from bertsmith.app.server.host_header import hosts_of, is_loopback
from bertsmith.app.server.service import Service
from bertsmith.app.server.settings import ServeRequest, ServerSettings
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.settings import require

_KEEP_ALIVE = 75  # seconds; longer than clients keep a connection open, so that the client closes it
_TICKS_A_SECOND = 10  # of uvicorn
_SHORTEST_KEY = 16


def read_key(path: Path) -> str:
    """The key in the first line of a file."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise InputError(expected=f"a file with the key, '{path}'", found="no such file", fix="create it") from None
    except UnicodeDecodeError:
        raise InputError(expected=f"a key in UTF-8 in '{path}'", found="invalid bytes", fix="write a new key") from None
    key = lines[0].strip() if lines else ""
    if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            expected=f"a key of at least {_SHORTEST_KEY} letters and digits in the first line of '{path}'",
            found=f"{len(key)} characters" if len(key) < _SHORTEST_KEY else "other characters",
            fix=f"generate one: openssl rand -hex 32 > '{path}'",
        )
    return key


def serve(request: ServeRequest) -> None:
    """Serves models until SIGTERM or Ctrl-C, and returns when all accepted requests are answered.

    Nothing is loaded for a server that cannot start. The address is printed on stderr.
    """
    settings, host = request.part(ServerSettings), request.host
    key, index_key = (
        None if file is None else read_key(Path(file)) for file in (request.api_key_file, request.index_key_file)
    )
    allowed = hosts_of(host, request.allow_host)
    raise_descriptor_limit(settings.max_connections)
    with _listener(host, request.port, settings) as listener:
        _require_upgrade(request)
        models = load_indexes(
            request.index,
            load_models(request.model, **request.arguments(load_models)),
            is_changed=index_key is not None,
            **request.values(ComputeSettings),
        )
        if key is None and not is_loopback(host):
            warn(f"anyone who can reach {host} can use these models; require a key with --api-key-file")
        app = create_app(models, settings, key, allowed, index_key)
        config = uvicorn.Config(
            app,
            ws="none",
            # uvicorn warns about every malformed and every websocket request, so anyone could fill the log.
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            http=limited_protocol(ConnectionLimit(settings.max_connections, app.service.metrics)),
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=int(settings.request_seconds + settings.read_seconds) + 1,
        )
        shown = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
        server = _Server(config, app.service, f"serving {', '.join(models)} at {shown}")
        # uvicorn raises the signal again after it has stopped, for earlier handlers; that of SIGTERM would kill us.
        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            server.run(sockets=[listener])
        finally:
            signal.signal(signal.SIGTERM, before)


def _require_upgrade(request: ServeRequest) -> None:
    """Refuses a model in place of --replace that gives too many other answers."""
    if request.replace is None or request.on is None:
        return
    from bertsmith.app.library.upgrade import upgrade  # needs torch

    name, old = name_and_source(request.replace)
    new = [source for chosen, source in map(name_and_source, request.model) if name in (None, chosen)]
    require(
        len(new) == 1,
        expected=f"one --model {name or 'NAME'}=DIR in place of --replace {request.replace}",
        found=str(len(new)),
        fix="give both the same name, as in --replace NAME=DIR",
    )
    result = upgrade(old, new[0], on=request.on, most=request.most, **request.values(ComputeSettings))
    for line in result.lines():
        tell(line)
    require(
        result.passes,
        expected=f"at most {request.most:.1%} of the answers of '{old}' to change in '{new[0]}'",
        found=f"{result.share:.1%}",
        fix=f"look at them: bertsmith upgrade {old} {new[0]} --on {request.on}; or raise --most",
    )


class _Server(uvicorn.Server):
    """A uvicorn server that reports its shutdown while still accepting connections, and closes idle connections."""

    def __init__(self, config: uvicorn.Config, service: Service, greeting: str) -> None:
        super().__init__(config)
        self._service, self._greeting = service, greeting
        self._closing_time: float | None = None
        self._silent_since: dict[Any, tuple[Any, float]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        silence_accept_errors(asyncio.get_running_loop())
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
        """Closes connections that take too long to send a request; uvicorn does so only if they send nothing at all."""
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
    """A socket that is bound but not listening yet."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Inherited by connections: the system drops those whose client does not read what was sent.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(settings.write_seconds * 1000))
        listener.bind(address)
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        raise ConfigError(
            expected=f"to listen on {host}, port {port}",
            found=getattr(error, "strerror", None) or str(error),
            fix="choose another --port or --host, or stop the process that uses it",
        ) from None
    return listener
