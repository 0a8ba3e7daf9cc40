"""Poolings of the vectors of tokens into those of rows, as in sentence-transformers; nothing here needs torch.

Letters: N rows, T tokens of all rows, D width of the encoder, P parts of the pooling.

Source: `Pooling` of sentence-transformers; Muennighoff (2022), "SGPT", for the weighted mean.
"""

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.text.tokenizers.encoded import offsets_of, places_of

Vectors = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

LAST = "lasttoken"
PARTS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", LAST)
_PLUS = "+"


def joined(names: list[str]) -> str:
    """The name of a pooling with these parts, whose vectors are concatenated.

    >>> joined(["cls", "mean"])
    'cls+mean'
    """
    return _PLUS.join(names)


def parts_of(pooling: str) -> tuple[str, ...]:
    """The parts of a pooling, in order; empty if one is unknown.

    >>> parts_of("cls+mean"), parts_of("pooler")
    (('cls', 'mean'), ())
    """
    parts = tuple(str(pooling).split(_PLUS))  # of any value, as it may be unchecked
    return parts if set(parts) <= {*PARTS} else ()


def pooled_tokens(vectors: Vectors, lengths: Counts, parts: tuple[str, ...], skipped: int = 0) -> Vectors:
    """One vector per row, float32 [N, P * D], of the vectors of its tokens, float32 [T, D].

    Args:
        lengths: tokens of each row, at least 1.
        skipped: how many tokens at the start of each row are not pooled. Of a row without others, the mean is 0.

    Raises:
        InputError: the maximum of a row without tokens is wanted.

    >>> pooled_tokens(np.float32([[2, 4], [4, 0], [9, 9]]), np.array([2, 1]), ("cls", "mean")).tolist()
    [[2.0, 4.0, 3.0, 2.0], [9.0, 9.0, 9.0, 9.0]]
    """
    starts = offsets_of(lengths)[:-1]
    positions = places_of(np.zeros_like(lengths), lengths)
    is_pooled = (positions >= skipped)[:, None]
    counts = np.maximum(lengths - skipped, 0)[:, None]

    def mean(weights: npt.NDArray[np.float32], total: Counts) -> Vectors:
        sums = np.add.reduceat(np.where(is_pooled, vectors * weights, np.float32(0)), starts)
        return np.asarray(sums / np.maximum(total, 1e-9), np.float32)

    def pooled(part: str) -> Vectors:
        if part == "cls":
            return vectors[starts + np.where(counts[:, 0] > 0, skipped, 0)]
        if part == LAST:
            return np.asarray(vectors[starts + lengths - 1] * (counts > 0), np.float32)
        if part == "max":
            if not counts.all():
                raise InputError(
                    expected="a token besides those of the prompt in each text, for the maximum",
                    found="none in one of them",
                    fix="lengthen the text, or choose another --pooling",
                )
            return np.asarray(np.maximum.reduceat(np.where(is_pooled, vectors, -np.inf), starts), np.float32)
        if part == "weightedmean":
            weights = (positions + 1)[:, None]
            return mean(weights.astype(np.float32), np.add.reduceat(weights * is_pooled, starts))
        ones = np.ones((1, 1), np.float32)
        return mean(ones, np.sqrt(counts) if part == "mean_sqrt_len_tokens" else counts)

    return np.concatenate([pooled(part) for part in parts], axis=1).astype(np.float32, copy=False)
