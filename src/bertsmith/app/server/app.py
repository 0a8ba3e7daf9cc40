"""The ASGI application: all routes of a server for its loaded models."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request, Response

from bertsmith.app.server import dialect_schemas, schemas
from bertsmith.app.server.dialects import info_of
from bertsmith.app.server.documents import document_router, page_router
from bertsmith.app.server.gate import OPEN_PATHS, Gate
from bertsmith.app.server.host_header import AllowedHosts
from bertsmith.app.server.index_routes import CHANGING
from bertsmith.app.server.prometheus import CONTENT_TYPE, Metrics
from bertsmith.app.server.record_routes import ROUTES
from bertsmith.app.server.refusal import RefusalError, json_response, refused
from bertsmith.app.server.reload import Reload
from bertsmith.app.server.service import Hosts, Service
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.version import __version__

if TYPE_CHECKING:
    from bertsmith.app.library.loading import Served
    from bertsmith.app.server.reload import Load

_COUNTED = ("/", "/health", "/reload", "/ready", "/models", "/v1/models", "/info", "/metrics", "/docs", "/openapi.json")


def create_app(
    models: "Mapping[str, Served]",
    settings: ServerSettings | None = None,
    key: str | None = None,
    allowed: AllowedHosts | None = None,
    index_key: str | None = None,
    load: "Load | None" = None,
) -> Gate:
    """The server as an ASGI application.

    Args:
        models: by the name used in requests; without a name, the first model that can answer is used.
        settings: limits.
        key: the API key that requests must send; None to allow all requests.
        allowed: the host names that are answered; None for the loopback names of this machine.
        index_key: the key that requests must send to change an index; None if no index is changed.
        load: see `Reload`; None for a server whose models stay.
    """
    settings = settings or ServerSettings()
    metrics = Metrics()
    hosts = Hosts(models, settings, metrics)
    service = Service(hosts, settings, metrics)
    reload = None if load is None else Reload(service, load)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.set_ready(True)
        yield
        service.set_ready(False)
        service.close()

    app = FastAPI(
        title="Bertsmith",
        version=__version__,
        description="The models of this server over HTTP.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    endpoints = {route.path: route.endpoint(service) for route in ROUTES}
    for route in ROUTES:
        app.add_api_route(route.path, endpoints[route.path], **route.document())
    changing = () if index_key is None else CHANGING
    app.include_router(_watch_router(service, reload))
    if reload is not None:
        app.include_router(_reload_router(reload, has_key=key is not None))
    bodies = [route.request_schema for route in ROUTES]
    app.include_router(document_router(app, bodies, has_key=key is not None, open_paths=OPEN_PATHS, changing=changing))
    app.include_router(page_router())
    for status, sentence in (
        (404, "no such route; GET /docs lists all routes"),
        (405, "this route does not support that method; GET /docs lists all routes"),
    ):
        app.add_exception_handler(status, _told(status, sentence))
    paths = [*endpoints, *_COUNTED]
    return Gate(
        app,
        endpoints,
        service=service,
        key=key,
        index_key=index_key,
        changing=CHANGING,
        allowed=allowed or AllowedHosts(),
        paths=paths,
        reload=reload,
    )


def _told(status: int, sentence: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The handler for requests that match no route."""

    async def handler(request: Request, error: Exception) -> Response:
        headers = dict(getattr(error, "headers", None) or {})
        if headers.get("Allow") == "GET":
            headers["Allow"] = "GET, HEAD"
        return refused(status, sentence, headers)

    return handler


def _reload_router(reload: Reload, *, has_key: bool) -> APIRouter:
    """The route that loads the models again."""
    router = APIRouter()
    refusals = {
        403: "the server has no API key",
        409: "they are being loaded",
        422: "they cannot be loaded, or answer too differently; the old ones stay",
    }

    @router.post(
        "/reload",
        summary="Load the models again, from the same folders; replies when the new ones answer.",
        responses={
            status: {"model": schemas.ErrorReply, "description": description}
            for status, description in refusals.items()
        },
    )
    async def reload_models() -> Response:
        if not has_key:
            return refused(403, "this route needs a server with --api-key-file; send the process SIGHUP instead")
        try:
            await asyncio.shield(reload.begin())
        except RefusalError as refusal:
            return refusal.response()
        return json_response({"reload": reload.state})

    return router


def _watch_router(service: Service, reload: Reload | None) -> APIRouter:
    """Routes for monitoring."""
    router = APIRouter()

    @router.get("/health", summary="Whether the process is alive, and the result of the last reload.")
    async def health() -> Response:
        last = {} if reload is None or not reload.state else {"reload": reload.state}
        return json_response({"status": "ok", **last})

    @router.get(
        "/ready",
        summary="Whether the models accept requests.",
        responses={503: {"model": schemas.ErrorReply, "description": "starting or stopping"}},
    )
    async def ready() -> Response:
        if service.is_ready:
            return json_response({"status": "ready"})
        return refused(503, "the server is stopping" if service.is_leaving else "the server is starting")

    @router.get("/models", summary="The models.", responses={200: {"model": schemas.ModelsReply}})
    async def models() -> Response:
        shown = [
            {
                "name": host.name,
                "task": host.model.task,
                "abilities": list(host.abilities),
                "labels": list(host.model.labels),
                "kinds": host.kinds,
                "pair": host.model.pair,
                "max_length": host.model.max_length,
                "embed_length": host.model.embed_length,
                "max_question": host.model.max_question,
                "width": host.model.width,
                "thresholds": host.promises,
                "calibrated_on": host.calibrated_on,
                "weakness": host.model.weakness,
            }
            for host in service.hosts.all
        ]
        return json_response({"models": shown})

    @router.get("/v1/models", summary="The models, in OpenAI's format.")
    async def openai_models() -> Response:
        shown = [
            {"id": host.name, "object": "model", "created": 0, "owned_by": "bertsmith"} for host in service.hosts.all
        ]
        return json_response({"object": "list", "data": shown})

    @router.get(
        "/info",
        summary="The first model that embeds or ranks texts, in the format of TEI.",
        responses={200: {"model": dialect_schemas.InfoReply}, 400: {"model": schemas.ErrorReply}},
    )
    async def info() -> Response:
        try:
            return json_response(info_of(service))
        except RefusalError as refusal:
            return refusal.response()

    @router.get("/metrics", summary="Counters for Prometheus.", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return router
