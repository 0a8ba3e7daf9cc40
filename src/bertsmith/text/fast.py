"""The fast path from many texts to ids: whole arrays of bytes in, flat arrays of ids out.

1. `blocks.py` makes blocks of bytes of the texts, `units.py` cuts a block into units.
2. Every unit is looked up in a memory of units, as numbers of 8 bytes (`keys.py`). Most are there: the memory begins
   with the vocabulary.
3. The units that are not there are worked out, each different one once: words of ASCII letters all together
   (`batch_greedy.py`), all others one by one with the readable code. They are remembered.
4. The ids of the units are put in a row.

Steps 1, 2 and 4 run on several threads; NumPy works without the interpreter's lock.

In the memory an id stands for itself; a unit of several pieces, or of none, is `-1 - entry` of a list of pieces.
"""

import dataclasses
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bertsmith.text.batch_greedy import BatchSegmenter
from bertsmith.text.blocks import Block, Strings, batches, blocks_of
from bertsmith.text.encoded import Encoded, Ids, Offsets
from bertsmith.text.greedy import Segmenter
from bertsmith.text.keys import (
    LONGEST,
    PADDING,
    WIDTHS,
    Integers,
    Keys,
    KeyTable,
    Values,
    distinct,
    every_window,
    keys_at,
    keys_of,
    strings_of,
)
from bertsmith.text.normalize import TextRules, basic_tokens
from bertsmith.text.units import UnitFinder
from bertsmith.text.vocabulary import Vocabulary

Item = TypeVar("Item")
Result = TypeVar("Result")
Number = TypeVar("Number", np.int32, np.int64)

# Batches that are looked up before what is missing is worked out together: few at first, when most may be missing.
_ROUNDS = (1, 2, 4, 8, 16, 32)
_HIGH_BITS = np.uint64(0x8080808080808080)


@dataclasses.dataclass
class _Missing:
    """Units of one width that were not in the memory."""

    places: Integers
    keys: Keys
    lengths: Integers
    plain: npt.NDArray[np.bool_]


@dataclasses.dataclass
class _Found:
    """The units of a block: their values, with gaps where something is missing."""

    values: Values
    first_units: Integers
    missing: list[_Missing]
    long_places: Integers
    long_strings: list[bytes]


