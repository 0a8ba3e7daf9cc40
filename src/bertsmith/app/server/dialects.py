"""What clients of other servers send, as requests to the routes here: TEI, Cohere and Jina.

Each handler puts a request into the words of a route of `routes.py`, and the reply into those of the client.
"""

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import Request

from bertsmith.app.server import answer_size
from bertsmith.app.server import dialect_schemas as schemas
from bertsmith.app.server.refusal import RefusalError
from bertsmith.app.server.routes import ROUTES, Listed, post, require_whole, rerank, shortened
from bertsmith.app.server.schemas import RerankAsked
from bertsmith.app.server.service import Host, Service
from bertsmith.base.core.version import __version__

__all__ = ["ROUTES", "info_of"]

_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@post("/", schemas.TeiEmbedAsked, list[list[float]])
@post("/embed", schemas.TeiEmbedAsked, list[list[float]])
async def embed(service: Service, request: Request, body: schemas.TeiEmbedAsked) -> Listed:
    """One vector per text, as TEI answers; POST / is where clients of Hugging Face's Inference API send them."""
    host, ability = service.hosts.find(body.model, "embed")
    if host.model.is_sparse:
        raise RefusalError(400, f"model {host.name!r} has sparse vectors, which /v1/embeddings answers")
    cut = shortened(host, body.dimensions, is_unit=body.normalize)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    size = answer_size.vectors(host.model, len(texts), packed=False)
    settings = (("prompt", body.prompt_name), ("normalize", body.normalize))
    options = tuple((name, value) for name, value in settings if value is not None)
    work = await service.work(request, host, ability, texts, size, options)
    require_whole(work, body.truncate)
    return Listed("", (cut(vector).tolist() for vector in work.answers), {}, len(texts))


@post("/v1/rerank", schemas.DocumentsAsked, schemas.DocumentsReply)
async def rerank_documents(service: Service, request: Request, body: schemas.DocumentsAsked) -> Listed:
    """Documents ranked by relevance to a query, as Cohere (version 1) and Jina answer."""
    return await _ranked(service, request, body, version="1", repeats=body.return_documents is not False)


@post("/v2/rerank", schemas.DocumentsAsked, schemas.DocumentsReply)
async def rerank_documents_again(service: Service, request: Request, body: schemas.DocumentsAsked) -> Listed:
    """Documents ranked by relevance to a query, as Cohere (version 2) answers."""
    return await _ranked(service, request, body, version="2", repeats=body.return_documents is True)


async def _ranked(
    service: Service, request: Request, body: schemas.DocumentsAsked, *, version: str, repeats: bool
) -> Listed:
    least, most = service.hosts.find(body.model, "rerank")[0].model.max_length, body.max_tokens_per_doc
    if most is not None and most < least:
        sentence = f"expected at least {least:,}, where the model truncates; found {most:,}; leave it out"
        raise RefusalError(422, f"max_tokens_per_doc: {sentence}")
    passages = [document if isinstance(document, str) else document.text for document in body.documents]
    asked = RerankAsked(model=body.model, query=body.query, passages=passages, top=body.top_n, return_text=repeats)
    reply = await rerank(service, request, asked)
    usage = reply.others["usage"]
    tokens = usage["tokens_used"]
    others = {
        "id": f"rerank-{uuid.uuid4().hex}",
        "object": "list",
        **reply.others,
        "meta": {"api_version": {"version": version}, "tokens": {"input_tokens": tokens}},
        "usage": {**usage, "prompt_tokens": tokens, "total_tokens": tokens},
    }
    return dataclasses.replace(reply, values=map(_document, reply.values), others=others)


def _document(passage: dict[str, Any]) -> dict[str, Any]:
    document = {"document": {"text": passage["text"]}} if "text" in passage else {}
    return {"index": passage["index"], "relevance_score": passage["score"], **document}


def info_of(service: Service) -> dict[str, Any]:
    """What TEI says about its model, of the first model that embeds or ranks texts.

    Raises:
        RefusalError: 400, there is none.
    """
    host, ability = service.hosts.find(None, "embed", "rerank")
    settings, model = service.settings, host.model
    precision = model.embedder.encoder.runtime.precision if model.shows_pieces else "fp32"
    return {
        "model_id": host.name,
        "model_sha": None,
        "model_dtype": _DTYPES.get(precision, precision),
        "model_type": _kind(host, ability),
        "max_concurrent_requests": settings.max_connections,
        "max_input_length": model.embed_length if ability == "embed" else model.max_length,
        "max_batch_tokens": host.work.batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_texts,
        "auto_truncate": True,
        "tokenization_workers": 1,
        "version": __version__,
        "sha": None,
        "docker_label": None,
    }


def _kind(host: Host, ability: str) -> dict[str, dict[str, Any]]:
    if ability == "embed" and host.model.task is None:
        return {"embedding": {"pooling": host.model.embedder.pooling}}
    labels: Sequence[str] = host.model.labels or ("LABEL_0",)
    numbered = {str(number): label for number, label in enumerate(labels)}
    return {"reranker": {"id2label": numbered, "label2id": {label: int(number) for number, label in numbered.items()}}}
