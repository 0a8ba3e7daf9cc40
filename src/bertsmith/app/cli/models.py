"""Commands for whole models: convert between formats, inspect, upload, list the published ones, and serve over HTTP."""

import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import VERIFY, JsonOption, print_json, print_table, say, show
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.app.server.settings import ServeRequest
    from bertsmith.inference.export.request import ConvertRequest, InspectRequest, ModelsRequest, PushRequest

_PACKAGES = ("fastapi", "prometheus_client", "uvicorn")


def convert(request: "ConvertRequest", verify: Annotated[bool, VERIFY] = False) -> None:
    """Convert a model to another format, after checking that its outputs stay the same.

    The weights are read back and must be equal bit for bit. Then the converted model and the source run on the same
    examples: in onnxruntime, in transformers (if installed), or as read back from Google's format. If outputs differ by
    more than the limit, or the score on labelled examples drops by more than 0.001 (one changed answer is tolerated),
    DST is not written and the exit code is 1. DST/export.json records the comparison.
    """
    from bertsmith.app.library.formats import convert as write_converted
    from bertsmith.app.library.inspection import verify_model

    if verify:
        verify_model(request.source)
    say(*call(write_converted, request).lines())


def inspect(
    request: "InspectRequest",
    names: Annotated[bool, typer.Option("--names", help="list every tensor: mapped, skipped or unknown")] = False,
    json: JsonOption = False,
) -> None:
    """Print what a model is, and whether its files have changed since they were written; nothing is changed.

    Architecture, sizes, task, labels, the beginning of its card, number formats, layers that int8 keeps in higher
    precision, files, and how its tensors map to the model. Every file is compared with its digest in bertsmith.json;
    if one differs, the exit code is 1.
    """
    from bertsmith.app.library.inspection import inspect_model

    report = inspect_model(request.source)
    show(report, json)
    if names and not json:
        tensors = report.tensors
        rows = [(name, "mapped", ours) for name, ours in tensors.mapped.items()]
        rows += [(name, "skipped", reason) for name, reason in tensors.skipped.items()]
        rows += [(name, "unknown", "-") for name in tensors.unknown]
        print_table(("tensor", "status", "name in bertsmith, or reason"), sorted(rows))
    report.require_unaltered()


def push(request: "PushRequest") -> None:
    """Upload a model folder with its card to a repository of the hub (huggingface.co), which is created if necessary.

    All files arrive in one commit or none does, and nothing there is deleted. The card is checked first, and so are the
    digests of the files. The token is that of `hf auth login` or of HF_TOKEN. The address of the model is printed.
    """
    from bertsmith.app.library.publishing import push_to_hub

    say(call(push_to_hub, request))


def doctor(json: JsonOption = False) -> None:
    """Print what this installation has, what it lacks, and what would make it faster; nothing is changed or fetched.

    The processor and what limits it, memory, the build of torch, packages, extras, and models. If something that every
    command needs is missing or too old, the exit code is 1.
    """
    from bertsmith.app.library.doctor import examine

    checkup = examine()
    show(checkup, json)
    if not checkup.is_well:
        raise typer.Exit(1)


def models(request: "ModelsRequest", json: JsonOption = False) -> None:
    """List the published checkpoints, and which of them are on this machine; nothing is downloaded."""
    from bertsmith.models.checkpoints.published_models import PUBLISHED_MODELS, local_copies

    copies = local_copies(*request.folders)
    if json:
        for model in PUBLISHED_MODELS:
            path = copies.get(model.name)
            values = {"name": model.name, "hub_id": model.hub_id, "parameters": model.num_parameters}
            values |= {"cased": model.cased, "languages": model.languages, "path": path and str(path)}
            print_json(values)
        return
    print_table(
        ("hub id", "parameters", "vocabulary", "casing", "languages", "on this machine"),
        [
            (
                model.hub_id,
                model.num_parameters,
                model.config.vocab_size,
                "cased" if model.cased else "uncased",
                model.languages,
                copies.get(model.name, "-"),
            )
            for model in PUBLISHED_MODELS
        ],
    )


def serve(request: "ServeRequest") -> None:
    """Serve models and indexes over HTTP, with a web page to try them.

    Routes: /predict /classify /tag /answer /fill /complete /perplexity /next /rerank /search /index/add /index/remove
    /tokenize /attention /models /reload /health /ready /metrics /docs /openapi.json, and / is the page. Clients of
    OpenAI, TEI, Cohere and Jina find theirs: /v1/embeddings /embed /info /v1/rerank /v2/rerank. On SIGHUP it loads
    its models again; on SIGTERM it finishes the accepted requests and exits with code 0.
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
