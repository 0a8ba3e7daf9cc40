"""The memory of building, extending, compacting and searching an index."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import build_index, compact_index
from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.randomness import generator
from bertsmith.base.machine.allocator import own_bytes
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.search.cells import cell_bytes, new_cells, rows_within

WIDTH, ROWS, MEMORY = 256, 40_000, 90
_OTHERS = 12  # megabytes that Python and Arrow take while they read rows


def write_vectors(path: Path, rows: int, seed: int) -> Path:
    """A file of vectors around random centers, float16."""
    random = generator(5, "vectors", seed)
    centers = random.standard_normal((200, WIDTH), np.float32)
    vectors = np.lib.format.open_memmap(path, "w+", np.float16, (rows, WIDTH))
    for start in range(0, rows, 10_000):
        part = vectors[start : start + 10_000]
        part[:] = centers[random.integers(200, size=len(part))] + random.standard_normal(part.shape, np.float32)
    return path


def growth(step: Callable[[], Any]) -> float:
    """The largest growth of this process during a step, in megabytes, without pages of files."""
    before, samples, is_over = own_bytes(), [0], threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            samples.append(own_bytes() - before)
            time.sleep(0.002)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        step()
    finally:
        is_over.set()
        watching.join()
    return max(samples) / 1e6


def steps(folder: Path) -> dict[str, float]:
    """The growth of this process in each step of the life of an index."""
    vectors, more, few = (
        write_vectors(folder / f"{rows}.npy", rows, number) for number, rows in enumerate((ROWS, 10_000, 1000))
    )
    build_index(few, folder / "first", memory=MEMORY)  # loads what all of them load
    new_cells(np.load(few).astype(np.float32), 0)
    index = folder / "index"
    queries = np.asarray(np.load(vectors, mmap_mode="r")[:300], np.float32)
    return {
        "build": growth(lambda: build_index(vectors, index, memory=MEMORY)),
        "add": growth(lambda: build_index(more, index, add=True, memory=MEMORY)),
        "compact": growth(lambda: compact_index(index, memory=MEMORY)),
        "search": growth(lambda: Index(index).search(queries / np.linalg.norm(queries, axis=1, keepdims=True), 10)),
    }


@pytest.mark.skipif(not own_bytes(), reason="the system does not say how much memory a process has")
def test_an_index_is_built_and_changed_in_the_memory_that_is_allowed(tmp_path: Path) -> None:
    assert cell_bytes(ROWS, WIDTH) / 1e6 > MEMORY + _OTHERS, "as one segment it would take more"
    imports = "import json, sys; from indexes.test_index_memory import Path, steps"
    code = f"{imports}; print(json.dumps(steps(Path(sys.argv[1]))))"
    command = [sys.executable, "-c", code, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout.splitlines()[-1])
    assert {name for name, megabytes in taken.items() if megabytes > MEMORY + _OTHERS} == set(), taken
    segments = Manifest.read(tmp_path / "index").segments
    assert len(segments) == 2
    assert segments[0].probes


@pytest.mark.parametrize("width", [16, 256, 1024])
def test_as_many_rows_are_in_a_segment_as_memory_allows(width: int) -> None:
    for memory in (300, 1000, 5000):
        rows = rows_within(memory, width, 2**24)
        assert cell_bytes(rows, width) <= memory * 1e6 < cell_bytes(rows + 1, width) or rows == 2**24
        assert rows_within(memory, width, 1000) == 1000


def test_less_memory_than_a_segment_with_cells_takes_is_refused(tmp_path: Path) -> None:
    file = write_vectors(tmp_path / "x.npy", 20, 0)
    with pytest.raises(ConfigError, match=r"memory. of at least 86 for vectors of width 256; found 2"):
        build_index(file, tmp_path / "index", memory=2)
    assert not (tmp_path / "index").exists()
