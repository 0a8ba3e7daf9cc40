"""Search files of passages by vectors, by words (BM25) or by both, and score searches against relevance judgements."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.app.library.inputs import checked_texts
from bertsmith.base.core.progress import tell, warn
from bertsmith.base.core.settings import require, require_number
from bertsmith.inference.predictors.loading import load_predictor, said_weak
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.index import index_passages
from bertsmith.inference.search.passages import TextSet, judgements_for, read_judgements, read_text_set
from bertsmith.inference.search.rankings import Ranking
from bertsmith.inference.search.retrieval import Retriever, SearchScores, score_search, tell_unjudged
from bertsmith.inference.search.settings import BY_WORDS, HYBRID, ONE_HOT, TF_IDF, VECTORS, WORDS_ALONE, SearchSettings
from bertsmith.inference.search.word_cosines import WordCosines
from bertsmith.inference.search.word_index import WordIndex, Words
from bertsmith.inference.vectors.changes import VectorChange
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.tasks.metrics.vectors import crowding


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hit:
    """A retrieved passage.

    Attributes:
        rank: from 1.
        id: its id in the file, or its line number if the file has no ids.
        score: higher is better; its scale depends on the search.
        text: the passage.
    """

    rank: int
    id: str
    score: float
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The passages retrieved for one query, best first.

    Attributes:
        id: of the query.
        query: its text.
        passages: may be fewer than requested if no others share a word with the query.
    """

    id: str
    query: str
    passages: tuple[Hit, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"id": self.id, "query": self.query, "passages": [dataclasses.asdict(hit) for hit in self.passages]}


def search_passages(
    passages: str | Path, queries: str | Path | Sequence[str], *, top: int = 10, **settings: Any
) -> list[SearchResult]:
    """The best passages for each query.

    Args:
        passages: a file of passages; see `bertsmith.inference.search.passages`.
        queries: a file of queries, or a list of texts.
        top: maximum passages per query; at most `depth` with hybrid search or re-ranking.
        settings: fields of SearchSettings by name, such as model="my-run", system="hybrid".

    Raises:
        BertsmithError: a setting, a file or a model does not fit; the message says which.
    """
    chosen = SearchSettings(**settings)
    require_number("top", top, least=1)
    asked = _queries(queries, chosen)
    retriever = _retriever(_passages(passages, chosen), chosen, {chosen.system})
    _warn_crowded(retriever, chosen)
    return _results(retriever.passages, asked, retriever.rank(asked.texts, chosen.system, top))


def score_searches(
    passages: str | Path,
    queries: str | Path | Sequence[str],
    judgements: str | Path,
    *,
    judged_by: str | None = None,
    **settings: Any,
) -> dict[str, SearchScores]:
    """The scores of each available search by name: vectors, bm25, hybrid, and one of them with re-ranking.

    Args:
        passages, queries: as in `search_passages`.
        judgements: a file of `query 0 passage gain` lines.
        judged_by: "ids" or "places", how the judgements refer to queries; by default ids if they match.
        settings: fields of SearchSettings by name. With system="bm25", "tf-idf" or "one-hot" only that one is scored;
            the system is the one whose results `rerank` scores again.

    Raises:
        BertsmithError: a setting, a file or a model does not fit; the message says which.
    """
    chosen = SearchSettings(**settings)
    asked = _queries(queries, chosen)
    judged = judgements_for(read_judgements(Path(judgements), encoding=chosen.encoding), asked, judged_by)
    systems = {chosen.system} if chosen.system in WORDS_ALONE else {BY_WORDS, VECTORS}
    retriever = _retriever(_passages(passages, chosen), chosen, systems)
    _warn_crowded(retriever, chosen)
    tell_unjudged(asked, retriever.passages, judged)
    rankings = retriever.side_by_side(asked.texts, chosen.system)
    return {name: score_search(ranking, asked, retriever.passages, judged) for name, ranking in rankings.items()}


