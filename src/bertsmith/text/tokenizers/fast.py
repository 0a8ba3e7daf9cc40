"""The fast path from many texts to ids: whole arrays of bytes in, flat arrays of ids out.

1. `blocks.py` turns the texts into blocks of bytes, `units.py` splits each block into units.
2. Every unit is looked up in a cache of units, as 8-byte numbers (`keys.py`). Most are found: the cache starts out with
   the vocabulary.
3. The units that are not in the cache are encoded, each distinct one once: words of ASCII letters in one batch
   (`longest_match.py`), all others after the plain Python code has split them into words. The results are cached.
4. The ids of the units are concatenated.

Steps 1, 2 and 4 run on several threads, since NumPy releases the GIL.

The cache stores the id of a unit that is a single piece; a unit of several pieces, or none, is stored as `-1 - entry`
of a list of pieces.
"""

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from bertsmith.base.machine.allocator import keep_freed_memory
from bertsmith.base.machine.processor import available_cores
from bertsmith.text.tokenizers.blocks import Block, Strings, batches, blocks_of
from bertsmith.text.tokenizers.encoded import Encoded, Ids, Offsets, offsets_of, places_of
from bertsmith.text.tokenizers.keys import (
    LONGEST,
    WIDTHS,
    Bytes,
    Integers,
    Keys,
    KeyTable,
    Values,
    distinct,
    keys_at,
    keys_of,
    strings_of,
    windows_of,
)
from bertsmith.text.tokenizers.longest_match import WordsSegmenter
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.units import UnitFinder
from bertsmith.text.tokenizers.vocabulary import Vocabulary

Item = TypeVar("Item")
Result = TypeVar("Result")
Number = TypeVar("Number", np.int32, np.int64)

# Number of batches that are looked up before their missing units are encoded together: few at first, when most units
# may be missing.
_ROUNDS = (1, 2, 4, 8, 16, 32)
# A code point that will never be assigned; no rule changes or drops it.
_MARK = "\U0010ffff"
# With fewer words to encode, threads cost more than they save.
_WORTH_SHARING = 2000
_MOST_BYTES = 96 << 20  # of the cache, besides its last growth
_HIGH_BITS = np.uint64(0x8080808080808080)


@dataclasses.dataclass
class _Missing:
    """Units of one width that were not in the cache."""

    places: Integers
    keys: Keys
    plain: npt.NDArray[np.bool_]


@dataclasses.dataclass
class _LookedUp:
    """The units of a block and their values, undefined where a unit is missing."""

    values: Values
    first_units: Integers
    missing: list[_Missing]
    long_places: Integers
    long_strings: list[bytes]


