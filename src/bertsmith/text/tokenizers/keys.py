"""Short byte strings as 64-bit numbers, and hash tables over them that work on whole arrays.

A string of up to 8 bytes is one number, up to 16 bytes two, up to 32 bytes four: its bytes in little-endian order,
padded with zeros. Whole arrays of strings are then compared, hashed and looked up with a few NumPy calls, which release
the GIL. A lookup compares all bytes, so a hash collision costs time but never gives a wrong answer. No string may
contain a zero byte.

Shapes: n strings; the keys of n strings of one width are a list of `width` arrays, uint64 [n].
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Keys = list[Words]
Integers = npt.NDArray[np.int64]
Values = npt.NDArray[np.int32]

# Numbers per string; each holds 8 bytes.
WIDTHS = (1, 2, 4)
LONGEST = 8 * WIDTHS[-1]
# Zero bytes after the last string of a buffer, so that reading a whole key never runs past the end.
PADDING = LONGEST + 8

_PROBES = 24
_SMALLEST_BITS = 8
_MASKS = np.array([(1 << (8 * length)) - 1 for length in range(9)], dtype=np.uint64)
_MULTIPLIERS = [np.uint64(m) for m in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)]


def windows_of(buffer: Bytes) -> Words:
    """The 8 bytes from each position on as a number, uint64 [len(buffer) - 7]."""
    return np.ndarray((len(buffer) - 7,), "<u8", buffer.data, 0, (1,)).astype(np.uint64)


def keys_at(windows: Words, starts: Integers, lengths: Integers, width: int) -> Keys:
    """The keys of the strings at `starts`; a string of more than `8 * width` bytes is cut to that length."""
    keys = [windows.take(starts)]
    keys[0] &= _MASKS.take(lengths, mode="clip")
    for word in range(1, width):
        keys.append(windows.take(starts + 8 * word))
        keys[word] &= _MASKS.take(lengths - 8 * word, mode="clip")
    return keys


def lengths_of(keys: Keys) -> Integers:
    """The lengths of the strings in bytes, int64 [n]."""
    lengths: Integers = 8 * len(keys) - np.argmax(bytes_of(keys)[:, ::-1] != 0, axis=1)
    return lengths


def bytes_of(keys: Keys) -> Bytes:
    """The bytes of the strings, uint8 [n, 8 * width], each padded with zeros."""
    return np.stack(keys, axis=1).astype("<u8").view(np.uint8).reshape(-1, 8 * len(keys))


def keys_of(strings: Sequence[bytes], width: int) -> Keys:
    """The keys of byte strings of at most `8 * width` bytes."""
    padded = np.array(strings, dtype=f"S{8 * width}")
    table = padded.view("<u8").astype(np.uint64).reshape(-1, width)
    return [np.ascontiguousarray(table[:, word]) for word in range(width)]


def strings_of(keys: Keys) -> list[bytes]:
    """The byte strings of keys, without trailing zero bytes."""
    size = 8 * len(keys)
    joined = bytes_of(keys).tobytes()
    return [joined[begin : begin + size].rstrip(b"\0") for begin in range(0, len(joined), size)]


def distinct(keys: Keys) -> tuple[Integers, Integers]:
    """(indices of distinct keys, for each key its entry there): `keys[k][indices[entry[i]]] == keys[k][i]`."""
    hashes = hash_keys(keys)
    order = np.argsort(hashes)
    # Different keys with the same hash may be interleaved; then one of them is listed twice, which does no harm.
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = False
    for words in keys:
        ordered = words.take(order)
        is_new[1:] |= ordered[1:] != ordered[:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(is_new) - 1
    return order[is_new], number


def hash_keys(keys: Keys) -> Words:
    """A 64-bit hash of every key, well mixed in the upper bits."""
    mixed = keys[0] * _MULTIPLIERS[0]
    for words, multiplier in zip(keys[1:], _MULTIPLIERS[1:], strict=False):
        mixed ^= words * multiplier
        mixed *= _MULTIPLIERS[0]
    mixed ^= mixed >> np.uint64(32)
    mixed *= _MULTIPLIERS[1]
    return mixed


class KeyTable:
    """A hash table from keys of one width to int32 values, with linear probing and at most a quarter full."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.count = 0
        self._allocate(_SMALLEST_BITS)

    def _allocate(self, bits: int) -> None:
        size = (1 << bits) + _PROBES
        self._shift = np.uint64(64 - bits)
        self._words = [np.zeros(size, dtype=np.uint64) for _ in range(self.width)]
        self._values = np.zeros(size, dtype=np.int32)

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        return self._values.nbytes + sum(words.nbytes for words in self._words)

    def find(self, keys: Keys, *, ignore: Integers | None = None) -> tuple[Values, Integers]:
        """(values int32 [n], indices of the keys that were not found); the value of such a key is undefined."""
        slots = (hash_keys(keys) >> self._shift).view(np.int64)
        is_found = self._equal(slots, keys)
        values = self._values.take(slots, mode="clip")
        if ignore is not None:
            is_found[ignore] = True
        left = np.flatnonzero(~is_found)
        absent = []
        for probe in range(1, _PROBES):
            if not len(left):
                break
            # An empty slot ends the search, also for the keys that were just compared with it.
            places = slots.take(left) + (probe - 1)
            is_empty = self._words[0].take(places) == 0
            absent.append(left[is_empty])
            left = left[~is_empty]
            places = slots.take(left) + probe
            hit = self._equal(places, [words.take(left) for words in keys])
            values[left[hit]] = self._values.take(places[hit])
            left = left[~hit]
        missing = np.concatenate([*absent, left]) if absent else left
        missing.sort()
        return values, missing

    def insert(self, keys: Keys, values: Values) -> int:
        """Adds new keys and returns how many were left out because no slot near their hash was free."""
        needed = self.count + len(values)
        left_out = 0
        if 4 * needed > len(self._values) - _PROBES:
            old_keys, old_values = self._contents()
            self._allocate((8 * needed - 1).bit_length())
            self.count = 0
            left_out = self._place(old_keys, old_values)
        return left_out + self._place(keys, values)

    def _place(self, keys: Keys, values: Values) -> int:
        left = np.arange(len(values))
        slots = (hash_keys(keys) >> self._shift).view(np.int64)
        for probe in range(_PROBES):
            if not len(left):
                break
            places = slots.take(left) + probe
            free = np.flatnonzero(self._words[0].take(places) == 0)
            _, first = np.unique(places[free], return_index=True)
            chosen = free[first]
            for words, new in zip(self._words, keys, strict=True):
                words[places[chosen]] = new.take(left[chosen])
            self._values[places[chosen]] = values.take(left[chosen])
            self.count += len(chosen)
            left = np.delete(left, chosen)
        return len(left)

    def _contents(self) -> tuple[Keys, Values]:
        filled = np.flatnonzero(self._words[0])
        return [words.take(filled) for words in self._words], self._values.take(filled)

    def _equal(self, slots: Integers, keys: Keys) -> npt.NDArray[np.bool_]:
        equal: npt.NDArray[np.bool_] = self._words[0].take(slots, mode="clip") == keys[0]
        for words, wanted in zip(self._words[1:], keys[1:], strict=True):
            equal &= words.take(slots, mode="clip") == wanted
        return equal
