"""Random numbers as pure functions of (seed, purpose, index).

Nothing in the package draws from a global generator. Whoever needs random numbers asks for the generator of
a seed, a purpose and the indices that say where in the work the draw stands (epoch, step, document ...). So a
draw depends neither on workers, ranks and restarts nor on what was drawn before it.
"""

import hashlib

import numpy as np


def derive(seed: int, purpose: str, *index: int) -> int:
    """A 64-bit seed for `purpose` at `index`, for generators that are not NumPy's."""
    return int.from_bytes(_digest(seed, purpose, index)[:8], "little")


def generator(seed: int, purpose: str, *index: int) -> np.random.Generator:
    """A NumPy generator for `purpose` at `index`; equal arguments give equal draws.

    >>> int(generator(1, "mask", 0, 7).integers(100)) == int(generator(1, "mask", 0, 7).integers(100))
    True
    """
    words = np.frombuffer(_digest(seed, purpose, index), dtype=np.uint32)
    return np.random.Generator(np.random.SFC64(words))


def _digest(seed: int, purpose: str, index: tuple[int, ...]) -> bytes:
    text = "/".join([str(seed), purpose, *map(str, index)])
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()