class FastEncoder:
    """Encodes many texts, with the same result as `basic_tokens` and `Segmenter` on every string."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: TextRules,
        *,
        cache_entries: int,
        threads: int | None = None,
        look: Callable[[Bytes], None] | None = None,
    ) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._look = look
        self._cache_entries = cache_entries
        self._threads = threads or available_cores()
        self._segmenter = WordsSegmenter(vocabulary, max_word_characters=rules.max_word_characters)
        self._finder = UnitFinder(rules)
        self._lock = threading.Lock()
        keep_freed_memory()
        self._forget()

    def encode(self, texts: Strings) -> Encoded:
        """The ids of `texts`."""
        parts: list[tuple[Ids, Offsets]] = []
        with self._lock, _Workers(self._threads) as workers:
            for group in _groups(batches(texts)):
                if self._remembered > self._cache_entries or self._bytes > _MOST_BYTES:
                    self._forget()
                blocks = list(itertools.chain.from_iterable(workers.map(blocks_of, group)))
                looked_up = workers.map(self._look_up, blocks)
                self._work_out_missing(looked_up, workers)
                parts += workers.map(self._put_in_a_row, looked_up)
            return _join(parts, workers)

    @property
    def _bytes(self) -> int:
        """The bytes of the cache."""
        return self._pieces.ids.nbytes + sum(table.nbytes for table in self._memory)

    def _forget(self) -> None:
        self._remembered = 0
        self._pieces = _PieceLists()
        self._memory = [KeyTable(width) for width in WIDTHS]
        words = self._vocabulary_words()
        for table, shorter in zip(self._memory, (0, *WIDTHS), strict=False):
            chosen = [word for word in words if 8 * shorter < len(word) <= 8 * table.width]
            table.insert(keys_of(chosen, table.width), np.array([words[word] for word in chosen], dtype=np.int32))

    def _vocabulary_words(self) -> dict[bytes, int]:
        """The initial content of the cache: ASCII words of the vocabulary, and every ASCII sign."""
        longest = min(LONGEST, self._rules.max_word_characters)
        words = {
            piece.encode(): id
            for piece, id in self._vocabulary.words.items()
            if piece.isascii() and piece.isalnum() and len(piece) <= longest
            if not self._rules.lowercase or piece == piece.lower()
        }
        signs = [chr(code) for code in range(33, 127) if not chr(code).isalnum()]
        return words | {sign.encode(): self._vocabulary.words.get(sign, self._vocabulary.unk_id) for sign in signs}

    def _look_up(self, block: Block) -> _LookedUp:
        if self._look is not None:
            self._look(block.data)
        units = self._finder.find(block.data, block.borders)
        buffer, starts, reaches = units.buffer, units.starts, units.reaches
        windows = windows_of(buffer)
        rest = _longer_than(8, buffer, starts, reaches, np.flatnonzero(reaches > 8))
        keys = keys_at(windows, starts, reaches, 1)
        values, places = self._memory[0].find(keys, ignore=rest)
        missing = [_missing(places, places, keys, units.plain_ascii)]
        for table in self._memory[1:]:
            longer = _longer_than(8 * table.width, buffer, starts, reaches, rest)
            chosen = np.setdiff1d(rest, longer, assume_unique=True) if len(longer) else rest
            keys = keys_at(windows, starts.take(chosen), reaches.take(chosen), table.width)
            values[chosen], places = table.find(keys)
            missing.append(_missing(places, chosen.take(places), keys, units.plain_ascii))
            rest = longer
        strings = [
            buffer[start : start + reach].tobytes().rstrip(b"\0")
            for start, reach in zip(starts[rest].tolist(), reaches[rest].tolist(), strict=True)
        ]
        return _LookedUp(values, np.searchsorted(starts, block.borders), missing, rest, strings)

    def _work_out_missing(self, looked_up: list[_LookedUp], workers: "_Workers") -> None:
        for number, table in enumerate(self._memory):
            missing = [block.missing[number] for block in looked_up]
            keys = [np.concatenate([part.keys[word] for part in missing]) for word in range(table.width)]
            chosen, groups = distinct(keys)
            if not len(chosen):
                continue
            plain = np.concatenate([part.plain for part in missing])[chosen]
            keys = [words.take(chosen) for words in keys]
            worked_out = self._work_out(keys, plain, workers)
            table.insert(keys, worked_out)
            self._remembered += len(chosen)
            values = worked_out.take(groups)
            begin = 0
            for block, part in zip(looked_up, missing, strict=True):
                block.values[part.places] = values[begin : begin + len(part.places)]
                begin += len(part.places)
        self._work_out_long(looked_up)

    def _work_out(self, keys: Keys, plain: npt.NDArray[np.bool_], workers: "_Workers") -> Values:
        """The values of units that are not in the cache."""
        values = np.empty(len(plain), dtype=np.int32)
        if not self._segmenter.batch.is_usable:
            plain = np.zeros_like(plain)
        together, alone = np.flatnonzero(plain), np.flatnonzero(~plain)
        shares = np.array_split(together, self._threads) if len(together) > _WORTH_SHARING else [together]
        segmented = workers.map(
            self._segmenter.batch.segment, [[words.take(share) for words in keys] for share in shares]
        )
        for share, (ids, counts) in zip(shares, segmented, strict=True):
            values[share] = self._pieces.add(ids, counts)
        if len(alone):
            values[alone] = self._by_words(strings_of([words.take(alone) for words in keys]))
        return values

    def _work_out_long(self, looked_up: list[_LookedUp]) -> None:
        """Encodes the units that are too long to be cached."""
        different = list(dict.fromkeys(itertools.chain.from_iterable(block.long_strings for block in looked_up)))
        if different:
            values = dict(zip(different, self._by_words(different).tolist(), strict=True))
            self._remembered += len(different)
            for block in looked_up:
                block.values[block.long_places] = [values[string] for string in block.long_strings]

    def _by_words(self, strings: Sequence[bytes]) -> Values:
        """The values of units of any kind: split into words by the plain Python code, each word looked up once."""
        units = self._words_of(strings)
        numbers = {word: number for number, word in enumerate(dict.fromkeys(itertools.chain.from_iterable(units)))}
        ids, counts = self._segmenter.segment(list(numbers))
        starts = np.cumsum(counts) - counts
        words = np.array([numbers[word] for unit in units for word in unit], dtype=np.int64)
        unit_of_word = np.repeat(np.arange(len(units)), [len(unit) for unit in units])
        unit_counts = np.bincount(unit_of_word, weights=counts[words], minlength=len(units)).astype(np.int64)
        return self._pieces.add(ids[places_of(starts[words], counts[words])], unit_counts)

    def _words_of(self, strings: Sequence[bytes]) -> list[list[str]]:
        """The basic tokens of every unit, from one call for all units with a mark between them."""
        if any(_MARK.encode() in string for string in strings):
            return [self._basic_tokens(string) for string in strings]
        units: list[list[str]] = [[]]
        for word in self._basic_tokens(f" {_MARK} ".encode().join(strings)):
            if word == _MARK:
                units.append([])
            else:
                units[-1].append(word)
        return units

    def _basic_tokens(self, text: bytes) -> list[str]:
        return basic_tokens(text.decode("utf-8", "surrogatepass"), self._rules)

    def _put_in_a_row(self, block: _LookedUp) -> tuple[Ids, Offsets]:
        """(the ids of a block, the index of the first id of each text)."""
        values = block.values
        several = np.flatnonzero(values < 0)
        if not len(several):
            return values, block.first_units
        starts, counts = self._pieces.of(values.take(several))
        repeats = np.ones(len(values), dtype=np.int64)
        repeats[several] = counts
        begins = offsets_of(repeats)
        ids = values.repeat(repeats)
        ids[places_of(begins.take(several), counts)] = self._pieces.ids.take(places_of(starts, counts))
        return ids, begins.take(block.first_units)


class _PieceLists:
    """Numbered lists of pieces; list 0 is empty."""

    def __init__(self) -> None:
        self.ids = np.zeros(1024, dtype=np.int32)
        self._ends = np.zeros(1024, dtype=np.int64)
        self._lists = 1
        self._used = 0

    def add(self, ids: Ids, counts: Integers) -> Values:
        """The values of units with `counts` pieces each: the id itself, or `-1 - number` of a list of ids."""
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
        """(starts of the lists of these negative values in `ids`, their lengths)."""
        numbers = -1 - values.astype(np.int64)
        starts = self._ends.take(np.maximum(numbers - 1, 0))
        return starts, self._ends.take(numbers) - starts


class _Workers:
    """A thread pool, or a plain loop if only one thread is requested."""

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


def _longer_than(size: int, buffer: Bytes, starts: Integers, reaches: Integers, among: Integers) -> Integers:
    """Which of the units `among` have more than `size` bytes: those whose next byte is not zero."""
    among = among[reaches.take(among) > size]
    longer: Integers = among[buffer.take(starts.take(among) + size) != 0]
    return longer


def _missing(places: Integers, units: Integers, keys: Keys, plain_ascii: bool) -> _Missing:
    keys = [words.take(places) for words in keys]
    plain = np.full(len(places), plain_ascii)
    for words in keys:
        plain &= (words & _HIGH_BITS) == 0
    return _Missing(units, keys, plain)


def _groups(items: Iterator[Item]) -> Iterator[list[Item]]:
    for size in itertools.chain(_ROUNDS, itertools.repeat(_ROUNDS[-1])):
        group = list(itertools.islice(items, size))
        if not group:
            return
        yield group


def _join(parts: list[tuple[Ids, Offsets]], workers: _Workers) -> Encoded:
    begins = offsets_of([len(ids) for ids, _ in parts])
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
