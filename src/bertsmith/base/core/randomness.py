"""Random numbers as pure functions of (seed, purpose, index).

Nothing in the package draws from a global generator. Code that needs random numbers requests the generator of
a seed, a purpose and the indices that locate the draw in the work (epoch, step, document ...). A draw therefore
depends neither on workers, ranks and restarts nor on earlier draws.
"""

import hashlib

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""The increment of splitmix64: its output number `n`, counted from 1, is `mix(state + n * GOLDEN)`."""

FIRST_FACTOR, SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The factors of `mix`."""


def derive(seed: int, purpose: str, *index: int) -> int:
    """A 64-bit seed for `purpose` at `index`, for generators other than NumPy's."""
    return int.from_bytes(_digest(seed, purpose, index)[:8], "little")


def generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """A NumPy generator for `purpose` at `index`; equal arguments give equal draws.

    >>> int(generator(1, "mask", 0, 7).integers(100)) == int(generator(1, "mask", 0, 7).integers(100))
    True
    """
    words = np.frombuffer(_digest(seed, purpose, index), dtype=np.uint32)
    return np.random.Generator(np.random.SFC64(words))


def mix(words: Words) -> Words:
    """The splitmix64 finalizer of each 64-bit word: a bijection in which every input bit affects every output bit.

    Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).

    >>> [hex(int(word)) for word in mix(GOLDEN * np.arange(1, 3, dtype=np.uint64))]
    ['0xe220a8397b1dcdaf', '0x6e789e6aa1b965f4']
    """
    words = (words ^ (words >> np.uint64(30))) * FIRST_FACTOR
    words = (words ^ (words >> np.uint64(27))) * SECOND_FACTOR
    return words ^ (words >> np.uint64(31))


def _digest(seed: int, purpose: str, index: tuple[int, ...]) -> bytes:
    text = "/".join([str(seed), purpose, *map(str, index)])
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()
