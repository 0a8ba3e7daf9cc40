"""Indexes on disk: built, extended, searched, interrupted."""

import contextlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith import build_index, compact_index, remove_from_index, search_passages
from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.base.core.randomness import generator
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.indexes import building, parts
from bertsmith.inference.indexes.filters import conditions
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.search import cells
from bertsmith.inference.search.rankings import nearest_vectors
from bertsmith.inference.search.request import DENSE
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from tasks.task_samples import CONFIG, TOKENIZER, write_base_model
from written_files import file_of_records

NEEDED = ("vectors.npy", "ids.npy", "rows.arrow", "removed-000002.npy")
OF_WORDS = ("words.arrow", "words-rows.npy", "words-weights.npy", "words-lengths.npy")
WORDS = "anna bert carl was in rome oslo the plot awful a great film and good".split()


def write_texts(path: Path, count: int, *, first: int = 0, year: int = 2000) -> Path:
    """A table of texts with ids from `first`, and a year each."""
    rows = []
    for number in range(first, first + count):
        chosen = generator(5, "texts", number, year).choice(WORDS, 6)
        rows.append({"id": f"t{number}", "text": " ".join(chosen), "year": year + number % 10})
    return file_of_records(path, rows)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_base_model(tmp_path_factory.mktemp("model") / "model", 4))


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write_texts(tmp_path / "texts.jsonl", 30)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_BLOCK", 4)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def ids_of(folder: Path, query: str, **options: Any) -> list[str]:
    return [hit.id for hit in search_passages(folder, [query], **options)[0].passages]


def text_of(table: Path, number: int) -> str:
    return str(json.loads(table.read_text().splitlines()[number])["text"])


