"""Search over passages: by words, by vectors, by both, read again by a model of pairs; and how good it is.

Letters: Q queries, P passages, k ranked passages.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bertsmith.errors import InputError
from bertsmith.inference.pair_scorer import PairScorer
from bertsmith.metrics.ranking import RANKING_METRICS
from bertsmith.progress import Progress, quiet, tell, warn
from bertsmith.search.bm25 import BM25
from bertsmith.search.index import PassageIndex, query_vectors
from bertsmith.search.passages import Judgements, TextSet
from bertsmith.search.rankings import NOBODY, Ranking, best, fused, joined, shortened
from bertsmith.search.settings import BY_WORDS, DEPTH, HYBRID, VECTORS
from bertsmith.vectors.changes import VectorChange
from bertsmith.vectors.embedder import Embedder


def reranked(scorer: PairScorer, queries: Sequence[str], texts: Sequence[str], ranking: Ranking, top: int) -> Ranking:
    """The best `top` of all that `ranking` holds, by the score of a model of pairs."""
    parts = []
    before = scorer.cut
    with Progress("re-ranking", total=len(queries), unit="queries") as progress:
        for number, query in enumerate(queries):
            places = ranking.places[number][ranking.places[number] != NOBODY]
            with quiet():  # one line for all queries, not one for each
                scores = scorer.scores(query, [texts[place] for place in places])
            parts.append(best(np.array([scores], dtype=np.float64).reshape(1, -1), top, places.reshape(1, -1)))
            progress.advance()
    if scorer.cut > before:
        warn(f"pairs longer than the model reads, which were cut: {scorer.cut - before:,}")
    return joined(parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever:
    """Passages with the ways to search them.

    Attributes:
        passages: what is searched.
        bm25: their words; None where nobody searches by words.
        embedder: makes the vectors of queries.
        index: the vectors of the passages.
        change: what was done to these vectors, and is done to those of queries; None where nothing was.
        scorer: reads the best passages again; None where nobody does.
        depth: of how many passages of each search the ranks are fused, and how many are read again.
    """

    passages: TextSet
    bm25: BM25 | None = None
    embedder: Embedder | None = None
    index: PassageIndex | None = None
    change: VectorChange | None = None
    scorer: PairScorer | None = None
    depth: int = DEPTH

    def rank(self, queries: Sequence[str], system: str = VECTORS, top: int = 10) -> Ranking:
        """The best `top` passages of each query, read again where there is a scorer: then `depth` at most.

        Args:
            system: one of SYSTEMS; what it needs must be there.
        """
        if self.scorer is None:
            return self.first_ranking(queries, system, top)
        ranking = self.first_ranking(queries, system, self.depth)
        return reranked(self.scorer, queries, self.passages.texts, ranking, top)

    def side_by_side(self, queries: Sequence[str], system: str, top: int = DEPTH) -> dict[str, Ranking]:
        """The rankings by all that is there: vectors, words, both; and one of them read again, where there is a scorer.

        Args:
            system: which of them is read again.
            top: passages that are ranked; where `depth` is less, fewer are fused and read again.
        """
        reach = max(top, self.depth)
        there = [VECTORS] * (self.index is not None) + [BY_WORDS] * (self.bm25 is not None)
        found = {one: self.first_ranking(queries, one, reach) for one in there}
        if len(found) > 1:
            found[HYBRID] = fused([shortened(found[one], self.depth) for one in (BY_WORDS, VECTORS)], reach)
        if self.scorer is not None:
            first = shortened(found[system], self.depth)
            found[f"{system}, re-ranked"] = reranked(self.scorer, queries, self.passages.texts, first, reach)
        return {name: shortened(ranking, top) for name, ranking in found.items()}

    def first_ranking(self, queries: Sequence[str], system: str, top: int) -> Ranking:
        """The best `top` passages of each query by words, vectors or both; nothing is read again."""
        if system == HYBRID:
            return fused([self.first_ranking(queries, one, self.depth) for one in (BY_WORDS, VECTORS)], top)
        if system == BY_WORDS:
            assert self.bm25 is not None, "words to search by"
            return self.bm25.search(queries, top)
        assert system == VECTORS, system
        assert self.index is not None, "vectors to search by"
        assert self.embedder is not None, "a model for the queries"
        return self.index.search(query_vectors(queries, self.embedder, self.change), top)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchScores:
    """How good a search is.

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
    """The scores of a ranking of DEPTH passages for each query.

    A relevant passage that is not among the passages counts as not found.

    Raises:
        InputError: no query has a relevant passage.
    """
    by_query: dict[str, dict[str, float]] = {}
    for number, id in enumerate(queries.ids):
        gains = judgements.get(id, {})
        if not any(gains.values()):
            continue
        ranked = [gains.get(passages.ids[place], 0.0) for place, _ in ranking.row(number)]
        judged = list(gains.values())
        by_query[id] = {name: metric(ranked, judged) for name, metric in RANKING_METRICS.items()}
    if not by_query:
        raise InputError(
            expected="judgements of a relevant passage for these queries", found="none", fix="check both files"
        )
    means = {name: float(np.mean([scores[name] for scores in by_query.values()])) for name in RANKING_METRICS}
    return SearchScores(scores=means, num_queries=len(by_query), num_passages=len(passages), by_query=by_query)


def tell_unjudged(queries: TextSet, passages: TextSet, judgements: Judgements) -> None:
    """Says on stderr what of the judgements and queries cannot count."""
    unanswered = sum(not any(judgements.get(id, {}).values()) for id in queries.ids)
    if unanswered:
        tell(f"{unanswered:,} of {len(queries):,} queries have no relevant passage and do not count")
    known = set(passages.ids)
    relevant = [passage for gains in judgements.values() for passage, gain in gains.items() if gain]
    absent = sum(passage not in known for passage in relevant)
    if absent:
        tell(f"{absent:,} of {len(relevant):,} relevant passages are not among the passages; they count as not found")
