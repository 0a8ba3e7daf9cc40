"""What a tokenizer returns: flat arrays of ids, divided into texts by offsets."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The ids of N texts in one flat array of T ids, without [CLS] and [SEP].

    Args:
        ids: int32 [T].
        offsets: int64 [N + 1]; text i has the ids `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: Ids
    offsets: Offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        """The ids of text `index`, a view of shape [length]; negative indices count from the end."""
        index = index + len(self) if index < 0 else index
        if not 0 <= index < len(self):
            raise IndexError(f"text {index} of {len(self)}")
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[index] for index in range(len(self)))

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of ids of each text, int64 [N]."""
        return np.diff(self.offsets)

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike]) -> "Encoded":
        """The rows of ids as one flat array.

        >>> Encoded.from_rows([[7, 8], [], [9]])
        Encoded(ids=array([7, 8, 9], dtype=int32), offsets=array([0, 2, 2, 3]))
        """
        arrays = [np.asarray(row, dtype=np.int32).reshape(-1) for row in rows]
        offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
        np.cumsum([len(array) for array in arrays], out=offsets[1:])
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), offsets)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of one text with their character offsets.

    Args:
        ids: int32 [P].
        starts: int32 [P], the first character of each piece in the original text.
        ends: int32 [P], one past the last character of each piece.
    """

    ids: Ids
    starts: Ids
    ends: Ids

    def __len__(self) -> int:
        return len(self.ids)


def places_of(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`counts[i]` consecutive positions from each `starts[i]`, concatenated.

    >>> places_of(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


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
