"""Memory that a training frees is there for its next step, without the kernel, and is returned at the end."""

import ctypes
import mmap
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.base.machine import allocator, runtime
from bertsmith.base.machine.allocator import KeptMemory, keep_freed_memory, own_bytes, return_freed_memory
from bertsmith.models.products import prepared

BYTES, PAGE = 64 * 2**20, resource.getpagesize()
LIBRARY = ctypes.CDLL(None)
LIBRARY.malloc.restype = ctypes.c_void_p
LIBRARY.free.argtypes = [ctypes.c_void_p]
LIBRARY.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]

glibc_only = pytest.mark.skipif(not hasattr(LIBRARY, "mallopt"), reason="the C library is not glibc")


def faults_of_an_array() -> int:
    """The pages that the kernel has to map for an array of 64 MB that is written and freed."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    address = LIBRARY.malloc(BYTES)
    LIBRARY.memset(address, 1, BYTES)
    LIBRARY.free(address)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@glibc_only
def test_a_large_array_is_mapped_once() -> None:
    with KeptMemory():
        faults_of_an_array()
        again = [faults_of_an_array() for _ in range(5)]
    assert max(again) < BYTES / PAGE / 100, again


@glibc_only
def test_freed_memory_is_returned_at_the_end() -> None:
    program = f"""
import sys; sys.path[:0] = {sys.path!r}
from pathlib import Path
from bertsmith.base.machine.allocator import KeptMemory, keep_freed_memory, own_bytes
from bertsmith.models.products import prepared
from test_allocator import faults_of_an_array, PAGE

def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

before = resident()
with KeptMemory():
    faults_of_an_array()
    kept = resident()
print(before, kept, resident())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    before, kept, after = map(int, done.stdout.split())
    assert kept - before > BYTES / 2, "the array is kept"
    assert after - before < BYTES / 2, "nothing of it is left"


def in_a_new_process(function: str) -> None:
    """Runs a function of this file where no earlier test has left holes in the heap, which arrays would be put into."""
    program = f"import sys; sys.path[:0] = {sys.path!r}; import test_allocator; test_allocator.{function}"
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def too_much_memory_ends_it() -> None:
    with KeptMemory(most=1) as memory:
        memory.check()
        again = [faults_of_an_array() for _ in range(5)]
    with KeptMemory(most=2**60) as memory:
        memory.check()
        faults_of_an_array()
        kept = [faults_of_an_array() for _ in range(5)]
    assert max(kept) < min(again), (kept, again)


@glibc_only
def test_too_much_memory_ends_it() -> None:
    in_a_new_process("too_much_memory_ends_it()")


def test_processes_on_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert KeptMemory().most == runtime.memory_bytes() // 8


def test_without_glibc_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    with KeptMemory() as memory:
        memory.check()
    return_freed_memory()


def freed_pages_between_others_are_returned() -> None:
    size, count = 16 * PAGE, 1024
    addresses = [LIBRARY.malloc(size) for _ in range(count)]
    for address in addresses:
        LIBRARY.memset(address, 1, size)
    for address in addresses[::2]:
        LIBRARY.free(address)
    freed = own_bytes()
    return_freed_memory()
    assert freed - own_bytes() > size * count / 4
    for address in addresses[1::2]:
        LIBRARY.free(address)


@glibc_only
def test_freed_pages_between_others_are_returned() -> None:
    in_a_new_process("freed_pages_between_others_are_returned()")


def pages_of_a_file_do_not_count(path: Path) -> None:
    path.write_bytes(bytes(BYTES))
    before = own_bytes()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        assert sum(pages[::PAGE]) == 0
        mapped = own_bytes()
    array = bytearray(b"1") * BYTES
    assert mapped - before < BYTES / 2 < own_bytes() - before
    assert len(array) == BYTES


@glibc_only
def test_pages_of_a_file_do_not_count(tmp_path: Path) -> None:
    in_a_new_process(f"pages_of_a_file_do_not_count(test_allocator.Path({str(tmp_path / 'shard')!r}))")


def the_first_of_two_overlapping_blocks_ends_it_for_both() -> None:
    with KeptMemory():
        with KeptMemory():
            faults_of_an_array()
            kept = faults_of_an_array()
        ended = faults_of_an_array()
    assert kept < BYTES / PAGE / 100
    assert ended > BYTES / PAGE / 2


@glibc_only
def test_the_first_of_two_overlapping_blocks_ends_it_for_both() -> None:
    in_a_new_process("the_first_of_two_overlapping_blocks_ends_it_for_both()")


def test_the_memory_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "CONTAINER_LIMITS", (str(tmp_path / "absent"),))
    whole = runtime.memory_bytes()
    for number, (text, expected) in enumerate(
        [(f"{whole // 2}\n", whole // 2), ("max\n", whole), (f"{2**62}\n", whole)]
    ):
        limit = tmp_path / f"memory{number}.max"
        limit.write_text(text, encoding="ascii")
        monkeypatch.setattr(runtime, "CONTAINER_LIMITS", (str(limit), str(tmp_path / "absent")))
        assert runtime.memory_bytes() == expected
        limit.unlink()
        assert runtime.memory_bytes() == expected, "it is read once"


def arrays_of_some_megabytes_are_kept() -> None:
    def faults_of_layers() -> int:
        # Two arrays of 9 MB at a time, as of a layer's queries, keys and values, and its results.
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            arrays = [np.ones(9 << 20, np.uint8) for _ in range(4)]
            del arrays
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    counts = [faults_of_layers() for _ in range(3)]
    keep_freed_memory()
    faults_of_layers()
    kept = [faults_of_layers() for _ in range(3)]
    assert max(kept) * 10 < min(counts), (kept, counts)


@glibc_only
def test_arrays_of_some_megabytes_are_kept() -> None:
    in_a_new_process("arrays_of_some_megabytes_are_kept()")


def test_a_prepared_model_keeps_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(prepared, "keep_freed_memory", lambda: calls.append(1))
    prepared.prepare(torch.nn.Linear(2, 2), runtime.choose("cpu", "fp32"))
    assert calls


def test_memory_that_adds_up_is_returned_when_the_process_has_grown_by_half(monkeypatch: pytest.MonkeyPatch) -> None:
    class Process:
        """The bytes of a process, and the C library that returns some of them."""

        taken = left = trimmed = 0

        def mallopt(self, name: int, value: int) -> int:
            return 1

        def malloc_trim(self, pad: int) -> int:
            self.trimmed += 1
            self.taken = self.left
            return 1

    process = Process()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: process)
    monkeypatch.setattr(allocator, "own_bytes", lambda: process.taken)
    first_steps = [(taken, 0, 0) for taken in (50, 9_000, *[1_000] * 98)]
    later = [(1_499, 0, 0), (1_501, 400, 1), *[(1_800, 0, 1)] * 100, (2_699, 0, 1), (2_701, 500, 2)]
    end = [(10_001, 0, 3), (9_000, 0, 3)]
    with KeptMemory(most=10_000) as memory:
        for process.taken, process.left, trims in (*first_steps, *later, *end):
            taken = process.taken
            memory.check()
            assert process.trimmed == trims, taken
