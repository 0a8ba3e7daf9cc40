"""Compaction while an index is searched and changed."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import build_index, compact_index, remove_from_index, search_passages
from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.indexes import building, parts
from bertsmith.inference.indexes.building import due_segments
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.segment import Segment, SegmentRecord, VectorsRecord
from bertsmith.inference.search.request import DENSE
from indexes.test_indexes import Killed, killed_after
from written_files import file_of_records

WIDTH = 8


def add(folder: Path, numbers: range, *, first: bool = False) -> None:
    """Adds rows whose vectors are functions of their numbers."""
    rows = [{"id": f"t{number}", "text": f"text {number} of many"} for number in numbers]
    vectors = [np.random.default_rng(number).standard_normal(WIDTH) for number in numbers]
    np.save(folder.parent / "x.npy", np.array(vectors, np.float32))
    texts = file_of_records(folder.parent / "x.jsonl", rows)
    build_index(texts, folder, vectors=folder.parent / "x.npy", add=not first, segment_rows=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index of three segments, one of them with removed rows."""
    folder = tmp_path / "index"
    add(folder, range(20), first=True)
    add(folder, range(20, 28))
    add(folder, range(28, 30))
    remove_from_index(folder, id=["t3", "t21"])
    return folder


def content(folder: Path) -> dict[str, float]:
    """What searches by vectors and by words find, with the scores."""
    index = Index(folder)
    queries = np.random.default_rng(99).standard_normal((2, WIDTH)).astype(np.float32)
    ranking = index.search(queries / np.linalg.norm(queries, axis=1, keepdims=True), 100)
    by_words = search_passages(folder, ["text 5", "many"], system="bm25", top=100)
    hits = {f"{hit.id} {result.id}": hit.score for result in by_words for hit in result.passages}
    return hits | {f"{index.ids[row]} v{query}": score for query in range(2) for row, score in ranking.row(query)}


def during(monkeypatch: pytest.MonkeyPatch, step: Callable[[], Any]) -> None:
    """Has a step taken while the words of a compaction are written."""
    write = parts.with_words

    def interrupted(folder: Path, *arguments: Any) -> Any:
        if folder.name == building.COMPACTING:
            step()
        return write(folder, *arguments)

    monkeypatch.setattr(parts, "with_words", interrupted)


