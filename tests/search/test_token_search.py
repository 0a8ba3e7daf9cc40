"""Search and re-ranking by the vectors of tokens."""

from pathlib import Path

import numpy as np
import pytest

import bertsmith
from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.inference.search import token_search
from bertsmith.inference.search.token_codes import TokenCoder
from bertsmith.inference.search.token_search import TokenIndex, TokenScorer
from bertsmith.inference.vectors.loading import load_token_embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.tasks.metrics import token_vectors
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.tasks.metrics.vectors import unit
from search.late_samples import write_late
from server.asgi import Client, serve

PASSAGES = ("anna was in rome", "the plot was awful", "a great film", "bert and carl in oslo", "good good film .")
QUERIES = ("anna in rome ?", "was the film good", "oslo")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_late(tmp_path_factory.mktemp("late") / "model", prefixes=("who ", "it "))


@pytest.fixture
def embedder(folder: Path) -> TokenEmbedder:
    return load_token_embedder(folder, device="cpu")


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    path = tmp_path / "passages.txt"
    path.write_text("\n".join(PASSAGES) + "\n", encoding="utf-8")
    return path


def matrix(name: str, lengths: list[int]) -> TokenMatrix:
    vectors = generator(0, name).standard_normal((sum(lengths), 6)).astype(np.float32)
    return TokenMatrix(vectors, np.array(lengths))


@pytest.mark.parametrize("products", [1, 40, 2**24])
def test_scores_are_sums_of_the_largest_products(monkeypatch: pytest.MonkeyPatch, products: int) -> None:
    monkeypatch.setattr(token_vectors, "_PRODUCTS", products)  # one document at a time, a few, all
    queries, documents = matrix("queries", [3, 1, 5]), matrix("documents", [2, 7, 1, 4])
    expected = [[(query @ document.T).max(axis=1).sum() for document in documents] for query in queries]
    np.testing.assert_allclose(max_sim(queries, documents), expected, rtol=1e-5)
    means = np.array(expected) / queries.lengths[:, None]
    np.testing.assert_allclose(max_sim(queries, documents, is_mean=True), means, rtol=1e-5)
    assert max_sim(queries, documents.select(np.array([], dtype=np.int64))).shape == (3, 0)
    chosen = documents.select(np.array([3, 0]))
    np.testing.assert_allclose(max_sim(queries, chosen), np.array(expected)[:, [3, 0]], rtol=1e-5)


def test_an_index_ranks_passages_by_their_scores(embedder: TokenEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_search, "BLOCK", 2)
    ranking = TokenIndex.of(PASSAGES, embedder).search(QUERIES, top=5)
    scores = max_sim(embedder.queries(QUERIES), embedder.documents(PASSAGES))
    assert ranking.places.tolist() == np.argsort(-scores, axis=1, kind="stable").tolist()
    np.testing.assert_allclose(ranking.scores, -np.sort(-scores, axis=1), rtol=2e-3)  # vectors are in half precision


