"""Vector files: their content, and identical bytes after an interruption at any point."""

import errno
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertsmith.base.core.errors import BertsmithError, ConfigError, InputError, RunError
from bertsmith.base.storage.files import read_json, write_json
from bertsmith.inference.vectors.files import VectorFile
from bertsmith.inference.vectors.writers import NpyWriter, ParquetWriter, npy_header

MADE_OF = {"model": "sha256:1", "layers": [1, 2]}
BLOCKS = [np.arange(12, dtype=np.float32).reshape(4, 3) + number for number in range(3)]


def columns(number: int) -> dict[str, pa.Array]:
    return {"line": pa.array([number] * 4, pa.int64()), "word": pa.array([f"w{number}é"] * 4)}


def write(path: Path, upto: int = 3, *, finish: bool = True, index: bool = True, **flags: bool) -> None:
    """Writes blocks from where the file was left off; stops after block `upto` as if killed."""
    with VectorFile(path, MADE_OF, 3, index=index, **flags) as file:
        for number in range(file.done.get("blocks", 0), upto):
            file.append(BLOCKS[number], columns(number) if index else None)
            file.commit({"blocks": number + 1})
        if finish:
            file.finish()
        else:
            file.append(BLOCKS[0][:2], {name: array[:2] for name, array in columns(9).items()} if index else None)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("half", [False, True])
def test_a_npy_file_has_the_vectors_and_the_columns_are_in_a_file_next_to_it(tmp_path, half):
    path = tmp_path / "new" / "x.npy"
    write(path, half=half)
    result = np.load(path, mmap_mode="r", allow_pickle=False)
    np.testing.assert_array_equal(result, np.concatenate(BLOCKS))
    assert result.dtype == (np.float16 if half else np.float32)
    tokens = [json.loads(line) for line in (tmp_path / "new" / "x.tokens.jsonl").read_text("utf-8").splitlines()]
    assert tokens == [{"line": number, "word": f"w{number}é"} for number in range(3) for _ in range(4)]
    assert sorted(content(tmp_path / "new")) == ["x.npy", "x.npy.json", "x.tokens.jsonl"]


@pytest.mark.parametrize("half", [False, True])
def test_a_parquet_file_has_a_column_of_lists_of_fixed_size(tmp_path, half):
    path = tmp_path / "x.parquet"
    write(path, half=half)
    table = pq.read_table(path)
    assert table.schema.field("vector").type == pa.list_(pa.float16() if half else pa.float32(), 3)
    np.testing.assert_array_equal(np.stack(table["vector"].to_numpy()), np.concatenate(BLOCKS))
    assert table["line"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    assert sorted(content(tmp_path)) == ["x.parquet", "x.parquet.json"]


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
@pytest.mark.parametrize("upto", [0, 1, 2, 3])
def test_killed_work_resumes_to_the_same_bytes(tmp_path, name, upto):
    write(tmp_path / "whole" / name)
    path = tmp_path / "killed" / name
    write(path, upto, finish=False)
    assert not path.exists()
    write(path, min(upto + 1, 3), finish=False, resume=True)
    write(path, resume=True)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_a_crash_while_the_file_is_moved_into_place_is_repaired(tmp_path, name, monkeypatch):
    write(tmp_path / "whole" / name)
    path = tmp_path / "killed" / name
    writer = NpyWriter if name == "x.npy" else ParquetWriter
    end = writer.end

    def stop(self, position):
        raise OSError(errno.ENOSPC, "No space left on device")

    def stop_behind(self, position):
        end(self, position)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "end", stop)
    with pytest.raises(OSError, match="No space"):
        write(path)
    monkeypatch.setattr(writer, "end", stop_behind)
    with pytest.raises(OSError, match="No space"):
        VectorFile(path, MADE_OF, 3, index=True, resume=True)
    monkeypatch.setattr(writer, "end", end)
    mended = VectorFile(path, MADE_OF, 3, index=True, resume=True)
    assert mended.is_complete
    assert (mended.rows, mended.done) == (12, {"blocks": 3})
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.parametrize("name", ["x.npy", "x.parquet"])
def test_a_full_disk_costs_one_block(tmp_path, name, monkeypatch):
    write(tmp_path / "whole" / name)
    path = tmp_path / "full" / name
    write(path, 1, finish=False)
    writer = NpyWriter if name == "x.npy" else ParquetWriter

    def full(self):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer, "whole", full)
        with pytest.raises(OSError, match="No space"):
            write(path, resume=True)
    write(path, resume=True)
    assert content(tmp_path / "full") == content(tmp_path / "whole")


def test_resuming_does_not_touch_a_complete_file(tmp_path):
    write(tmp_path / "x.npy")
    before = content(tmp_path)
    with VectorFile(tmp_path / "x.npy", MADE_OF, 3, index=True, resume=True) as file:
        assert file.is_complete
        assert (file.rows, file.done) == (12, {"blocks": 3})
    assert content(tmp_path) == before


def test_other_settings_are_refused_by_name(tmp_path):
    for name, finish in (("x.npy", True), ("y.npy", False), ("z.parquet", False)):
        write(tmp_path / name, finish=finish)
        before = content(tmp_path)
        for made_of, width, half, wrong in (
            ({**MADE_OF, "model": "sha256:2"}, 3, False, "model"),
            ({**MADE_OF, "pooling": "mean"}, 3, False, "pooling"),
            (MADE_OF, 4, False, "width"),
            (MADE_OF, 3, True, "numbers"),
        ):
            with pytest.raises(RunError, match=f"the {wrong} that"):
                VectorFile(tmp_path / name, made_of, width, half=half, index=True, resume=True)
        assert content(tmp_path) == before


