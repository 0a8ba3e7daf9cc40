"""Local copies of what is at an address, in the memory of this process: complete, current, and bounded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from bertsmith import downloads
from bertsmith.checkpoints.load import load_any
from bertsmith.downloads import local_copy
from bertsmith.errors import ConfigError, InputError
from bertsmith.remote import Found
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
    found = {path.relative_to(copy).as_posix(): path.read_text() for path in copy.rglob("*") if path.is_file()}
    assert found == {name: name for name in ("config.json", "1_Pooling/config.json")}


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
    assert [one.exists() for one in places] == [True, False, True]
    with pytest.raises(InputError, match=r"expected at most 30 bytes at 'memory://box/b'; found 40"):
        local_copy("memory://box/b", limit=30)


def test_nothing_at_the_address_is_one_line(memory: Any) -> None:
    with pytest.raises(InputError, match="expected a file or folder at 'memory://box/none'; found nothing there"):
        local_copy("memory://box/none")


def test_a_model_is_loaded_from_an_address(tmp_path: Path, memory: Any) -> None:
    write_base_model(tmp_path / "base")
    memory.put(str(tmp_path / "base"), "/box/base", recursive=True)
    found, expected = load_any("memory://box/base"), load_any(tmp_path / "base")
    assert found.config == expected.config
    assert all(bool((found.tensors[name] == value).all()) for name, value in expected.tensors.items())


@pytest.mark.parametrize("name", ["../../escaped", "a/../../../escaped", "/tmp/escaped"])
def test_names_that_lead_out_of_the_copy_are_refused(
    name: str, tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage such as S3 accepts them."""
    memory.pipe_file("/box/model/config.json", b"{}")
    files = [Found("memory://box/model/config.json", 2, "", inside) for inside in ("config.json", name)]
    monkeypatch.setattr(downloads, "find_files", lambda address: (files, True))
    with pytest.raises(InputError, match=f"names of files inside 'memory://box/model'; found '{name}'") as caught:
        local_copy("memory://box/model")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*"))


def test_an_address_whose_host_is_missing_is_refused(memory: Any) -> None:
    with pytest.raises(ConfigError, match="expected the host of an address"):
        local_copy("hdfs:///models/spam")
