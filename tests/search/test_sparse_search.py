"""Models of sparse vectors in use: files of vectors, search, scores of pairs, the server."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import bertsmith
from bertsmith.app.library.loading import load
from bertsmith.app.library.retrieval import score_searches, search_passages
from bertsmith.app.library.vector_files import embed_file
from bertsmith.base.core.errors import BertsmithError, ConfigError
from bertsmith.inference.vectors.loading import load_embedder
from checkpoints.sparse_folder import write_sparse
from server.asgi import Client, serve
from tasks.task_samples import TOKENIZER

PASSAGES = ["the film of anna", "a good plot", "the city of oslo in the year", "bert and carl in rome", "an awful film"]
QUERIES = ["who is in rome", "film"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sparse(tmp_path_factory.mktemp("sparse") / "model")


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    path = tmp_path / "passages.txt"
    path.write_text("\n".join(PASSAGES) + "\n")
    return path


def test_a_file_of_sparse_vectors_is_a_matrix_of_scipy(folder: Path, passages: Path, tmp_path: Path) -> None:
    summary = embed_file(passages, folder, tmp_path / "x.npz", device="cpu")
    matrix = sp.load_npz(tmp_path / "x.npz")
    assert (summary.rows, matrix.shape, matrix.dtype) == (5, (5, len(TOKENIZER.vocabulary)), np.float32)
    model = load(folder, device="cpu")
    assert model.is_sparse
    np.testing.assert_array_equal(matrix.toarray(), model.embed(PASSAGES).toarray())
    first = (tmp_path / "x.npz").read_bytes()
    embed_file(passages, folder, tmp_path / "x.npz", device="cpu", replace=True)
    assert (tmp_path / "x.npz").read_bytes() == first


def test_a_resumed_file_of_sparse_vectors_has_the_same_bytes(
    folder: Path, passages: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertsmith.inference.vectors import jobs

    monkeypatch.setattr(jobs.TextVectors, "block", 2)
    embed_file(passages, folder, tmp_path / "x.npz", device="cpu")
    embed = jobs.TextVectors.vectors

    def stopped(job: jobs.TextVectors, texts: list[str], first: int) -> object:
        if first == 2:
            raise KeyboardInterrupt
        return embed(job, texts, first)

    monkeypatch.setattr(jobs.TextVectors, "vectors", stopped)
    with pytest.raises(KeyboardInterrupt):
        embed_file(passages, folder, tmp_path / "y.npz", device="cpu")
    monkeypatch.setattr(jobs.TextVectors, "vectors", embed)
    embed_file(passages, folder, tmp_path / "y.npz", device="cpu", resume=True)
    assert (tmp_path / "y.npz").read_bytes() == (tmp_path / "x.npz").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("y.npz*")) == ["y.npz", "y.npz.json"]


def test_outputs_that_do_not_fit_the_vectors_are_refused(folder: Path, passages: Path, tmp_path: Path) -> None:
    for name in ("x.npy", "x.parquet"):
        with pytest.raises(ConfigError, match=r"ends in .npz, as the vectors are sparse; found 'x"):
            embed_file(passages, folder, tmp_path / name, device="cpu")
    with pytest.raises(ConfigError, match=r"ends in .npy or .parquet, as the vectors are dense; found 'x.npz'"):
        embed_file(passages, "starter", tmp_path / "x.npz", device="cpu")
    assert not list(tmp_path.glob("x.*"))


def test_a_search_ranks_by_products_of_weights(folder: Path, passages: Path) -> None:
    embedder = load_embedder(folder, device="cpu", sparse=True)
    weights = embedder.for_queries().embed(QUERIES) @ embedder.embed(PASSAGES).T
    results = search_passages(passages, QUERIES, model=folder, top=3, device="cpu")
    for row, result in zip(weights, results, strict=True):
        assert [hit.score for hit in result.passages] == pytest.approx(sorted(row.tolist(), reverse=True)[:3], abs=1e-4)
        assert result.passages[0].text == PASSAGES[int(row.argmax())]
    both = search_passages(passages, QUERIES, model=folder, system="hybrid", top=3, device="cpu")
    assert len(both[0].passages) == 3


def test_searches_by_sparse_vectors_are_scored_next_to_bm25(folder: Path, passages: Path, tmp_path: Path) -> None:
    judgements = tmp_path / "judgements.txt"
    judgements.write_text("1 0 4 1\n2 0 1 1\n")
    scores = score_searches(passages, QUERIES, judgements, model=folder, judged_by="places", device="cpu")
    assert set(scores) == {"vectors", "bm25", "hybrid"}
    assert scores["vectors"].scores["recall@100"] == 1.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"index": "x"}, "`index`"), ({"approximate": True}, "`approximate=True`"), ({"pooling": "mean"}, "pooling mean")],
)
def test_settings_of_dense_vectors_are_refused(
    options: dict[str, object], expected: str, folder: Path, passages: Path
) -> None:
    with pytest.raises(BertsmithError, match=f"sparse vectors; found {expected}"):
        search_passages(passages, QUERIES, model=folder, device="cpu", **options)


def test_an_index_on_disk_answers_as_a_search_of_its_file(folder: Path, passages: Path, tmp_path: Path) -> None:
    bertsmith.build_index(passages, tmp_path / "index", model=folder, device="cpu")
    for system in ("vectors", "hybrid"):
        of_index = bertsmith.search_passages(tmp_path / "index", QUERIES, system=system, top=3, device="cpu")
        of_file = bertsmith.search_passages(passages, QUERIES, model=folder, system=system, top=3, device="cpu")
        for first, second in zip(of_index, of_file, strict=True):
            scores = [[hit.score for hit in result.passages] for result in (first, second)]
            assert scores[0] == pytest.approx(scores[1], rel=1e-3), "float16 has 11 binary digits"


def test_pairs_are_scored_by_the_product_of_their_vectors(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "pairs.jsonl"
    records = [{"text": query, "pair": passage} for query, passage in zip(QUERIES, PASSAGES[1:3], strict=True)]
    data.write_text("".join(json.dumps(record) + "\n" for record in records))
    scores = bertsmith.evaluate(folder, data, task="pairs", device="cpu").scores
    embedder = load_embedder(folder, device="cpu", sparse=True)
    products = embedder.for_queries().embed(QUERIES) @ embedder.embed(PASSAGES[1:3]).T
    assert scores["recall@1"] == pytest.approx(np.mean(np.diag(products) >= products.max(axis=1)))


def test_the_server_answers_with_pieces_and_weights_as_the_library(folder: Path) -> None:
    model = load(folder, device="cpu")
    weights = model.embed(PASSAGES[:2]).toarray()
    pieces = TOKENIZER.vocabulary.pieces

    async def script(client: Client) -> None:
        plain = await client.post("/v1/embeddings", {"input": PASSAGES[:2]})
        for row, entry in zip(weights, plain.json["data"], strict=True):
            expected = {pieces[piece]: float(row[piece]) for piece in np.flatnonzero(row)}
            assert entry["embedding"] == pytest.approx(expected, abs=1e-5)
        packed = await client.post("/v1/embeddings", {"input": PASSAGES[:2], "encoding_format": "base64"})
        row = np.frombuffer(base64.b64decode(packed.json["data"][1]["embedding"]), "<f4")
        np.testing.assert_allclose(row, weights[1], atol=1e-5)
        short = await client.post("/v1/embeddings", {"input": PASSAGES[:2], "dimensions": 2})
        assert (short.status, "are sparse; leave it out" in short.error) == (422, True)
        order = await client.post("/rerank", {"query": QUERIES[0], "passages": PASSAGES})
        scores = {entry["index"]: entry["score"] for entry in order.json["results"]}
        assert [scores[index] for index in range(5)] == pytest.approx(model.rerank(QUERIES[0], PASSAGES), abs=1e-4)

    serve({"sparse": model}, script)