def test_a_file_of_a_later_format_is_refused_and_one_without_a_number_is_resumed(tmp_path):
    with VectorFile(tmp_path / "x.npy", MADE_OF, 3) as file:
        file.append(BLOCKS[0])
        file.commit({"blocks": 1})
    state = read_json(file.state_path)
    assert state.pop("format") == 1
    write_json(file.state_path, {**state, "format": 2})
    with pytest.raises(InputError, match=r"expected format version 1 in .*found version 2"):
        VectorFile(tmp_path / "x.npy", MADE_OF, 3, resume=True)
    write_json(file.state_path, state)
    with VectorFile(tmp_path / "x.npy", MADE_OF, 3, resume=True) as file:
        assert file.done == {"blocks": 1}


def test_an_existing_file_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "x.npy"
    write(path, index=False)
    first = path.read_bytes()
    with pytest.raises(RunError, match="--replace"):
        write(path, index=False)
    write(path, 1, finish=False, index=False, replace=True)
    assert path.read_bytes() == first, "the old file stays until the new one is complete"
    with pytest.raises(RunError, match="--replace"):
        write(path, index=False)
    write(path, 2, index=False, replace=True)
    assert np.load(path).shape == (8, 3)
    assert sorted(content(tmp_path)) == ["x.npy", "x.npy.json"]


@pytest.mark.parametrize("beside", ["x.tokens.jsonl", "x.npy.json"])
@pytest.mark.parametrize("resume", [False, True])
def test_a_file_next_to_the_vectors_is_replaced_only_on_request(tmp_path, beside, resume):
    earlier = {"x.tokens.jsonl": '{"line": 0}\n', "x.npy.json": '{\n  "stage": "whole"\n}\n'}[beside]
    (tmp_path / beside).write_text(earlier)
    with pytest.raises(RunError, match=rf"no file at '.*{beside}'.*--replace"):
        write(tmp_path / "x.npy", resume=resume)
    assert content(tmp_path) == {beside: earlier.encode()}
    if beside == "x.tokens.jsonl":
        write(tmp_path / "x.npy", index=False)
        assert (tmp_path / beside).read_text() == earlier, "vectors without columns do not touch it"
    (tmp_path / "y.tokens.jsonl").mkdir()
    with pytest.raises(InputError, match="a folder"):
        write(tmp_path / "y.npy", resume=resume)


@pytest.mark.parametrize(
    "name",
    [
        "x.npy", "x.npy.json", "x.tokens.jsonl", "x.npy.partial", "x.npy.partial.json", "x.tokens.jsonl.partial",
        "x.parquet", "x.parquet.json", "x.parquet.partial", "x.parquet.partial/mine.txt", "x.parquet.old.partial/a/b",
        "x.parquet.partial.json",
    ],
)  # fmt: skip
@pytest.mark.parametrize("how", ["replace", "resume", ""])
def test_a_file_of_another_kind_is_neither_replaced_nor_removed(tmp_path, name, how):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine\n")
    before = content(tmp_path)
    with pytest.raises(BertsmithError):
        write(tmp_path / ("x.npy" if "parquet" not in name else "x.parquet"), **{how: True} if how else {})
    assert content(tmp_path) == before


def test_an_index_is_replaced_with_its_vectors(tmp_path):
    path, tokens = tmp_path / "x.npy", tmp_path / "x.tokens.jsonl"
    write(path)
    write(path, 1, finish=False, index=False, replace=True)
    assert tokens.exists(), "the old files stay until the new one is complete"
    write(path, index=False, resume=True)
    assert sorted(content(tmp_path)) == ["x.npy", "x.npy.json"]
    tokens.write_text("mine\n")
    write(path, index=False, replace=True)
    assert tokens.read_text() == "mine\n", "the vectors before had no index"
    with pytest.raises(InputError, match="of another kind"):
        write(path, replace=True)
    (tmp_path / "x.npy.json").write_text("{")
    write(path, index=False, replace=True)
    assert np.load(path).shape == (12, 3), "a damaged record is replaced with its file"


def test_an_error_in_closing_a_file_on_a_full_disk_hides_no_other_error(tmp_path, monkeypatch):
    writer = NpyWriter(tmp_path / "x.npy", 3)
    writer.begin({})
    file = writer._files[0]

    class Full:
        def close(self) -> None:
            file.close()
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writer, "_files", [Full()])
    writer.close()
    assert file.closed
    assert writer._files == []


def test_a_partial_file_is_also_replaced_only_on_request(tmp_path):
    write(tmp_path / "x.parquet", 1, finish=False)
    with pytest.raises(RunError, match="--resume"):
        write(tmp_path / "x.parquet")


def test_a_missing_partial_file_is_detected(tmp_path):
    for name, partial in (("x.npy", "x.npy.partial"), ("y.parquet", "y.parquet.partial/part-000000.parquet")):
        write(tmp_path / name, 2, finish=False)
        (tmp_path / partial).unlink()
        with pytest.raises(RunError, match="completed bytes in"):
            write(tmp_path / name, resume=True)


def test_a_foreign_file_or_a_damaged_state_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", BLOCKS[0])
    with pytest.raises(RunError, match=r"x\.npy\.json"):
        VectorFile(tmp_path / "x.npy", MADE_OF, 3, resume=True)
    (tmp_path / "x.npy.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.npy\.json"):
        VectorFile(tmp_path / "x.npy", MADE_OF, 3, resume=True)


@pytest.mark.parametrize("name", ["x", "x.np", "x.csv", ".npy"])
def test_an_unknown_file_extension_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="ends in"):
        VectorFile(tmp_path / name, MADE_OF, 3)


def test_the_header_has_one_size_for_any_number_of_rows():
    sizes = {len(npy_header(rows, 768, np.dtype("<f4"))) for rows in (0, 1, 10**6, 10**12)}
    assert len(sizes) == 1
