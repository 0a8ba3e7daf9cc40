"""Requests to an application in this process, without sockets: a minimal ASGI server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bertsmith.app.server.app import create_app
from bertsmith.app.server.gate import Gate
from bertsmith.app.server.settings import ServerSettings


class Reply(NamedTuple):
    """The reply to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The sentence of a refusal, which has exactly the agreed form."""
        error = self.json["error"]
        assert set(self.json) == {"error"}
        assert set(error) == {"message", "type"}
        assert "\n" not in error["message"]
        return error["message"]


class Client:
    """A client of an application.

    Args:
        state: what stands in the state of each request.

    Attributes:
        gone: when set, the connection is closed by the client.
        unread: chunks of the last body that the application left unread.
    """

    def __init__(self, app: Gate, state: Mapping[str, Any] | None = None) -> None:
        self.app, self.gone, self._state = app, asyncio.Event(), dict(state or {})
        self.unread: list[bytes] = []

    async def send(
        self,
        method: str,
        path: str,
        chunks: Sequence[bytes] = (b"",),
        headers: dict[str, str] | None = None,
        *,
        ends: bool = True,
    ) -> Reply:
        """The reply to a request whose body comes in chunks, and ends with the last of them or never."""
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "scheme": "http",
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "server": ("here", 80),
            "client": ("there", 1),
            "state": dict(self._state),
        }
        left = self.unread = list(chunks)
        messages: list[Any] = []

        async def receive() -> Any:
            if left:
                return {"type": "http.request", "body": left.pop(0), "more_body": bool(left) or not ends}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)

        await self.app(scope, receive, send)
        start, *parts = messages
        assert start["type"] == "http.response.start"
        assert {part["type"] for part in parts} == {"http.response.body"}
        assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
        body = b"".join(part["body"] for part in parts)
        names = [name.decode() for name, _ in start["headers"]]
        assert len(set(names)) == len(names), "no header comes twice"
        return Reply(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, body)

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Reply:
        return await self.send("GET", path, headers=headers)

    async def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        return await self.send("POST", path, [data], named)


@contextlib.asynccontextmanager
async def running(app: Gate) -> AsyncIterator[Client]:
    """A client of an application, which is started before and stopped after the block."""
    events: asyncio.Queue[Any] = asyncio.Queue()
    said: asyncio.Queue[Any] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
    task = asyncio.ensure_future(app(scope, events.get, said.put))
    await events.put({"type": "lifespan.startup"})
    assert (await said.get())["type"] == "lifespan.startup.complete"
    try:
        yield Client(app)
    finally:
        await events.put({"type": "lifespan.shutdown"})
        assert (await said.get())["type"] == "lifespan.shutdown.complete"
        await task


def serve(
    models: Mapping[str, Any],
    script: Callable[[Client], Awaitable[Any]],
    *options: Any,
    state: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Any:
    """The result of a script with a client, on a server with these models.

    Args:
        options: of `create_app`, after the settings.
        state: as for `Client`.
    """

    async def run() -> Any:
        app = create_app(models, ServerSettings(**settings), *options)
        async with asyncio.timeout(240), running(app) as client:
            return await script(Client(app, state) if state else client)

    return asyncio.run(run())


def replies_to(models: Mapping[str, Any], *requests: tuple[str, Any], **settings: Any) -> list[Reply]:
    """The replies to requests, each a path and a body, that are sent at the same time."""

    async def script(client: Client) -> list[Reply]:
        return list(await asyncio.gather(*(client.post(path, body) for path, body in requests)))

    return serve(models, script, **settings)


def sample(client: Client, name: str) -> float:
    """The value of a metric of the server; 0 if it has none."""
    lines = client.app.service.metrics.text().decode().splitlines()
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(f"{name} ")), 0.0)


async def until(condition: Any, seconds: float = 120) -> None:
    """Waits until a condition is true."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)