def test_rows_that_are_added_and_removed_meanwhile_are_as_without_a_compaction(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(index: Path) -> None:
        add(index, range(25, 40))  # replaces five
        remove_from_index(index, id=["t0", "t19", "t39"])

    def change_and_search() -> None:
        change(folder)
        seen.append(content(folder))

    seen = list[dict[str, float]]()
    add(tmp_path / "other", range(30), first=True)
    remove_from_index(tmp_path / "other", id=["t3", "t21"])
    change(tmp_path / "other")
    with monkeypatch.context() as patch:
        during(patch, change_and_search)
        result = compact_index(folder, segment_rows=64)
    assert content(folder) == pytest.approx(content(tmp_path / "other"), abs=1e-6)
    assert seen[0] == pytest.approx(content(folder), abs=1e-6)
    assert (result.added, result.removed, result.rows, result.segments) == (0, 0, 35, 2)
    names = {each.name for each in Manifest.read(folder).segments}
    assert {path.name for path in folder.iterdir()} == {"index.json", *names}
    assert compact_index(folder, segment_rows=64).segments == 1
    assert content(folder) == pytest.approx(content(tmp_path / "other"), abs=1e-6)


@pytest.mark.parametrize("step", ["write_rows", "_copied", "_removed_since", "_less", "_replaced"])
def test_a_compaction_that_is_killed_leaves_the_index_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before, manifest = content(folder), (folder / "index.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(building, step, killed_after(0, getattr(building, step)))
        patch.setattr(building, "_clear", lambda work: None)  # as nothing runs any more
        with pytest.raises(Killed):
            compact_index(folder, segment_rows=64)
    assert (folder / "index.json").read_bytes() == manifest
    assert content(folder) == before
    add(folder, range(50, 51))
    remove_from_index(folder, id=["t50"])
    assert compact_index(folder, segment_rows=64).segments == 1
    assert content(folder) == pytest.approx(before, abs=1e-6)
    assert {path.name for path in folder.iterdir()} == {"index.json", Manifest.read(folder).segments[0].name}


@pytest.mark.parametrize(
    ("module", "step", "change"),
    [
        (building, "write_rows", lambda folder: compact_index(folder, segment_rows=64)),
        (parts, "write_words", lambda folder: compact_index(folder, segment_rows=64)),
        (building, "_less", lambda folder: remove_from_index(folder, id=["t5"])),
        (building, "write_rows", lambda folder: add(folder, range(50, 52))),
    ],
)
def test_a_full_disk_loses_nothing_and_the_same_change_can_be_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: Any, step: str, change: Callable[[Path], Any]
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    before, manifest = content(folder), (folder / "index.json").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(module, step, full)
        with pytest.raises(OSError, match="No space left"):
            change(folder)
    assert (folder / "index.json").read_bytes() == manifest
    assert content(folder) == before
    assert not (folder / building.COMPACTING).exists()
    change(folder)
    names = {each.name for each in Manifest.read(folder).segments}
    assert {path.name for path in folder.iterdir()} == {"index.json", *names}


def test_a_second_compaction_and_a_change_during_the_last_step_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = list[str]()

    def compact_again() -> None:
        with pytest.raises(RunError, match="no other process") as error:
            compact_index(folder)
        refused.append(str(error.value))

    with monkeypatch.context() as patch:
        during(patch, compact_again)
        compact_index(folder, segment_rows=64)
    assert len(refused) == 1
    add(folder, range(40, 41))
    before = content(folder)
    with monkeypatch.context() as patch, locked_folder_during(patch, folder), pytest.raises(RunError):
        compact_index(folder, segment_rows=64)
    assert content(folder) == before
    assert compact_index(folder, segment_rows=64).segments == 1


def locked_folder_during(patch: pytest.MonkeyPatch, folder: Path) -> Any:
    """A context in which another process changes the index from the middle of a compaction on."""
    stack = contextlib.ExitStack()
    during(patch, lambda: stack.enter_context(locked_folder(folder)))
    return stack


def segment(name: str, rows: int, removed: int = 0) -> SegmentRecord:
    return SegmentRecord(name=name, rows=rows, num_removed=removed)


def test_segments_are_due_if_many_are_of_a_size_or_many_of_their_rows_are_removed() -> None:
    def due(*segments: SegmentRecord) -> list[str]:
        record = VectorsRecord(model="", made_of={}, width=1)
        return [each.name for each in due_segments(Manifest(vectors={DENSE: record}, columns=[], segments=segments))]

    small = [segment(f"s{number}", number) for number in range(1, 8)]
    assert due(segment("large", 1000), *small) == []
    assert due(segment("large", 1000), *small, segment("s8", 8)) == []
    assert due(segment("large", 1000), *small, segment("s9", 1)) == [*(each.name for each in small), "s9"]
    assert due(segment("a", 1000, 100), segment("b", 1000, 101)) == ["b"]


def test_however_many_rows_are_added_one_by_one_there_are_few_segments(tmp_path: Path) -> None:
    sizes, written = list[int](), 0
    for number in range(2000):
        sizes.append(1)
        record = VectorsRecord(model="", made_of={}, width=1)
        segments = [segment(str(number), rows) for number, rows in enumerate(sizes)]
        due = due_segments(Manifest(vectors={DENSE: record}, columns=[], segments=segments))
        if due:
            names, rows = {each.name for each in due}, sum(each.rows for each in due)
            sizes = [each.rows for each in segments if each.name not in names] + [rows]
            written += rows
        assert len(sizes) <= 7 * (1 + np.log(number + 1) / np.log(8))
    assert written < 5 * 2000


def test_an_index_that_is_changed_while_it_is_opened_is_opened_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(folder)
    # Each removes files that the manifest of the moment names.
    changes: list[Callable[[], Any]] = [
        lambda: remove_from_index(folder, id=["t4"]),
        lambda: compact_index(folder, segment_rows=64),
    ]

    def opened(*arguments: Any) -> Segment:
        if changes:
            changes.pop(0)()
        return Segment(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr("bertsmith.inference.indexes.index.Segment", opened)
        searched = content(folder)
    assert not changes
    assert searched.keys() == {hit for hit in before if not hit.startswith("t4 ")}
    (folder / Manifest.read(folder).segments[0].name / "rows.arrow").unlink()
    with pytest.raises(InputError, match="expected a whole segment"):
        Index(folder)


def test_a_compaction_of_nothing_changes_nothing(folder: Path) -> None:
    compact_index(folder, segment_rows=64)
    before = (folder / "index.json").read_bytes()
    assert compact_index(folder, segment_rows=64).rows == 28
    assert (folder / "index.json").read_bytes() == before
    assert json.loads(before)["changes"] == 5
