"""The random choices of Word2Vec: subsampling, window sizes, negative samples.

All are functions of (seed, epoch, chunk); a chunk is a stretch of the text, see `word_stream.py`.

V words, T words of a chunk that stay, R the largest radius of a window.

Source: word2vec.c; Walker, "An efficient method for generating discrete random variables with general distributions"
(1977), for the table of noise words. The original has a table of 1e8 entries, which approximates what this one
represents to 32 bits.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import GOLDEN, Words, mix

NOISE_POWER = 0.75  # of the counts of noise words
NO_WORD = -1
_MADE_AT_ONCE = 2**14  # random words, which takes less time than a few of them often

Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Reaches(NamedTuple):
    """The words of a chunk that stay, and how far the window of each reaches."""

    centers: Ids  # int32 [T]
    # left, right: int32 [T], the number of words in the window on each side
    left: Ids
    right: Ids


def keep_probabilities(counts: Integers, threshold: float) -> Floats:
    """The probability that an occurrence of each word stays, float64 [V]; all 1 if `threshold` is 0.

    That of the original program, `(sqrt(c / (t N)) + 1) t N / c`, at most 1. (The paper prints `sqrt(t N / c)`.)

    Args:
        counts: c, int64 [V], all above 0; N is their sum.
        threshold: t, a fraction of the text.
    """
    if threshold == 0:
        return np.ones(len(counts))
    ratio = counts / (threshold * counts.sum())
    return np.asarray(np.minimum((np.sqrt(ratio) + 1) / ratio, 1.0))


def reaches(ids: Ids, keep: Floats, radius: int, rng: np.random.Generator) -> Reaches:
    """The words of a chunk that stay, each with a window whose radius is drawn evenly from 1 to `radius`.

    Words are dropped before windows are laid, so a window reaches over the gaps. It does not reach into another
    sentence.
    """
    is_word = ids != NO_WORD
    stays = is_word & (rng.random(len(ids)) < np.where(is_word, keep[ids], 0.0))
    sentences = np.cumsum(~is_word)[stays]
    centers = ids[stays]
    radii = rng.integers(1, radius + 1, size=len(centers))
    places = np.arange(len(centers))
    starts = np.searchsorted(sentences, sentences, side="left")
    ends = np.searchsorted(sentences, sentences, side="right")
    left, right = np.minimum(radii, places - starts), np.minimum(radii, ends - 1 - places)
    return Reaches(centers, left.astype(np.int32), right.astype(np.int32))


def contexts_of(drawn: Reaches, radius: int) -> Ids:
    """The words in the window of each word from left to right, int32 [T, 2 R]; -1 where there is none."""
    centers, left, right = drawn
    contexts = np.full((len(centers), 2 * radius), NO_WORD, dtype=np.int32)
    for distance in range(1, min(radius, len(centers) - 1) + 1):
        on_left, on_right = contexts[:, radius - distance], contexts[:, radius + distance - 1]
        on_left[distance:] = np.where(left[distance:] >= distance, centers[:-distance], NO_WORD)
        on_right[:-distance] = np.where(right[:-distance] >= distance, centers[distance:], NO_WORD)
    return contexts


class RandomWords:
    """A stream of random 64-bit words: word number n of a key is a function of both (splitmix64).

    Attributes:
        key: word number n, from 1, is `mix(key + n * GOLDEN)`.
    """

    def __init__(self, key: int) -> None:
        self.key = np.uint64(key)
        self._made = 0
        self._ready = np.empty(0, dtype=np.uint64)

    def take(self, count: int) -> Words:
        """The next words, uint64 [count]."""
        if count > len(self._ready):
            end = self._made + max(count, _MADE_AT_ONCE)
            new = mix(self.key + np.arange(self._made + 1, end + 1, dtype=np.uint64) * GOLDEN)
            self._ready, self._made = np.concatenate([self._ready, new]), end
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken


class NoiseWords:
    """Draws words with probabilities proportional to their counts to the power 0.75.

    The upper half of a random word chooses a cell of the table, and the lower half one of the two words of the cell.

    Args:
        counts: int64 [V].

    Attributes:
        limits: uint32 [V], the lower halves from which cell v is the word `others[v]`, and not v.
        others: int32 [V].
    """

    def __init__(self, counts: Integers) -> None:
        size = len(counts)
        weights = counts.astype(np.float64) ** NOISE_POWER
        scaled = weights * (size / weights.sum())
        limits = np.ones(size)
        self.others = np.arange(size, dtype=np.int32)
        small = np.flatnonzero(scaled < 1).tolist()
        large = np.flatnonzero(scaled >= 1).tolist()
        rest: list[float] = scaled.tolist()
        while small and large:
            low, high = small.pop(), large[-1]
            limits[low], self.others[low] = rest[low], high
            rest[high] -= 1.0 - rest[low]
            if rest[high] < 1.0:
                small.append(large.pop())
        self.limits = np.minimum(limits * 2.0**32, 2**32 - 1).astype(np.uint32)

    def draw(self, shape: tuple[int, ...], words: RandomWords) -> Ids:
        """Independent draws, int32 of this shape."""
        taken = words.take(math.prod(shape)).reshape(shape)
        cells = (((taken >> np.uint64(32)) * np.uint64(len(self.limits))) >> np.uint64(32)).astype(np.int32)
        is_first = (taken & np.uint64(2**32 - 1)) < self.limits[cells]
        return np.where(is_first, cells, self.others[cells])