class FastEncoder:
    """Encodes many texts; equal to `basic_tokens` and `Segmenter` on every string.

    Args:
        vocabulary: the pieces.
        rules: how text is cut into words.
        cache_entries: units that are remembered; above this number all are forgotten but the vocabulary.
        threads: how many threads work; by default one for each core that this process may use.
    """

    def __init__(
        self, vocabulary: Vocabulary, rules: TextRules, *, cache_entries: int, threads: int | None = None
    ) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._cache_entries = cache_entries
        self._threads = threads or _available_cores()
        self._segmenter = Segmenter(vocabulary, max_word_characters=rules.max_word_characters)
        self._batch_segmenter = BatchSegmenter(vocabulary, max_word_characters=rules.max_word_characters)
        self._finder = UnitFinder(rules)
        self._lock = threading.Lock()
        self._forget()

    def encode(self, texts: Strings) -> Encoded:
        """The ids of `texts`."""
        parts: list[tuple[Ids, Offsets]] = []
        with self._lock, _Workers(self._threads) as workers:
            for group in _groups(batches(texts)):
                if self._remembered > self._cache_entries:
                    self._forget()
                blocks = list(itertools.chain.from_iterable(workers.map(blocks_of, group)))
                found = workers.map(self._look_up, blocks)
                self._work_out_missing(found)
                parts += workers.map(self._put_in_a_row, found)
            return _join(parts, workers)

    def _forget(self) -> None:
        self._remembered = 0
        self._pieces = _PieceLists()
        self._memory = [KeyTable(width, empty_value=-1) for width in WIDTHS]
        words = self._vocabulary_words()
        for table, shorter in zip(self._memory, (0, *WIDTHS), strict=False):
            chosen = [word for word in words if 8 * shorter < len(word) <= 8 * table.width]
            table.insert(keys_of(chosen, table.width), np.array([words[word] for word in chosen], dtype=np.int32))

    def _vocabulary_words(self) -> dict[bytes, int]:
        """What is known before any text is seen: ASCII words of the vocabulary, and every ASCII sign."""
        words = {
            piece.encode(): id
            for piece, id in self._vocabulary.index.items()
            if len(piece) <= min(LONGEST, self._rules.max_word_characters)
            and basic_tokens(piece, self._rules) == [piece]
            and piece.isascii()
        }
        signs = [chr(code) for code in range(33, 127) if not chr(code).isalnum()]
        return words | {sign.encode(): self._vocabulary.index.get(sign, self._vocabulary.unk_id) for sign in signs}

    def _look_up(self, block: Block) -> _Found:
        units = self._finder.find(block.data, block.borders)
        every = every_window(units.buffer)
        starts, lengths = units.starts, units.lengths
        keys = keys_at(every, starts, lengths, 1)
        is_long = lengths > 8
        values, places = self._memory[0].find(keys, ignore=is_long)
        missing = [_missing(places, places, keys, lengths, units.plain_ascii)]
        rest = np.flatnonzero(is_long)
        for table in self._memory[1:]:
            is_fitting = lengths.take(rest) <= 8 * table.width
            chosen, rest = rest[is_fitting], rest[~is_fitting]
            chosen_lengths = lengths.take(chosen)
            keys = keys_at(every, starts.take(chosen), chosen_lengths, table.width)
            values[chosen], places = table.find(keys)
            missing.append(_missing(places, chosen.take(places), keys, chosen_lengths, units.plain_ascii))
        strings = [
            units.buffer[start : start + length].tobytes()
            for start, length in zip(starts[rest].tolist(), lengths[rest].tolist(), strict=True)
        ]
        return _Found(values, np.searchsorted(starts, block.borders), missing, rest, strings)

    def _work_out_missing(self, found: list[_Found]) -> None:
        for number, table in enumerate(self._memory):
            missing = [block.missing[number] for block in found]
            keys = [np.concatenate([part.keys[word] for part in missing]) for word in range(table.width)]
            chosen, groups = distinct(keys)
            if not len(chosen):
                continue
            lengths = np.concatenate([part.lengths for part in missing])[chosen]
            plain = np.concatenate([part.plain for part in missing])[chosen]
            keys = [words.take(chosen) for words in keys]
            worked_out = self._work_out(keys, lengths, plain)
            table.insert(keys, worked_out)
            self._remembered += len(chosen)
            values = worked_out.take(groups)
            begin = 0
            for block, part in zip(found, missing, strict=True):
                block.values[part.places] = values[begin : begin + len(part.places)]
                begin += len(part.places)
        self._work_out_long(found)

    def _work_out(self, keys: Keys, lengths: Integers, plain: npt.NDArray[np.bool_]) -> Values:
        """The values of units that are seen for the first time."""
        values = np.empty(len(lengths), dtype=np.int32)
        if not self._batch_segmenter.is_usable:
            plain = np.zeros_like(plain)
        together, alone = np.flatnonzero(plain), np.flatnonzero(~plain)
        if len(together):
            table = np.stack([words.take(together) for words in keys], axis=1).astype("<u8")
            buffer = np.concatenate([table.view(np.uint8).reshape(-1), np.zeros(PADDING, dtype=np.uint8)])
            starts = np.arange(len(together)) * (8 * len(keys))
            values[together] = self._pieces.add(*self._batch_segmenter.segment(buffer, starts, lengths.take(together)))
        if len(alone):
            values[alone] = self._one_by_one(strings_of([words.take(alone) for words in keys]))
        return values

    def _work_out_long(self, found: list[_Found]) -> None:
        """Units that are too long to be remembered."""
        different = list(dict.fromkeys(itertools.chain.from_iterable(block.long_strings for block in found)))
        if different:
            values = dict(zip(different, self._one_by_one(different).tolist(), strict=True))
            self._remembered += len(different)
            for block in found:
                block.values[block.long_places] = [values[string] for string in block.long_strings]

    def _one_by_one(self, strings: Sequence[bytes]) -> Values:
        rows = [
            [
                id
                for word in basic_tokens(string.decode("utf-8", "surrogatepass"), self._rules)
                for id in self._segmenter.ids(word)
            ]
            for string in strings
        ]
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32)
        return self._pieces.add(flat, np.array([len(row) for row in rows], dtype=np.int64))

    def _put_in_a_row(self, block: _Found) -> tuple[Ids, Offsets]:
        """(the ids of a block, where its texts begin among them)."""
        values = block.values
        several = np.flatnonzero(values < 0)
        if not len(several):
            return values, block.first_units
        starts, counts = self._pieces.of(values.take(several))
        more = np.zeros(len(several) + 1, dtype=np.int64)
        np.cumsum(counts - 1, out=more[1:])
        repeats = np.ones(len(values), dtype=np.int64)
        repeats[several] = counts
        ids = np.repeat(values, repeats)
        # Piece k of a unit stands k places after the first one, in the list of pieces as in the row.
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        ids[np.repeat(several + more[:-1], counts) + within] = self._pieces.ids.take(np.repeat(starts, counts) + within)
        return ids, block.first_units + more.take(np.searchsorted(several, block.first_units))


