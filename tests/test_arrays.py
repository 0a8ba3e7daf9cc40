"""Arrays in .npy files."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.base.storage import arrays
from bertsmith.base.storage.arrays import load_array


def test_an_array_is_mapped_or_read(tmp_path: Path) -> None:
    path, numbers = tmp_path / "a.npy", np.arange(6).reshape(2, 3)
    np.save(path, numbers)
    mapped, read = load_array(path), load_array(path, None)
    assert (isinstance(mapped, np.memmap), isinstance(read, np.memmap)) == (True, False)
    assert np.array_equal(mapped, numbers)
    assert np.array_equal(read, numbers)
    load_array(path, "r+")[0, 0] = 7
    assert load_array(path)[0, 0] == 7


@pytest.mark.parametrize("shape", [b"(3i,", b"(3, ", b"<3,)"])
def test_a_damaged_header_is_a_value_error(tmp_path: Path, shape: bytes) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(3))
    path.write_bytes(path.read_bytes().replace(b"(3,)", shape, 1))
    with pytest.raises(ValueError, match="a damaged header"):
        load_array(path)


def test_headers_are_parsed_by_one_thread_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, load, several = tmp_path / "a.npy", np.load, threading.Barrier(2)
    np.save(path, np.arange(3))

    def watched(*arguments: Any, **options: Any) -> Any:
        with pytest.raises(threading.BrokenBarrierError):
            several.wait(0.1)  # for a second thread, which must not come
        several.reset()
        return load(*arguments, **options)

    monkeypatch.setattr(arrays.np, "load", watched)
    with ThreadPoolExecutor(2) as pool:
        assert [len(array) for array in pool.map(load_array, [path] * 2)] == [3, 3]
