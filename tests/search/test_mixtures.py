"""Searches by several kinds of vectors and words: fused, over candidates, and re-ranked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import build_index, search_passages
from bertsmith.base.core.errors import BertsmithError
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.passages import TextSet
from bertsmith.inference.search.rankings import BY_SCORES, Ranking, best, fused
from bertsmith.inference.search.retrieval import Retriever, mixtures
from bertsmith.tasks.metrics.token_vectors import max_sim
from checkpoints.sparse_folder import write_sparse
from indexes.test_indexes import write_texts
from search.late_samples import write_late
from tasks.task_samples import write_base_model

KINDS = ("dense", "sparse", "tokens", "words")
QUERIES = ["a great film", "anna was in rome", "the plot"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model of each kind of vectors."""
    folder = tmp_path_factory.mktemp("models")
    return [Path(write_base_model(folder / "dense", 4)), write_sparse(folder / "sparse"), write_late(folder / "late")]


@pytest.fixture(scope="module")
def index(models: Sequence[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of all kinds; its texts are next to it."""
    folder = tmp_path_factory.mktemp("index") / "index"
    texts = write_texts(folder.parent / "texts.jsonl", 30)
    build_index(texts, folder, model=models[0], also=models[1:], segment_rows=12)
    return folder


def scores_of(passages: Path, **options: Any) -> list[dict[str, float]]:
    """The scores of the passages found for each of QUERIES, by id."""
    results = search_passages(passages, QUERIES, device="cpu", **{"top": 100, **options})
    return [{hit.id: hit.score for hit in result.passages} for result in results]


def require_close(first: Sequence[dict[str, float]], second: Sequence[dict[str, float]], tolerance: float) -> None:
    for scores, others in zip(first, second, strict=True):
        assert scores == pytest.approx(others, abs=tolerance)


@pytest.mark.parametrize(("kind", "tolerance"), [("dense", 2e-3), ("sparse", 2e-2), ("words", 1e-9)])
def test_an_index_and_a_file_give_the_same_scores(
    index: Path, models: Sequence[Path], kind: str, tolerance: float
) -> None:
    of_file = scores_of(index.parent / "texts.jsonl", by=[kind], model=models[0], also=models[1:])
    require_close(scores_of(index, by=[kind]), of_file, tolerance)


def test_names_of_methods_and_kinds_are_the_same_searches(index: Path) -> None:
    assert scores_of(index, by=["dense"]) == scores_of(index)
    assert scores_of(index, by=["words"]) == scores_of(index, system="bm25")
    assert scores_of(index, by=["words", "dense"]) == scores_of(index, system="hybrid")


def test_rankings_of_all_kinds_are_fused_by_their_ranks(index: Path) -> None:
    alone = {kind: scores_of(index, by=[kind]) for kind in KINDS}
    for number, together in enumerate(scores_of(index, by=KINDS)):
        expected: dict[str, float] = {}
        for kind in KINDS:
            for rank, id in enumerate(alone[kind][number], start=1):
                expected[id] = expected.get(id, 0.0) + 1 / (60 + rank)
        assert together == pytest.approx(expected)


def test_scores_are_scaled_before_they_are_added() -> None:
    first, second = (best(np.array([scores]), 3) for scores in ([4.0, 2.0, 3.0], [-np.inf, 0.5, 0.9]))
    assert fused([first, second], 3, BY_SCORES).row(0) == [(2, 1.5), (0, 1.0), (1, 0.0)]
    alone = best(np.array([[7.0]]), 1)
    assert fused([alone, alone], 1, BY_SCORES).row(0) == [(0, 2.0)]


def test_vectors_of_tokens_in_an_index_re_rank_what_another_search_finds(index: Path, models: Sequence[Path]) -> None:
    everything = scores_of(index, by=["tokens"])
    again = scores_of(index, by=["words"], depth=4, rerank=models[2])
    for number, candidates in enumerate(scores_of(index, by=["words"], top=4)):
        assert again[number].keys() == candidates.keys()
        assert again[number] == pytest.approx({id: everything[number][id] for id in candidates}, rel=1e-5)


def test_re_ranking_reads_the_vectors_of_an_index_only_if_they_are_of_that_model(
    index: Path, models: Sequence[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Index, "token_scores", lambda *_: pytest.fail("read"))
    scores_of(index, rerank=write_late(tmp_path / "other", prefixes=("who ", "it ")), depth=3, top=3)
    with pytest.raises(pytest.fail.Exception, match="read"):
        scores_of(index, rerank=models[2], depth=3, top=3)


def test_scores_of_candidates_are_those_of_their_rows_in_all_segments(index: Path) -> None:
    opened = Index(index)
    tokens = [segment.vectors["tokens"] for segment in opened.segments]
    query = tokens[1].stored(np.array([3]))
    asked = type("Asked", (), {"vectors": query.rows(0, len(query.numbers)), "lengths": query.lengths})
    asked.__len__ = lambda self: 1  # type: ignore[attr-defined]
    whole = np.hstack([max_sim(asked(), each.stored(np.arange(12 if n < 2 else 6))) for n, each in enumerate(tokens)])
    np.testing.assert_allclose(opened.token_scores(asked(), [0, 11, 12, 15, 29]), whole[0, [0, 11, 12, 15, 29]])
    assert not len(opened.token_scores(asked(), []))


def test_mixtures_are_each_kind_each_pair_and_all() -> None:
    assert [len(each) for each in mixtures(KINDS)] == [1] * 4 + [2] * 6 + [4]
    assert mixtures(["words"]) == [("words",)]


def test_every_search_is_made_once_for_all_mixtures() -> None:
    class Counting:
        calls = 0

        def search(self, queries: Sequence[str], top: int) -> Ranking:
            self.calls += 1
            return best(np.arange(12.0).reshape(1, -1), top)

    searches = {name: Counting() for name in "abc"}
    retriever = Retriever(passages=TextSet(ids=(), texts=()), searches=searches, depth=3)
    groups = {"+".join(names): names for names in mixtures(list(searches))}
    rankings = retriever.of_groups(["query"], groups, 5)
    assert [each.calls for each in searches.values()] == [1, 1, 1]
    assert rankings["a"].places.tolist() == [[11, 10, 9, 8, 7]]
    assert [passage for passage, _ in rankings["a+b"].row(0)] == [11, 10, 9]


def test_what_does_not_fit_is_refused(index: Path, models: Sequence[Path], tmp_path: Path) -> None:
    texts, dense = index.parent / "texts.jsonl", tmp_path / "dense"
    build_index(texts, dense, model=models[0])
    for passages, options, message in (
        (dense, {"by": ["dense", "sparse"]}, "sparse vectors in '.*dense'; found dense vectors, words"),
        (index, {"by": ["dens"]}, "did you mean 'dense'"),
        (index, {"by": ["dense", "dense"]}, "each kind of search once"),
        (index, {"by": ["dense"], "system": "hybrid"}, "`by` needs no"),
        (index, {"by": ["tokens"], "model": models[0]}, "that are searched .tokens."),
        (
            dense,
            {"by": ["tokens"]},
            "a model of that kind, which `bertsmith finetune --task pairs --vectors tokens` trains",
        ),
        (dense, {"model": models[2]}, "one vector per text"),
        (texts, {"by": ["dense", "sparse"], "model": models[0]}, "a model of sparse vectors; found dense vectors"),
        (texts, {"by": ["dense"]}, "a model that makes the vectors"),
        (texts, {"by": ["dense"], "model": models[0], "also": [models[0]]}, "one model of dense vectors"),
    ):
        with pytest.raises(BertsmithError, match=message):
            scores_of(passages, **options)
