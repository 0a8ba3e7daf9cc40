"""Files and folders are written completely or not at all, and never at the cost of the user's data."""

import errno
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage import files
from bertsmith.base.storage.files import (
    FolderKind,
    append_json_line,
    atomic_file,
    atomic_folder,
    keep_record,
    read_json,
    read_json_lines,
    remove_partials,
    require_file_place,
    require_outside,
    write_json,
    write_text,
)
from written_files import file_with

THING = FolderKind("a thing", (("thing.json",), ("part.*", "index")))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def folder_with(path: Path, **content: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        (path / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_file_exists_when_the_block_ends_and_not_before(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    with atomic_file(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert names(path.parent) == ["a.txt"]


def test_an_error_in_the_block_leaves_the_existing_file(tmp_path: Path) -> None:
    path = file_with(tmp_path / "a.txt", b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(path) as file:
        file.writelines(b"%d" % (1 // number) for number in (1, 0))
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["a.txt"])


@pytest.mark.skipif(os.name != "posix", reason="links and permissions of POSIX")
def test_a_link_in_place_of_the_partial_file_is_never_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    precious, partial = tmp_path / "precious.txt", tmp_path / f".a.txt.{os.getpid()}.partial"
    precious.write_text("mine", encoding="utf-8")
    partial.symlink_to(precious)
    write_text(tmp_path / "a.txt", "new")  # the link is there before the leftovers are removed
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == stat.S_IMODE(precious.stat().st_mode)
    remove = files._remove_leftovers

    def linked_after_that(path: Path) -> None:
        remove(path)
        partial.symlink_to(precious)

    monkeypatch.setattr(files, "_remove_leftovers", linked_after_that)
    with pytest.raises(FileExistsError) as error:
        write_text(tmp_path / "a.txt", "newer")
    assert error.value.filename == str(tmp_path / "a.txt")
    assert (precious.read_text(encoding="utf-8"), (tmp_path / "a.txt").read_text(encoding="utf-8")) == ("mine", "new")


@pytest.mark.skipif(os.name != "posix", reason="kill -9 of POSIX")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_killed_writer_leaves_the_existing_content_and_the_next_one_cleans_up(tmp_path: Path, kind: str) -> None:
    old = file_with(tmp_path / "old.json", "1")
    path = old if kind == "file" else folder_with(tmp_path / "out", thing_json="1")
    call, write = {
        "file": ("atomic_file(path)", "out.write(b'2'); out.flush()"),
        "folder": ("atomic_folder(path, replace=True)", "write_json(out / 'thing.json', 2)"),
    }[kind]
    program = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from bertsmith.base.storage.files import *; path = Path(sys.argv[1])\n"
        f"with {call} as out:\n    {write}\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len([name for name in names(tmp_path) if name.endswith(".partial")]) == 1
    if kind == "file":
        assert read_json(path) == 1
        write_json(path, 3)
        assert read_json(path) == 3
    else:
        assert read_json(path / "thing.json") == 1
        with atomic_folder(path, replace=THING) as folder:
            write_json(folder / "thing.json", 3)
        assert read_json(path / "thing.json") == 3
    assert not [name for name in names(tmp_path) if name.startswith(".")]


def test_leftovers_of_running_processes_and_of_other_targets_stay(tmp_path: Path, dead: int) -> None:
    living = [f".a.txt.{os.getppid()}.partial", f".b.txt.{dead}.partial", ".a.txt.partial", f".a.txt.x.{dead}.partial"]
    for name in [*living, f".a.txt.{dead}.partial", f".a.txt.{os.getpid()}.partial"]:
        (tmp_path / name).write_text("x", encoding="utf-8")
    write_json(tmp_path / "a.txt", 1)
    assert names(tmp_path) == sorted([*living, "a.txt"])


@pytest.mark.parametrize("replace", [True, False])
def test_a_folder_that_a_killed_process_moved_aside_is_restored(tmp_path: Path, dead: int, replace: bool) -> None:
    folder_with(tmp_path / f".out.{dead}.old.partial", thing_json="1")
    folder_with(tmp_path / f".out.{dead}.partial", thing_json="2")
    if replace:
        with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "out", replace=THING):
            raise ZeroDivisionError
    else:
        with pytest.raises(InputError, match="found one that exists"), atomic_folder(tmp_path / "out"):
            pass
    assert names(tmp_path) == ["out"]
    assert read_json(tmp_path / "out" / "thing.json") == 1


def test_a_folder_that_was_already_replaced_is_not_restored(tmp_path: Path, dead: int) -> None:
    folder_with(tmp_path / f".out.{dead}.old.partial", thing_json="1")
    folder_with(tmp_path / "out", thing_json="2")
    with atomic_folder(tmp_path / "out", replace=THING) as folder:
        write_json(folder / "thing.json", 3)
    assert names(tmp_path) == ["out"]
    assert read_json(tmp_path / "out" / "thing.json") == 3


def test_partials_of_any_process_are_removed_and_old_folders_restored(tmp_path: Path) -> None:
    for name in (".a.1.partial", ".b.1.old.partial", ".c.1.old.partial"):
        folder_with(tmp_path / name, thing_json="1")
    (tmp_path / ".d.txt.1.partial").write_text("x", encoding="utf-8")
    folder_with(tmp_path / "c", thing_json="2")
    (tmp_path / ".mine.partial").write_text("x", encoding="utf-8")
    remove_partials(tmp_path)
    assert names(tmp_path) == [".mine.partial", "b", "c"]
    assert [read_json(tmp_path / name / "thing.json") for name in "bc"] == [1, 2]
    remove_partials(tmp_path / "absent")


def test_a_folder_of_another_kind_is_never_replaced(tmp_path: Path) -> None:
    mine = folder_with(tmp_path / "mine", text_txt="years of work", part_1="x")
    with (
        pytest.raises(
            InputError, match=r"expected a thing at '.*mine', since .* without thing.json or part.\* with index"
        ),
        atomic_folder(mine, replace=THING),
    ):
        pytest.fail("the block must not run")
    assert (mine / "text.txt").read_text(encoding="utf-8") == "years of work"
    assert names(tmp_path) == ["mine"]


@pytest.mark.parametrize("content", [{"thing_json": "1"}, {"part_1": "1", "index": "1"}, {}])
def test_a_folder_of_the_kind_or_an_empty_one_is_replaced(tmp_path: Path, content: dict[str, str]) -> None:
    out = folder_with(tmp_path / "out", **content)
    with atomic_folder(out, replace=THING) as folder:
        folder_with(folder / "inner", a_txt="new")
        assert names(out) == sorted(name.replace("_", ".") for name in content)
    assert (names(out), names(tmp_path)) == (["inner"], ["out"])


@pytest.mark.parametrize("replace", [True, False, THING])
@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_or_a_link_instead_of_a_folder_is_refused(tmp_path: Path, kind: str, replace: bool) -> None:
    other = folder_with(tmp_path / "other", thing_json="1")
    target = tmp_path / "place"
    if kind == "file":
        target.write_text("mine", encoding="utf-8")
    else:
        target.symlink_to(other)
    with pytest.raises(InputError, match=f"found a {kind}; choose another"), atomic_folder(target, replace=replace):
        pytest.fail("the block must not run")
    assert names(tmp_path) == ["other", "place"]


def test_a_folder_that_appears_in_the_meantime_is_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(InputError, match="found one that exists"), atomic_folder(out):
        out.mkdir()
    with pytest.raises(InputError, match="found a folder without"), atomic_folder(out, replace=THING):
        folder_with(out, mine_txt="keep")
    assert (names(tmp_path), names(out)) == (["out"], ["mine.txt"])


def test_if_the_new_folder_cannot_be_moved_into_place_the_old_one_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder_with(tmp_path / "out", thing_json="1")
    rename = os.rename

    def fails(source: Path, target: Path) -> None:
        if target == out and ".old." not in source.name:
            raise OSError(errno.EIO, "broken disk", str(source))
        rename(source, target)

    monkeypatch.setattr(files.os, "rename", fails)
    with pytest.raises(OSError, match="broken disk") as error, atomic_folder(out, replace=THING) as folder:
        write_json(folder / "thing.json", 2)
    assert error.value.filename == str(out)
    assert (names(tmp_path), read_json(out / "thing.json")) == (["out"], 1)


def test_os_errors_name_the_path_that_the_user_knows(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as error, atomic_file(folder_with(tmp_path / "folder")):
        pass
    assert (error.value.filename, error.value.filename2) == (str(tmp_path / "folder"), None)
    with pytest.raises(FileNotFoundError) as error, atomic_folder(tmp_path / "new") as folder:
        (folder / "absent").read_bytes()
    assert error.value.filename == str(tmp_path / "new" / "absent")
    with pytest.raises(FileNotFoundError) as error, atomic_file(tmp_path / "a"):
        (tmp_path / "absent").read_bytes()
    assert error.value.filename == str(tmp_path / "absent")
    assert names(tmp_path) == ["folder"]


def test_a_path_where_no_file_can_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_with(tmp_path / "a.txt", "x")
    require_file_place(file)
    require_file_place(tmp_path / "new" / "folder" / "b.txt")
    for wrong, words in ((tmp_path, "found a folder;"), (file / "b.txt", f"found a file at '{file}'")):
        with pytest.raises(InputError, match="found") as error:
            require_file_place(wrong)
        assert words in str(error.value)
        assert str(wrong) in str(error.value)
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="write-protected"):
        require_file_place(tmp_path / "b.txt")


def test_an_output_that_is_or_contains_an_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder_with(tmp_path / "texts", a_txt="x")
    (tmp_path / "link").symlink_to("texts")
    for inputs in (["texts"], ["texts/a.txt"], ["other", Path("link")]):
        with pytest.raises(InputError, match="expected an output apart from the input"):
            require_outside(tmp_path / "texts", inputs)
    require_outside(tmp_path / "texts" / "out", ["texts", "texts/out2"])


def test_a_json_line_that_a_crash_cut_off_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for number in range(3):
        append_json_line(path, {"step": number})
    path.write_bytes(path.read_bytes()[:-4])
    assert read_json_lines(path) == [{"step": 0}, {"step": 1}]
    path.write_bytes(b'{"a"\n{}\n')
    with pytest.raises(InputError, match="JSON in line 1"):
        read_json_lines(path)


def test_a_record_is_written_once_and_then_compared_by_its_values(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert keep_record(path, {"seed": 1, "layers": (1, 2)}) == []
    written = path.read_bytes()
    assert keep_record(path, {"layers": (1, 2), "seed": 1}) == [], "as read back from JSON"
    assert keep_record(path, {"seed": 2, "layers": [1, 2], "more": None}) == ["seed"]
    assert keep_record(path, {"seed": 1}) == ["layers"]
    assert path.read_bytes() == written
    path.write_text("[]")
    assert keep_record(path, {"seed": 1}) == ["seed"]


def test_unreadable_json_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b"{")
    for name, words in (("bad.json", "invalid JSON"), ("absent.json", "no such file")):
        with pytest.raises(InputError, match=words):
            read_json(tmp_path / name)


def test_each_file_of_a_folder_is_synced_once_before_the_folder_has_its_name(tmp_path: Path, monkeypatch) -> None:
    folder, synced, real = tmp_path / "folder", list[tuple[int, bool]](), os.fsync

    def noted(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, folder.exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    with atomic_folder(folder) as partial:
        write_text(partial / "a.txt", "a")
    number = (folder / "a.txt").stat().st_ino
    assert [is_named for file, is_named in synced if file == number] == [False]
