"""The outermost layer of the server: host names, API key, connection limit, common headers and request metrics."""

import hmac
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Request

from bertsmith.app.server.connections import EXTRA, Application, Message, Receive, Scope, Send
from bertsmith.app.server.refusal import RefusalError, refused

if TYPE_CHECKING:
    from bertsmith.app.server.host_header import AllowedHosts
    from bertsmith.app.server.reload import Reload
    from bertsmith.app.server.routes import Endpoint
    from bertsmith.app.server.service import Service

MISTAKE = "internal server error; the details are in the server's log"
# Browsers ask for these by themselves.
ICON_PATHS = ("/favicon.ico", "/apple-touch-icon.png", "/apple-touch-icon-precomposed.png")
# Open without the key: the page, which asks for the key, and the health checks.
OPEN_PATHS = frozenset({"/", "/health", "/ready", *ICON_PATHS})
_OPEN_FOLDER = "/page/"
# Answered even when the connection limit is reached.
_ALWAYS = frozenset({"/health", "/ready", "/metrics"})
_RETRY = "5"  # seconds
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]
_CLOSE = (b"connection", b"close")


class Gate:
    """The outermost ASGI application: sends requests for model routes to their endpoints, and all others to FastAPI.

    FastAPI costs as much time per request as reading and writing it, and the model routes do not need it: they read
    and validate their bodies themselves.

    Args:
        app: the FastAPI application with all routes.
        endpoints: the model routes by path, for POST requests.
        service: the service of the server.
        key: the API key that requests must send, or None.
        index_key: the key that requests to change an index must send, which is good for all others too; None if there
            is none, and no index is changed.
        changing: the paths of requests that change an index.
        allowed: the values of the header Host that are answered.
        paths: paths that get their own metrics label; all others are counted as "other".
        reload: loads the models again; None for a server whose models stay.
    """

    def __init__(
        self,
        app: Application,
        endpoints: "Mapping[str, Endpoint]",
        *,
        service: "Service",
        key: str | None,
        index_key: str | None = None,
        changing: Iterable[str] = (),
        allowed: "AllowedHosts",
        paths: Iterable[str],
        reload: "Reload | None" = None,
    ) -> None:
        self.reload = reload
        self._app, self._endpoints, self.service, self._paths = app, endpoints, service, frozenset(paths)
        self._key, self._index_key = (None if each is None else each.encode() for each in (key, index_key))
        self._changing, self._allowed = frozenset(changing), allowed
        self._counters: dict[tuple[str, int], Any] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers an HTTP request; other events are passed on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics, start, status = self.service.metrics, time.perf_counter(), 0
        is_extra = EXTRA in scope.get("state", ())
        is_head = scope["method"] == "HEAD"
        if is_head:  # answered as GET, without the body
            scope = {**scope, "method": "GET"}

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_ours(message["headers"], is_last=is_extra or self.service.is_leaving)
            elif is_head:
                message["body"] = b""
            await send(message)

        metrics.open_requests.inc()
        try:
            if is_extra and scope["path"] not in _ALWAYS:
                await self._turn_away(scope, receive, counted)
            else:
                await self._answer(scope, receive, counted)
        finally:
            if not status:  # an internal error is being raised and will be logged
                await refused(500, MISTAKE)(scope, receive, counted)
            metrics.open_requests.dec()
            self._count(scope["path"], status, time.perf_counter() - start)

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request on an excess connection with 503."""
        await self.service.reader.throw_away(Request(scope, receive))
        self.service.metrics.refused_connections.labels("refused").inc()
        most = f"{self.service.settings.max_connections:,}"
        sentence = f"the limit of {most} connections is reached; try again in {_RETRY} s"
        await refused(503, sentence, {"retry-after": _RETRY})(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._require_allowed(scope)
        except RefusalError as refusal:
            await self.service.reader.throw_away(Request(scope, receive))
            await refusal.response()(scope, receive, send)
            return
        path = scope["path"]
        endpoint = self._endpoints.get(path) if scope["method"] == "POST" else None
        if endpoint is None:
            await self._app(scope, receive, send)
        else:
            with self.service.steady():
                await (await endpoint(Request(scope, receive)))(scope, receive, send)

    def _require_allowed(self, scope: Scope) -> None:
        """Returns if a request may be answered.

        Raises:
            RefusalError: 400, it has two lengths; 401, it needs a key; 403, no index is changed here; 421, it is for
                another host.
        """
        names = [name for name, _ in scope["headers"]]
        if b"transfer-encoding" in names and b"content-length" in names:
            # A proxy in front may read the other length, and take the rest of the body for a request of its own.
            sentence = "expected content-length or transfer-encoding; found both; send one of them"
            raise RefusalError(400, sentence, {"connection": "close"})
        for name, value in scope["headers"]:
            if name == b"host" and not self._allowed.allows(value.decode("latin-1")):
                name_sent = repr(value.decode("latin-1")[:80])
                sentence = f"expected a host name of this server; found {name_sent}; allow it with --allow-host"
                raise RefusalError(421, sentence)
        changes = scope["path"] in self._changing
        if changes and self._index_key is None:
            raise RefusalError(403, "this server changes no index; start it with --index-key-file")
        if (changes or not (self._key is None or self._is_open(scope))) and not self._is_known(scope, changes):
            name = "index key" if changes else "API key"
            sentence = f"expected this server's {name} in the header authorization: Bearer KEY"
            raise RefusalError(401, sentence, {"www-authenticate": "Bearer"})

    def _count(self, path: str, status: int, seconds: float) -> None:
        route = path if path in self._paths else "other"
        counters = self._counters.get((route, status))
        if counters is None:
            metrics = self.service.metrics
            counters = metrics.requests.labels(route, str(status)), metrics.seconds.labels(route)
            self._counters[route, status] = counters
        counters[0].inc()
        counters[1].observe(seconds)

    def _is_open(self, scope: Scope) -> bool:
        path = scope["path"]
        is_route = scope["method"] == "POST" and path in self._endpoints
        return not is_route and (path in OPEN_PATHS or path.startswith(_OPEN_FOLDER))

    def _is_known(self, scope: Scope, changes: bool) -> bool:
        """Whether a request has the key that it needs."""
        said = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = said.partition(b" ")
        keys = [self._index_key] if changes else [self._key, self._index_key]
        same = [hmac.compare_digest(key.strip(), each) for each in keys if each is not None]
        return scheme.lower() == b"bearer" and any(same)


def _with_ours(headers: Iterable[tuple[bytes, bytes]], is_last: bool) -> list[tuple[bytes, bytes]]:
    """The headers of a reply plus the common ones; the last reply on a connection closes it."""
    if not is_last:
        return [*headers, *_HEADERS]
    return [*(header for header in headers if header[0].lower() != _CLOSE[0]), *_HEADERS, _CLOSE]