class _PieceLists:
    """Lists of pieces, each with a number; list 0 is empty."""

    def __init__(self) -> None:
        self.ids = np.zeros(1024, dtype=np.int32)
        self._ends = np.zeros(1024, dtype=np.int64)
        self._lists = 1
        self._used = 0

    def add(self, ids: Ids, counts: Integers) -> Values:
        """The values of units with `counts` pieces each: the id itself, or the number of a list of them."""
        begins = np.cumsum(counts) - counts
        is_single = counts == 1
        values = np.full(len(counts), -1, dtype=np.int32)
        values[is_single] = ids[begins[is_single]]
        several = np.flatnonzero(counts > 1)
        if len(several):
            kept = ids[np.repeat(~is_single, counts)]
            self.ids = _with_room(self.ids, self._used + len(kept))
            self._ends = _with_room(self._ends, self._lists + len(several))
            self.ids[self._used : self._used + len(kept)] = kept
            ends = self._used + np.cumsum(counts[several])
            self._ends[self._lists : self._lists + len(several)] = ends
            values[several] = -1 - (self._lists + np.arange(len(several)))
            self._used += len(kept)
            self._lists += len(several)
        return values

    def of(self, values: Values) -> tuple[Integers, Integers]:
        """(where the lists of these negative values begin in `ids`, how long they are)."""
        numbers = -1 - values.astype(np.int64)
        starts = self._ends.take(np.maximum(numbers - 1, 0))
        return starts, self._ends.take(numbers) - starts


class _Workers:
    """A pool of threads, or none where one thread is asked for."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *exception: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of all items, in order."""
        return list(
            self._pool.map(function, items) if self._pool is not None and len(items) > 1 else map(function, items)
        )


def _missing(places: Integers, units: Integers, keys: Keys, lengths: Integers, plain_ascii: bool) -> _Missing:
    keys = [words.take(places) for words in keys]
    plain = np.full(len(places), plain_ascii)
    for words in keys:
        plain &= (words & _HIGH_BITS) == 0
    return _Missing(units, keys, lengths.take(places), plain)


def _groups(items: Iterator[Item]) -> Iterator[list[Item]]:
    for size in itertools.chain(_ROUNDS, itertools.repeat(_ROUNDS[-1])):
        group = list(itertools.islice(items, size))
        if not group:
            return
        yield group


def _join(parts: list[tuple[Ids, Offsets]], workers: _Workers) -> Encoded:
    begins = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([len(ids) for ids, _ in parts], out=begins[1:])
    joined = np.empty(int(begins[-1]), dtype=np.int32)
    offsets = [texts + begin for (_, texts), begin in zip(parts, begins[:-1], strict=True)]

    def copy(number: int) -> None:
        joined[begins[number] : begins[number + 1]] = parts[number][0]

    workers.map(copy, range(len(parts)))
    return Encoded(joined, np.concatenate([*offsets, begins[-1:]]))


def _with_room(array: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
    larger[: len(array)] = array
    return larger


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
