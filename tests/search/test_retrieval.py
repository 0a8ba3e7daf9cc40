"""Passage search: index, re-ranking and evaluation."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.machine.runtime import BATCH_TOLERANCE, choose
from bertsmith.inference.predictors.pair_scorer import PairScorer
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.search import index as index_module
from bertsmith.inference.search.bm25 import BM25
from bertsmith.inference.search.index import PassageIndex, index_passages, query_vectors
from bertsmith.inference.search.passages import TextSet
from bertsmith.inference.search.rankings import Ranking, best
from bertsmith.inference.search.request import BY_WORDS, HYBRID, VECTORS
from bertsmith.inference.search.retrieval import Retriever, TextSearch, VectorSearch, reranked, score_search
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.tasks.specs.kinds import task_for
from tasks.task_samples import CONFIG, SPECS, TOKENIZER, write_base_model

TEXTS = ("anna was in rome", "the plot was awful", "a great film", "bert and carl in oslo", "good good film")
PASSAGES = TextSet(ids=("a", "b", "c", "d", "e"), texts=TEXTS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    write_base_model(path, 4)
    return path


@pytest.fixture
def embedder(folder: Path) -> Embedder:
    return load_embedder(folder, device="cpu")


def predictor(kind: str) -> Predictor:
    task = task_for(SPECS[kind])
    return Predictor(EncoderForTask(new_encoder(CONFIG), task.head, seed=3), task, TOKENIZER, choose("cpu", "fp32"))


def test_a_text_finds_itself(embedder: Embedder) -> None:
    index = index_passages(TEXTS, embedder)
    result = index.search(query_vectors(TEXTS, embedder), top=2)
    assert result.places[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert result.scores[:, 0] == pytest.approx(1, abs=1e-5)
    assert np.allclose(np.linalg.norm(index.vectors, axis=1), 1, atol=1e-6)


def test_vectors_are_computed_once_and_only_for_what_changed(embedder: Embedder, tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    first = index_passages(TEXTS, embedder, path=path)
    assert embedder.texts == 5
    content = path.read_bytes()
    again = index_passages(TEXTS, embedder, path=path)
    assert embedder.texts == 5
    assert path.read_bytes() == content
    assert np.array_equal(again.vectors, first.vectors)
    changed = [TEXTS[4], "where was anna ?", *TEXTS[:2]]
    third = index_passages(changed, embedder, path=path)
    assert embedder.texts == 6
    wanted = index_passages(changed, embedder).vectors
    np.testing.assert_allclose(third.vectors, wanted, rtol=BATCH_TOLERANCE, atol=BATCH_TOLERANCE)
    assert np.array_equal(PassageIndex.load(path).vectors, third.vectors)


def test_the_index_of_another_model_or_setting_is_refused(embedder: Embedder, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "index.safetensors"
    index_passages(TEXTS, embedder, path=path)
    with pytest.raises(InputError, match=r"found others \(pooling\)"):
        index_passages(TEXTS, load_embedder(folder, pooling="cls", device="cpu"), path=path)
    write_base_model(tmp_path / "other", 5)
    with pytest.raises(InputError, match=r"found others \(model\)"):
        index_passages(TEXTS, load_embedder(tmp_path / "other", device="cpu"), path=path)
    path.write_bytes(b"damaged")
    with pytest.raises(InputError, match="a damaged file"):
        index_passages(TEXTS, embedder, path=path)


def test_approximate_search_of_few_passages_is_exact(embedder: Embedder) -> None:
    assert index_passages(TEXTS, embedder, approximate=True).cells is None


def test_approximate_search_finds_the_same_here_and_is_kept(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "LEAST_ROWS", 50)
    path, texts = tmp_path / "index.safetensors", [f"{first} {second}" for first in TEXTS for second in TEXTS * 3]
    index_passages(texts, embedder, path=path)
    computed = embedder.texts
    index = index_passages(texts, embedder, path=path, approximate=True)
    exact = index_passages(texts, embedder, path=path)
    assert exact.cells is None
    assert index.cells is not None
    assert embedder.texts == computed
    queries = query_vectors(["anna in oslo", "a film"], embedder)
    assert np.allclose(index.search(queries, 3).scores, exact.search(queries, 3).scores, atol=1e-5)
    kept = PassageIndex.load(path)
    assert np.array_equal(kept.cells, index.cells)
    assert kept.probes == index.probes


def searches(embedder: Embedder) -> dict[str, TextSearch]:
    vectors = functools.partial(query_vectors, embedder=embedder)
    return {VECTORS: VectorSearch(index_passages(TEXTS, embedder), vectors), BY_WORDS: BM25(TEXTS)}


def test_hybrid_fuses_both_searches(embedder: Embedder) -> None:
    retriever = Retriever(passages=PASSAGES, searches=searches(embedder))
    query = ["a good film"]
    words, vectors = (retriever.rank(query, system, 5) for system in (BY_WORDS, VECTORS))
    both = retriever.rank(query, HYBRID, 5)
    expected = {}
    for ranking in (words, vectors):
        for rank, (passage, _) in enumerate(ranking.row(0), start=1):
            expected[passage] = expected.get(passage, 0) + 1 / (60 + rank)
    assert dict(both.row(0)) == pytest.approx(expected)
    assert len(words.row(0)) < len(both.row(0)) == 5


def test_queries_that_are_cut_are_reported(embedder: Embedder, capsys: pytest.CaptureFixture[str]) -> None:
    query_vectors(["a film", "film " * 70], embedder)
    assert "queries longer than 64 tokens, truncated: 1, 8 tokens cut in total\n" in capsys.readouterr().err
    query_vectors(["a film"], embedder)
    assert capsys.readouterr().err == ""


def test_depth_bounds_what_is_fused_and_read_again(embedder: Embedder) -> None:
    retriever = Retriever(passages=PASSAGES, searches=searches(embedder), scorer=PairScorer(predictor("pair")), depth=2)
    query = ["was a good film in rome"]
    result = retriever.side_by_side(query, VECTORS, top=4)
    assert list(result) == [VECTORS, BY_WORDS, HYBRID, "vectors, re-ranked"]
    places = {name: [passage for passage, _ in ranking.row(0)] for name, ranking in result.items()}
    assert len(places[VECTORS]) == len(places[BY_WORDS]) == 4
    assert set(places[HYBRID]) == {*places[VECTORS][:2], *places[BY_WORDS][:2]}
    assert sorted(places["vectors, re-ranked"]) == sorted(places[VECTORS][:2])
    again = retriever.rank(query, VECTORS, 4)
    assert again.row(0) == result["vectors, re-ranked"].row(0)
    assert retriever.first_ranking(query, HYBRID, 4).row(0) == result[HYBRID].row(0)


def test_a_model_of_pairs_reads_the_best_again() -> None:
    scorer = PairScorer(predictor("pair"))
    assert scorer.label == "1", "the last one"
    first = best(np.array([[5.0, 4.0, 3.0, -np.inf, 2.0]]), 4)
    result = reranked(scorer, ["a film"], TEXTS, first, top=3)
    scores = scorer.scores("a film", [TEXTS[passage] for passage in (0, 1, 2, 4)])
    expected = sorted(zip([0, 1, 2, 4], scores, strict=True), key=lambda pair: -pair[1])[:3]
    assert result.row(0) == [(passage, pytest.approx(score)) for passage, score in expected]
    nobody = best(np.full((1, 2), -np.inf), 2)
    assert reranked(scorer, ["a film"], TEXTS, nobody, top=2).row(0) == []


def test_the_label_relevant_is_taken_wherever_it_is_and_a_regression_gives_its_number() -> None:
    relevant = predictor("pair")
    task = task_for(dataclasses.replace(relevant.task.spec, labels=("relevant", "not")))
    named = PairScorer(Predictor(relevant.model, task, TOKENIZER, relevant.runtime))
    other = PairScorer(relevant)
    assert named.label == "relevant"
    assert named.scores("a", ["film"]) == pytest.approx([1 - other.scores("a", ["film"])[0]])
    number = predictor("number")
    task = task_for(dataclasses.replace(number.task.spec, pair=True))
    assert len(PairScorer(Predictor(number.model, task, TOKENIZER, number.runtime)).scores("a", ["film", "plot"])) == 2


@pytest.mark.parametrize("kind", ["single", "several labels", "tags", "number"])
def test_other_models_cannot_read_again(kind: str) -> None:
    with pytest.raises(ConfigError, match="model of text pairs"):
        PairScorer(predictor(kind))


def test_a_search_is_scored_over_the_queries_that_have_an_answer() -> None:
    queries = TextSet(ids=("1", "2", "3"), texts=("x", "y", "z"))
    ranking = Ranking(places=np.array([[0, 1], [2, -1], [3, 4]]), scores=np.array([[2.0, 1.0], [1.0, -np.inf], [2, 1]]))
    judged = {"1": {"b": 1.0}, "2": {"c": 2.0, "absent": 1.0}, "3": {"d": 0.0}}
    result = score_search(ranking, queries, PASSAGES, judged)
    assert result.num_queries == 2
    assert result.by_query["1"]["mrr@10"] == 0.5
    assert result.by_query["2"]["recall@10"] == 0.5, "one relevant passage is not in the collection"
    assert result.scores["mrr@10"] == 0.75
    with pytest.raises(InputError, match="judgements with a relevant passage"):
        score_search(ranking, queries, PASSAGES, {"3": {"d": 0.0}})
