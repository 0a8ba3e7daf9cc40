"""The C library's allocator, where the same large arrays are freed and needed again and again.

glibc maps large arrays when they are allocated and unmaps them when they are freed: those of more than 128 KiB at
first, those of more than 32 MiB in any case (`M_MMAP_THRESHOLD` in mallopt(3)). The kernel then clears each of their
pages every time. For the logits of a language model with a large vocabulary, that is half of the time of a step.
"""

import contextlib
import ctypes
from collections.abc import Iterator

import numpy as np

_KEPT_BYTES = 16 << 20
# Parameters of mallopt in malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER = -1  # for the trim threshold
# What glibc itself arrives at: the largest threshold of a program that has freed large arrays, and the most mappings.
_LARGEST_THRESHOLD, _MOST_MAPPINGS = 32 << 20, 65_536


def keep_freed_memory() -> None:
    """Returns after telling the C library to keep freed memory of some megabytes for the next block of text.

    Without this, mapping takes a third of the time of tokenizing. Freeing a larger array once is enough; the one here
    is never written, so it takes no memory.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


@contextlib.contextmanager
def kept_memory() -> Iterator[None]:
    """Within the block, the C library keeps freed memory of any size; afterwards it returns what is free.

    Without glibc nothing changes.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallopt") or not hasattr(library, "malloc_trim"):
        yield
        return
    library.mallopt(_MMAP_MAX, 0)
    library.mallopt(_TRIM_THRESHOLD, _NEVER)
    try:
        yield
    finally:
        library.mallopt(_MMAP_MAX, _MOST_MAPPINGS)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_THRESHOLD)
        library.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD)
        library.malloc_trim(0)
