"""Indexes with vectors of several kinds: each kind as in an index of its own, through all changes."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bertsmith import build_index, compact_index, export_index, join_indexes, remove_from_index
from bertsmith.app.library.index_models import index_embedders
from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.inference.indexes import parts, token_vectors
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.recipe import PassageTokens
from bertsmith.inference.search.index import query_vectors
from bertsmith.inference.search.postings import TextColumn
from bertsmith.inference.search.request import DENSE, SPARSE, TOKENS
from bertsmith.inference.search.token_search import query_tokens
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_token_embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.inference.vectors.writers import CodesWriter
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from checkpoints.sparse_folder import write_sparse
from indexes.test_indexes import Killed, files_of, killed_after, small_blocks, write_texts
from search.late_samples import write_late
from tasks.task_samples import write_base_model

__all__ = ["small_blocks"]

KINDS = (DENSE, SPARSE, TOKENS)
QUERIES = ("a great film", "anna in rome")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    return [Path(write_base_model(folder / "dense", 4)), write_sparse(folder / "sparse"), write_late(folder / "late")]


@pytest.fixture(scope="module")
def whole(models: Sequence[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of all kinds of 20 texts in two segments."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "_BLOCK", 4)
        build(write_texts(folder.parent / "texts.jsonl", 20), folder, models)
    return folder


def build(texts: Path, folder: Path, models: Sequence[Path] = (), **options: Any) -> None:
    named = {"model": models[0], "also": models[1:]} if models else {}
    build_index(texts, folder, segment_rows=12, **named, **options)


def scores_of(folder: Path, kind: str) -> dict[str, list[float]]:
    """The scores of all texts for QUERIES by vectors of a kind, by id."""
    index = Index(folder)
    embedder = index_embedders(index, [kind], [], {"device": "cpu"})[kind].for_queries()
    asked: Any = query_tokens if kind == TOKENS else query_vectors
    ranking = index.by(kind).search(asked(QUERIES, embedder), 100)
    scores = [dict(ranking.row(number)) for number in range(len(QUERIES))]
    rows = sorted(set().union(*scores))
    return {index.ids[row]: [each.get(row, 0.0) for each in scores] for row in rows}


def require_same(first: dict[str, list[float]], second: dict[str, list[float]]) -> None:
    assert first.keys() == second.keys()
    np.testing.assert_allclose([first[id] for id in first], [second[id] for id in first], rtol=1e-6)


def test_vectors_of_each_kind_are_those_of_an_index_of_its_own(
    whole: Path, models: Sequence[Path], tmp_path: Path
) -> None:
    together = files_of(whole)
    assert list(Manifest.read(whole).vectors) == list(KINDS)
    for model in models:
        build(whole.parent / "texts.jsonl", tmp_path / model.name, [model])
        alone = files_of(tmp_path / model.name)
        assert all(together[name] == data for name, data in alone.items() if name != "index.json")


def test_scores_of_tokens_are_those_of_their_codes(whole: Path, models: Sequence[Path]) -> None:
    embedder = load_token_embedder(models[2], device="cpu")
    index = Index(whole)
    asked = embedder.queries(QUERIES)
    ranking = index.by(TOKENS).search(asked, 100)
    codes = [segment.vectors[TOKENS].stored(segment.numbers()) for segment in index.segments]
    expected = np.hstack([max_sim(asked, each) for each in codes])
    np.testing.assert_array_equal(ranking.places, np.argsort(-expected, axis=1, kind="stable"))
    plain = max_sim(asked, embedder.documents(list(index.texts)))
    assert np.corrcoef(plain.ravel(), expected.ravel())[0, 1] > 0.9


def test_changes_keep_the_scores_of_every_kind(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_vectors, "_BLOCK", 5)
    folder = tmp_path / "index"
    shutil.copytree(whole, folder)
    before = {kind: scores_of(folder, kind) for kind in KINDS}
    build(write_texts(tmp_path / "more.jsonl", 6, first=17, year=2030), folder, add=True)
    remove_from_index(folder, id=["t3", "t21"])
    changed = {kind: scores_of(folder, kind) for kind in KINDS}
    for kind in KINDS:
        old = {id: values for id, values in changed[kind].items() if int(id[1:]) < 17}
        require_same(old, {id: before[kind][id] for id in old})
        assert len(changed[kind]) == 21
    assert compact_index(folder, segment_rows=100).segments == 1
    for kind in KINDS:
        require_same(scores_of(folder, kind), changed[kind])
    files = files_of(folder)
    compact_index(folder, segment_rows=100)
    assert {name: files_of(folder)[name] for name in files if name != "index.json"} == {
        name: data for name, data in files.items() if name != "index.json"
    }, "nothing is left to do"


def test_joined_indexes_keep_the_codes_of_each(whole: Path, models: Sequence[Path], tmp_path: Path) -> None:
    other, folder = tmp_path / "other", tmp_path / "joined"
    build(write_texts(tmp_path / "other.jsonl", 9, first=50), other, models)
    join_indexes([whole, other], folder)
    expected = {kind: scores_of(whole, kind) | scores_of(other, kind) for kind in KINDS}
    for segments in (3, 2):  # those with the coder of one index are joined
        assert len(Index(folder).segments) == segments
        for kind in KINDS:
            require_same(scores_of(folder, kind), expected[kind])
        compact_index(folder, segment_rows=100)


@pytest.mark.parametrize(
    ("room", "step", "calls"),
    [
        (Embedder, "embed", 3),
        (Embedder, "embed_sparse", 2),
        (PassageTokens, "coder", 0),
        (parts, "copy_coder", 0),
        (TokenEmbedder, "documents", 3),
        (CodesWriter, "append", 2),
        (CodesWriter, "end", 1),
        (parts, "write_terms", 1),
    ],
)
def test_a_build_that_was_killed_resumes_to_the_same_bytes(
    whole: Path,
    models: Sequence[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    room: Any,
    step: str,
    calls: int,
) -> None:
    folder, texts = tmp_path / "index", whole.parent / "texts.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(room, step, killed_after(calls, getattr(room, step)))
        with pytest.raises(Killed):
            build(texts, folder, models)
    build(texts, folder, models, resume=True)
    assert files_of(folder) == files_of(whole)


def test_dense_and_sparse_vectors_are_exported_together_and_come_back(
    whole: Path, models: Sequence[Path], tmp_path: Path
) -> None:
    file, again = tmp_path / "rows.parquet", tmp_path / "again"
    assert export_index(whole, file) == 20
    table = pq.read_table(file)
    assert table.column_names == ["id", "text", "year", "sparse", "vector"]
    segments = Index(whole).segments
    stored = sp.vstack([each.vectors[SPARSE].stored(each.numbers()) for each in segments]).toarray()
    for vector, pairs in zip(stored, table["sparse"].to_pylist(), strict=True):
        assert (pairs["indices"], pairs["values"]) == (np.flatnonzero(vector).tolist(), vector[vector > 0].tolist())
    build_index(file, again, model=models[0])
    assert Manifest.read(again).columns == ["year"]
    require_same(scores_of(again, DENSE), scores_of(whole, DENSE))
    pq.write_table(table.drop_columns("vector"), file)
    build_index(file, tmp_path / "of texts", model=models[1])
    assert Manifest.read(tmp_path / "of texts").columns == ["year"]
    require_same(scores_of(tmp_path / "of texts", SPARSE), scores_of(whole, SPARSE))


@pytest.mark.parametrize("name", ["tokens.npy", "tokens-ends.npy", "tokens-coder.safetensors", "vectors.npz"])
def test_a_damaged_file_is_refused(whole: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "index"
    shutil.copytree(whole, folder)
    path = folder / "segment-000000" / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="a whole segment"):
        compact_index(folder, segment_rows=100)


def test_an_index_with_some_changed_bytes_answers_or_is_refused_in_a_line(whole: Path, tmp_path: Path) -> None:
    segment = Index(whole).segments[0]
    asked: dict[str, Any] = {kind: segment.vectors[kind].stored(np.arange(2)) for kind in (DENSE, SPARSE)}
    tokens = segment.vectors[TOKENS].stored(np.arange(1))
    asked[TOKENS] = TokenMatrix(tokens.rows(0, len(tokens.numbers)), tokens.lengths)
    names = [path.relative_to(whole) for path in sorted(segment.folder.iterdir()) if path.suffix != ".json"]
    refusals = 0
    for seed in range(26):
        draw, folder = np.random.default_rng(seed), tmp_path / str(seed)
        shutil.copytree(whole, folder)
        path = folder / names[seed % len(names)]
        content = bytearray(path.read_bytes())
        for position in draw.integers(len(content) if seed % 2 else min(len(content), 128), size=3):
            content[position] ^= 1 << draw.integers(8)
        path.write_bytes(content)
        try:
            index = Index(folder)
            for kind, queries in asked.items():
                assert len(index.by(kind).search(queries, 5).places)
            index.token_scores(asked[TOKENS], [0, 15])
            index.by_words(k1=0.9, b=0.4).search(QUERIES, 5)
            assert len(list(index.texts)) == 20
            remove_from_index(folder, id=["t1"])
            compact_index(folder, segment_rows=100)
        except BertsmithError:
            refusals += 1
    assert refusals > 5


@pytest.mark.parametrize("borders", [[0, 1, 10**12, 3], [0, -5, 3, 3], [0, 5, 2, 3]])
def test_a_text_with_a_damaged_border_is_refused(borders: list[int]) -> None:
    buffers = [None, pa.py_buffer(np.array(borders, dtype=np.int64)), pa.py_buffer(b"abcde")]
    texts = TextColumn(pa.chunked_array([pa.Array.from_buffers(pa.large_string(), 3, buffers)]))
    with pytest.raises(InputError, match="whole texts in an index"):
        list(texts)


def test_what_does_not_fit_is_refused(whole: Path, models: Sequence[Path], tmp_path: Path) -> None:
    texts = whole.parent / "texts.jsonl"
    before = files_of(whole)
    for call, message in (
        (
            lambda: build(texts, whole, models[:2], add=True),
            "dense vectors and sparse vectors and vectors of tokens, .* dense vectors and sparse vectors;",
        ),
        (lambda: build(texts, tmp_path / "new", [models[0], models[0]]), "one model of dense vectors"),
        (lambda: join_indexes([whole, tmp_path / "one"], tmp_path / "new"), "another model or setting"),
        (lambda: export_index(tmp_path / "one", tmp_path / "x.parquet"), "only vectors of tokens"),
    ):
        if not (tmp_path / "one").exists():
            build(texts, tmp_path / "one", models[2:])
        with pytest.raises(BertsmithError, match=message):
            call()
    assert files_of(whole) == before
