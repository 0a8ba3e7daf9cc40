"""The results of searches: the ranked passages of each query."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bertsmith.inference.search.passages import TextSet
from bertsmith.inference.search.rankings import Ranking


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hit:
    """A retrieved passage.

    Attributes:
        rank: from 1.
        id: its id in the file, or its line number if the file has no ids.
        score: higher is better; its scale depends on the search.
        text: the passage.
        columns: of a passage of an index, the other columns of its row.
    """

    rank: int
    id: str
    score: float
    text: str
    columns: Mapping[str, str | None] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name != "columns" or value is not None}


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
        return {"id": self.id, "query": self.query, "passages": [hit.to_dict() for hit in self.passages]}


def search_results(passages: TextSet, queries: TextSet, ranking: Ranking) -> list[SearchResult]:
    """The ranked passages of each query."""
    return [
        SearchResult(
            id=id,
            query=text,
            passages=tuple(
                Hit(
                    rank=rank,
                    id=passages.ids[index],
                    score=score,
                    text=passages.texts[index],
                    columns=None if passages.columns is None else passages.columns(index),
                )
                for rank, (index, score) in enumerate(ranking.row(number), start=1)
            ),
        )
        for number, (id, text) in enumerate(zip(queries.ids, queries.texts, strict=True))
    ]
