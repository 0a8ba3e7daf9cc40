"""64-bit hashes of runs of tokens and their counts, computed on whole arrays.

A run of tokens t0, t1, ... has the hash `mix(sum of word(t_i) * P**i)` modulo 2**64, where `word` is a pseudo-random
number for each id. Two different runs collide with a probability of about 1 in 10**19; among a billion runs a collision
is unlikely.
"""

import hashlib
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import GOLDEN, Words, mix

Hashes = Words
Lengths = npt.NDArray[np.int64]

_FIRST_MERGE = 2**20
MOST_COUNTED = 2**23
DRAWS = 2**64  # a document is held out if its draw is below the held-out share of this


def sentence_key(sentence: str) -> int:
    """The checksum of a sentence; the sum over a document determines whether it is held out."""
    return zlib.crc32(sentence.encode("utf-8", "surrogatepass"))


def draw_of(key: int) -> int:
    """The draw of a document, from 0 to below `DRAWS`, from the sum of the checksums of its sentences."""
    mixed = hashlib.blake2b((key % DRAWS).to_bytes(8, "little"), digest_size=8).digest()
    return int.from_bytes(mixed, "little")


def _powers(count: int) -> Hashes:
    powers = np.full(count, GOLDEN, dtype=np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def run_hashes(values: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Hashes:
    """The hash of each run of consecutive `values` (ids or hashes), uint64 [runs].

    Args:
        lengths: the length of each run, none of them 0; their sum is T.
    """
    if not len(lengths):
        return np.empty(0, dtype=np.uint64)
    lengths = lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    places = np.arange(len(values)) - np.repeat(starts, lengths)
    words = mix(values.astype(np.uint64) + np.uint64(1))
    sums = np.add.reduceat(words * _powers(int(lengths.max()))[places], starts, dtype=np.uint64)
    return mix(sums + lengths.astype(np.uint64))


def gram_hashes(values: npt.NDArray[Any], lengths: npt.NDArray[Any], size: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """The hashes of all n-grams of length `size` inside runs, and the index of the run of each."""
    lengths = lengths.astype(np.int64)
    count = len(values) - size + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    words = mix(values.astype(np.uint64) + np.uint64(1))
    sums = np.zeros(count, dtype=np.uint64)
    for position, power in enumerate(_powers(size)):
        sums += words[position : position + count] * power
    runs = np.repeat(np.arange(len(lengths)), lengths)
    inside = runs[:count] == runs[size - 1 :]
    return mix(sums[inside]), runs[:count][inside]


def without(values: npt.NDArray[Any], lengths: npt.NDArray[Any], value: int) -> tuple[npt.NDArray[Any], Lengths]:
    """Runs without a value, which ends a run: (the other values, the lengths of the runs between them).

    >>> [one.tolist() for one in without(np.array([5, 1, 6, 7, 8, 1]), np.array([4, 2]), 1)]
    [[5, 6, 7, 8], [1, 2, 1]]
    """
    stays = values != value
    is_edge = np.append(~stays, True)
    is_edge[np.cumsum(lengths, dtype=np.int64) - lengths] = True
    counts = np.diff(np.concatenate([[0], np.cumsum(stays)])[np.flatnonzero(is_edge)])
    return values[stays], counts[counts > 0]


def has(values: npt.NDArray[Any], lengths: npt.NDArray[Any], value: int) -> npt.NDArray[np.bool_]:
    """Whether each run has a value, bool [runs].

    >>> has(np.array([5, 1, 6]), np.array([2, 1]), 1).tolist()
    [True, False]
    """
    counts = np.concatenate([[0], np.cumsum(values == value)])
    ends = np.cumsum(lengths, dtype=np.int64)
    result: npt.NDArray[np.bool_] = counts[ends] > counts[ends - lengths.astype(np.int64)]
    return result


class HashCounts:
    """How often each hash was added. Memory is proportional to the number of distinct hashes, about 40 bytes each.

    Args:
        expected: the number of hashes that will be added. If it exceeds `MOST_COUNTED`, only hashes divisible by
            `one_in`, a power of two, are counted: a fair sample, in which every hash keeps its full count.
    """

    def __init__(self, expected: int) -> None:
        self.one_in = 1
        while expected > self.one_in * MOST_COUNTED:
            self.one_in *= 2
        self.total = 0
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._counts: npt.NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._waiting: list[Hashes] = []
        self._size = 0

    def add(self, hashes: Hashes) -> None:
        """Adds one occurrence of each of `hashes`."""
        if self.one_in > 1:
            hashes = hashes[hashes % np.uint64(self.one_in) == 0]
        self.total += len(hashes)
        self._waiting.append(hashes)
        self._size += len(hashes)
        # Merging only once as many hashes wait as are merged already keeps the work near n log n.
        if self._size >= max(_FIRST_MERGE, len(self._hashes)):
            self._merge()

    @property
    def repeated(self) -> int:
        """The number of additions of an already known hash; an estimate if only a sample is counted."""
        return (self.total - len(self.finish()[0])) * self.one_in

    def finish(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """The distinct hashes, sorted, and how often each was added."""
        self._merge()
        return self._hashes, self._counts

    def _merge(self) -> None:
        fresh = np.sort(np.concatenate([np.empty(0, np.uint64), *self._waiting]))
        begins = first_places(fresh)
        hashes = np.concatenate([self._hashes, fresh[begins]])
        counts = np.concatenate([self._counts, np.diff(begins, append=len(fresh))])
        order = np.argsort(hashes, kind="stable")
        hashes, counts = hashes[order], counts[order]
        begins = first_places(hashes)
        self._hashes = hashes[begins]
        self._counts = np.add.reduceat(counts, begins) if len(begins) else counts
        self._waiting, self._size = [], 0


class HashSet:
    """A set of hashes to look up in large arrays."""

    def __init__(self, hashes: Hashes) -> None:
        hashes = np.sort(hashes)
        self.hashes = hashes[first_places(hashes)]
        # Most lookups miss. A table indexed by the highest bits rules out nearly all of these.
        bits = max(16, min(27, 4 + len(self.hashes).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(2**bits, dtype=np.bool_)
        self._table[self.hashes >> self._shift] = True

    def __len__(self) -> int:
        return len(self.hashes)

    def places(self, values: Hashes) -> npt.NDArray[np.int64]:
        """The position of each of `values` in `hashes`, int64; -1 if it is absent."""
        places = np.full(len(values), -1, dtype=np.int64)
        likely = np.flatnonzero(self._table[values >> self._shift])
        if len(likely):
            likely = likely[np.argsort(values[likely])]  # sorted lookups are cache-friendly
            nearest = np.minimum(np.searchsorted(self.hashes, values[likely]), len(self.hashes) - 1)
            same = self.hashes[nearest] == values[likely]
            places[likely[same]] = nearest[same]
        return places


def first_places(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The positions in sorted `values` where a new value begins."""
    # `numpy.unique` would do, but since NumPy 2.3 it uses a hash table, which is many times slower here.
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]]))
