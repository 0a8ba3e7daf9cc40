"""Passage search by words, vectors or both, re-ranked by a model that scores pairs; and its evaluation.

Letters: Q queries, P passages, k ranked passages.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, quiet, tell, warn
from bertsmith.inference.search.passages import Judgements, TextSet
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, fused, joined, shortened
from bertsmith.inference.search.request import BY_WORDS, DEPTH, HYBRID, VECTORS
from bertsmith.inference.vectors.embedder import EitherVectors
from bertsmith.tasks.metrics.ranking import RANKING_METRICS
from bertsmith.text.tokenizers.encoded import Encoded


class Scorer(Protocol):
    """What scores how well passages answer a query: a model that reads both, or one of late interaction."""

    cut: int  # the number of texts truncated so far
    label: str  # whose probability is the score; "" for a number

    def scores(self, query: str, passages: Sequence[str], known: dict[str, Encoded] | None = None) -> list[float]:
        """One score per passage; higher is better; see `PairScorer.scores`."""


def reranked(scorer: Scorer, queries: Sequence[str], texts: Sequence[str], ranking: Ranking, top: int) -> Ranking:
    """The best `top` passages of `ranking`, by the scores of a model for queries and passages."""
    parts, known = [], dict[str, Encoded]()
    before = scorer.cut
    with Progress("re-ranking", total=len(queries), unit="queries") as progress:
        for number, query in enumerate(queries):
            places = ranking.places[number][ranking.places[number] != NO_PASSAGE]
            with quiet():  # one warning for all queries, not one per query
                scores = scorer.scores(query, [texts[passage] for passage in places], known)
            parts.append(best(np.array([scores], dtype=np.float64).reshape(1, -1), top, places.reshape(1, -1)))
            progress.advance()
    if scorer.cut > before:
        warn(f"pairs longer than the model's limit, truncated: {scorer.cut - before:,}")
    return joined(parts)


class TextSearch(Protocol):
    """Passages that are searched for texts."""

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """The best passages of each query."""


class VectorIndex(Protocol):
    """Passages that are searched by vectors."""

    def search(self, queries: Any, top: int) -> Ranking:
        """The nearest passages of each query, vectors [Q, D] as `query_vectors` makes them."""


@dataclasses.dataclass(frozen=True)
class VectorSearch:
    """The search of passages by the vectors of queries.

    Attributes:
        index: the vectors of the passages.
        vectors: returns those of queries.
    """

    index: VectorIndex
    vectors: Callable[[Sequence[str]], EitherVectors]

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """See `TextSearch`."""
        return self.index.search(self.vectors(queries), top)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever:
    """Passages and the means to search them.

    Attributes:
        searches: by the names of their systems.
        scorer: re-ranks the best passages; None for no re-ranking.
        depth: how many passages of each search are fused, and how many are re-ranked.
    """

    passages: TextSet
    searches: Mapping[str, TextSearch]
    scorer: Scorer | None = None
    depth: int = DEPTH

    def rank(self, queries: Sequence[str], system: str = VECTORS, top: int = 10) -> Ranking:
        """The best `top` passages of each query; if there is a scorer, re-ranked and at most `depth`.

        Args:
            system: one of `searches`, or HYBRID, which needs those by words and by vectors.
        """
        if self.scorer is None:
            return self.first_ranking(queries, system, top)
        ranking = self.first_ranking(queries, system, self.depth)
        return reranked(self.scorer, queries, self.passages.texts, ranking, top)

    def side_by_side(self, queries: Sequence[str], system: str, top: int = DEPTH) -> dict[str, Ranking]:
        """The rankings of all searches, of vectors and words fused, and one re-ranked, if there is a scorer.

        Args:
            top: number of passages to rank; a smaller `depth` limits how many are fused and re-ranked.
        """
        reach = max(top, self.depth)
        rankings = {method: search.search(queries, reach) for method, search in self.searches.items()}
        if {BY_WORDS, VECTORS} <= set(rankings):
            rankings[HYBRID] = fused([shortened(rankings[method], self.depth) for method in (BY_WORDS, VECTORS)], reach)
        if self.scorer is not None:
            first = shortened(rankings[system], self.depth)
            rankings[f"{system}, re-ranked"] = reranked(self.scorer, queries, self.passages.texts, first, reach)
        return {name: shortened(ranking, top) for name, ranking in rankings.items()}

    def first_ranking(self, queries: Sequence[str], system: str, top: int) -> Ranking:
        """The best `top` passages of each query, without re-ranking."""
        if system == HYBRID:
            return fused([self.first_ranking(queries, method, self.depth) for method in (BY_WORDS, VECTORS)], top)
        return self.searches[system].search(queries, top)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchScores:
    """The evaluation of a search.

    Attributes:
        scores: the mean over the queries, by the names of RANKING_METRICS.
        num_queries: queries that have a relevant passage; only they count.
        num_passages: passages that were searched.
        by_query: the scores of each of them.
    """

    scores: Mapping[str, float]
    num_queries: int
    num_passages: int
    by_query: Mapping[str, Mapping[str, float]]

    def to_dict(self) -> dict[str, float]:
        """Plain values for JSON: the number of queries and the mean scores."""
        return {"queries": self.num_queries, **self.scores}


def score_search(ranking: Ranking, queries: TextSet, passages: TextSet, judgements: Judgements) -> SearchScores:
    """The scores of a ranking of DEPTH passages per query.

    A relevant passage that is missing from the passages counts as not found.
    """
    by_query: dict[str, dict[str, float]] = {}
    for number, id in enumerate(queries.ids):
        gains = judgements.get(id, {})
        if not any(gains.values()):
            continue
        ranked = [gains.get(passages.ids[passage], 0.0) for passage, _ in ranking.row(number)]
        judged = list(gains.values())
        by_query[id] = {name: metric(ranked, judged) for name, metric in RANKING_METRICS.items()}
    if not by_query:
        raise InputError(
            expected="judgements with a relevant passage for these queries", found="none", fix="check both files"
        )
    means = {name: float(np.mean([scores[name] for scores in by_query.values()])) for name in RANKING_METRICS}
    return SearchScores(scores=means, num_queries=len(by_query), num_passages=len(passages), by_query=by_query)


def tell_unjudged(queries: TextSet, passages: TextSet, judgements: Judgements) -> None:
    """Reports on stderr which judgements and queries cannot count."""
    unanswered = sum(not any(judgements.get(id, {}).values()) for id in queries.ids)
    if unanswered:
        tell(f"{unanswered:,} of {len(queries):,} queries have no relevant passage and do not count")
    known = set(passages.ids)
    relevant = [passage for gains in judgements.values() for passage, gain in gains.items() if gain]
    absent = sum(passage not in known for passage in relevant)
    if absent:
        tell(f"{absent:,} of {len(relevant):,} relevant passages are not among the passages; they count as not found")
