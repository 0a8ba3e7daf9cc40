"""The models of an index: those that read its queries, and what their vectors mean for its segments."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.indexes.request import CompactIndexRequest, IndexRequest
from bertsmith.inference.indexes.segment import VectorsRecord
from bertsmith.inference.search.cells import rows_within
from bertsmith.inference.search.index import Vectors, kind_of, maker_of, query_vectors
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, joined
from bertsmith.inference.search.request import BY_WORDS, DENSE, TOKENS, VECTORS, WORDS, made_by, named
from bertsmith.inference.search.retrieval import TextSearch, VectorSearch
from bertsmith.inference.search.token_search import query_tokens
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import late_folder, load_embedder, load_token_embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder

# What may differ between the vectors of an index and those of its queries.
_OF_PASSAGES = ("prompt", "precision")


def index_embedders(
    index: Index, kinds: Iterable[str], models: Sequence[str | Path], settings: Mapping[str, Any]
) -> dict[str, Embedder]:
    """The embedders for queries of an index, by kind, without their prompts.

    Args:
        kinds: of vectors, which the index has.
        models: in place of those that the index names.
        settings: of `ComputeSettings`.

    Raises:
        InputError: the vectors of the index are of another model or other settings.
    """
    sources = dict[str, str | Path]()
    for model in models:
        if (kind := _kind_in(index, model, settings)) in sources:
            raise ConfigError(
                expected=f"one model of {named(kind)}",
                found=f"'{sources[kind]}' and '{model}'",
                fix="leave one out",
            )
        sources[kind] = model
    wanted = list(kinds)
    if idle := [kind for kind in sources if kind not in wanted]:
        raise ConfigError(
            expected=f"models of the vectors that are searched ({', '.join(wanted)})",
            found=f"'{sources[idle[0]]}', for {named(idle[0])}",
            fix="leave it out, or search by them",
        )
    return {kind: _index_embedder(index, kind, sources.get(kind), settings) for kind in wanted}


def dense_index(folder: Path, model: str | Path | None, settings: Mapping[str, Any]) -> tuple[Index, Embedder]:
    """An index that is searched by dense vectors, and the embedder for its queries; see `index_embedders`."""
    index = Index(folder)
    kind = kind_in(index, DENSE)
    return index.by(kind), index_embedders(index, [kind], [] if model is None else [model], settings)[kind]


def _kind_in(index: Index, model: str | Path, settings: Mapping[str, Any]) -> str:
    """The kind of vectors of an index that a model is for, as far as that can be known without loading it."""
    kinds = [kind for kind in index.manifest.vectors if (kind == TOKENS) == (late_folder(model) is not None)]
    if len(kinds) > 1:
        return kind_of(load_embedder(model, characters=0, sparse=True, **settings))
    return next(iter(kinds), index.manifest.kind)


def _index_embedder(index: Index, kind: str, model: str | Path | None, settings: Mapping[str, Any]) -> Embedder:
    known = index.manifest.vectors[kind]
    source = model or known.model
    if not source:
        raise ConfigError(
            expected="a model that makes the vectors of queries",
            found=f"none, in '{index.folder}'",
            fix="name it with --model, give vectors as queries, or search by words with --method bm25",
        )
    loaded: Embedder
    if kind == TOKENS and (late := late_folder(source)) is not None:
        loaded = load_token_embedder(late, **settings)
    else:
        limits = {name: known.made_of[name] for name in ("pooling", "max_length") if name in known.made_of}
        loaded = load_embedder(source, characters=0, sparse=True, **limits, **settings)
        loaded.require_units("an index on disk")
    if other := differences(index, loaded, kind):
        raise InputError(
            expected=f"the model of the vectors in '{index.folder}'",
            found=f"another ({', '.join(other)})",
            fix="name that model, or build the index again",
        )
    return loaded


def kind_in(index: Index, name: str) -> str:
    """The kind of an index that a name of a search stands for."""
    kinds = [*index.manifest.vectors, WORDS]
    kind = {VECTORS: index.manifest.kind, BY_WORDS: WORDS}.get(name, name)
    if kind not in kinds:
        raise InputError(
            expected=f"{named(kind)} in '{index.folder}'",
            found=", ".join(map(named, kinds)),
            fix=f"search by these, or build an index with {made_by(kind)} (--also)",
        )
    return kind


def search_by_kind(
    index: Index, kind: str, embedder: Embedder | None, prompt: str | None = None, asked: Vectors | None = None
) -> TextSearch:
    """The search of an index by vectors of a kind.

    Args:
        embedder: gives the vectors of queries, with the prompt of that name.
        asked: these vectors, if they were given.
    """
    index = index.by(kind)
    if asked is not None:
        return VectorSearch(index, lambda _: asked)
    assert embedder is not None, "it is loaded"
    if isinstance(embedder, TokenEmbedder):
        return VectorSearch(index, functools.partial(query_tokens, embedder=embedder))
    return VectorSearch(index, functools.partial(query_vectors, embedder=embedder.for_queries(prompt)))


class IndexTokens:
    """The vectors of tokens of an index, which rank results again, see `SecondStage`.

    Args:
        embedder: gives those of queries.
    """

    def __init__(self, index: Index, embedder: TokenEmbedder) -> None:
        self._index, self._embedder = index, embedder

    def again(self, queries: Sequence[str], ranking: Ranking, top: int) -> Ranking:
        """See `SecondStage`."""
        asked, parts = query_tokens(queries, self._embedder), []
        for number in range(len(queries)):
            rows = np.sort(ranking.places[number][ranking.places[number] != NO_PASSAGE])
            scores = self._index.token_scores(asked.select(np.array([number])), rows)
            parts.append(best(scores[None], top, rows[None]))
        return joined(parts)


def differences(index: Index, embedder: Embedder, kind: str) -> list[str]:
    """What differs between the vectors of a kind of an index and those of an embedder."""
    if (made := kind_of(embedder)) != kind:
        return [f"{named(made)} instead of {named(kind)}"]
    about = index.manifest.vectors[kind]
    if embedder.width != about.width:
        return [f"width {embedder.width} instead of {about.width}"]
    known = {name: value for name, value in maker_of(embedder).items() if name not in _OF_PASSAGES}
    return [name for name in known if about.made_of and known[name] != about.made_of.get(name)]


def rows_per_segment(
    vectors: Mapping[str, VectorsRecord], request: IndexRequest | CompactIndexRequest | type[IndexRequest]
) -> int:
    """The most rows of a segment; only the cells of dense vectors are built in memory."""
    most = request.segment_rows
    return rows_within(request.memory, vectors[DENSE].width, most) if DENSE in vectors else most
