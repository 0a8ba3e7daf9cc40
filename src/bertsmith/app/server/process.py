"""The server process: its socket, its keys, its models, and graceful shutdown.

After SIGTERM or Ctrl-C, GET /ready answers 503, and each connection is closed after its reply. After `leave_seconds`
the server accepts no new connections, finishes the accepted requests, and exits with code 0 (Ctrl-C: 130). A second
signal closes idle connections immediately. SIGHUP loads the models again, see `reload.py`, unless it says that the
terminal of the server was closed, which ends it.
"""

import asyncio
import contextlib
import functools
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from bertsmith.app.library.loading import load_indexes, load_models, name_and_source
from bertsmith.app.library.model import Model
from bertsmith.app.library.request import UpgradeRequest
from bertsmith.app.server.app import create_app
from bertsmith.app.server.connections import (
    BACKLOG,
    ConnectionLimit,
    limited_protocol,
    raise_descriptor_limit,
    silence_accept_errors,
)
from bertsmith.app.server.gate import Gate
from bertsmith.app.server.host_header import hosts_of, is_loopback
from bertsmith.app.server.refusal import RefusalError
from bertsmith.app.server.settings import ServeRequest, ServerSettings
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.settings import require
from bertsmith.base.machine.allocator import return_freed_memory
from bertsmith.base.storage.files import FileState, file_state

if TYPE_CHECKING:
    from bertsmith.app.library.loading import Served
    from bertsmith.app.library.upgrade import Upgrade

_KEEP_ALIVE = 75  # seconds; longer than clients keep a connection open, so that the client closes it
_TICKS_A_SECOND = 10  # of uvicorn
_SECONDS_BETWEEN_RETURNS = 30  # of freed memory to the kernel
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
        models = _loaded(request)
        if request.on is not None:
            _compared(request, models)
        if key is None and not is_loopback(host):
            warn(f"anyone who can reach {host} can use these models; require a key with --api-key-file")
        app = create_app(models, settings, key, allowed, index_key, functools.partial(_reloaded, request))
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
        server = _Server(config, app, f"serving {', '.join(models)} at {shown}")
        # uvicorn raises the signal again after it has stopped, for earlier handlers; that of SIGTERM would kill us.
        before = {signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: None)}
        if hasattr(signal, "SIGHUP"):
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, server.handle_hangup)
        try:
            server.run(sockets=[listener])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _loaded(request: ServeRequest) -> "Mapping[str, Served]":
    """The models and indexes, by name."""
    return load_indexes(
        request.index,
        load_models(request.model, **request.arguments(load_models)),
        is_changed=request.index_key_file is not None,
        **request.values(ComputeSettings),
    )


def _require_upgrade(request: ServeRequest) -> None:
    """Refuses a model in place of --replace that gives too many other answers."""
    if request.on is None:
        return
    number = _number_compared(request)
    if request.replace is not None:
        from bertsmith.app.library.upgrade import upgrade  # needs torch

        old, new = name_and_source(request.replace)[1], name_and_source(request.model[number])[1]
        changes = upgrade(old, new, on=request.on, most=request.most, **request.values(ComputeSettings))
        look = f"look at them with `bertsmith upgrade {old} {new} --on {request.on}`; or raise --most"
        _require_few(changes, request, f"'{old}'", new, look)


def _number_compared(request: ServeRequest) -> int:
    """Which of the models reads the texts of --on."""
    name = None if request.replace is None else name_and_source(request.replace)[0]
    numbers = [n for n, source in enumerate(request.model) if name in (None, name_and_source(source)[0])]
    require(
        len(numbers) == 1,
        expected=f"one --model {name or 'NAME'}=DIR in place of --replace {request.replace}"
        if request.replace is not None
        else "one --model, whose reloads are compared on --on, or --replace NAME=DIR",
        found=str(len(numbers)),
        fix="give both the same name, as in --replace NAME=DIR",
    )
    return numbers[0]


def _require_few(changes: "Upgrade", request: ServeRequest, old: str, new: str, fix: str) -> None:
    """Refuses a model that gives too many other answers."""
    for line in changes.lines():
        tell(line)
    require(
        changes.passes,
        expected=f"at most {request.most:.1%} of the answers of {old} to change in '{new}'",
        found=f"{changes.share:.1%}",
        fix=fix,
    )


def _folder_state(path: Path) -> list[FileState]:
    """What changes where a model folder, or the one in a run, is replaced; nothing for the id of one."""
    return [file_state(path), file_state(path / "model")]


def _reloaded(request: ServeRequest, served: "Mapping[str, Served]") -> "Mapping[str, Served]":
    """The models as their folders have them now.

    Raises:
        BertsmithError: a model cannot be loaded, its folder changed meanwhile, or it gives too many other answers.
    """
    folders = [Path(name_and_source(source)[1]) for source in request.model]
    before = list(map(_folder_state, folders))
    models = _loaded(request)
    for folder, state in zip(folders, before, strict=True):
        require(
            _folder_state(folder) == state,
            expected=f"a model folder that stays as it is while it is read, '{folder}'",
            found="a change",
            fix="reload again",
        )
    if request.on is not None:
        from bertsmith.app.library.upgrade import upgrade_of  # needs torch

        source = name_and_source(request.model[_number_compared(request)])[1]
        compared = UpgradeRequest(old=source, new=source, on=request.on, most=request.most)
        changes = upgrade_of(compared, _compared(request, served), _compared(request, models))
        _require_few(changes, request, "the served model", source, "raise --most, or train again")
    return models


def _compared(request: ServeRequest, models: "Mapping[str, Served]") -> Model:
    """The model that reloads compare on the texts of --on."""
    name, model = list(models.items())[_number_compared(request)]
    if not isinstance(model, Model):
        raise ConfigError(
            expected="a model of texts, to be compared on --on",
            found=f"{name!r}, which answers about other records",
            fix="leave out --on",
        )
    return model


class _Server(uvicorn.Server):
    """A uvicorn server that reports its shutdown while still accepting connections, and closes idle connections."""

    def __init__(self, config: uvicorn.Config, gate: Gate, greeting: str) -> None:
        super().__init__(config)
        self._gate, self._service, self._greeting = gate, gate.service, greeting
        self._loop: asyncio.AbstractEventLoop | None = None
        self._terminals = _terminals()
        self._closing_time: float | None = None
        self._silent_since: dict[Any, tuple[Any, float]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        silence_accept_errors(asyncio.get_running_loop())
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        tell(self._greeting)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Loads the models again; ends the server if its terminal was closed."""
        if self._terminals - _terminals():
            self.handle_exit(signal.SIGTERM, frame)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._reload)

    def _reload(self) -> None:
        assert self._gate.reload is not None, "a server that can load its models"
        with contextlib.suppress(RefusalError):  # one is running
            self._gate.reload.begin()

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
        if counter % (_TICKS_A_SECOND * _SECONDS_BETWEEN_RETURNS) == 0:
            await asyncio.to_thread(return_freed_memory)
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


def _terminals() -> set[int]:
    """Those of the standard streams that are terminals."""
    return {number for number in range(3) if os.isatty(number)}


def _listener(host: str, port: int, settings: ServerSettings) -> socket.socket:
    """A socket that is bound but not listening yet."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        if os.name == "posix":  # on Windows a second server could then take the same port
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
