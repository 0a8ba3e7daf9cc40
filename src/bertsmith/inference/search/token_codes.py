"""Vectors of tokens as codes: the nearest of some centroids, and what is left of each number in one or two bits.

Letters: T vectors, K their width, C centroids, b bits.

Source: Santhanam et al. (2022), "ColBERTv2: Effective and Efficient Retrieval via Lightweight Late Interaction",
section 3.3.
"""

import dataclasses
import functools
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bertsmith.base.storage.files import atomic_file
from bertsmith.tasks.metrics.token_vectors import TokenMatrix
from bertsmith.tasks.metrics.vectors import unit

Vectors = npt.NDArray[np.float32]
BITS = (1, 2)
_NUMBER_BYTES = 4
_LEAST_VECTORS = 8  # of a sample, for each centroid
_BLOCK = 2**14  # vectors that are compared with all centroids at a time
_EPOCHS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenCoder:
    """Turns vectors into codes, and codes into vectors.

    Attributes:
        centroids: float32 [C, K].
        borders: of the 2^b ranges of what is left of a number, float32 [2^b - 1].
        values: that stand for these ranges, float32 [2^b].
        bits: b.
    """

    centroids: Vectors
    borders: Vectors
    values: Vectors
    bits: int

    @staticmethod
    def fitted(sample: Vectors, total: int, bits: int) -> "TokenCoder":
        """The coder for `total` vectors like those of a sample.

        There are about 16 sqrt(total) centroids, a power of 2, as in ColBERTv2, or as many as the sample allows.
        """
        from sklearn.cluster import MiniBatchKMeans

        assert bits in BITS, bits
        wanted = 2 ** int(math.log2(16 * math.sqrt(max(total, 1))))
        count = max(1, min(wanted, len(sample) // _LEAST_VECTORS))
        clusters = MiniBatchKMeans(count, random_state=0, n_init=1, batch_size=4096, max_iter=_EPOCHS).fit(sample)
        centroids = np.asarray(clusters.cluster_centers_, dtype=np.float32)
        left = (sample - centroids[_nearest(sample, centroids)]).ravel()
        steps = np.arange(2**bits)
        borders, values = np.quantile(left, steps[1:] / 2**bits), np.quantile(left, (steps + 0.5) / 2**bits)
        return TokenCoder(
            centroids=centroids, borders=borders.astype(np.float32), values=values.astype(np.float32), bits=bits
        )

    @functools.cached_property
    def of_bytes(self) -> Vectors:
        """The numbers that each byte of what is left stands for, float32 [256, numbers]."""
        bits = np.unpackbits(np.arange(256, dtype=np.uint8)).reshape(256, -1, self.bits)
        ranges = (bits << np.arange(self.bits, dtype=np.uint8)).sum(axis=2)
        return np.asarray(self.values[ranges], dtype=np.float32)

    @property
    def stored_bytes(self) -> int:
        """The bytes of a vector in `TokenCodes.stored`."""
        return int(_NUMBER_BYTES + math.ceil(self.centroids.shape[1] * self.bits / 8))

    def save(self, path: Path) -> None:
        """Writes the coder to a .safetensors file, atomically."""
        tensors = {"centroids": self.centroids, "borders": self.borders, "values": self.values}
        with atomic_file(path) as file:
            file.write(save(tensors, metadata={"bits": str(self.bits)}))

    @staticmethod
    def load(path: Path) -> "TokenCoder":
        """The coder in a file; a ValueError or OSError if it is damaged."""
        try:
            with safe_open(path, framework="numpy") as file:
                bits = int((file.metadata() or {})["bits"])
                tensors = {name: file.get_tensor(name) for name in ("centroids", "borders", "values")}
        except (SafetensorError, KeyError) as error:
            raise ValueError(str(error)) from None
        return TokenCoder(**tensors, bits=bits)

    def encode(self, matrix: TokenMatrix) -> "TokenCodes":
        """The codes of the vectors of some texts."""
        vectors = matrix.rows(0, len(matrix.vectors))
        numbers = _nearest(vectors, self.centroids)
        ranges = np.searchsorted(self.borders, vectors - self.centroids[numbers]).astype(np.uint8)
        bits = (ranges[:, :, None] >> np.arange(self.bits, dtype=np.uint8)) & 1
        left = np.packbits(bits.reshape(len(vectors), -1), axis=1)
        return TokenCodes(self, numbers.astype(np.uint32), left, matrix.lengths)


@dataclasses.dataclass(frozen=True)
class TokenCodes:
    """The vectors of N texts as codes.

    Args:
        coder: that made them.
        numbers: uint32 [T], the centroid of each.
        left: uint8 [T, bytes], the ranges of its numbers.
        lengths: int64 [N], the vectors of each text.
    """

    coder: TokenCoder
    numbers: npt.NDArray[np.uint32]
    left: npt.NDArray[np.uint8]
    lengths: npt.NDArray[np.int64]

    def rows(self, begin: int, end: int) -> Vectors:
        """Some consecutive vectors, scaled to length 1, float32 [end - begin, K]."""
        centroids, part = self.coder.centroids, slice(begin, end)
        left = self.coder.of_bytes[self.left[part]].reshape(-1, self.left.shape[1] * len(self.coder.of_bytes[0]))
        return unit(centroids[self.numbers[part]] + left[:, : centroids.shape[1]])

    @property
    def stored(self) -> npt.NDArray[np.uint8]:
        """The number of the centroid in four bytes, and the ranges, of each vector, uint8 [T, bytes]."""
        numbers = np.ascontiguousarray(self.numbers, dtype="<u4").view(np.uint8).reshape(-1, _NUMBER_BYTES)
        return np.hstack([numbers, self.left])

    @staticmethod
    def of_stored(coder: TokenCoder, stored: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> "TokenCodes":
        """The codes that `stored` gave."""
        numbers = np.ascontiguousarray(stored[:, :_NUMBER_BYTES]).view("<u4").reshape(-1)
        return TokenCodes(coder, numbers, stored[:, _NUMBER_BYTES:], lengths)

    @property
    def nbytes(self) -> int:
        """The bytes of the codes, without those of the coder."""
        return self.numbers.nbytes + self.left.nbytes


def _nearest(vectors: Vectors, centroids: Vectors) -> npt.NDArray[np.int64]:
    """The number of the nearest centroid of each vector, int64 [T]."""
    half = (centroids**2).sum(axis=1) / 2
    blocks = range(0, len(vectors), _BLOCK)
    parts = [(vectors[start : start + _BLOCK] @ centroids.T - half).argmax(axis=1) for start in blocks]
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])
