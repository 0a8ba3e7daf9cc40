"""Local copies of what is at an address, in the memory of this process: complete, current, and bounded."""

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from bertsmith.app.library.training import pretrain
from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.storage import downloads
from bertsmith.base.storage.downloads import local_copy
from bertsmith.base.storage.locks import locked_file
from bertsmith.base.storage.remote import Found
from bertsmith.models.checkpoints.hub import resolve
from bertsmith.models.checkpoints.load import load_any
from bertsmith.training.planning.run import plan_pretraining
from tasks.task_samples import write_base_model


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(downloads, "CACHE", tmp_path / "cache")
    system = fsspec.filesystem("memory")
    yield system
    for name in system.ls("/", detail=False):
        system.rm(name, recursive=True)


def test_a_path_on_a_disk_is_its_own_copy(tmp_path: Path, memory: Any) -> None:
    assert local_copy(tmp_path / "a.txt") == tmp_path / "a.txt"
    assert not (tmp_path / "cache").exists()


def test_a_file_is_downloaded_once_and_again_when_it_has_changed(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/box/vocab.txt", b"one")
    first = local_copy("memory://box/vocab.txt")
    assert (first.name, first.read_bytes()) == ("vocab.txt", b"one")
    with monkeypatch.context() as patch:
        patch.setattr(downloads, "open_address", lambda address: pytest.fail("downloaded twice"))
        assert local_copy("memory://box/vocab.txt") == first
    memory.pipe_file("/box/vocab.txt", b"two")
    assert local_copy("memory://box/vocab.txt").read_bytes() == b"two"


def test_a_folder_keeps_its_shape(memory: Any) -> None:
    for name in ("config.json", "1_Pooling/config.json"):
        memory.pipe_file(f"/box/model/{name}", name.encode())
    copy = local_copy("memory://box/model/")
    assert copy.name == "model"
    contents = {path.relative_to(copy).as_posix(): path.read_text() for path in copy.rglob("*") if path.is_file()}
    assert contents == {name: name for name in ("config.json", "1_Pooling/config.json")}


def test_a_download_that_fails_leaves_nothing(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        memory.pipe_file(f"/box/model/{name}", b"12345")
    real = downloads.open_address

    def failing(address: str) -> Any:
        if address.endswith("b"):
            raise InputError(expected="a file", found="none", fix="check the address")
        return real(address)

    with monkeypatch.context() as patch:
        patch.setattr(downloads, "open_address", failing)
        with pytest.raises(InputError, match="found none"):
            local_copy("memory://box/model")
    assert list((tmp_path / "cache").iterdir()) == []
    assert len(list(local_copy("memory://box/model").iterdir())) == 2


def test_the_copies_together_are_bounded(tmp_path: Path, memory: Any) -> None:
    places = []
    for number, name in enumerate("abc"):
        memory.pipe_file(f"/box/{name}", b"1" * 40)
        if number < 2:
            places.append(local_copy(f"memory://box/{name}", limit=100))
            os.utime(places[-1].parent, (number, number))
    local_copy("memory://box/a", limit=100)  # used again, so the other one goes
    places.append(local_copy("memory://box/c", limit=100))
    assert [copied.exists() for copied in places] == [True, False, True]
    with pytest.raises(InputError, match=r"expected at most 30 bytes at 'memory://box/b'; found 40"):
        local_copy("memory://box/b", limit=30)


def test_nothing_at_the_address_is_one_line(memory: Any) -> None:
    with pytest.raises(InputError, match="expected a file or folder at 'memory://box/none'; found nothing there"):
        local_copy("memory://box/none")


def test_a_model_is_loaded_from_an_address(tmp_path: Path, memory: Any) -> None:
    write_base_model(tmp_path / "base")
    memory.put(str(tmp_path / "base"), "/box/base", recursive=True)
    loaded, expected = load_any("memory://box/base"), load_any(tmp_path / "base")
    assert loaded.config == expected.config
    assert all(bool((loaded.tensors[name] == value).all()) for name, value in expected.tensors.items())


@pytest.mark.parametrize("name", ["../../escaped", "a/../../../escaped", "/tmp/escaped"])
def test_names_that_lead_out_of_the_copy_are_refused(
    name: str, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage such as S3 accepts them."""
    memory.pipe_file("/box/model/config.json", b"{}")
    files = [Found("memory://box/model/config.json", 2, "", inside) for inside in ("config.json", name)]
    monkeypatch.setattr(downloads, "find_files", lambda address: (files, True))
    with pytest.raises(InputError, match=f"names of files inside 'memory://box/model'; found '{name}'"):
        local_copy("memory://box/model")
    assert not list(tmp_path.rglob("*"))


def test_an_address_whose_host_is_missing_is_refused(memory: Any) -> None:
    with pytest.raises(ConfigError, match="expected the host of an address"):
        local_copy("hdfs:///models/spam")


def test_a_copy_that_is_deleted_meanwhile_is_downloaded_again(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/box/a", b"one")
    copy = local_copy("memory://box/a")
    real = Path.stat

    def deleted(path: Path, **options: Any) -> os.stat_result:
        shutil.rmtree(copy.parent, ignore_errors=True)
        return real(path, **options)

    with monkeypatch.context() as patch:  # while room is made for another one
        patch.setattr(Path, "stat", deleted)
        memory.pipe_file("/box/b", b"two")
        assert local_copy("memory://box/b").read_bytes() == b"two"
    assert not copy.exists()
    assert local_copy("memory://box/a").read_bytes() == b"one"


def test_a_copy_in_use_stays_whatever_the_limit(memory: Any) -> None:
    for name in "ab":
        memory.pipe_file(f"/box/{name}", b"1" * 40)
    used, locked = (local_copy(f"memory://box/{name}", limit=60) for name in "ab")
    assert used.exists()
    os.utime(locked.parent, (0, 0))
    memory.pipe_file("/box/c", b"1" * 40)
    with locked_file(locked.parent):  # another process is about to return it
        local_copy("memory://box/c", limit=60)
    assert locked.exists()
    memory.pipe_file("/box/d", b"1" * 40)
    local_copy("memory://box/d", limit=60)
    assert (used.exists(), locked.exists()) == (True, False)


def test_a_second_process_waits_for_the_copy_of_the_first(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.pipe_file("/box/a", b"one")
    real, begun, places = downloads.open_address, threading.Event(), []

    def counted(address: str) -> Any:
        assert not begun.is_set(), "downloaded twice"
        begun.set()
        second.start()
        second.join(0.2)
        assert second.is_alive()
        return real(address)

    second = threading.Thread(target=lambda: places.append(local_copy("memory://box/a")))
    monkeypatch.setattr(downloads, "open_address", counted)
    first = local_copy("memory://box/a")
    second.join()
    assert places == [first]


def test_training_and_planning_refuse_a_corpus_whose_host_is_missing(tmp_path: Path) -> None:
    for use in (lambda: pretrain("hdfs:///corpus", tmp_path / "run"), lambda: plan_pretraining("hdfs:///corpus")):
        with pytest.raises(ConfigError, match="expected the host of an address"):
            use()
    assert not (tmp_path / "run").exists()


def test_offline_a_model_at_an_address_is_read_from_its_copy_or_refused(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model", "other"):
        memory.pipe_file(f"/box/{name}/config.json", b"{}")
    copy = resolve("memory://box/model", cache=tmp_path / "mine")
    assert copy.is_relative_to(tmp_path / "mine/copies")
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(downloads, "find_files", lambda address: pytest.fail("asked the storage"))
    assert resolve("memory://box/model/", cache=tmp_path / "mine", offline=True) == copy
    for address, cache in (("memory://box/other", tmp_path / "mine"), ("memory://box/model", None)):
        with pytest.raises(InputError, match=f"expected a copy of '{address}' in '.*'; found none; make it once"):
            resolve(address, cache=cache, offline=True)