def _warn_crowded(retriever: Retriever, settings: SearchSettings) -> None:
    if retriever.index is not None and settings.system != HYBRID and (warning := crowding(retriever.index.vectors)):
        warn(warning)


def _passages(passages: str | Path, settings: SearchSettings) -> TextSet:
    return read_text_set(Path(passages), text_column=settings.text_column, encoding=settings.encoding)


def _queries(queries: str | Path | Sequence[str], settings: SearchSettings) -> TextSet:
    if isinstance(queries, str | Path):
        column = settings.query_column
        return read_text_set(
            Path(queries), kind="queries", text_column=column, option="--query-column", encoding=settings.encoding
        )
    texts = checked_texts(queries, "query")
    for number, text in enumerate(texts, start=1):
        require(bool(text.strip()), expected=f"a text as query {number}", found="an empty one", fix="give some text")
    return TextSet(ids=tuple(str(number) for number in range(1, len(texts) + 1)), texts=tuple(texts))


def _retriever(passages: TextSet, settings: SearchSettings, systems: set[str]) -> Retriever:
    """A retriever with everything that these search systems need."""
    by_words = [BY_WORDS if system == HYBRID else system for system in systems if system != VECTORS]
    needs_words, needs_vectors = bool(by_words), not systems <= set(WORDS_ALONE)
    by_pieces = needs_words and settings.bm25_words == "pieces"
    change = None if settings.changes is None else VectorChange.load(Path(settings.changes))
    if change is not None and change.warning:
        warn(change.warning)
    loading: dict[str, Any] = {
        "device": settings.device,
        "precision": settings.precision,
        "products": settings.products,
    }
    embedder = None
    if needs_vectors or by_pieces:
        assert settings.model is not None, "the settings have one"
        embedder = load_embedder(settings.model, pooling=settings.pooling, **loading)
    passage_embedder = None
    if embedder is not None:
        passage_embedder = embedder.for_passages(settings.passage_prompt)
        embedder = embedder.for_queries(settings.query_prompt)
        if needs_vectors and (embedder.prompt or passage_embedder.prompt):
            tell(f"prompts of the model: {embedder.prompt!r} for queries, {passage_embedder.prompt!r} for passages")
    words = Words(embedder.encoder.tokenizer if by_pieces and embedder is not None else None)
    scorer = None
    if settings.rerank is not None:
        predictor = load_predictor(settings.rerank, **loading)
        scorer = PairScorer(said_weak(predictor, settings.rerank))
        tell(f"re-ranked by {f'the probability of {scorer.label!r}' if scorer.label else 'the number it predicts'}")
    index = None
    if needs_vectors and passage_embedder is not None:
        path = None if settings.index is None else Path(settings.index)
        index = index_passages(
            passages.texts, passage_embedder, change=change, path=path, approximate=settings.approximate
        )
    return Retriever(
        passages=passages,
        words={name: _index_of_words(name, passages.texts, words, settings) for name in by_words},
        embedder=embedder,
        index=index,
        change=change,
        scorer=scorer,
        depth=settings.depth,
    )


def _index_of_words(name: str, texts: Sequence[str], words: Words, settings: SearchSettings) -> WordIndex:
    if name == BY_WORDS:
        return BM25(texts, words=words, k1=settings.k1, b=settings.b)
    assert name in (TF_IDF, ONE_HOT), name
    return WordCosines(texts, words=words, one_hot=name == ONE_HOT)


def _results(passages: TextSet, queries: TextSet, ranking: Ranking) -> list[SearchResult]:
    return [
        SearchResult(
            id=id,
            query=text,
            passages=tuple(
                Hit(rank=rank, id=passages.ids[place], score=score, text=passages.texts[place])
                for rank, (place, score) in enumerate(ranking.row(number), start=1)
            ),
        )
        for number, (id, text) in enumerate(zip(queries.ids, queries.texts, strict=True))
    ]