def test_every_text_finds_itself_without_naming_the_model_again(model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    change = build_index(texts, folder, model=model, segment_rows=12)
    assert (change.rows, change.segments, change.recall) == (30, 3, 1.0)
    for number in (0, 11, 12, 29):
        hit = search_passages(folder, [text_of(texts, number)], top=1)[0].passages[0]
        assert hit.score == pytest.approx(1, abs=2e-3)
        assert hit.text == text_of(texts, number)


def test_an_index_answers_as_a_search_of_the_file(model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(texts, folder, model=model, segment_rows=7)
    of_index = search_passages(folder, ["anna was in rome", "a great film"], top=9)
    of_file = search_passages(texts, ["anna was in rome", "a great film"], model=model, top=9)
    for first, second in zip(of_index, of_file, strict=True):
        assert [hit.score for hit in first.passages] == pytest.approx([hit.score for hit in second.passages], abs=2e-3)


def test_added_texts_replace_those_with_their_ids(model: Path, texts: Path, tmp_path: Path) -> None:
    folder, more = tmp_path / "index", write_texts(tmp_path / "more.jsonl", 10, first=25, year=2030)
    build_index(texts, folder, model=model)
    change = build_index(more, folder, add=True)
    assert (change.added, change.removed, change.rows) == (10, 5, 35)
    assert len(set(ids_of(folder, "anna", top=100))) == 35
    hits = search_passages(folder, ["anna"], top=100)[0].passages
    assert next(hit.text for hit in hits if hit.id == "t25") == text_of(more, 0)


def test_removed_texts_are_not_found_and_compacting_keeps_every_answer(
    model: Path, texts: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "index"
    build_index(texts, folder, model=model, segment_rows=8)
    build_index(write_texts(tmp_path / "more.jsonl", 3, first=90), folder, add=True)
    change = remove_from_index(folder, id=["t3", "t9", "t91"])
    assert (change.removed, change.rows) == (3, 30)
    before = search_passages(folder, ["a great film"], top=100)[0].passages
    assert not {"t3", "t9", "t91"} & {hit.id for hit in before}
    compacted = compact_index(folder, segment_rows=100)
    assert (compacted.rows, compacted.segments, compacted.removed) == (30, 1, 0)
    after = search_passages(folder, ["a great film"], top=100)[0].passages
    assert {hit.id: hit.text for hit in after} == {hit.id: hit.text for hit in before}
    assert {hit.id: hit.score for hit in after} == pytest.approx({hit.id: hit.score for hit in before}, abs=1e-6)
    assert {path.name for path in folder.iterdir()} == {"index.json", Manifest.read(folder).segments[0].name}


def test_an_open_index_answers_as_before_while_its_folder_changes(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LEAST_ROWS", 25)
    folder = tmp_path / "index"
    build_index(texts, folder, model=model)
    build_index(write_texts(tmp_path / "more.jsonl", 3, first=90), folder, add=True)
    remove_from_index(folder, id=["t1"])
    index = Index(folder)
    queries = index.segments[0].vectors[DENSE].stored(np.arange(3))
    before = index.search(queries, 30)
    index = Index(folder)
    remove_from_index(folder, id=["t2", "t13"])
    compact_index(folder, segment_rows=100)
    after = index.search(queries, 30)
    assert np.array_equal(after.places, before.places)
    assert np.array_equal(after.scores, before.scores)


def test_a_segment_that_another_process_has_open_is_removed_by_the_next_change(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: Path) -> None:
        raise PermissionError("as on Windows")

    folder = tmp_path / "index"
    build_index(texts, folder, model=model, segment_rows=12)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refused)
        assert compact_index(folder, segment_rows=100).rows == 30
    assert "is in use and stays" in capsys.readouterr().err
    assert len(list(folder.glob("segment-*"))) == 4
    remove_from_index(folder, id=["t1"])
    assert len(list(folder.glob("segment-*"))) == 1


def test_a_folder_with_an_index_of_another_program_is_one_of_texts(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.json").write_text('{"pages": []}')
    (folder / "a.txt").write_text("anna was in rome\n")
    assert search_passages(folder, ["anna"], model=model)[0].passages[0].id == "a"


def test_an_index_can_lose_all_its_texts(model: Path, tmp_path: Path) -> None:
    folder, texts = tmp_path / "index", write_texts(tmp_path / "two.jsonl", 2)
    build_index(texts, folder, model=model)
    assert remove_from_index(folder, id=["t0", "t1"]).rows == 0
    assert ids_of(folder, "anna") == []
    assert compact_index(folder).segments == 0
    assert ids_of(folder, "anna") == []
    assert build_index(texts, folder, add=True).rows == 2


class Killed(BaseException):
    """Stands for a process that ends anywhere."""


def killed_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    count = iter(range(calls))

    def called(*arguments: Any, **options: Any) -> Any:
        if next(count, None) is None:
            raise Killed
        return function(*arguments, **options)

    return called


@pytest.mark.parametrize("blocks", [0, 1, 3, 7])
def test_a_build_that_was_killed_resumes_to_the_same_bytes(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    build_index(texts, tmp_path / "straight", model=model, segment_rows=12)
    folder = tmp_path / "index"
    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "embed", killed_after(blocks, Embedder.embed))
        with pytest.raises(Killed):
            build_index(texts, folder, model=model, segment_rows=12)
    with pytest.raises(InputError, match="one that is not finished"):
        search_passages(folder, ["anna"])
    with pytest.raises(RunError, match="unfinished"):
        build_index(texts, folder, model=model, segment_rows=12)
    build_index(texts, folder, model=model, segment_rows=12, resume=True)
    assert files_of(folder) == files_of(tmp_path / "straight")


@pytest.mark.parametrize(
    ("room", "step"),
    [
        (building, "write_rows"),
        (parts, "write_words"),
        (parts, "write_vectors_of"),
        (parts, "_with_cells"),
        (building, "_without"),
        (building, "_replaced"),
    ],
)
def test_an_addition_that_was_killed_leaves_the_last_state(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: Any, step: str
) -> None:
    folder, more = tmp_path / "index", write_texts(tmp_path / "more.jsonl", 10, first=25, year=2030)
    build_index(texts, folder, model=model)
    before = ids_of(folder, "anna", top=100)
    with monkeypatch.context() as patch:
        patch.setattr(room, step, killed_after(0, getattr(room, step)))
        with pytest.raises(Killed):
            build_index(more, folder, add=True)
    assert ids_of(folder, "anna", top=100) == before
    if step != "write_rows":
        with pytest.raises(RunError, match="no unfinished change"):
            remove_from_index(folder, id=["t1"])
    change = build_index(more, folder, add=True, resume=True)
    assert (change.added, change.rows) == (10, 35)
    assert len(ids_of(folder, "anna", top=100)) == 35


def test_a_change_that_was_killed_after_it_counted_is_not_made_twice(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, more = tmp_path / "index", write_texts(tmp_path / "more.jsonl", 10, first=25, year=2030)
    build_index(texts, folder, model=model)
    with monkeypatch.context() as patch:
        patch.setattr(building, "_clean", killed_after(1, building._clean))
        with pytest.raises(Killed):
            build_index(more, folder, add=True)
    assert len(ids_of(folder, "anna", top=100)) == 35
    build_index(more, folder, add=True, resume=True)
    assert len(set(ids_of(folder, "anna", top=100))) == 35
    assert not (folder / "building.json").exists()


def test_what_does_not_fit_is_refused_in_a_line(model: Path, texts: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "index", tmp_path / "other"
    save_pretrained(other, untrained(CONFIG, seed=5), TOKENIZER, ModelMetadata.from_dict({"task": "pretraining"}))
    build_index(texts, folder, model=model)
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"id": "a", "text": "anna"}\n{"id": "a", "text": "bert"}\n')
    other_segments = tmp_path / "mine"
    (other_segments / "segment-000000").mkdir(parents=True)
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"id": "a", "text": ""}\n')
    refused: Sequence[tuple[Callable[[], Any], str]] = [
        (lambda: build_index(texts, tmp_path / "new"), "a model that makes the vectors"),
        (lambda: build_index(tmp_path / "nowhere", folder, model=model), "there is no file or folder '.*nowhere'"),
        (lambda: build_index(texts, folder, model=model), "extend it with `add=True`"),
        (lambda: build_index(texts, tmp_path / "new", model=model, add=True), "leave out `add=True`"),
        (lambda: build_index(texts, folder, model=other, add=True), r"others \(model\)"),
        (lambda: build_index(twice, tmp_path / "twice", model=model), "'a' twice"),
        (lambda: build_index(empty, tmp_path / "empty", model=model), "1 without text"),
        (lambda: build_index(texts, texts.parent, model=model), "not empty"),
        (lambda: build_index(texts, other_segments, model=model), "not empty"),
        (lambda: search_passages(folder, ["anna"], model=other), r"another \(model\)"),
        (lambda: search_passages(folder, ["anna"], system="tf-idf"), "by tf-idf"),
        (lambda: search_passages(folder, ["anna"], index=tmp_path / "i"), "found `?index"),
        (lambda: search_passages(texts, ["anna"], model=model, where=["year > 1"]), "found `?where"),
        (lambda: search_passages(folder, ["anna"], where=["year"]), "a condition such as"),
        (lambda: search_passages(folder, ["anna"], where=["year == 2000"]), "a condition such as"),
        (lambda: search_passages(folder, ["anna"], where=["yaer > 2"]), "did you mean 'year'"),
        (lambda: remove_from_index(folder, id=["t1", "nobody"]), "'nobody', which no row has"),
        (lambda: remove_from_index(tmp_path / "none", id=["t1"]), "no index.json"),
        (lambda: remove_from_index(folder), "ids of texts"),
    ]
    for call, message in refused:
        with pytest.raises(BertsmithError, match=message):
            call()
    assert len(ids_of(folder, "anna", top=100)) == 30
    with locked_folder(folder), pytest.raises(RunError, match="no other process"):
        remove_from_index(folder, id=["t1"])


@pytest.fixture(scope="module")
def whole(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with cells, and a removed text."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "LEAST_ROWS", 20)
        build_index(write_texts(folder.parent / "texts.jsonl", 30), folder, model=model)
    remove_from_index(folder, id=["t1"])
    return folder


@pytest.mark.parametrize("content", [b"", b"junk" * 99, None], ids=["empty", "junk", "cut"])
@pytest.mark.parametrize("name", [*NEEDED, cells.CELLS, *OF_WORDS])
def test_a_damaged_segment_is_refused(whole: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    folder = tmp_path / "index"
    shutil.copytree(whole, folder)
    path = folder / "segment-000000" / name
    path.write_bytes(path.read_bytes()[:-64] if content is None else content)
    with pytest.raises(InputError, match="a whole segment"):
        search_passages(folder, ["anna"])
    if name in NEEDED:
        with pytest.raises(InputError, match="a whole segment"):
            remove_from_index(folder, id=["t2"])


def test_a_file_of_another_program_is_no_started_change(model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    folder.mkdir()
    (folder / "building.json").write_text('{"type": "FeatureCollection"}')
    with pytest.raises(InputError, match="no made_of"):
        build_index(texts, folder, model=model)
    assert [path.name for path in folder.iterdir()] == ["building.json"]


def test_a_file_that_was_refused_can_be_corrected(model: Path, tmp_path: Path) -> None:
    folder, texts = tmp_path / "index", tmp_path / "texts.jsonl"
    texts.write_text('{"id": "a", "text": "anna"}\n{"id": "a", "text": "bert"}\n')
    with pytest.raises(InputError, match="'a' twice"):
        build_index(texts, folder, model=model)
    texts.write_text('{"id": "a", "text": "anna"}\n{"id": "b", "text": "bert"}\n')
    assert build_index(texts, folder, model=model).rows == 2


def test_an_addition_is_finished_with_the_same_texts_or_given_up(
    model: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, more = tmp_path / "index", write_texts(tmp_path / "more.jsonl", 10, first=50)
    build_index(texts, folder, model=model)
    with monkeypatch.context() as patch:
        patch.setattr(parts, "with_vectors", killed_after(0, parts.with_vectors))
        with pytest.raises(Killed):
            build_index(more, folder, add=True)
    with pytest.raises(RunError, match="to finish the addition"):
        build_index(more, folder, model=model, resume=True)
    with pytest.raises(RunError, match=r"the sources that .* remove '.*building.json' to give the change up"):
        build_index(texts, folder, add=True, resume=True)
    started = json.loads((folder / "building.json").read_text())
    del started["segments"][0]["parts"]  # as an older version began it
    (folder / "building.json").write_text(json.dumps(started))
    with pytest.raises(
        InputError, match=r"no segments\.0\.parts; restore the file, or finish the change with the version that"
    ):
        build_index(more, folder, add=True, resume=True)
    (folder / "building.json").unlink()
    assert remove_from_index(folder, id=["t1"]).rows == 29
    assert [path.name for path in folder.glob("segment-*")] == ["segment-000000"]


def test_lines_of_several_files_are_in_one_index(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    for name in ("first.txt", "second.txt"):
        (tmp_path / name).write_text(f"anna in the {name}\nbert was in rome\n")
        change = build_index(tmp_path / name, folder, model=model, add=name == "second.txt")
    assert (change.rows, change.removed) == (4, 0)
    assert set(ids_of(folder, "anna")) == {"first.txt:1", "first.txt:2", "second.txt:1", "second.txt:2"}
    assert build_index(tmp_path / "first.txt", folder, add=True).removed == 2


def test_columns_that_texts_have_and_the_index_has_not_are_named(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, texts = tmp_path / "index", tmp_path / "texts.jsonl"
    texts.write_text('{"id": "a", "text": "anna", "year": 1}\n{"id": "b", "text": "bert", "language": "en"}\n')
    build_index(texts, folder, model=model)
    assert "the first text does not have are left out: 'language'" in capsys.readouterr().err
    texts.write_text('{"id": "c", "text": "carl", "city": "rome"}\n')
    build_index(texts, folder, add=True)
    errors = capsys.readouterr().err
    assert "the index does not have are left out: 'city'" in errors
    assert "the added texts do not have stay empty: 'year'" in errors
    assert set(ids_of(folder, "anna", where=["year != 1"])) == {"b", "c"}


def test_conditions_choose_the_texts_that_meet_them(model: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build_index(texts, folder, model=model, segment_rows=12)
    chosen = ids_of(folder, "anna", top=100, where=["year >= 2004", "year != 2007"])
    years = {f"t{number}": 2000 + number % 10 for number in range(30)}
    assert set(chosen) == {id for id, year in years.items() if year >= 2004 and year != 2007}
    assert ids_of(folder, "anna", where=["year > 3000"]) == []


@given(
    values=st.lists(st.one_of(st.none(), st.integers(-20, 20).map(str), st.sampled_from(["", "a", "b", " 7 ", "1e1"]))),
    sign=st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
    value=st.one_of(st.integers(-20, 20).map(str), st.sampled_from(["a", "b", "7.0", ".5"])),
)
def test_a_condition_compares_as_python_does(values: list[str | None], sign: str, value: str) -> None:
    table = pa.table({"x": pa.array(values, pa.large_string())})
    (condition,) = conditions([f"x {sign} {value}"], ["x"])
    assert condition.mask(table).tolist() == [_compared(each or "", sign, value) for each in values]


def _compared(value: str, sign: str, other: str) -> bool:
    first: Any = value
    second: Any = other
    with contextlib.suppress(ValueError):
        first, second = float(value), float(other)
    if sign in ("=", "!="):
        return (first == second) == (sign == "=")
    is_met = {"<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[sign]
    return bool(is_met and value)


@pytest.mark.parametrize(
    ("text", "value"), [("x = 'New York'", "New York"), ('x="a = b"', "a = b"), ("x != ", ""), ("x = ''", "")]
)
def test_the_value_of_a_condition_may_be_quoted(text: str, value: str) -> None:
    assert conditions([text], ["x"])[0].value == value


@pytest.mark.parametrize("text", ["x >", "x == 3", "x <> 3", "x => 3", "x >= 3 and y = 4", "= 3", "x", "x > ''", ""])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a condition such as"):
        conditions([text], ["x", "y"])


@pytest.fixture
def clustered() -> np.ndarray:
    """Normalized vectors [2000, 16] around 40 centers, as float16."""
    random = generator(1, "clustered")
    vectors = random.normal(size=(40, 16))[random.integers(40, size=2000)] + 0.3 * random.normal(size=(2000, 16))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def test_cells_find_the_share_of_the_nearest_that_was_asked_for(clustered: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "cells.faiss"
    cells.write_cells(path, clustered, seed=3)
    found_by = cells.Cells.open(path, clustered)
    tuning = found_by.tuned(0.95, seed=3)
    assert tuning.recall >= 0.95
    assert tuning.probes < 64, "reading every cell proves nothing"
    queries = clustered[::10].astype(np.float32)
    ranking, exact = found_by.search(queries, 10, tuning.probes), nearest_vectors(queries, clustered, 10)
    assert np.mean(ranking.scores >= exact.scores[:, -1:] - 1e-5) >= 0.93
    allowed = np.zeros(len(clustered), dtype=bool)
    allowed[::3] = True
    places = found_by.search(queries, 10, tuning.probes, allowed).places
    assert np.all(places[places >= 0] % 3 == 0)
    again = tmp_path / "again.faiss"
    cells.write_cells(again, clustered, seed=3)
    assert again.read_bytes() == path.read_bytes()


def test_a_large_index_has_cells_and_answers_as_an_exact_search(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LEAST_ROWS", 100)
    monkeypatch.setattr(parts, "_BLOCK", 512)
    texts, folder = write_texts(tmp_path / "many.jsonl", 600), tmp_path / "index"
    change = build_index(texts, folder, model=model, recall=0.9)
    assert (folder / "segment-000000" / cells.CELLS).exists()
    assert change.recall >= 0.9
    queries = [text_of(texts, number) for number in range(0, 600, 20)]
    near, exact = search_passages(folder, queries), search_passages(folder, queries, exact=True)
    lowest = [result.passages[-1].score for result in exact]
    good = [hit.score >= low - 1e-4 for result, low in zip(near, lowest, strict=True) for hit in result.passages]
    assert np.mean(good) >= 0.85
    more = write_texts(tmp_path / "more.jsonl", 120, first=600)
    assert build_index(more, folder, add=True).segments == 2
    assert Manifest.read(folder).wanted_recall == 0.9, "additions are searched as the index is"
    (folder / "index.json").write_text((folder / "index.json").read_text().replace("wanted_recall", "unknown"))
    assert Manifest.read(folder).wanted_recall == 0.95, "that of an older version"
    compact_index(folder, recall=0.8)
    assert Manifest.read(folder).wanted_recall == 0.8
    remove_from_index(folder, id=[f"t{number}" for number in (0, *range(600, 720))])
    assert "t0" not in ids_of(folder, queries[0], top=50)
    assert len(ids_of(folder, queries[0], top=1000)) == 599, "more than the cells next to the query have"


def test_without_faiss_all_rows_are_compared(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "LEAST_ROWS", 10)
    monkeypatch.setattr(parts, "has_faiss", lambda: False)
    texts, folder = write_texts(tmp_path / "texts.jsonl", 20), tmp_path / "index"
    build_index(texts, folder, model=model)
    assert "faiss is not installed" in capsys.readouterr().err
    assert Manifest.read(folder).recall == 1
    assert len(ids_of(folder, "anna", top=100)) == 20
    monkeypatch.setattr(parts, "has_faiss", cells.has_faiss)
    compact_index(folder)
    assert Manifest.read(folder).segments[0].probes, "compacting makes up for it"
    assert len(ids_of(folder, "anna", top=100)) == 20


def test_an_index_in_place_of_texts_is_refused(model: Path, texts: Path, tmp_path: Path) -> None:
    build_index(texts, tmp_path / "index", model=model)
    with pytest.raises(InputError, match=r"found an index; add texts to it with .*`bertsmith index export`"):
        build_index(tmp_path / "index", tmp_path / "new", model=model)


def test_a_setting_that_is_out_of_range_is_refused(model: Path, texts: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="recall"):
        build_index(texts, tmp_path / "index", model=model, recall=1.5)
