"""Search files of passages by vectors, by words (BM25) or by both, and score searches against relevance judgements."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.app.library.index_models import IndexTokens, differences, index_embedders, kind_in, search_by_kind
from bertsmith.app.library.inputs import checked_texts
from bertsmith.app.library.search_results import Hit, SearchResult, search_results
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, require_other
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.predictors.loading import load_predictor, said_weak
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.comparison import SearchComparison, compare_rankings
from bertsmith.inference.search.index import Vectors, index_passages, index_weights, kind_of, query_vectors
from bertsmith.inference.search.passages import Judgements, TextSet, judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import shortened
from bertsmith.inference.search.request import (
    BY_WORDS,
    DENSE,
    DEPTH,
    HYBRID,
    ONE_HOT,
    TOKENS,
    VECTORS,
    WORDS,
    WORDS_ALONE,
    RetrievalRequest,
    ScoreSearchesRequest,
    SearchPassagesRequest,
    is_index,
    kinds_of,
    made_by,
    named,
    require_model,
)
from bertsmith.inference.search.retrieval import (
    Retriever,
    Scorer,
    SearchScores,
    SecondStage,
    TextSearch,
    VectorSearch,
    mixtures,
    names_of,
    score_search,
    tell_unjudged,
)
from bertsmith.inference.search.token_search import TokenIndex, TokenScorer
from bertsmith.inference.search.word_cosines import WordCosines
from bertsmith.inference.search.word_index import WordIndex, Words
from bertsmith.inference.vectors.changes import VectorChange, read_vectors
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import late_folder, load_embedder, load_token_embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.metrics.vectors import crowding, unit

__all__ = ["Hit", "SearchResult", "score_searches", "search_passages"]

_IN_AN_INDEX = ("where", "exact")
_OF_ONE_VECTOR = ("index", "changes", "approximate", "pooling", "query_prompt", "passage_prompt")
_OF_DENSE = ("index", "changes", "approximate")  # of vectors of the encoder's width
_OUTSIDE_AN_INDEX = ("token_bits", "index", "changes", "approximate", "text_column", "pooling", "passage_prompt")


@takes(SearchPassagesRequest)
def search_passages(request: SearchPassagesRequest) -> list[SearchResult]:
    """The best passages for each query.

    Raises:
        BertsmithError: a setting, a file or a model does not fit; the message says which.
    """
    require_model(request)
    asked = _asked_vectors(request)
    queries = _queries(request.queries, request) if asked is None else _unnamed(len(asked))
    names = kinds_of(request) or names_of(request.system)
    retriever = _retriever(request, names, asked)
    return search_results(retriever.passages, queries, retriever.rank(queries.texts, names, request.top))


@takes(ScoreSearchesRequest)
def score_searches(request: ScoreSearchesRequest) -> dict[str, SearchScores]:
    """The scores of each available search by name: vectors, bm25, hybrid, and one of them with re-ranking.

    With system="bm25", "tf-idf" or "one-hot" only that one is scored.

    Raises:
        BertsmithError: a setting, a file or a model does not fit; the message says which.
    """
    require_model(request)
    queries = _queries(request.queries, request)
    judgements = read_judgements(Path(request.judgements), encoding=request.encoding)
    judged = judgements_for(judgements, queries, request.judged_by)
    _require_no(request, ["by"], "for searches side by side; `evaluate --task retrieval` compares mixtures")
    retriever = _retriever(request, [request.system] if request.system in WORDS_ALONE else [VECTORS, BY_WORDS])
    passages = _with_ids_of(judged, retriever.passages)
    tell_unjudged(queries, passages, judged)
    rankings = retriever.side_by_side(queries.texts, request.system)
    return {name: score_search(ranking, queries, passages, judged) for name, ranking in rankings.items()}


def compare_searches(request: ScoreSearchesRequest) -> SearchComparison:
    """The comparison of all mixtures of what an index, or some models and words, are searched by; see `mixtures`.

    If there is a model to re-rank with, each mixture is scored re-ranked, too.

    Raises:
        BertsmithError: a setting, a file or a model does not fit; the message says which.
    """
    require_model(request)
    judgements = read_judgements(Path(request.judgements), encoding=request.encoding)
    queries = _queries(request.queries, request)
    judged = judgements_for(judgements, queries, request.judged_by)
    asked = [number for number, id in enumerate(queries.ids) if any(judged.get(id, {}).values())]
    queries = TextSet(ids=[queries.ids[each] for each in asked], texts=[queries.texts[each] for each in asked])
    retriever = _retriever(request, kinds_of(request)).remembering()
    passages = _with_ids_of(judged, retriever.passages)
    tell_unjudged(queries, passages, judged)
    groups = {" + ".join(kinds): kinds for kinds in mixtures(list(retriever.searches))}
    first = retriever.of_groups(queries.texts, groups, max(DEPTH, request.depth))
    rankings = {(tuple(groups[name]), False): shortened(ranking, DEPTH) for name, ranking in first.items()}
    if retriever.scorer is not None:
        for name, ranking in first.items():
            best = shortened(ranking, request.depth)
            rankings[tuple(groups[name]), True] = retriever.again(queries.texts, best, DEPTH)
    return compare_rankings(rankings, queries, passages, judged)


def _queries(queries: str | Path | Sequence[str], request: RetrievalRequest) -> TextSet:
    if isinstance(queries, str | Path):
        column = request.query_column
        return read_text_set(
            Path(queries), kind="queries", text_column=column, option="--query-column", encoding=request.encoding
        )
    texts = checked_texts(queries, "query")
    for number, text in enumerate(texts, start=1):
        require(bool(text.strip()), expected=f"a text as query {number}", found="an empty one", fix="give some text")
    return TextSet(ids=tuple(str(number) for number in range(1, len(texts) + 1)), texts=tuple(texts))


def _asked_vectors(request: SearchPassagesRequest) -> Vectors | None:
    """The vectors that were given as queries, normalized [Q, D]; None if texts were."""
    queries: Any = request.queries
    is_file = isinstance(queries, str | Path) and Path(queries).suffix.lower() == ".npy"
    if not is_file and not hasattr(queries, "ndim"):
        return None
    vectors = read_vectors(Path(queries)) if is_file else np.asarray(queries, dtype=np.float32)
    manifest = Manifest.read(Path(request.passages)) if is_index(request.passages) else None
    is_dense = manifest is not None and manifest.kind == DENSE
    require(
        is_dense and request.system == VECTORS and not request.by and request.rerank is None,
        expected="texts as queries",
        found="vectors, which can search an index of dense vectors and nothing else",
        fix="give the texts of the queries",
    )
    assert manifest is not None, "an index"
    width = manifest.first.width
    if vectors.ndim != 2 or vectors.shape[1] != width or not np.isfinite(vectors).all():
        raise InputError(
            expected=f"finite vectors [queries, {width}], as wide as those in '{request.passages}'",
            found=f"shape {list(vectors.shape)}" if vectors.shape[1:] != (width,) else "NaN or infinity",
            fix="make them with the model of the index",
        )
    return unit(np.asarray(vectors, dtype=np.float32))


def _unnamed(count: int) -> TextSet:
    """Queries without texts."""
    return TextSet(ids=tuple(str(number) for number in range(1, count + 1)), texts=("",) * count)


def _with_ids_of(judgements: Judgements, passages: TextSet) -> TextSet:
    """The passages with the ids that the judgements use: for lines of one file, their numbers without its name."""
    judged = {passage for gains in judgements.values() for passage in gains}
    if not judged or any(":" in id for id in judged) or judged & set(passages.ids):
        return passages
    names, numbers = zip(*(id.rpartition(":")[::2] for id in passages.ids), strict=True) if len(passages) else ((), ())
    if len(set(names)) != 1 or not judged & set(numbers):
        return passages
    tell(f"the judgements are read as numbers of the lines of {names[0]!r}")
    return dataclasses.replace(passages, ids=numbers)


def _retriever(request: RetrievalRequest, names: Sequence[str], asked: Vectors | None = None) -> Retriever:
    """A retriever with these searches.

    Args:
        names: none for all kinds that there are.
        asked: the vectors of the queries, normalized [Q, D]; None if a model makes them.
    """
    index = None
    if is_index(request.passages):
        _require_fit(request, is_indexed=True)
        index = Index(Path(request.passages), where=request.where, exact=request.exact)
    scorer = _scorer(request, index)
    if index is None:
        passages, searches = _searches_of_file(request, names)
    else:
        passages, searches = _searches_of_index(request, index, names, asked)
    fuse = request.fuse
    return Retriever(passages=passages, searches=searches, scorer=scorer, depth=request.depth, fuse=fuse)


def _searches_of_file(request: RetrievalRequest, names: Sequence[str]) -> tuple[TextSet, dict[str, TextSearch]]:
    """The passages of a file, and their searches by name."""
    _require_fit(request, is_indexed=False)
    passages = read_text_set(Path(request.passages), text_column=request.text_column, encoding=request.encoding)
    searches = dict[str, TextSearch]()
    by_words = {*WORDS_ALONE, WORDS}
    by_pieces = not by_words.isdisjoint(names) and request.bm25_words == "pieces"
    has_models = by_pieces or not names or not by_words.issuperset(names)
    models = _models_of_vectors(request, passages) if has_models else {}
    require_other(request.token_bits is None or TOKENS in models, "--token-bits", "a model of late interaction")
    first = next(iter(models.values()), None)
    words = Words(first.encoder.tokenizer if first is not None and by_pieces else None)
    for name in names or [*models, WORDS]:
        if name in by_words:
            searches[name] = _index_of_words(name, passages.texts, words, request)
            continue
        model = first if name == VECTORS else models.get(name)
        if model is None:
            raise ConfigError(
                expected=f"a model of {named(name)}",
                found=" and ".join(map(named, models)) or "none",
                fix=f"add {made_by(name)} with --also",
            )
        searches[name] = _search_by_vectors(request, passages.texts, model)
    return passages, searches


def _models_of_vectors(request: RetrievalRequest, passages: TextSet) -> dict[str, Embedder]:
    """The models of the request by the kinds of their vectors."""
    is_read = request.index is not None and Path(request.index).exists()  # then only queries are left to be read
    characters = 0 if is_read else sum(map(len, passages.texts))
    models = dict[str, Embedder]()
    for source in (request.model, *request.also):
        assert source is not None, "the request has one"
        if (late := late_folder(source)) is not None:
            model: Embedder = _token_embedder(late, request)
        else:
            model = load_embedder(source, characters=characters, sparse=True, **request.arguments(load_embedder))
        if (kind := kind_of(model)) in models:
            raise ConfigError(expected=f"one model of {named(kind)}", found=f"also '{source}'", fix="leave one out")
        models[kind] = model
    return models


def _search_by_vectors(request: RetrievalRequest, texts: Sequence[str], model: Embedder) -> TextSearch:
    """The search of some passages by the vectors of a model."""
    if isinstance(model, TokenEmbedder):
        return TokenIndex.of(texts, model, request.token_bits)
    of_queries, of_passages = model.for_queries(request.query_prompt), model.for_passages(request.passage_prompt)
    if of_queries.prompt or of_passages.prompt:
        tell(f"prompts of the model: {of_queries.prompt!r} for queries, {of_passages.prompt!r} for passages")
    if of_passages.is_sparse:
        _require_no(request, _OF_DENSE, "for a model of sparse vectors")
        return VectorSearch(index_weights(texts, of_passages), functools.partial(query_vectors, embedder=of_queries))
    change = None if request.changes is None else VectorChange.load(Path(request.changes))
    if change is not None and change.warning:
        warn(change.warning)
    path = path_or_none(request.index)
    index = index_passages(texts, of_passages, change=change, path=path, approximate=request.approximate)
    if request.system != HYBRID and (warning := crowding(index.vectors)):
        warn(warning)
    return VectorSearch(index, functools.partial(query_vectors, embedder=of_queries, change=change))


def _searches_of_index(
    request: RetrievalRequest, index: Index, names: Sequence[str], asked: Vectors | None
) -> tuple[TextSet, dict[str, TextSearch]]:
    """The texts of an index, and their searches by name."""
    all_kinds = [*index.manifest.vectors, *([WORDS] if index.has_words else ())]
    kinds = {name: kind_in(index, name) for name in names or all_kinds}
    searches = dict[str, TextSearch]()
    embedders = dict[str, Embedder]()
    wanted = [kind for kind in kinds.values() if kind != WORDS]
    if asked is None and wanted:
        models = [model for model in (request.model, *request.also) if model is not None]
        embedders = index_embedders(index, wanted, models, request.values(ComputeSettings))
    for name, kind in kinds.items():
        if kind != WORDS:
            searches[name] = search_by_kind(index, kind, embedders.get(kind), request.query_prompt, asked)
        elif request.system == VECTORS and not request.by and not index.has_words:
            tell("the index has no words, so BM25 is not scored")
        else:
            searches[name] = index.by_words(k1=request.k1, b=request.b)
    return TextSet(ids=index.ids, texts=index.texts, columns=index.columns), searches


def _token_embedder(folder: Path, request: RetrievalRequest) -> TokenEmbedder:
    """The model of late interaction for a search; settings of one vector per text are refused."""
    if settings := [name for name in _OF_ONE_VECTOR if name in request.given]:
        raise ConfigError(
            expected="settings for a model of late interaction",
            found=f"--{settings[0].replace('_', '-')}, which is for one vector per text",
            fix="leave it out",
        )
    return load_token_embedder(folder, **request.values(ComputeSettings))


def _scorer(request: RetrievalRequest, index: Index | None) -> Scorer | SecondStage | None:
    if request.rerank is None:
        return None
    if (late := late_folder(request.rerank)) is not None:
        embedder = load_token_embedder(late, **request.values(ComputeSettings))
        is_stored = index is not None and TOKENS in index.manifest.vectors and not differences(index, embedder, TOKENS)
        tell(f"re-ranked by the vectors of tokens{' in the index' if is_stored else ''}")
        return IndexTokens(index, embedder) if index is not None and is_stored else TokenScorer(embedder)
    predictor = load_predictor(request.rerank, early=True, **request.values(ComputeSettings))
    scorer = PairScorer(said_weak(predictor, request.rerank))
    tell(f"re-ranked by {f'the probability of {scorer.label!r}' if scorer.label else 'the number it predicts'}")
    return scorer


def _require_fit(request: RetrievalRequest, *, is_indexed: bool) -> None:
    """Refuses settings that have no effect in an index, or only in one."""
    idle = _OUTSIDE_AN_INDEX if is_indexed else _IN_AN_INDEX
    _require_no(request, idle, f"for passages {'in an index' if is_indexed else 'in a file'}")
    require(
        not is_indexed or (request.system in (VECTORS, BY_WORDS, HYBRID) and request.bm25_words == "words"),
        expected="a search by vectors, by words (bm25) or by both (hybrid) in an index",
        found=f"by {'pieces' if request.bm25_words == 'pieces' else request.system}",
        fix="choose one of these, or name the file of the passages",
    )


def _require_no(request: RetrievalRequest, idle: Sequence[str], where: str) -> None:
    if settings := [name for name in idle if name in request.given]:
        option = f"--{settings[0].replace('_', '-')}"
        raise ConfigError(expected=f"settings {where}", found=option, fix="leave it out")


def _index_of_words(name: str, texts: Sequence[str], words: Words, request: RetrievalRequest) -> WordIndex:
    if name in (BY_WORDS, WORDS):
        return BM25(texts, words=words, k1=request.k1, b=request.b)
    return WordCosines(texts, words=words, one_hot=name == ONE_HOT)
