"""The result of a tokenizer: flat arrays of ids, divided into texts by offsets; and the cache of words it has split."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

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

    def select(self, texts: npt.NDArray[np.int64]) -> "Encoded":
        """Some of the texts, in the given order; `texts` are their indices, int64 [n]."""
        lengths = self.lengths[texts]
        return Encoded(self.ids[places_of(self.offsets[:-1][texts], lengths)], offsets_of(lengths))

    def after(self, ids: npt.NDArray[np.integer]) -> "Encoded":
        """The texts, each after one more id, int [N].

        >>> Encoded.from_rows([[7, 8], []]).after(np.array([1, 2])).ids.tolist()
        [1, 7, 8, 2]
        """
        inserted = np.insert(self.ids, self.offsets[:-1], ids.astype(self.ids.dtype))
        return Encoded(inserted, offsets_of(self.lengths + 1))

    def shortened(self, most: npt.NDArray[np.int64]) -> "Encoded":
        """The first ids of each text, at most `most`, int64 [N].

        >>> Encoded.from_rows([[7, 8], [9]]).shortened(np.array([1, 3])).ids.tolist()
        [7, 9]
        """
        kept = np.minimum(self.lengths, most)
        return Encoded(self.ids[places_of(self.offsets[:-1], kept)], offsets_of(kept))

    def split(self, counts: Iterable[int]) -> list["Encoded"]:
        """Consecutive groups of `counts` texts.

        >>> [part.offsets.tolist() for part in Encoded.from_rows([[7, 8], [], [9]]).split([1, 2])]
        [[0, 2], [0, 0, 1]]
        """
        parts, begin = [], 0
        for count in counts:
            offsets = self.offsets[begin : begin + count + 1]
            parts.append(Encoded(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0]))
            begin += count
        return parts

    @classmethod
    def joined(cls, parts: Sequence["Encoded"]) -> "Encoded":
        """The texts of several parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)]),
            offsets_of(np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])),
        )

    @classmethod
    def from_rows(cls, rows: Sequence[npt.ArrayLike]) -> "Encoded":
        """The rows of ids as one flat array.

        >>> Encoded.from_rows([[7, 8], [], [9]])
        Encoded(ids=array([7, 8, 9], dtype=int32), offsets=array([0, 2, 2, 3]))
        """
        arrays = [np.asarray(row, dtype=np.int32).reshape(-1) for row in rows]
        return cls(np.concatenate([np.empty(0, np.int32), *arrays]), offsets_of([len(array) for array in arrays]))


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


def offsets_of(lengths: Sequence[int] | npt.NDArray[np.integer]) -> Offsets:
    """The start of each part and the end of the last, int64 [N + 1], from the lengths of N parts.

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class EncodedWithOffsets(NamedTuple):
    """The pieces of N texts with their character offsets."""

    encoded: Encoded
    starts: Offsets  # int64 [P], the first character of each piece in its text
    ends: Offsets  # int64 [P], one past the last character of each piece


Key = TypeVar("Key")
Value = TypeVar("Value")

MOST_BYTES = 32 << 20


class BoundedCache(dict[Key, Value]):
    """A dictionary that starts again when it has too many entries or takes too many bytes.

    Text is full of words that recur, and of numbers that never do. To start again costs a moment; to keep an order of
    use would cost something at every look-up.

    >>> cache = BoundedCache[str, int](2)
    >>> for number, word in enumerate(("the", "film", "was")):
    ...     cache.put(word, number, 100)
    >>> dict(cache), cache.bytes
    ({'was': 2}, 100)
    """

    def __init__(self, most_entries: int, most_bytes: int = MOST_BYTES) -> None:
        super().__init__()
        self._most_entries, self._most_bytes, self.bytes = most_entries, most_bytes, 0

    def put(self, key: Key, value: Value, size: int) -> None:
        """Adds an entry of about `size` bytes."""
        self.bytes += size
        if len(self) >= self._most_entries or self.bytes > self._most_bytes:
            self.clear()
            self.bytes = size
        self[key] = value
