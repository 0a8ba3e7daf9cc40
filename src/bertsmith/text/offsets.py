"""The pieces of many texts with their character offsets."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.text.encoded import Encoded, Pieces

_LONGEST_REMEMBERED = 64  # characters; longer chunks rarely recur

Places = npt.NDArray[np.int64]


class EncodedWithOffsets(NamedTuple):
    """The pieces of N texts with their character offsets.

    Attributes:
        encoded: the ids.
        starts: int64 [P], the first character of each piece in its text.
        ends: int64 [P], one past the last character of each piece.
    """

    encoded: Encoded
    starts: Places
    ends: Places


class OffsetEncoder:
    """Encodes many texts with character offsets and caches the chunks between spaces, which recur.

    Valid only if no rule of the tokenizer looks across a space, so that a chunk has the same pieces everywhere.

    Args:
        encode: returns the pieces of one chunk.
        most_entries: maximum number of cached chunks.
    """

    def __init__(self, encode: Callable[[str], Pieces], most_entries: int) -> None:
        self._pieces, self._most_entries = encode, most_entries
        self._memo: dict[str, tuple[list[int], list[int], list[int]]] = {}

    def encode(self, texts: Sequence[str]) -> EncodedWithOffsets:
        """The ids of all texts, with the first character of each piece and one past its last, int64 [P]."""
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        shifts, counts, lengths = [], [], [0]
        for text in texts:
            position = 0
            for part in text.split(" "):
                if part:
                    found = self._memo.get(part) or self._encode(part)
                    ids += found[0]
                    starts += found[1]
                    ends += found[2]
                    counts.append(len(found[0]))
                    shifts.append(position)
                position += len(part) + 1
            lengths.append(len(ids))
        shift = np.repeat(np.array(shifts, np.int64), counts)
        encoded = Encoded(np.array(ids, np.int32), np.array(lengths, np.int64))
        return EncodedWithOffsets(encoded, np.array(starts, np.int64) + shift, np.array(ends, np.int64) + shift)

    def _encode(self, part: str) -> tuple[list[int], list[int], list[int]]:
        pieces = self._pieces(part)
        found = pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist()
        if len(self._memo) >= self._most_entries:
            self._memo.clear()
        if len(part) <= _LONGEST_REMEMBERED:
            self._memo[part] = found
        return found
