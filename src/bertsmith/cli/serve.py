"""The command that answers over HTTP."""

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.cli.options import DeviceOption, HeadOption, PrecisionOption, own_head, settings_from
from bertsmith.errors import ConfigError

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def serve_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `serve`."""
    from bertsmith.server.settings import ServerSettings

    return (ServerSettings,)


def serve(
    model: Annotated[
        list[str],
        typer.Option("--model", metavar="DIR", help="model folder, checkpoint or hub id, or NAME=DIR; once a model"),
    ],
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any that is free")] = 8000,
    host: Annotated[str, typer.Option(help="an address of this machine; 0.0.0.0 lets others in")] = "127.0.0.1",
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="its first line is the key that requests must bear")
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    head: HeadOption = None,
    **values: Any,
) -> None:
    """Answer over HTTP with every head of the models, and show a page on which to try them.

    Routes: /predict /tag /answer /fill /next /rerank /tokenize /attention /v1/embeddings (as OpenAI's clients ask)
    /models /health /ready /metrics /docs /openapi.json, and / is the page. SIGTERM answers all that was accepted, then
    exits with code 0.
    """
    missing = [package for package in _PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ConfigError(
            expected="the packages of the extra serve",
            found=f"no {', '.join(missing)}",
            fix="pip install 'bertsmith[serve]'",
        )
    if precision == "fp32":
        # oneDNN keeps a prepared product for each number of tokens that it has met, a hundred megabytes after some
        # minutes. In fp32 they are as quickly made anew; what a user has set stays.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0")
    from bertsmith.server import process
    from bertsmith.server.settings import ServerSettings

    settings = settings_from(ServerSettings, values)
    key = None if api_key_file is None else process.read_key(api_key_file)
    models = process.load_models(model, device=device, precision=precision, head=own_head(head))
    process.serve(models, host=host, port=port, settings=settings, key=key)
