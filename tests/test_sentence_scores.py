"""The scores of vectors next to those that MTEB's tasks give the same vectors, where its package is installed."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bertsmith.base.core.randomness import generator
from bertsmith.inference.search.passages import TextSet
from bertsmith.inference.search.rankings import best
from bertsmith.inference.search.retrieval import score_search

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("sentence_scores")


class WordVectors:
    """Means of random vectors of words."""

    width = 16

    def embed_counting(self, texts: Sequence[str]) -> tuple[Any, Any]:
        rows = [
            [generator(1, "a word", *word.encode()).normal(size=self.width) for word in text.split()] for text in texts
        ]
        return np.array([np.mean(row, axis=0) for row in rows], dtype=np.float32), np.zeros(len(texts), dtype=np.int64)


def some_texts(count: int, seed: int) -> list[str]:
    draw = generator(seed, "texts to score")
    return [" ".join(f"w{word}" for word in draw.integers(0, 30, 6)) for _ in range(count)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", ["similarity", "pairs", "clustering"])
def test_scores_of_vectors_are_those_of_the_tasks_of_mteb(
    scores: ModuleType, task: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("mteb")
    monkeypatch.setattr(scores, "load_embedder", lambda *_, **__: WordVectors())
    first, second, draw = some_texts(60, 1), some_texts(60, 2), generator(3, "labels to score")
    rows = [[text, f"topic {number}"] for text, number in zip(first, draw.integers(0, 5, 60), strict=True)]
    header = ["text", "label"]
    if task != "clustering":
        values = draw.integers(0, 2, 60) if task == "pairs" else np.round(5 * draw.random(60), 1)
        rows = [[text, other, str(value)] for text, other, value in zip(first, second, values, strict=True)]
        header = ["sentence1", "sentence2", "label" if task == "pairs" else "score"]
    report = scores.scored(task, [header, *rows], "any", tmp_path)
    assert report["examples"] == 60
    assert report["mteb"].keys() == report["scores"].keys() & set(scores.IN_MTEB.values())
    assert report["mteb"]
    assert report["largest_difference"] < 1e-6


@pytest.mark.filterwarnings("ignore")
def test_scores_of_a_ranking_are_those_of_mteb(scores: ModuleType) -> None:
    pytest.importorskip("mteb")
    draw = generator(4, "a ranking to score")
    passages, queries = (
        TextSet(ids=tuple(f"{kind}{n}" for n in range(count)), texts=tuple(some_texts(count, 5)))
        for kind, count in (("p", 300), ("q", 20))
    )
    ranking = best(draw.random((20, 300)), 100)
    judged = {
        query: {f"p{index}": float(draw.integers(0, 4)) for index in draw.choice(300, 12, replace=False).tolist()}
        for query in queries.ids
    }
    ours = score_search(ranking, queries, passages, judged).scores
    theirs = scores.ranked_by_mteb(ranking, queries.ids, passages.ids, judged)
    assert theirs.keys() == ours.keys()
    assert scores.side_by_side(ours, theirs)["largest_difference"] < 1e-5  # MTEB rounds to five digits


def test_a_text_that_was_read_once_has_the_same_vector_everywhere(scores: ModuleType) -> None:
    texts = ["w1 w2", "w3", "w1 w2", "w4 w4"]
    remembered = scores.Remembered(WordVectors(), texts)
    vectors, cut = remembered.for_queries().embed_counting(["w3", "w1 w2", "w3"])
    assert np.array_equal(vectors, WordVectors().embed_counting(["w3", "w1 w2", "w3"])[0])
    assert cut.tolist() == [0, 0, 0]
