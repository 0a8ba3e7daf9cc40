"""Schemas of requests that clients of other servers send; see `schemas.py`.

A key that is not listed is ignored, as those servers do, where it cannot change the answer; keys that would change it
and are not supported are listed, and refused by their type.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertsmith.app.server.schemas import Asked, Items, OpenAIUsage, Truncating


class TeiEmbedAsked(Truncating):
    """Texts to embed, as clients of TEI and of Hugging Face's Inference API send them."""

    inputs: str | Items[str]
    normalize: bool | None = Field(default=True, description="divide vectors by their lengths; null: as the model does")
    prompt_name: str | None = None
    dimensions: Annotated[int | None, Field(ge=1, description="truncate each vector to this many numbers")] = None


class Document(BaseModel):
    """A document as an object, of which the text is read."""

    model_config = ConfigDict(extra="ignore", strict=True)
    text: str


class DocumentsAsked(Asked):
    """Documents to rank by relevance to a query, as clients of Cohere and Jina send them."""

    model_config = ConfigDict(extra="ignore", strict=True)
    query: str
    documents: Items[str | Document]
    top_n: Annotated[int | None, Field(ge=1, description="return only the best documents, this many")] = None
    return_documents: bool | None = Field(
        default=None, description="repeat each document; by default on /v1/rerank, as Jina does, not on /v2/rerank"
    )
    rank_fields: Annotated[list[Literal["text"]] | None, Field(fail_fast=True)] = Field(
        default=None, description="of objects, only `text` is read"
    )
    max_chunks_per_doc: Literal[1] | None = Field(default=None, description="not supported: documents are truncated")
    max_tokens_per_doc: Annotated[int | None, Field(ge=1)] = Field(
        default=None, description="as many as the model reads, which truncates documents, or more"
    )
    return_embeddings: Literal[False] | None = Field(default=None, description="not supported")


class RankedDocument(BaseModel):
    """A document, by its index in the request."""

    index: int
    relevance_score: float | None
    document: Document | None = Field(default=None, description="only there if documents are returned")


class DocumentsReply(BaseModel):
    """The documents, best first, with what the clients of Cohere and of Jina read next to them."""

    id: str
    model: str
    object: Literal["list"]
    results: list[RankedDocument]
    meta: dict[str, Any] = Field(description="api_version, and the tokens that the model read")
    usage: OpenAIUsage
    note: str


class InfoReply(BaseModel):
    """What TEI says about its model; of the first model here that embeds or ranks texts."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: dict[str, dict[str, Any]]
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
