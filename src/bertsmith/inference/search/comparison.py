"""Which of several rankings is best on some queries: scores with intervals, and paired differences to the best.

Letters: Q queries.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.base.core.progress import counted
from bertsmith.inference.search.passages import Judgements, TextSet
from bertsmith.inference.search.rankings import Ranking
from bertsmith.inference.search.retrieval import score_search
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval

METRIC = "ndcg@10"
FEW = 25  # queries below which two searches are often in the wrong order (Buckley and Voorhees, 2000)
_SHOWN = (METRIC, "recall@100", "mrr@10")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture:
    """The scores of a search by one kind of vectors, by words, or by several.

    Attributes:
        kinds: what is searched by.
        is_reranked: whether a model re-ranks what is found.
        scores: the means over the queries, by the names of RANKING_METRICS.
        intervals: 95% confidence intervals of them, from the bootstrap over queries.
        behind: how much less METRIC is than that of the best search, on the same queries.
        behind_interval: of this difference; it contains 0 if the difference may be chance.
    """

    kinds: tuple[str, ...]
    is_reranked: bool
    scores: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    behind: float
    behind_interval: tuple[float, float]

    @property
    def name(self) -> str:
        """The kinds in words."""
        return " + ".join(self.kinds) + (", re-ranked" if self.is_reranked else "")

    @property
    def cost(self) -> tuple[bool, int]:
        """What it takes, to be compared: re-ranking takes more than any search."""
        return self.is_reranked, len(self.kinds)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchComparison:
    """The scores of several searches on the same queries.

    Attributes:
        mixtures: best first.
        queries: that have a relevant passage.
        passages: that were searched.
    """

    mixtures: Sequence[Mixture]
    queries: int
    passages: int

    @property
    def choice(self) -> Mixture:
        """The search that takes least of those that are not surely worse than the best."""
        equal = [each for each in self.mixtures if each.behind_interval[0] <= 0]
        return min(equal, key=lambda each: (each.cost, each.behind))

    def lines(self) -> list[str]:
        """A table of the scores, and a line that says which search to take."""
        width = max(len(each.name) for each in self.mixtures)
        lines = [f"{counted(self.queries, 'query', 'queries')}, {counted(self.passages, 'passage')}"]
        if self.queries < FEW:
            lines.append(f"{lines.pop()}; scores on so few depend mostly on chance: judge {FEW} queries or more")
        for each in self.mixtures:
            low, high = each.intervals[METRIC]
            scores = ", ".join(f"{name} {each.scores[name]:.4f}" for name in _SHOWN[1:])
            behind = "the best"
            if each is not self.mixtures[0]:
                behind = "{:.4f} less ({:.4f} to {:.4f})".format(each.behind, *each.behind_interval)
            best = f"{METRIC} {each.scores[METRIC]:.4f} ({low:.4f} to {high:.4f})"
            lines.append(f"{each.name:{width}}  {best}, {scores}; {behind}")
        reason = "the best" if self.choice is self.mixtures[0] else "not surely worse than the best, and simpler"
        return [*lines, f"take {self.choice.name}: {reason}"]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        mixtures = [{"name": each.name, **dataclasses.asdict(each)} for each in self.mixtures]
        return {**dataclasses.asdict(self), "mixtures": mixtures, "choice": self.choice.name}


def compare_rankings(
    rankings: Mapping[tuple[tuple[str, ...], bool], Ranking],
    queries: TextSet,
    passages: TextSet,
    judgements: Judgements,
) -> SearchComparison:
    """The comparison of rankings by their kinds and whether they are re-ranked; those of equal scores by their cost."""
    scored = {key: score_search(ranking, queries, passages, judgements) for key, ranking in rankings.items()}
    values = {
        key: {name: np.array([of_query[name] for of_query in each.by_query.values()]) for name in each.scores}
        for key, each in scored.items()
    }
    order = sorted(scored, key=lambda key: (-scored[key].scores[METRIC], key[1], len(key[0])))
    best = values[order[0]][METRIC]
    mixtures = []
    for kinds, is_reranked in order:
        of_queries = values[kinds, is_reranked]
        less = best - of_queries[METRIC]
        mixtures.append(
            Mixture(
                kinds=kinds,
                is_reranked=is_reranked,
                scores=scored[kinds, is_reranked].scores,
                intervals={name: bootstrap_interval(each) for name, each in of_queries.items()},
                behind=float(less.mean()),
                behind_interval=bootstrap_interval(less),
            )
        )
    first = scored[order[0]]
    return SearchComparison(mixtures=mixtures, queries=first.num_queries, passages=first.num_passages)
