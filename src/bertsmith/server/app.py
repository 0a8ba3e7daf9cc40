"""The application: all routes of a server on some loaded models."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI, Request, Response

from bertsmith import __version__
from bertsmith.server import schemas
from bertsmith.server.documents import document_router, page_router
from bertsmith.server.gate import OPEN_PATHS, Gate
from bertsmith.server.prometheus import CONTENT_TYPE, Metrics
from bertsmith.server.refusal import json_response, refused
from bertsmith.server.routes import ROUTES
from bertsmith.server.service import Hosts, Service
from bertsmith.server.settings import ServerSettings

if TYPE_CHECKING:
    from bertsmith.library.model import Model

_COUNTED = ("/", "/health", "/ready", "/models", "/v1/models", "/metrics", "/docs", "/openapi.json")


def create_app(models: "Mapping[str, Model]", settings: ServerSettings | None = None, key: str | None = None) -> Gate:
    """The server of some models, as an ASGI application.

    Args:
        models: by the name that requests give, in the order in which they are asked where a request gives none.
        settings: limits.
        key: that requests must bear; None where anybody may ask.
    """
    settings = settings or ServerSettings()
    metrics = Metrics()
    hosts = Hosts(models, settings, metrics)
    service = Service(hosts, settings, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.set_ready(True)
        yield
        service.set_ready(False)
        hosts.close()

    app = FastAPI(
        title="Bertsmith",
        version=__version__,
        description="What the models of this server can do, over HTTP.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    endpoints = {route.path: route.endpoint(service) for route in ROUTES}
    for route in ROUTES:
        app.add_api_route(route.path, endpoints[route.path], **route.document())
    app.include_router(_watch_router(service))
    bodies = [route.asked for route in ROUTES]
    app.include_router(document_router(app, bodies, has_key=key is not None, open_paths=OPEN_PATHS))
    app.include_router(page_router())
    for status, sentence in (
        (404, "there is no such route; GET /docs lists all"),
        (405, "this route does not take that method; GET /docs lists all"),
    ):
        app.add_exception_handler(status, _told(status, sentence))
    return Gate(app, endpoints, service=service, key=key, paths=[*endpoints, *_COUNTED])


def _told(status: int, sentence: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    """What answers a request that no route takes."""

    async def handler(request: Request, error: Exception) -> Response:
        return refused(status, sentence, getattr(error, "headers", None))

    return handler


def _watch_router(service: Service) -> APIRouter:
    """Routes for whoever watches the server."""
    router = APIRouter()

    @router.get("/health", summary="The process answers.")
    async def health() -> Response:
        return json_response({"status": "ok"})

    @router.get(
        "/ready",
        summary="Models can be asked.",
        responses={503: {"model": schemas.ErrorReply, "description": "not now"}},
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
                "abilities": list(host.model.abilities),
                "labels": list(host.model.labels),
                "pair": host.model.pair,
                "max_length": host.model.max_length,
                "embed_length": host.model.embed_length,
                "max_question": host.model.max_question,
                "width": host.model.width,
            }
            for host in service.hosts.all
        ]
        return json_response({"models": shown})

    @router.get("/v1/models", summary="The models, in OpenAI's form.")
    async def openai_models() -> Response:
        shown = [
            {"id": host.name, "object": "model", "created": 0, "owned_by": "bertsmith"} for host in service.hosts.all
        ]
        return json_response({"object": "list", "data": shown})

    @router.get("/metrics", summary="Counters for Prometheus.", response_class=Response)
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    return router