def test_codes_of_more_bits_are_nearer_to_their_vectors() -> None:
    centers = generator(1, "centers").standard_normal((6, 16))
    noise = generator(2, "noise").standard_normal((600, 16)) * 0.3
    vectors = unit((centers[np.arange(600) % 6] + noise).astype(np.float32))
    texts, cosines = TokenMatrix(vectors, np.array([250, 350])), []
    for bits in (1, 2):
        coder = TokenCoder.fitted(vectors, 600, bits)
        codes = coder.encode(texts)
        assert codes.nbytes == 600 * (4 + 16 * bits // 8)
        rows = codes.rows(0, 600)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
        np.testing.assert_array_equal(codes.rows(240, 260), rows[240:260])
        left = vectors - coder.centroids[codes.numbers]
        nearest = np.linalg.norm(vectors[:, None] - coder.centroids[None], axis=2).argmin(axis=1)
        np.testing.assert_array_equal(codes.numbers, nearest)
        steps = coder.centroids[codes.numbers] + coder.values[np.searchsorted(coder.borders, left)]
        np.testing.assert_allclose(rows, unit(steps), atol=1e-6)
        cosines.append(float((rows * vectors).sum(axis=1).mean()))
    centroids = unit(coder.centroids)[codes.numbers]
    assert float((centroids * vectors).sum(axis=1).mean()) < cosines[0] < cosines[1]
    queries = TokenMatrix(vectors[:7], np.array([3, 4]))
    plain = max_sim(queries, TokenMatrix(codes.rows(0, 600), texts.lengths))
    np.testing.assert_allclose(max_sim(queries, codes), plain, rtol=1e-5)


@pytest.mark.parametrize("bits", [1, 2])
def test_passages_as_codes_are_ranked_nearly_as_their_vectors(
    embedder: TokenEmbedder, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    monkeypatch.setattr(token_search, "BLOCK", 2)
    ranking = TokenIndex.of(PASSAGES, embedder, bits).search(QUERIES, top=5)
    scores = max_sim(embedder.queries(QUERIES), embedder.documents(PASSAGES))
    assert sorted(ranking.places[0].tolist()) == [0, 1, 2, 3, 4]
    of_places = np.take_along_axis(scores, ranking.places, axis=1)
    np.testing.assert_allclose(ranking.scores, of_places, rtol=0.2)


def test_a_scorer_computes_each_passage_once(embedder: TokenEmbedder, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, expected = TokenScorer(embedder), max_sim(embedder.queries(QUERIES[:1]), embedder.documents(PASSAGES))[0]
    seen: list[str] = []
    of_documents = embedder.documents
    monkeypatch.setattr(embedder, "documents", lambda texts: (seen.extend(texts), of_documents(texts))[1])
    np.testing.assert_allclose(scorer.scores(QUERIES[0], PASSAGES[:3]), expected[:3], rtol=1e-5)
    np.testing.assert_allclose(scorer.scores(QUERIES[0], [*PASSAGES, PASSAGES[0]]), [*expected, expected[0]], rtol=1e-5)
    assert seen == list(PASSAGES)
    assert scorer.scores(QUERIES[0], []) == []


def test_a_search_takes_such_a_model_for_its_vectors_and_to_rank_again(folder: Path, passages: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    assert model.abilities == ("rerank",)
    scores = model.rerank(QUERIES[0], PASSAGES)
    [alone] = bertsmith.search_passages(passages, list(QUERIES[:1]), model=folder, device="cpu")
    assert [hit.id for hit in alone.passages] == [str(number + 1) for number in np.argsort(-np.array(scores))]
    [again] = bertsmith.search_passages(passages, list(QUERIES[:1]), system="bm25", rerank=folder, device="cpu")
    assert {hit.id for hit in again.passages} <= {"1", "2", "4"}, "those that share a word with the query"
    for hit in again.passages:
        assert hit.score == pytest.approx(scores[int(hit.id) - 1], rel=1e-4)
    [both] = bertsmith.search_passages(passages, list(QUERIES[:1]), model=folder, system="hybrid", device="cpu")
    assert len(both.passages) == 5


def test_the_server_gives_the_scores_of_the_library(folder: Path) -> None:
    model = bertsmith.load(folder, device="cpu")

    async def script(client: Client) -> None:
        asked = {"model": "late", "query": QUERIES[0], "passages": list(PASSAGES)}
        reply = (await client.post("/rerank", asked)).json
        scores = {item["index"]: item["score"] for item in reply["results"]}
        expected = [model.rerank(QUERIES[0], [passage])[0] for passage in PASSAGES]
        assert [scores[number] for number in range(5)] == pytest.approx(expected, rel=BATCH_TOLERANCE)
        assert reply["usage"]["tokens_in"] == 7 + sum(3 + len(passage.split()) for passage in PASSAGES)
        long = await client.post("/rerank", {**asked, "query": "good " * 40})
        assert long.status == 422
        assert "a query of at most 32 tokens" in long.error
        single = await client.post("/v1/embeddings", {"model": "late", "input": "a film"})
        assert "it answers /rerank" in single.error

    serve({"late": model}, script)


def test_several_searches_are_scored_side_by_side(folder: Path, passages: Path, tmp_path: Path) -> None:
    (tmp_path / "judged").write_text("1 0 1 1\n2 0 5 1\n3 0 4 2\n", encoding="utf-8")
    scored = bertsmith.score_searches(
        passages, list(QUERIES), judgements=tmp_path / "judged", model=folder, rerank=folder, device="cpu"
    )
    assert list(scored) == ["vectors", "bm25", "hybrid", "vectors, re-ranked"]
    assert scored["vectors, re-ranked"].scores == pytest.approx(scored["vectors"].scores)


def test_a_query_that_is_too_long_is_refused_and_a_passage_truncated(folder: Path) -> None:
    model = bertsmith.load(folder, device="cpu")
    with pytest.raises(InputError, match="a query of at most 32 tokens; found 43"):
        model.rerank("good " * 40, PASSAGES)
    with pytest.warns(bertsmith.CutWarning, match="1, 11 tokens"):
        assert len(model.rerank("good", ["good " * 40, "a film"])) == 2


@pytest.mark.parametrize(
    "options", [{"pooling": "cls"}, {"approximate": True}, {"query_prompt": "query"}, {"index": "x"}]
)
def test_settings_of_single_vectors_are_refused(folder: Path, passages: Path, options: dict[str, object]) -> None:
    with pytest.raises(BertsmithError, match="one vector per text"):
        bertsmith.search_passages(passages, ["film"], model=folder, device="cpu", **options)


def test_bits_of_vectors_of_tokens_need_such_a_model(passages: Path, folder: Path) -> None:
    with pytest.raises(BertsmithError, match="token_bits` needs a model of late interaction"):
        bertsmith.search_passages(passages, ["film"], system="bm25", token_bits=2)
    with pytest.raises(BertsmithError, match="token_bits must be"):
        bertsmith.search_passages(passages, ["film"], model=folder, token_bits=3)
    [coded] = bertsmith.search_passages(passages, ["a film"], model=folder, token_bits=2, device="cpu")
    assert len(coded.passages) == 5


def test_a_model_that_gives_single_vectors_ranks_nothing_again(passages: Path, tmp_path: Path) -> None:
    from tasks.task_samples import write_base_model

    base = write_base_model(tmp_path / "base", 4)
    with pytest.raises(BertsmithError, match="fine-tuned model"):
        bertsmith.search_passages(passages, ["film"], system="bm25", rerank=base, device="cpu")
