"""Schemas of the routes of indexes; see `schemas.py`."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, model_validator

from bertsmith.app.server.schemas import Asked, Items, Reply

_MOST_TEXTS = 100_000  # of all queries of a request; a search cannot be stopped once it has begun
Number = Annotated[float, Field(allow_inf_nan=False)]


class SearchAsked(Asked):
    """What to look for in an index: a query, several, or vectors of the model of the index."""

    query: str | None = None
    queries: Items[str] | None = None
    vectors: Items[Items[Number]] | None = None
    method: Literal["vectors", "bm25", "hybrid"] = Field(default="vectors", description="as `search --method`")
    by: Annotated[list[Literal["dense", "sparse", "tokens", "words"]], Field(max_length=4, fail_fast=True)] = Field(
        default_factory=list, description="in place of `method`, what is searched by; rankings of several are fused"
    )
    fuse: Literal["rrf", "scores"] = Field(default="rrf", description="how rankings are fused, as `search --fuse`")
    rerank: str | None = Field(default=None, description="the served model that re-ranks the best `depth` texts")
    depth: Annotated[int, Field(ge=1, le=1000, description="texts to fuse or re-rank")] = 100
    top: Annotated[int, Field(ge=1, le=1000, description="texts for each query")] = 10
    where: Annotated[list[str], Field(max_length=32, fail_fast=True)] = Field(
        default_factory=list, description="conditions that a text must meet, such as `year >= 2020`"
    )
    exact: bool = Field(default=False, description="compare all vectors, not only those in the nearest cells")

    @property
    def items(self) -> list[Any]:
        """The queries or the vectors."""
        return [self.query] if self.query is not None else list(self.queries or self.vectors or ())

    @model_validator(mode="after")
    def _one_kind(self) -> "SearchAsked":
        sent = [name for name in ("query", "queries", "vectors") if getattr(self, name) is not None]
        if len(sent) != 1:
            shown = " and ".join(map(repr, sent)) or "none of them"
            raise ValueError(f"expected one of 'query', 'queries' and 'vectors'; found {shown}; send one")
        if len(set(self.by)) < len(self.by):
            raise ValueError(f"expected each kind of search once; found {', '.join(self.by)}; leave it out")
        if "by" in self.model_fields_set and not self.by:
            raise ValueError("expected kinds of search in 'by'; found none; name some, or leave it out")
        if self.by and "method" in self.model_fields_set:
            raise ValueError("expected 'by' or 'method'; found both; send one")
        if self.rerank is not None and self.vectors is not None:
            raise ValueError("expected texts as queries to re-rank for; found vectors; send texts")
        wanted = self.top if self.rerank is None else max(self.top, self.depth)
        if len(self.items) * wanted > _MOST_TEXTS:
            counts = f"{len(self.items):,} queries and {wanted:,} texts for each"
            raise ValueError(f"expected at most {_MOST_TEXTS:,} texts in all; found {counts}; send fewer at once")
        return self


class AddTextsAsked(Asked):
    """Rows to add to an index; a row whose id is in the index replaces that row."""

    rows: Items[dict[str, Any]] = Field(
        description="as the lines of a .jsonl file: id, text, and the columns of the index"
    )


class RemoveTextsAsked(Asked):
    """Rows to remove from an index. If an id is not in the index, none is removed."""

    ids: Items[str]


class FoundText(BaseModel):
    """A text of the index, with the other columns of its row."""

    rank: int = Field(description="from 1")
    id: str
    score: float | None = Field(description="of a search by vectors, the cosine")
    text: str
    columns: dict[str, str | None]


class FoundTexts(BaseModel):
    """The texts for one query, best first."""

    id: str = Field(description="the number of the query, from 1")
    query: str = Field(description="its text; empty for a vector")
    passages: list[FoundText]


class SearchReply(Reply):
    """The texts for each query, in their order."""

    results: list[FoundTexts]


class IndexNumbers(BaseModel):
    """An index after a change."""

    added: int
    removed: int = Field(description="rows, those that were replaced included")
    rows: int
    segments: int
    recall: float = Field(description="share of the 10 nearest texts that a search finds, as it was measured")


class IndexChangeReply(Reply):
    """The numbers of the index, as a list of one."""

    changes: list[IndexNumbers]
