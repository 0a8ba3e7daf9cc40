"""64-bit hashes of runs of tokens, and how often each comes: whole arrays at a time.

A run of tokens t0, t1, ... has the hash `mix(sum of word(t_i) * P**i)` modulo 2**64, where `word` is a random number
for each id. Two different runs share a hash with a chance of about 1 in 10**19; among a billion runs a wrong pair is
unlikely.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.randomness import GOLDEN, Words, mix

Hashes = Words

_FIRST_MERGE = 2**20
MOST_COUNTED = 2**23


def _powers(count: int) -> Hashes:
    powers = np.full(count, GOLDEN, dtype=np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def run_hashes(values: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Hashes:
    """The hash of each run of consecutive `values` (ids or hashes), uint64 [runs].

    Args:
        values: unsigned [T].
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
    """The hashes of all n-grams of `size` inside runs, and the run that each lies in."""
    lengths = lengths.astype(np.int64)
    count = len(values) - size + 1
    if count <= 0:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    words = mix(values.astype(np.uint64) + np.uint64(1))
    sums = np.zeros(count, dtype=np.uint64)
    for place, power in enumerate(_powers(size)):
        sums += words[place : place + count] * power
    runs = np.repeat(np.arange(len(lengths)), lengths)
    inside = runs[:count] == runs[size - 1 :]
    return mix(sums[inside]), runs[:count][inside]


class HashCounts:
    """How often each hash was added. Memory is bounded by the different hashes, some 40 bytes each.

    Args:
        expected: how many hashes will be added. Of more than `MOST_COUNTED` only those count that are divisible by
            `one_in`, a power of two: a fair sample, in which every hash comes as often as it comes.
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
        """Counts each of `hashes` once more."""
        if self.one_in > 1:
            hashes = hashes[hashes % np.uint64(self.one_in) == 0]
        self.total += len(hashes)
        self._waiting.append(hashes)
        self._size += len(hashes)
        # Merging when as much waits as is merged already keeps the work near n log n.
        if self._size >= max(_FIRST_MERGE, len(self._hashes)):
            self._merge()

    @property
    def repeated(self) -> int:
        """How many hashes had been added before, estimated where only a sample is counted."""
        return (self.total - len(self.finish()[0])) * self.one_in

    def finish(self) -> tuple[Hashes, npt.NDArray[np.int64]]:
        """The different hashes, sorted, and how often each was added."""
        self._merge()
        return self._hashes, self._counts

    def _merge(self) -> None:
        fresh = np.sort(np.concatenate([np.empty(0, np.uint64), *self._waiting]))
        firsts = _firsts(fresh)
        hashes = np.concatenate([self._hashes, fresh[firsts]])
        counts = np.concatenate([self._counts, np.diff(firsts, append=len(fresh))])
        order = np.argsort(hashes, kind="stable")
        hashes, counts = hashes[order], counts[order]
        firsts = _firsts(hashes)
        self._hashes = hashes[firsts]
        self._counts = np.add.reduceat(counts, firsts) if len(firsts) else counts
        self._waiting, self._size = [], 0


class HashSet:
    """Some hashes that are looked for in many others."""

    def __init__(self, hashes: Hashes) -> None:
        hashes = np.sort(hashes)
        self.hashes = hashes[_firsts(hashes)]
        # Most of what is looked up is not there. One bit of a table says so for all but a few of them.
        bits = max(16, min(27, 4 + len(self.hashes).bit_length()))
        self._shift = np.uint64(64 - bits)
        self._table = np.zeros(2**bits, dtype=np.bool_)
        self._table[self.hashes >> self._shift] = True

    def __len__(self) -> int:
        return len(self.hashes)

    def places(self, values: Hashes) -> npt.NDArray[np.int64]:
        """Where each of `values` is among `hashes`, int64; -1 where it is not."""
        places = np.full(len(values), -1, dtype=np.int64)
        likely = np.flatnonzero(self._table[values >> self._shift])
        if len(likely):
            likely = likely[np.argsort(values[likely])]  # neighbours are found near each other, which caches like
            found = np.minimum(np.searchsorted(self.hashes, values[likely]), len(self.hashes) - 1)
            same = self.hashes[found] == values[likely]
            places[likely[same]] = found[same]
        return places


def _firsts(values: Hashes) -> npt.NDArray[np.int64]:
    """The places in sorted `values` where a new value begins."""
    # `numpy.unique` would do, but since NumPy 2.3 it counts in a hash table, which is many times slower here.
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(values)), np.bool_), values[1:] != values[:-1]]))
