"""Counter-based random numbers: many small draws at once, each a pure function of its key and index.

A step of 256 rows needs about 60,000 draws, each of which depends on its instance alone. A generator per instance would
cost more than the rest of the data work, so the draws are *counted*: draw `c` of an instance is output `c + 1` of
splitmix64 seeded with the instance's key, which can be computed without the earlier outputs.
"""

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import GOLDEN, Words, derive, mix


def fold(keys: Words, index: npt.NDArray[np.integer]) -> Words:
    """One key per (key, index) pair: output `index + 1` of splitmix64 seeded with the key."""
    return mix(keys + GOLDEN * (index.astype(np.uint64) + np.uint64(1)))


def instance_keys(
    seed: int, pass_number: int, documents: npt.NDArray[np.integer], ordinals: npt.NDArray[np.integer]
) -> Words:
    """The keys of instances, uint64 [N], from their documents and their ordinals in the document, int [N] each."""
    base = np.full(len(documents), derive(seed, "instance", pass_number), dtype=np.uint64)
    return fold(fold(base, documents), ordinals)


def purpose_keys(keys: Words, purpose: str) -> Words:
    """The instances' keys for one purpose; draws for different purposes are independent."""
    return mix(keys ^ np.uint64(derive(0, purpose)))


def count_heads(keys: Words, purpose: str, tosses: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The number of heads in `tosses` fair coin tosses, int64 [N]; the tosses of a row are the bits of its draws.

    >>> keys = instance_keys(0, 0, np.arange(3), np.zeros(3, dtype=np.int64))
    >>> count_heads(keys, "example", np.array([0, 1000, 2]))
    array([  0, 505,   1])
    """
    tosses = tosses.astype(np.int64)
    words = (tosses + 63) // 64
    row = np.repeat(np.arange(len(tosses)), words)
    column = np.arange(len(row)) - np.repeat(np.cumsum(words) - words, words)
    bits = fold(purpose_keys(keys, purpose)[row], column)
    unused = np.clip(64 * (column + 1) - tosses[row], 0, 63).astype(np.uint64)
    counts = np.bitwise_count(bits >> unused).astype(np.int64)
    return np.bincount(row, weights=counts, minlength=len(tosses)).astype(np.int64)
