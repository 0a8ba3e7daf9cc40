"""Vectors of tokens in a large segment, which are found by their centroids."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import build_index, compact_index, remove_from_index, search_passages
from bertsmith.base.core.randomness import generator
from bertsmith.inference.indexes import parts, token_vectors
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.token_vectors import CODER, TokenVectors, write_token_cells
from bertsmith.inference.search.request import TOKENS
from bertsmith.inference.search.token_codes import TokenCoder
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.tasks.metrics.vectors import unit
from indexes.test_indexes import Killed, files_of, killed_after, text_of, write_texts
from search.late_samples import write_late

ROWS, WIDTH = 400, 16


@pytest.fixture(scope="module")
def segment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a segment of rows about some topics, each with 3 to 8 tokens, and with their cells."""
    folder, draw = tmp_path_factory.mktemp("segment"), generator(0, "tokens")
    topics, lengths = draw.standard_normal((60, WIDTH)), draw.integers(3, 9, ROWS)
    of_rows = topics[draw.integers(60, size=(ROWS, 2))].repeat(4, axis=1).reshape(-1, WIDTH)
    kept = (np.arange(8) < lengths[:, None]).ravel()
    vectors = unit((of_rows + 0.5 * draw.standard_normal(of_rows.shape))[kept].astype(np.float32))
    coder = TokenCoder.fitted(vectors, len(vectors), 2)
    coder.save(folder / CODER)
    parts.write_vectors_of(folder, TOKENS, WIDTH, {}, lambda _: iter([coder.encode(TokenMatrix(vectors, lengths))]))
    write_token_cells(folder, TokenVectors(folder, ROWS))
    return folder


@pytest.fixture
def queries() -> TokenMatrix:
    draw = generator(1, "queries")
    return TokenMatrix(unit(draw.standard_normal((10, WIDTH)).astype(np.float32)), np.array([3, 1, 6]))


def expected_sums(vectors: TokenVectors, query: np.ndarray) -> np.ndarray:
    """What the nearest centroids say about each row, one token and one row after another."""
    products = query @ unit(vectors.coder.centroids).T
    codes = vectors.stored(np.arange(ROWS))
    cells = np.split(codes.numbers, np.cumsum(codes.lengths)[:-1])
    sums = np.zeros(ROWS)
    for row in products:
        nearest = np.sort(row)[-token_vectors._PROBES :]
        for number, of_row in enumerate(cells):
            sums[number] += max(0.0, *(row[of_row] - nearest[0]))
    return sums


def test_rows_are_compared_that_the_nearest_centroids_promise_most(
    segment: Path, queries: TokenMatrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_vectors, "_PROBES", 5)
    vectors = TokenVectors(segment, ROWS, 20)
    assert len(vectors.coder.centroids) > 50
    ranking, allowed = vectors.search(queries, 4, None), np.arange(ROWS) % 3 == 0
    some = vectors.search(queries, 4, allowed)
    for number in range(len(queries)):
        query = queries.select(np.array([number]))
        sums = expected_sums(vectors, query.vectors)
        np.testing.assert_allclose(
            vectors._sums(query.vectors @ unit(vectors.coder.centroids).T), sums, rtol=1e-4, atol=1e-5
        )
        scores = max_sim(query, vectors.stored(np.arange(ROWS)))[0]
        for result, rows in ((ranking, np.arange(ROWS)), (some, np.flatnonzero(allowed))):
            likely = rows[np.argsort(-sums[rows], kind="stable")[:20]]
            best = likely[np.argsort(-scores[likely], kind="stable")[:4]]
            assert result.places[number].tolist() == best.tolist()
            np.testing.assert_allclose(result.scores[number], scores[best], rtol=1e-5)


def test_searches_compare_all_rows_where_that_is_asked_for_or_as_few_are_left(
    segment: Path, queries: TokenMatrix
) -> None:
    vectors, whole = TokenVectors(segment, ROWS, 20), TokenVectors(segment, ROWS)
    few = np.arange(ROWS) < 30
    for top, allowed, exact in ((300, None, False), (10, None, True), (15, few, False)):
        result, all_rows = vectors.search(queries, top, allowed, exact=exact), whole.search(queries, top, allowed)
        np.testing.assert_array_equal(result.places, all_rows.places)
    assert not np.array_equal(vectors.search(queries, 10, None).places, whole.search(queries, 10, None).places)


def test_as_many_rows_are_compared_as_a_recall_takes(segment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_vectors, "_LEAST_COMPARED", 12)
    low, high = (TokenVectors(segment, ROWS, 1).tuned(recall, 0) for recall in (0.3, 0.999))
    assert low.probes < high.probes
    assert 0.3 <= low.recall <= high.recall
    assert high.recall >= 0.999


def test_a_large_index_of_tokens_is_searched_by_their_centroids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_vectors, "LEAST_ROWS", 100)
    texts, model = write_texts(tmp_path / "texts.jsonl", 300), write_late(tmp_path / "late")
    monkeypatch.setattr(token_vectors, "_LEAST_COMPARED", 15)
    for folder, calls in (("index", None), ("resumed", (parts, "write_token_cells", 0)), ("late", (parts, "tell", 2))):
        with monkeypatch.context() as patch:
            if calls is not None:
                patch.setattr(*calls[:2], killed_after(calls[2], getattr(*calls[:2])))
                with pytest.raises(Killed):
                    build_index(texts, tmp_path / folder / "index", model=model)
        build_index(texts, tmp_path / folder / "index", model=model, resume=calls is not None)
        assert files_of(tmp_path / folder / "index") == files_of(tmp_path / "index" / "index")
    folder = tmp_path / "index" / "index"
    (record,) = Manifest.read(folder).segments
    assert 0 < record.compared < 300
    asked = [text_of(texts, number) for number in range(0, 300, 30)]
    near, exact = (search_passages(folder, asked, exact=exact, device="cpu") for exact in (False, True))
    pairs = zip(near, exact, strict=True)
    shared = [len({hit.id for hit in first.passages} & {hit.id for hit in second.passages}) for first, second in pairs]
    assert np.mean(shared) >= 8
    manifest = json.loads((folder / "index.json").read_text())
    del manifest["segments"][0]["compared"]
    (folder / "index.json").write_text(json.dumps(manifest))
    assert search_passages(folder, asked, device="cpu") == exact, "an index of an older version"
    remove_from_index(folder, id=["t3"])
    compact_index(folder)
    assert Manifest.read(folder).segments[0].compared > 0
    assert len(Index(folder).ids) == 299
