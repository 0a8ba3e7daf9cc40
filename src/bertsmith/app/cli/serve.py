"""The command that serves models over HTTP."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import DeviceOption, HeadOption, PrecisionOption, ProductsOption, own_head, settings_from
from bertsmith.base.core.errors import ConfigError

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def serve_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `serve`."""
    from bertsmith.app.server.settings import ServerSettings

    return (ServerSettings,)


def serve(
    model: Annotated[
        list[str],
        typer.Option(
            "--model", metavar="DIR", help="model folder, checkpoint, hub id, starter, or NAME=DIR; repeatable"
        ),
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0: any free port")] = 8000,
    host: Annotated[str, typer.Option(help="address to listen on; 0.0.0.0 allows other machines")] = "127.0.0.1",
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="a file whose first line is the key that requests must send")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="answer requests for this host name too, * for any; repeatable"),
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    head: HeadOption = None,
    **values: Any,
) -> None:
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
    from bertsmith.app.library.loading import name_and_source
    from bertsmith.app.server import process
    from bertsmith.app.server.settings import ServerSettings
    from bertsmith.base.machine.runtime import require_torch
    from bertsmith.models.checkpoints.onnx_folder import is_onnx_folder

    settings = settings_from(ServerSettings, values)
    key = None if api_key_file is None else process.read_key(api_key_file)
    process.require_startable(host, port, settings, allow_host or ())
    in_torch = [source for _, source in map(name_and_source, model) if not is_onnx_folder(source)]
    for source in in_torch:
        require_torch(source)
    models = process.load_models(model, device=device, precision=precision, products=products, head=own_head(head))
    process.serve(models, host=host, port=port, settings=settings, key=key, allow_hosts=allow_host or ())
