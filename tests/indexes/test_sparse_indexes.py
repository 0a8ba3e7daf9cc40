"""Indexes of sparse vectors: the products of all rows; changed, resumed and damaged."""

import functools
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith import export_index
from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.indexes import building, parts, sparse_vectors
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.indexes.parts import NewVectors
from bertsmith.inference.indexes.segment import VectorsRecord
from bertsmith.inference.search.passages import Record
from bertsmith.inference.search.postings import Postings, write_weights
from bertsmith.inference.search.rankings import NO_PASSAGE
from bertsmith.inference.search.request import SPARSE
from bertsmith.inference.vectors.jobs import VectorJob
from indexes.test_indexes import Killed, files_of, killed_after, small_blocks

__all__ = ["small_blocks"]

WIDTH = 12


def vectors_of(texts: Sequence[str]) -> sp.csr_matrix:
    """Sparse vectors [texts, WIDTH], of numbers that float16 holds."""
    rows = [np.maximum(generator(4, "sparse", int(text)).integers(-9, 9, WIDTH), 0) / 8 for text in texts]
    return sp.csr_matrix(np.array(rows, dtype=np.float32).reshape(-1, WIDTH))


class SparseJob(VectorJob):
    """Vectors of texts that are numbers."""

    is_sparse = True
    width, made_of = WIDTH, {"pooling": "max"}

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        yield vectors_of(texts), {}

    def counts(self) -> dict[str, int]:
        return {}

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        return []


def build(folder: Path, numbers: Sequence[int], **options: Any) -> None:
    records = [Record(f"t{number}", str(number), "") for number in numbers]
    record = VectorsRecord(model="", made_of={"pooling": "max"}, width=WIDTH)
    vectors = {SPARSE: NewVectors(job=SparseJob(), record=record)}
    sources = {"texts": str(list(numbers))}
    building.build_index(folder, records, vectors, sources=sources, recall=0.9, rows_per_segment=7, **options)


def ranked(folder: Path, query: int, top: int = 50, **options: Any) -> list[tuple[str, float]]:
    index = Index(folder, **options)
    return [(index.ids[row], score) for row, score in index.search(vectors_of([str(query)]), top).row(0)]


def expected(numbers: Sequence[int], query: int) -> dict[str, float]:
    products = (vectors_of([str(number) for number in numbers]) @ vectors_of([str(query)]).T).toarray()[:, 0]
    return {f"t{number}": product for number, product in zip(numbers, products, strict=True) if product}


@given(st.lists(st.integers(0, 99), min_size=1, max_size=25, unique=True), st.integers(0, 99), st.integers(1, 6))
@settings(max_examples=max(10, settings.default.max_examples // 10))
def test_the_best_rows_are_those_of_all_products(numbers: list[int], query: int, top: int) -> None:
    folder = Path("/unused")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_vectors, "_BLOCK", 4)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            matrix = vectors_of([str(number) for number in numbers])
            write_weights(folder, "x", (matrix[start : start + 4] for start in range(0, len(numbers), 4)), WIDTH)
            asked = vectors_of([str(query)])
            ranking = sparse_vectors.nearest_by_terms(Postings(folder, "x"), asked, len(numbers), top, None)
    best = sorted(expected(numbers, query).values(), reverse=True)[:top]
    assert ranking.scores[0][: len(best)] == pytest.approx(best)
    assert np.all(ranking.places[0][len(best) :] == NO_PASSAGE)


def test_an_index_changes_and_answers_with_the_products_of_its_rows(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, range(20))
    build(folder, range(30, 34), add=True)
    building.remove_rows(folder, ["t3", "t31"])
    left = [number for number in (*range(20), *range(30, 34)) if number not in (3, 31)]
    for _ in range(2):
        assert dict(ranked(folder, 77)) == pytest.approx(expected(left, 77))
        assert dict(ranked(folder, 77, where=["id != t5"])).keys() == expected(left, 77).keys() - {"t5"}
        building.compact_index(folder, recall=0.9, rows_per_segment=100)
    assert len(Index(folder).segments) == 1


def test_duckdb_reads_exported_sparse_vectors_and_finds_the_same_rows(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    folder, file = tmp_path / "index", tmp_path / "rows.parquet"
    build(folder, range(20))
    building.remove_rows(folder, ["t3"])
    assert export_index(folder, file) == 19
    table = pq.read_table(file)
    assert table.column_names == ["id", "text", "sparse"]
    for text, pairs in zip(table["text"].to_pylist(), table["sparse"].to_pylist(), strict=True):
        vector = vectors_of([text]).toarray()[0]
        assert pairs == {"indices": np.flatnonzero(vector).tolist(), "values": vector[vector > 0].tolist()}
    query = vectors_of(["77"])
    rows = duckdb.execute(
        "SELECT id, sum(value * weight) AS score FROM "
        f"(SELECT id, unnest(sparse.indices) AS term, unnest(sparse.values) AS value FROM '{file}') "
        "JOIN (SELECT unnest($indices) AS term, unnest($values) AS weight) USING (term) "
        "GROUP BY id ORDER BY score DESC, id LIMIT 50",
        {"indices": query.indices.tolist(), "values": query.data.tolist()},
    ).fetchall()
    assert dict(rows) == pytest.approx(dict(ranked(folder, 77)))
    assert json.loads((tmp_path / "rows.parquet.json").read_text())["made_of"]["sparse"] == {"pooling": "max"}


def test_a_build_that_was_killed_resumes_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "straight", range(20))
    folder = tmp_path / "index"
    for step, calls in (("write_words", 1), ("write_vectors_of", 1), ("write_terms", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(parts, step, killed_after(calls, getattr(parts, step)))
            with pytest.raises(Killed):
                build(folder, range(20), resume=True)
    with monkeypatch.context() as patch:
        patch.setattr(SparseJob, "vectors", killed_after(0, SparseJob.vectors))
        build(folder, range(20), resume=True)
    assert files_of(folder) == files_of(tmp_path / "straight")


@pytest.mark.parametrize("name", ["vectors.npz", "terms.arrow", "terms-rows.npy", "terms-weights.npy"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "index"
    build(folder, range(7))
    path = folder / "segment-000000" / name
    path.write_bytes(path.read_bytes()[:-40])
    building.remove_rows(folder, ["t1"])
    is_read = functools.partial(ranked, folder, 1)
    if name == "vectors.npz":  # which searches do not read
        is_read = functools.partial(building.compact_index, folder, recall=0.9, rows_per_segment=100)
    with pytest.raises(InputError, match="a whole segment"):
        is_read()
