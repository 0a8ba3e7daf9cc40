"""Passage search by words, by vectors of several kinds, or by all of them, re-ranked by a model; and its evaluation.

Letters: Q queries, P passages, k ranked passages.
"""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, quiet, tell, warn
from bertsmith.inference.search.passages import Judgements, TextSet
from bertsmith.inference.search.rankings import BY_RANKS, NO_PASSAGE, Ranking, best, fused, joined, shortened
from bertsmith.inference.search.request import BY_WORDS, DEPTH, HYBRID, VECTORS
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.metrics.ranking import RANKING_METRICS
from bertsmith.text.tokenizers.encoded import Encoded


class Scorer(Protocol):
    """What scores how well passages answer a query: a model that reads both, or one of late interaction."""

    cut: int  # the number of texts truncated so far
    label: str  # whose probability is the score; "" for a number

    def scores(self, query: str, passages: Sequence[str], known: dict[str, Encoded] | None = None) -> list[float]:
        """One score per passage; higher is better; see `PairScorer.scores`."""


class _Remembering:
    """A scorer that scores no passage twice for a query."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self.label, self.cut = scorer, scorer.label, 0
        self._scores: dict[str, dict[str, float]] = {}

    def scores(self, query: str, passages: Sequence[str], known: dict[str, Encoded] | None = None) -> list[float]:
        """See `Scorer`."""
        before = self._scores.setdefault(query, {})
        if new := [text for text in dict.fromkeys(passages) if text not in before]:
            cut = self._scorer.cut
            before.update(zip(new, self._scorer.scores(query, new, known), strict=True))
            self.cut += self._scorer.cut - cut
        return [before[text] for text in passages]


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


class VectorSearch:
    """The search of passages by the vectors of queries.

    Args:
        index: the vectors of the passages.
        vectors: returns those of queries.
    """

    def __init__(self, index: VectorIndex, vectors: Callable[[Sequence[str]], Any]) -> None:
        self.index, self.vectors = index, vectors

    def search(self, queries: Sequence[str], top: int) -> Ranking:
        """See `TextSearch`."""
        return self.index.search(self.vectors(queries), top)


@runtime_checkable
class SecondStage(Protocol):
    """What ranks the results of a search again by vectors of the passages that it has."""

    def again(self, queries: Sequence[str], ranking: Ranking, top: int) -> Ranking:
        """The best passages of each query, of those in a ranking."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retriever:
    """Passages and the means to search them.

    Attributes:
        searches: by name.
        scorer: re-ranks the best passages; None for no re-ranking.
        depth: how many passages of each search are fused, and how many are re-ranked.
        fuse: how rankings are fused, see `fused`.
    """

    passages: TextSet
    searches: Mapping[str, TextSearch]
    scorer: Scorer | SecondStage | None = None
    depth: int = DEPTH
    fuse: str = BY_RANKS

    def rank(self, queries: Sequence[str], by: str | Sequence[str] = VECTORS, top: int = 10) -> Ranking:
        """The best `top` passages of each query; if there is a scorer, re-ranked and at most `depth`.

        Args:
            by: names of `searches`, whose rankings are fused; HYBRID stands for those by words and by vectors.
        """
        if self.scorer is None:
            return self.first_ranking(queries, by, top)
        return self.again(queries, self.first_ranking(queries, by, self.depth), top)

    def again(self, queries: Sequence[str], ranking: Ranking, top: int) -> Ranking:
        """The best `top` passages of a ranking, re-ranked."""
        assert self.scorer is not None, "there is one"
        if isinstance(self.scorer, SecondStage):
            return self.scorer.again(queries, ranking, top)
        return reranked(self.scorer, queries, self.passages.texts, ranking, top)

    def side_by_side(self, queries: Sequence[str], system: str, top: int = DEPTH) -> dict[str, Ranking]:
        """The rankings of all searches, of vectors and words fused, and one re-ranked, if there is a scorer.

        Args:
            top: number of passages to rank; a smaller `depth` limits how many are fused and re-ranked.
        """
        reach = max(top, self.depth)
        groups: dict[str, Sequence[str]] = {name: [name] for name in self.searches}
        if {BY_WORDS, VECTORS} <= set(groups):
            groups[HYBRID] = names_of(HYBRID)
        rankings = self.of_groups(queries, groups, reach)
        if self.scorer is not None:
            first = shortened(rankings[system], self.depth)
            rankings[f"{system}, re-ranked"] = self.again(queries, first, reach)
        return {name: shortened(ranking, top) for name, ranking in rankings.items()}

    def first_ranking(self, queries: Sequence[str], by: str | Sequence[str], top: int) -> Ranking:
        """The best `top` passages of each query, without re-ranking."""
        return self.of_groups(queries, {"": names_of(by)}, top)[""]

    def remembering(self) -> "Retriever":
        """This retriever, whose scorer scores no passage twice for a query."""
        if self.scorer is None or isinstance(self.scorer, SecondStage):
            return self
        return dataclasses.replace(self, scorer=_Remembering(self.scorer))

    def of_groups(self, queries: Sequence[str], groups: Mapping[str, Sequence[str]], top: int) -> dict[str, Ranking]:
        """The rankings of some groups of searches, those of several fused; every search is made once."""
        reach = max(self.depth if len(names) > 1 else top for names in groups.values())
        first = {
            name: self.searches[name].search(queries, reach)
            for name in dict.fromkeys(itertools.chain.from_iterable(groups.values()))
        }
        result = {}
        for group, names in groups.items():
            size = self.depth if len(names) > 1 else top
            rankings = [shortened(first[name], size) for name in names]
            result[group] = rankings[0] if len(rankings) == 1 else fused(rankings, top, self.fuse)
        return result


def names_of(by: str | Sequence[str]) -> Sequence[str]:
    """The searches that are fused, by the name of a system or their own names."""
    if isinstance(by, str):
        return (BY_WORDS, VECTORS) if by == HYBRID else (by,)
    return by


def mixtures(kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """Each kind, each pair of kinds, and all of them.

    >>> mixtures(["dense", "words"])
    [('dense',), ('words',), ('dense', 'words')]
    """
    return list(dict.fromkeys([*((kind,) for kind in kinds), *itertools.combinations(kinds, 2), tuple(kinds)]))


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
    """Reports on stderr which judgements and queries cannot count.

    Raises:
        InputError: none of them can.
    """
    if not any(any(judgements.get(id, {}).values()) for id in queries.ids):
        raise InputError(
            expected="judgements with a relevant passage for these queries", found="none", fix="check both files"
        )
    unanswered = sum(not any(judgements.get(id, {}).values()) for id in queries.ids)
    if unanswered:
        tell(f"{unanswered:,} of {len(queries):,} queries have no relevant passage and do not count")
    known = set(passages.ids)
    relevant = [passage for gains in judgements.values() for passage, gain in gains.items() if gain]
    absent = sum(passage not in known for passage in relevant)
    if absent == len(relevant):
        raise InputError(
            expected="relevant passages that are among the passages",
            found=f"none, as {brief(relevant[0])} is not",
            fix="judge passages by their ids" + (f", such as {brief(passages.ids[0])}" if known else ""),
        )
    if absent:
        tell(f"{absent:,} of {len(relevant):,} relevant passages are not among the passages; they count as not found")
