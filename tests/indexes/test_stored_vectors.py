"""Indexes of vectors that are in a file already, and searches by vectors."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith import build_index, embed_file, search_passages
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.indexes import parts
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from indexes.test_indexes import Killed, files_of, killed_after, model, small_blocks
from tasks.task_samples import CONFIG, TOKENIZER

__all__ = ["model", "small_blocks"]

LINES = ("anna was in rome", "bert was in oslo", "a great film", "the plot was awful", "carl and anna")


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def numbers() -> np.ndarray:
    """Vectors [5, 6] that are not normalized."""
    return generator(3, "vectors").normal(size=(5, 6)).astype(np.float32)


def ids(folder: Path, queries: Any, **options: Any) -> list[str]:
    return [hit.id for hit in search_passages(folder, queries, **options)[0].passages]


@pytest.mark.parametrize("ending", [".npy", ".parquet"])
def test_vectors_of_embed_make_the_index_that_the_model_makes(
    model: Path, lines: Path, tmp_path: Path, ending: str
) -> None:
    vectors = tmp_path / f"vectors{ending}"
    embed_file(lines, model, vectors)
    build_index(lines, tmp_path / "straight", model=model)
    for name, options in (("unnamed", {}), ("named", {"model": model})):
        folder = tmp_path / name
        build_index(lines, folder, vectors=vectors, **options)
        files = [files_of(each) for each in (folder, tmp_path / "straight")]
        for each in files:
            record = json.loads(each.pop("segment-000000/vectors.npy.json"))
            assert record["made_of"]["pooling"] == "mean"
        manifests = [json.loads(each.pop("index.json")) for each in files]
        assert [each["vectors"]["dense"].pop("model") for each in manifests] == [
            str(model) if options else "",
            str(model),
        ]
        assert manifests[0] == manifests[1]
        assert files[0].keys() == files[1].keys()
        for file in files[0].keys() - {"segment-000000/vectors.npy"}:
            assert files[0][file] == files[1][file]
        stored, made = (np.load(each / "segment-000000/vectors.npy") for each in (folder, tmp_path / "straight"))
        np.testing.assert_allclose(stored, made, atol=1e-3)
        assert ids(folder, ["bert was in oslo"], model=model, top=1) == ["lines.txt:2"]
        build_index(lines, folder, model=model, add=True)


def test_a_table_has_vectors_texts_ids_and_other_columns(numbers: np.ndarray, tmp_path: Path) -> None:
    file, folder = tmp_path / "table.parquet", tmp_path / "index"
    flat = pa.FixedSizeListArray.from_arrays(pa.array(numbers.astype(np.float16).reshape(-1)), 6)
    pq.write_table(pa.table({"id": list("abcde"), "text": LINES, "year": [1, 2, 3, 4, None], "vector": flat}), file)
    build_index(file, folder, segment_rows=2)
    assert Manifest.read(folder).columns == ["year"]
    hits = search_passages(folder, numbers[1:3], top=2)[1].passages
    assert (hits[0].id, hits[0].text, hits[0].columns) == ("c", "a great film", {"year": "3"})
    assert hits[0].score == pytest.approx(1, abs=2e-3)
    assert ids(folder, numbers[:1], where=["year > 2"], exact=True) == ids(folder, numbers[:1], where=["year >= 3"])
    assert ids(folder, ["awful"], system="bm25") == ["d"]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 6)])
def test_lists_of_any_program_are_vectors(numbers: np.ndarray, tmp_path: Path, kind: pa.DataType) -> None:
    file = tmp_path / "v.parquet"
    rows = [list(map(np.float16, row)) if kind.value_type == pa.float16() else row for row in numbers.tolist()]
    pq.write_table(pa.table({"vector": pa.array(rows, kind)}), file, row_group_size=2)
    build_index(file, tmp_path / "index")
    assert ids(tmp_path / "index", numbers[3:4], top=1) == ["v.parquet:4"]
    if not pa.types.is_fixed_size_list(kind):
        for broken, message in (([*rows, rows[0][1:]], "different lengths"), ([*rows, None], "rows without one")):
            pq.write_table(pa.table({"vector": pa.array(broken, kind)}), file)
            with pytest.raises(BertsmithError, match=message):
                build_index(file, tmp_path / "new")


def test_vectors_alone_have_the_numbers_of_their_rows_as_ids(numbers: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "alone.npy", numbers)
    queries = tmp_path / "queries.npy"
    np.save(queries, numbers[3:4].astype(np.float64))
    flat = pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), 6)
    pq.write_table(pa.table({"vector": flat}), tmp_path / "alone.parquet")
    for name in ("alone.npy", "alone.parquet"):
        folder = tmp_path / f"index of {name}"
        change = build_index(tmp_path / name, folder)
        assert change.rows == 5
        assert ids(folder, queries, top=1) == [f"{name}:4"]
        order = np.argsort(-(numbers @ numbers[3]) / np.linalg.norm(numbers, axis=1))
        assert ids(folder, numbers[3:4]) == [f"{name}:{row + 1}" for row in order]
        assert not Index(folder).has_words


def test_vectors_of_empty_texts_are_left_out_as_when_a_model_makes_the_index(
    numbers: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "lines.txt", tmp_path / "index"
    file.write_text("anna\n\nbert\n \ncarl\n")
    np.save(tmp_path / "v.npy", numbers)
    build_index(file, tmp_path / "straight", vectors=tmp_path / "v.npy", segment_rows=2)
    for row in (0, 2, 4):
        (hit,) = search_passages(tmp_path / "straight", numbers[row : row + 1], top=1)[0].passages
        assert (hit.id, hit.score) == (f"lines.txt:{row + 1}", pytest.approx(1, abs=2e-3))
    assert len(ids(tmp_path / "straight", numbers[1:2])) == 3
    with monkeypatch.context() as patch:
        patch.setattr(parts, "unit", killed_after(1, parts.unit))
        with pytest.raises(Killed):
            build_index(file, folder, vectors=tmp_path / "v.npy", segment_rows=2)
    build_index(file, folder, vectors=tmp_path / "v.npy", segment_rows=2, resume=True)
    assert files_of(folder) == files_of(tmp_path / "straight")


def test_an_index_of_vectors_resumes_to_the_same_bytes(
    numbers: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder = tmp_path / "v.npy", tmp_path / "index"
    np.save(file, np.tile(numbers, (4, 1)))
    build_index(file, tmp_path / "straight", segment_rows=7)
    for step in ("write_words", "unit"):
        with monkeypatch.context() as patch:
            patch.setattr(parts, step, killed_after(2, getattr(parts, step)))
            with pytest.raises(Killed):
                build_index(file, folder, segment_rows=7, resume=True)
    build_index(file, folder, segment_rows=7, resume=True)
    assert files_of(folder) == files_of(tmp_path / "straight")


def test_what_does_not_fit_vectors_is_refused_in_a_line(
    model: Path, lines: Path, numbers: np.ndarray, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    save_pretrained(other, untrained(CONFIG, seed=5), TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))
    vectors, wide, broken, few, made = (tmp_path / f"{name}.npy" for name in ("v", "wide", "broken", "few", "made"))
    np.save(vectors, numbers)
    np.save(wide, generator(1, "wide").normal(size=(5, CONFIG.hidden_size)))
    np.save(broken, np.where(numbers == numbers[4, 0], np.nan, numbers))
    np.save(few, numbers[:4])
    embed_file(lines, model, made)
    folder, of_model = tmp_path / "index", tmp_path / "of model"
    build_index(vectors, folder)
    build_index(lines, of_model, vectors=made)
    token_vectors = tmp_path / "moved.npy"
    np.save(token_vectors, numbers)
    (tmp_path / "moved.npy.json").write_text((tmp_path / "made.npy.json").read_text())
    new = tmp_path / "new"
    refused: Sequence[tuple[Callable[[], Any], str]] = [
        (lambda: build_index(lines, new, vectors=few), "a text for each of the 4 vectors"),
        (lambda: build_index(lines, new, vectors=tmp_path / "none.npy"), "no such file"),
        (lambda: build_index(broken, tmp_path / "broken"), "NaN or infinity in row 5"),
        (lambda: build_index(token_vectors, new), "width 6 instead of"),
        (lambda: build_index(vectors, new, model=model), r"width 6 instead of"),
        (lambda: build_index(lines, new, vectors=wide, model=model), r"others \(cosines of"),
        (lambda: build_index(lines, new, vectors=made, model=other), r"others \(model\)"),
        (lambda: build_index(wide, folder, add=True), "vectors of width 6"),
        (lambda: build_index(lines, folder, model=model, add=True), "the model and settings"),
        (lambda: search_passages(folder, ["anna"]), "a model that makes the vectors of queries"),
        (lambda: search_passages(folder, ["anna"], model=model), "width 32 instead of 6"),
        (lambda: search_passages(of_model, ["anna"], model=other), r"another \(model\)"),
        (lambda: search_passages(folder, ["anna"], system="bm25"), "passages with words"),
        (lambda: search_passages(folder, numbers[:, :3]), r"finite vectors \[queries, 6\]"),
        (lambda: search_passages(folder, broken), "NaN or infinity"),
        (lambda: search_passages(folder, numbers, system="bm25"), "texts as queries"),
        (lambda: search_passages(lines, numbers, model=model), "texts as queries"),
        (lambda: search_passages(tmp_path / "nowhere", ["anna"]), "nothing there"),
    ]
    for call, message in refused:
        with pytest.raises(BertsmithError, match=message):
            call()
    assert not (tmp_path / "broken").exists()
