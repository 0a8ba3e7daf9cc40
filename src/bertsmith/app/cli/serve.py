"""The command that serves models over HTTP."""

import importlib.util
from typing import TYPE_CHECKING

from bertsmith.base.core.errors import ConfigError

if TYPE_CHECKING:
    from bertsmith.app.server.settings import ServeRequest

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def serve(request: "ServeRequest") -> None:
    """Serve models over HTTP, with a web page to try them.

    Routes: /predict /tag /answer /fill /complete /perplexity /next /rerank /tokenize /attention /v1/embeddings
    (compatible with OpenAI) /models /health /ready /metrics /docs /openapi.json, and / is the page. On SIGTERM it
    finishes the accepted requests and exits with code 0.
    """
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ConfigError(
            expected="the packages of the extra serve",
            found=f"no {', '.join(missing)}",
            # Not the extra, which would bring torch to a machine that serves ONNX folders without it.
            fix=f"pip install {' '.join(missing)}",
        )
    from bertsmith.app.server.process import serve as serve_models

    serve_models(request)
