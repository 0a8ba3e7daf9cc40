"""The random choices of Word2Vec: which words stay, how far a window reaches, which words are noise.

All are functions of (seed, epoch, chunk); a chunk is a stretch of the text, see `word_stream.py`.

V words, T words of a chunk that stay, R the largest radius of a window, N draws.

Source: word2vec.c; Walker, "An efficient method for generating discrete random variables with general distributions"
(1977), for the table of noise words. The original has a table of 1e8 entries, which approximates what this one
represents exactly.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

NOISE_POWER = 0.75  # of the counts of noise words
NO_WORD = -1

Ids = npt.NDArray[np.int32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Windows(NamedTuple):
    """The words of a chunk that stay, and the words around each.

    Attributes:
        centres: int32 [T].
        contexts: int32 [T, 2 R], the words within the window from left to right; -1 where there is none.
    """

    centres: Ids
    contexts: Ids


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


def windows(ids: Ids, keep: Floats, radius: int, rng: np.random.Generator) -> Windows:
    """The words of a chunk that stay, each with a window whose radius is drawn evenly from 1 to `radius`.

    Words are dropped before windows are laid, so a window reaches over the gaps. It does not reach into another
    sentence.

    Args:
        ids: the words of the chunk, int32; -1 after each sentence.
        keep: see `keep_probabilities`.
    """
    is_word = ids != NO_WORD
    stays = is_word & (rng.random(len(ids)) < np.where(is_word, keep[ids], 0.0))
    sentences = np.cumsum(~is_word)[stays]
    centres = ids[stays]
    reach = rng.integers(1, radius + 1, size=len(centres))
    contexts = np.full((len(centres), 2 * radius), NO_WORD, dtype=np.int32)
    for distance in range(1, min(radius, len(centres) - 1) + 1):
        is_near = sentences[distance:] == sentences[:-distance]
        right, left = contexts[:, radius + distance - 1], contexts[:, radius - distance]
        right[:-distance] = np.where(is_near & (reach[:-distance] >= distance), centres[distance:], NO_WORD)
        left[distance:] = np.where(is_near & (reach[distance:] >= distance), centres[:-distance], NO_WORD)
    return Windows(centres, contexts)


class NoiseWords:
    """Draws words with probabilities proportional to their counts to the power 0.75.

    Args:
        counts: int64 [V].
    """

    def __init__(self, counts: Integers) -> None:
        size = len(counts)
        weights = counts.astype(np.float64) ** NOISE_POWER
        scaled = weights * (size / weights.sum())
        self._limits = np.ones(size)
        self._others = np.arange(size, dtype=np.int32)
        small = np.flatnonzero(scaled < 1).tolist()
        large = np.flatnonzero(scaled >= 1).tolist()
        rest: list[float] = scaled.tolist()
        while small and large:
            low, high = small.pop(), large[-1]
            self._limits[low], self._others[low] = rest[low], high
            rest[high] -= 1.0 - rest[low]
            if rest[high] < 1.0:
                small.append(large.pop())

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[Any]:
        """Independent draws, int32 of this shape."""
        places = rng.random(shape)
        places *= len(self._limits)
        whole = places.astype(np.int32)
        places -= whole
        return np.where(places < self._limits[whole], whole, self._others[whole])
