"""Locks on run folders and growing files: the second process is refused, and no lock outlives its process."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.storage import locks
from bertsmith.base.storage.locks import is_unused, locked_file, locked_folder, require_new_run
from bertsmith.recipes.results.finished_run import search_folder
from bertsmith.text.corpus.build import build_corpus
from bertsmith.training.loop.run_folder import RunFolder
from tasks.task_samples import TOKENIZER, write_base_model

pytestmark = pytest.mark.skipif(os.name != "posix", reason="flock of POSIX")

HOLD = """
import sys
from pathlib import Path
from bertsmith.base.storage import locks
with getattr(locks, sys.argv[1])(Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def another_process(function: str, path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that holds the lock of a path until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, function, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("function", "lock"), [("locked_folder", "out/.lock"), ("locked_file", ".out.lock")])
def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path: Path, function: str, lock: str) -> None:
    out = tmp_path / "out"
    take = getattr(locks, function)
    with another_process(function, out) as process:
        with pytest.raises(RunError, match=rf"no other process that writes '{out}'; found process {process.pid};"):
            take(out).__enter__()
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / lock).exists(), "a killed process leaves its lock file behind"
        with take(out):
            assert (tmp_path / lock).read_text().split()[0] == str(os.getpid())
    assert not (tmp_path / lock).exists()


def test_links_to_a_file_share_its_lock(tmp_path: Path) -> None:
    (tmp_path / "link.npy").symlink_to(tmp_path / "x.npy")
    with locked_file(tmp_path / "x.npy"), pytest.raises(RunError, match=f"process {os.getpid()}"):
        locked_file(tmp_path / "link.npy").__enter__()


def test_a_lock_that_was_removed_while_it_was_opened_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock, lock = locks._flock, tmp_path / "out" / ".lock"
    seen = []

    def removed_meanwhile(descriptor: int, path: Path, *, wait: bool) -> None:
        flock(descriptor, path, wait=wait)
        seen.append(os.fstat(descriptor).st_ino)
        if len(seen) == 1:
            lock.rename(tmp_path / "gone")

    monkeypatch.setattr(locks, "_flock", removed_meanwhile)
    with locked_folder(tmp_path / "out"):
        assert lock.stat().st_ino == seen[-1]
        assert len(seen) == 2
    assert not lock.exists()


def test_a_folder_that_stays_empty_is_removed_and_one_of_the_user_is_kept(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with locked_folder(tmp_path / name):
            assert is_unused(tmp_path / name)
    with locked_folder(tmp_path / "full"):
        (tmp_path / "full" / "a.txt").touch()
        assert not is_unused(tmp_path / "full")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "mine"]
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["a.txt"]
    with locked_folder(tmp_path / "absent" / "run", create=False):
        assert not (tmp_path / "absent").exists()


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="the file"):
        locked_folder(tmp_path / "file").__enter__()


@pytest.mark.parametrize("function", ["locked_folder", "locked_file"])
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("link", "a link"),
        ("dangling link", "a link"),
        ("hard link", "a file of another program"),
        ("file", "a file of another program"),
        ("pipe", "a named pipe"),
        ("folder", "a folder"),
    ],
)
def test_what_is_no_lock_is_neither_written_nor_removed(tmp_path: Path, function: str, kind: str, found: str) -> None:
    out, precious = tmp_path / "out", tmp_path / "precious.txt"
    precious.write_text("12 years of work\n")
    lock = out / ".lock" if function == "locked_folder" else tmp_path / ".out.lock"
    lock.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    elif kind == "file":
        lock.write_text("owned by a package manager\n")
    elif kind == "hard link":
        lock.hardlink_to(precious)
    else:
        lock.symlink_to(precious if kind == "link" else tmp_path / "absent")
    before = os.lstat(lock)
    with pytest.raises(RunError, match=f"a lock of bertsmith or nothing at '{lock}'; found {found};"):
        getattr(locks, function)(out).__enter__()
    assert os.path.samestat(os.lstat(lock), before)
    assert kind != "file" or lock.read_text() == "owned by a package manager\n"
    assert precious.read_text() == "12 years of work\n"
    assert not (tmp_path / "absent").exists()


def test_a_link_that_replaces_the_lock_is_not_taken_for_it(tmp_path: Path) -> None:
    lock, aside = tmp_path / "out" / ".lock", tmp_path / "aside"
    with locked_folder(tmp_path / "out"):
        lock.rename(aside)
        lock.symlink_to(aside)
    assert lock.is_symlink()
    assert aside.exists()


def test_a_run_that_is_discarded_stays_locked_and_its_folder_is_removed_with_the_lock(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with locked_folder(out):
        run = RunFolder.create(out, {"train": {}})
        run.discard()
        assert [path.name for path in out.iterdir()] == [".lock"]
        with pytest.raises(RunError, match=f"found process {os.getpid()};"):
            locked_folder(out).__enter__()
    assert not out.exists()
    RunFolder.create(out, {"train": {}})
    with locked_folder(out, create=False):
        RunFolder.resume(out, {"train": {}}).discard()
    assert not out.exists(), "a run that was begun earlier"


def test_without_flock_a_warning_says_that_nothing_is_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    with locked_folder(tmp_path / "out"), locked_folder(tmp_path / "out"):
        pass
    assert "is not locked (this system has no flock)" in capsys.readouterr().err


def test_a_run_folder_in_which_only_the_settings_were_begun_can_start(tmp_path: Path) -> None:
    (tmp_path / ".settings.json.4194000.partial").write_text('{"sett')
    run = RunFolder.create(tmp_path, {"train": {}})
    assert [path.name for path in run.path.iterdir()] == ["settings.json"]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model, a corpus and texts in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_base_model(tmp_path / "model")
    Path("text.txt").write_text("the plot was good .\nthe film was bad .\n\nit was good .\nthe end .\n" * 6)
    build_corpus([Path("text.txt")], TOKENIZER, Path("corpus"), workers=1)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    "typed",
    [
        "embed text.txt --model model --out out.npy",
        "features text.txt --model model --out out.parquet",
        "search text.txt --model model --query plot --index out.index",
        "pretrain corpus --size tiny --steps 1 --device cpu --precision fp32 --out out",
        "finetune --model model --task spam --max-length 16 --out out",
        "demo --text text.txt --out out",
    ],
)
def test_every_command_that_writes_over_time_refuses_what_another_process_writes(
    tmp_path: Path, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bertsmith.app.cli.app import main

    out = Path(typed.rsplit(maxsplit=1)[-1])
    monkeypatch.setattr(sys, "argv", ["bertsmith", *typed.split()])
    with another_process("locked_file" if out.suffix else "locked_folder", out) as process:
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 1
        assert f"found process {process.pid};" in capsys.readouterr().err
        assert not out.exists() or is_unused(out)


@pytest.mark.usefixtures("inputs")
def test_a_search_for_settings_is_locked_in_its_own_folder(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    from bertsmith.app.library.finetuning import finetune

    with (
        another_process("locked_folder", search_folder(Path("out"))) as process,
        pytest.raises(BertsmithError, match=f"found process {process.pid};"),
    ):
        finetune("model", "spam", "out", search=True, max_length=16)


@pytest.mark.parametrize(
    ("file", "fix"),
    [
        ("notes.txt", "not empty; name another folder"),
        ("settings.json", "resume it with --resume or name another folder"),
        ("seed-1/settings.json", "resume it with --resume or name another folder"),
    ],
)
def test_only_a_run_is_to_be_resumed(tmp_path: Path, file: str, fix: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(RunError, match=fix):
        require_new_run(tmp_path)
