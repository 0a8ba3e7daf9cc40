"""The prediction targets of pre-training rows: predicted positions and gold pieces.

N rows, T tokens, M predicted positions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import Words

Ints = npt.NDArray[np.int64]
TokenIds = npt.NDArray[np.int32]

NOTHING = -1


@dataclass(frozen=True, kw_only=True)
class Targets:
    """Rows as the model reads them, with their targets.

    Attributes:
        token_ids: int32 [T], the model's input.
        positions: int64 [M], the predicted positions in the flat batch, ascending.
        target_ids: int32 [M], the gold pieces at those positions.
        per_row: int64 [N], the number of predictions in each row.
        previous_ids: int32 [M], the piece before each of these positions, for a model of two directions; None for all
            others. Here and in `target_ids`, `NOTHING` is where there is no such piece.
    """

    token_ids: TokenIds
    positions: Ints
    target_ids: TokenIds
    per_row: Ints
    previous_ids: TokenIds | None = None


# Computes targets from the tokens [T], lengths [N] and keys [N] of rows.
FindTargets = Callable[[TokenIds, Ints, Words], Targets]


def next_pieces(token_ids: TokenIds, lengths: Ints, keys: Words) -> Targets:
    """The targets of a left-to-right model: every position except the last of a row predicts the next piece.

    >>> next_pieces(np.array([2, 7, 3, 2, 3]), np.array([3, 2]), np.zeros(2, np.uint64)).target_ids.tolist()
    [7, 3, 3]
    """
    last = np.cumsum(lengths) - 1
    positions = np.delete(np.arange(len(token_ids)), last)
    return Targets(token_ids=token_ids, positions=positions, target_ids=token_ids[positions + 1], per_row=lengths - 1)


def both_neighbors(token_ids: TokenIds, lengths: Ints, keys: Words) -> Targets:
    """The targets of a model of two directions: every position predicts the next piece and the previous one.

    >>> targets = both_neighbors(np.array([2, 7, 3, 2, 3]), np.array([3, 2]), np.zeros(2, np.uint64))
    >>> targets.target_ids.tolist(), targets.previous_ids.tolist()
    ([7, 3, -1, 3, -1], [-1, 2, 7, -1, 2])
    """
    ends = np.cumsum(lengths)
    following, previous = np.roll(token_ids, -1), np.roll(token_ids, 1)
    following[ends - 1] = NOTHING
    previous[ends - lengths] = NOTHING
    return Targets(
        token_ids=token_ids,
        positions=np.arange(len(token_ids)),
        target_ids=following,
        per_row=lengths,
        previous_ids=previous,
    )


def previous_pieces(token_ids: TokenIds, lengths: Ints, keys: Words) -> Targets:
    """The targets of a right-to-left model: every position except the first of a row predicts the piece before it.

    >>> previous_pieces(np.array([2, 7, 3, 2, 3]), np.array([3, 2]), np.zeros(2, np.uint64)).target_ids.tolist()
    [2, 7, 2]
    """
    positions = np.delete(np.arange(len(token_ids)), np.cumsum(lengths) - lengths)
    return Targets(token_ids=token_ids, positions=positions, target_ids=token_ids[positions - 1], per_row=lengths - 1)


def second_copies(token_ids: TokenIds, lengths: Ints, keys: Words) -> Targets:
    """The targets of a sequence autoencoder: in rows `[CLS] A [SEP] A [SEP]`, all that follows the first [SEP].

    >>> row = np.array([2, 7, 8, 3, 7, 8, 3])
    >>> targets = second_copies(row, np.array([7]), np.zeros(1, np.uint64))
    >>> targets.positions.tolist(), targets.target_ids.tolist()
    ([3, 4, 5], [7, 8, 3])
    """
    starts, copied = np.cumsum(lengths) - lengths, (lengths - 3) // 2
    positions = np.concatenate(
        [
            np.arange(start + count + 1, start + 2 * count + 2)
            for start, count in zip(starts.tolist(), copied.tolist(), strict=True)
        ]
    )
    return Targets(token_ids=token_ids, positions=positions, target_ids=token_ids[positions + 1], per_row=copied + 1)


def no_pieces(token_ids: TokenIds, lengths: Ints, keys: Words) -> Targets:
    """Empty targets, for objectives that predict no pieces."""
    return Targets(
        token_ids=token_ids,
        positions=np.zeros(0, np.int64),
        target_ids=token_ids[:0],
        per_row=np.zeros_like(lengths),
    )
