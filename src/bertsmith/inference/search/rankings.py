"""Rankings of passages: top scores, nearest vectors, and fusion of several rankings.

Letters: Q queries, P passages, k ranked passages, D width of the vectors.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError

NO_PASSAGE = -1  # fills places if fewer passages than requested are ranked
FUSION_CONSTANT = 60
BY_RANKS, BY_SCORES = "rrf", "scores"
_BLOCK = 8192  # passages
_QUERIES = 256

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.floating[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """The best passages of each query, best first; with equal scores the earlier passage comes first.

    Attributes:
        places: int64 [Q, k], passage numbers from 0; NO_PASSAGE after the last one.
        scores: float64 [Q, k]; minus infinity at NO_PASSAGE.
    """

    places: Ints
    scores: Floats

    def row(self, query: int) -> list[tuple[int, float]]:
        """The ranked passages of one query with their scores."""
        both = zip(self.places[query].tolist(), self.scores[query].tolist(), strict=True)
        return [(passage, score) for passage, score in both if passage != NO_PASSAGE]


def best(scores: npt.NDArray[np.floating[Any]], top: int, places: Ints | None = None) -> Ranking:
    """The ranking of the highest `top` scores of each row.

    Args:
        scores: [Q, P]; minus infinity is never ranked.
        top: number of passages to keep, at least 1.
        places: int64 [Q, P], the passages of the scores; 0, 1, 2 ... by default.
    """
    assert top >= 1, top
    scores = np.asarray(scores, dtype=np.float64)
    num_queries, width = scores.shape
    if places is None:
        places = np.broadcast_to(np.arange(width, dtype=np.int64), scores.shape)
    kept_places = np.full((num_queries, top), NO_PASSAGE, dtype=np.int64)
    kept_scores = np.full((num_queries, top), -np.inf)
    for query, (row, at) in enumerate(zip(scores, places, strict=True)):
        if top < width:
            lowest = np.partition(row, width - top)[width - top]
            candidates = np.flatnonzero((row >= lowest) & (row > -np.inf))
        else:
            candidates = np.flatnonzero(row > -np.inf)
        order = candidates[np.lexsort((at[candidates], -row[candidates]))][:top]
        kept_places[query, : len(order)] = at[order]
        kept_scores[query, : len(order)] = row[order]
    return Ranking(places=kept_places, scores=kept_scores)


def nearest_vectors(queries: Vectors, passages: Vectors, top: int) -> Ranking:
    """The passages with the highest dot product (the cosine of normalized vectors), by exact search.

    Args:
        queries: [Q, D].
        passages: [P, D], may be memory-mapped; blocks of passages are multiplied with blocks of queries.
    """
    if queries.ndim != 2 or passages.ndim != 2 or queries.shape[1] != passages.shape[1]:
        raise InputError(
            expected="queries and passages with vectors of the same width",
            found=f"arrays of shape {list(queries.shape)} and {list(passages.shape)}",
            fix="compute both with the same model",
        )
    asked = [np.asarray(queries[at : at + _QUERIES], np.float32) for at in range(0, max(1, len(queries)), _QUERIES)]
    result = [no_rows(len(part)) for part in asked]
    for start in range(0, len(passages), _BLOCK):
        block = np.asarray(passages[start : start + _BLOCK], dtype=np.float32)
        for number, (part, before) in enumerate(zip(asked, result, strict=True)):
            scores = part @ block.T
            numbers = np.broadcast_to(np.arange(start, start + len(block), dtype=np.int64), scores.shape)
            result[number] = best(np.hstack([before.scores, scores]), top, np.hstack([before.places, numbers]))
    return joined(result)


def fused(rankings: Sequence[Ranking], top: int, fuse: str = BY_RANKS) -> Ranking:
    """The ranking by the sum of what each ranking gives a passage.

    Args:
        fuse: one of FUSIONS. By ranks (reciprocal rank fusion) a ranking gives 1 / (FUSION_CONSTANT + rank), with ranks
            from 1; by scores, the score, scaled to go from 0 for the last passage of the ranking to 1 for the first.

    Sources: Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods" (2009); Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval" (2023), section 4.
    """
    shares = FUSIONS[fuse]
    parts = []
    for query in range(len(rankings[0].places)):
        total: dict[int, float] = {}
        for ranking in rankings:
            row = ranking.row(query)
            for (passage, _), share in zip(row, shares([score for _, score in row]), strict=True):
                total[passage] = total.get(passage, 0.0) + share
        places = np.array([list(total)], dtype=np.int64).reshape(1, -1)
        parts.append(best(np.array([list(total.values())]).reshape(1, -1), top, places))
    return joined(parts)


def _of_ranks(scores: Sequence[float]) -> list[float]:
    return [1 / (FUSION_CONSTANT + rank) for rank in range(1, len(scores) + 1)]


def _of_scores(scores: Sequence[float]) -> list[float]:
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


FUSIONS: Mapping[str, Callable[[Sequence[float]], list[float]]] = {BY_RANKS: _of_ranks, BY_SCORES: _of_scores}


def joined(parts: Sequence[Ranking]) -> Ranking:
    """The rankings of several groups of queries as one; all must rank the same number of passages."""
    return Ranking(
        places=np.concatenate([part.places for part in parts]), scores=np.concatenate([part.scores for part in parts])
    )


def no_rows(count: int) -> Ranking:
    """The ranking of `count` queries that have no row to rank."""
    return Ranking(places=np.full((count, 1), NO_PASSAGE, dtype=np.int64), scores=np.full((count, 1), -np.inf))


def merged(rankings: Sequence[Ranking], starts: Sequence[int], top: int) -> Ranking:
    """The best `top` rows of several segments, numbered from the first row of the first one on.

    Args:
        starts: the number of the first row of each segment.
    """
    places = np.hstack(
        [
            np.where(each.places == NO_PASSAGE, NO_PASSAGE, each.places + start)
            for each, start in zip(rankings, starts, strict=True)
        ]
    )
    return best(np.hstack([each.scores for each in rankings]), top, places)


def shortened(ranking: Ranking, top: int) -> Ranking:
    """The best `top` of each query."""
    return Ranking(places=ranking.places[:, :top], scores=ranking.scores[:, :top])
