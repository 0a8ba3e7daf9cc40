"""The C library's allocator, where the same large arrays are freed and needed again and again.

glibc maps large arrays when they are allocated and unmaps them when they are freed: those of more than 128 KiB at
first, those of more than 32 MiB in any case (`M_MMAP_THRESHOLD` in mallopt(3)). The kernel then clears each of their
pages every time. For the logits of a language model over a vocabulary, that is up to half of the time of a step.
"""

import ctypes
import os
from pathlib import Path
from typing import Self

import numpy as np

from bertsmith.base.machine.runtime import Rank, memory_bytes

_KEPT_BYTES = 31 << 20  # just below the largest threshold, in which glibc counts its own bytes
# Parameters of mallopt in malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER = -1  # for the trim threshold
_SETTLED = 100  # checks, one per step, after which the process has what its steps need
_MOST_TIMES = 1.5  # what it had then
# What glibc itself arrives at: the largest threshold of a program that has freed large arrays, and the most mappings.
_LARGEST_THRESHOLD, _MOST_MAPPINGS = 32 << 20, 65_536


def keep_freed_memory() -> None:
    """Returns after telling the C library to keep freed memory, up to twice `_KEPT_BYTES`, for the next arrays.

    Without this, mapping takes a third of the time of tokenizing, and a hundredth or two of that of encoding in int8.
    Freeing a larger array once is enough; the one here is never written, so it takes no memory.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def return_freed_memory() -> None:
    """Returns once the C library has given freed pages to the kernel; without glibc, immediately.

    Each thread allocates from an area of its own, and a page is returned by itself only at the end of that area. A
    server of an index then grew by 50 MB in a few hundred searches; this takes some milliseconds.
    """
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _c_library() -> "ctypes.CDLL | None":
    """The C library of the process; None on Windows, which has no name for the process itself."""
    return ctypes.CDLL(None) if os.name == "posix" else None


def own_bytes(process: int | str = "self") -> int:
    """The resident memory of a process without pages of files, such as shards; 0 where the system does not say."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


class KeptMemory:
    """Within its block, the C library keeps freed memory of any size; afterwards it returns what is free.

    A process then takes more memory: up to 1.7 times as much in ten steps (`benchmarks/training_memory.py`). In glibc
    2.36 the place of a freed tensor, which is aligned, is often too small for the next one of the same size. In the
    hours of a training, such places add up. `check` returns them when the process has grown by half since its first
    steps.

    The setting holds for the whole process. If two blocks overlap, in one thread or in several, the first that ends
    ends it for both. Threads other than the main one still map arrays of more than 64 MiB. What the user has set with
    `MALLOC_MMAP_MAX_` and the like cannot be read, so it is lost. Without glibc nothing changes.

    Args:
        most: bytes of the process above which `check` goes back to the C library's own way; by default half of the
            machine's memory, divided by the processes that `torchrun` started on it; 0: never.
    """

    def __init__(self, most: int | None = None) -> None:
        library = _c_library()
        self._library = library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
        share = memory_bytes() // 2 // Rank.from_environment().local_count
        self.most = share if most is None else most
        self._keeps = False
        self._checks, self._usual = 0, 0

    def __enter__(self) -> Self:
        """Itself; the process keeps memory from now on."""
        if self._library is not None:
            self._library.mallopt(_MMAP_MAX, 0)
            self._library.mallopt(_TRIM_THRESHOLD, _NEVER)
            self._keeps = True
        return self

    def __exit__(self, *error: object) -> None:
        """Returns what is free."""
        self._end()

    def check(self) -> None:
        """Ends keeping memory if the process has too much, and returns what adds up; to be called after each step."""
        if not self._keeps or self._library is None:
            return
        taken = own_bytes()
        self._checks += 1
        if self.most and taken > self.most:
            self._end()
        elif self._checks == _SETTLED:
            self._usual = taken
        elif self._checks > _SETTLED and taken > _MOST_TIMES * self._usual:
            self._library.malloc_trim(0)  # a twentieth of a second for a gigabyte
            self._checks = 0  # the next steps show what they need now

    def _end(self) -> None:
        """From now on, large arrays are mapped and unmapped again; what is free is returned to the kernel."""
        if self._keeps and self._library is not None:
            self._keeps = False
            self._library.mallopt(_MMAP_MAX, _MOST_MAPPINGS)
            self._library.mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
            self._library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)
            self._library.malloc_trim(0)
