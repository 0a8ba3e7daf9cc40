"""Indexes made of others, and indexes written for other programs."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertsmith import build_index, compact_index, export_index, join_indexes, remove_from_index, search_passages
from bertsmith.base.core.errors import BertsmithError, InputError, RunError
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.indexes import building
from bertsmith.inference.indexes.index import Index
from bertsmith.inference.search.request import DENSE
from indexes.test_indexes import Killed, files_of, ids_of, killed_after, model, small_blocks, texts, write_texts

__all__ = ["model", "small_blocks", "texts"]


@pytest.fixture
def parts(model: Path, texts: Path, tmp_path: Path) -> list[Path]:
    """Three indexes: t0 to t29 without t3; t25 to t34 of other texts without t26; t29 to t31 of others again."""
    folders = [tmp_path / name for name in ("first", "second", "third")]
    build_index(texts, folders[0], model=model, segment_rows=12)
    for number, (first, count) in enumerate(((25, 10), (29, 3)), start=1):
        table = write_texts(tmp_path / f"{number}.jsonl", count, first=first, year=2010 + 10 * number)
        build_index(table, folders[number], model=model)
    remove_from_index(folders[0], id=["t3"])
    remove_from_index(folders[1], id=["t26"])
    return folders


def year_of(folder: Path, id: str) -> int:
    hits = search_passages(folder, ["anna"], top=100, where=[f"id = {id}"])[0].passages
    assert len(hits) == 1
    assert hits[0].columns is not None
    return int(hits[0].columns["year"] or 0)


def test_a_joined_index_answers_for_all_of_its_parts(parts: list[Path], tmp_path: Path) -> None:
    joined, before = tmp_path / "joined", [files_of(part) for part in parts]
    change = join_indexes(parts, joined)
    assert (change.rows, change.removed, change.segments) == (34, 7, 5)
    assert set(ids_of(joined, "anna", top=100)) == {f"t{number}" for number in range(35)} - {"t3"}
    assert [year_of(joined, id) // 10 for id in ("t24", "t26", "t28", "t29", "t31", "t32")] == [
        200, 200, 202, 203, 203, 202
    ]  # fmt: skip
    by_words = search_passages(joined, ["a great film"], system="bm25", top=100)[0].passages
    remove_from_index(joined, id=["t29", "t0"])
    compact_index(joined)
    assert [files_of(part) for part in parts] == before, "changes of the new index do not reach its parts"
    after = search_passages(joined, ["a great film"], system="bm25", top=100)[0].passages
    assert {hit.id for hit in by_words} - {hit.id for hit in after} <= {"t29", "t0"}
    remove_from_index(parts[0], id=["t1"])
    compact_index(parts[0])
    assert len(ids_of(joined, "anna", top=100)) == 32


def test_parts_on_another_disk_are_copied(parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    join_indexes(parts, tmp_path / "linked")

    def refused(*_: object) -> None:
        raise OSError("another device")

    monkeypatch.setattr(building.os, "link", refused)
    join_indexes(parts, tmp_path / "copied")
    assert files_of(tmp_path / "copied") == files_of(tmp_path / "linked")


@pytest.mark.parametrize("step", ["_link", "_shared", "_without", "_replaced"])
def test_a_join_that_was_killed_is_made_again(
    parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    join_indexes(parts, tmp_path / "straight")
    with monkeypatch.context() as patch:
        patch.setattr(building, step, killed_after(0 if step == "_replaced" else 1, getattr(building, step)))
        with pytest.raises(Killed):
            join_indexes(parts, tmp_path / "joined")
    with pytest.raises(InputError, match="not finished"):
        search_passages(tmp_path / "joined", ["anna"])
    join_indexes(parts, tmp_path / "joined")
    assert files_of(tmp_path / "joined") == files_of(tmp_path / "straight")


def test_what_cannot_be_joined_is_refused_in_a_line(parts: list[Path], tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", generator(1, "other").normal(size=(3, 4)))
    build_index(tmp_path / "other.npy", tmp_path / "other")
    out = tmp_path / "joined"
    for folders, target, message in (
        ([parts[0], tmp_path / "other"], out, "another model or setting in '.*other'"),
        ([parts[0], tmp_path / "none"], out, "no index.json"),
        (parts, parts[0], "extend it with"),
        ([parts[0], parts[0]], out, "no other process"),
        ([out, parts[0]], out, "no other process"),
    ):
        with pytest.raises(BertsmithError, match=message):
            join_indexes(folders, target)
    with locked_folder(parts[1]), pytest.raises(RunError, match="no other process"):
        join_indexes(parts, out)
    assert join_indexes(parts[:1], out).rows == 29


def test_an_exported_index_is_a_table_of_which_an_index_is_made(model: Path, parts: list[Path], tmp_path: Path) -> None:
    file, again = tmp_path / "rows.parquet", tmp_path / "again"
    assert export_index(parts[0], file) == 29
    table, index = pq.read_table(file), Index(parts[0])
    assert str(table.schema.field("vector").type).startswith("fixed_size_list<element: float>[32]")
    assert table.column_names == ["id", "text", "year", "vector"]
    assert table["id"].to_pylist() == [id for id in index.ids if id != "t3"]
    build_index(file, again)
    assert ids_of(again, "anna was in rome", model=model) == ids_of(parts[0], "anna was in rome")
    with pytest.raises(RunError, match="no file at"):
        export_index(parts[0], file)
    remove_from_index(parts[0], id=["t5"])
    assert export_index(parts[0], file, replace=True) == 28
    with pytest.raises(BertsmithError, match=r"ends in .parquet"):
        export_index(parts[0], tmp_path / "rows.csv")


def test_vectors_of_an_unknown_model_come_back_from_their_export(tmp_path: Path) -> None:
    numbers = generator(1, "vectors").normal(size=(5, 4))
    np.save(tmp_path / "v.npy", numbers)
    build_index(tmp_path / "v.npy", tmp_path / "index")
    export_index(tmp_path / "index", tmp_path / "rows.parquet")
    build_index(tmp_path / "rows.parquet", tmp_path / "again")
    assert search_passages(tmp_path / "again", numbers[2:3], top=1)[0].passages[0].id == "v.npy:3"
    remove_from_index(tmp_path / "index", id=[f"v.npy:{row}" for row in range(1, 6)])
    with pytest.raises(InputError, match="found none"):
        export_index(tmp_path / "index", tmp_path / "none.parquet")


def test_a_column_called_vector_is_not_taken_for_the_vectors(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.jsonl"
    table.write_text(json.dumps({"id": "a", "text": "anna", "vector": "up"}) + "\n")
    build_index(table, tmp_path / "index", model=model)
    with pytest.raises(InputError, match="no column 'vector'"):
        export_index(tmp_path / "index", tmp_path / "rows.parquet")


def test_duckdb_reads_an_exported_index(parts: list[Path], tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    file = tmp_path / "rows.parquet"
    export_index(parts[0], file)
    query = Index(parts[0]).segments[0].vectors[DENSE].stored(np.arange(1))[0]
    rows = duckdb.execute(
        "SELECT id, array_cosine_similarity(vector::FLOAT[32], $query::FLOAT[32]) AS score "
        f"FROM '{file}' WHERE year::INT >= 2003 ORDER BY score DESC, id LIMIT 5",
        {"query": query.tolist()},
    ).fetchall()
    hits = search_passages(parts[0], query[None], top=5, where=["year >= 2003"], exact=True)[0].passages
    assert [score for _, score in rows] == pytest.approx([hit.score for hit in hits], abs=1e-3)
