"""Counts the words of texts, for learning a vocabulary and reporting on it.

Words are basic tokens (`normalize.py`). Texts are read once, in blocks of bytes that several threads split into units
(`units.py`); each distinct unit is converted to words once. Memory grows with the number of distinct words, not with
the text, and a counter may drop rare ones to bound it.

Each word has a count and the number of *sources* in which it occurs: stretches of about a megabyte of text. A name that
one novel repeats three hundred times says less about new text than a word that thirty novels use ten times each.
"""

import itertools
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bertsmith.base.machine.allocator import keep_freed_memory
from bertsmith.base.machine.processor import available_cores
from bertsmith.text.tokenizers.blocks import Block, blocks_of
from bertsmith.text.tokenizers.encoded import places_of
from bertsmith.text.tokenizers.keys import (
    LONGEST,
    Bytes,
    Integers,
    Keys,
    KeyTable,
    distinct,
    keys_at,
    strings_of,
    windows_of,
)
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.units import UnitFinder

# A source is about this long; a longer file is several sources.
SOURCE_BYTES = 1 << 20
# The spread of a word is the sum of count ** DAMPING over its sources, times SPREAD_UNIT and rounded: the sum of
# integers does not depend on their order.
DAMPING = 0.6
SPREAD_UNIT = 16

_WIDTHS = (1, LONGEST // 8)


class ChosenWords(Sequence[str]):
    """Some of the words of a list, by their places, int64 [W]; all parts of one counter choose from the same list."""

    def __init__(self, words: list[str], places: Integers) -> None:
        self.words_of_counter, self.places = words, places

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[str]:
        return map(self.words_of_counter.__getitem__, self.places.tolist())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """The word or words at a position among the chosen ones."""
        places = self.places[index].tolist()
        return (
            [self.words_of_counter[number] for number in places]
            if isinstance(places, list)
            else self.words_of_counter[places]
        )


class WordCounts(Mapping[str, int]):
    """How often each word occurs; as a mapping, the words and their counts.

    Args:
        sources: int64 [W], the number of sources in which it occurs.
        spread: int64 [W], the damped count (see `DAMPING`).
        chunks: the number of stretches between white space: "it's" is one chunk and three words.

    >>> counts = count_words(["It's a dog, a big dog."], TextRules())
    >>> counts["dog"], counts.chunks, counts.total, len(counts)
    (2, 6, 10, 8)
    """

    def __init__(
        self, words: Sequence[str], counts: Integers, sources: Integers, spread: Integers, num_sources: int, chunks: int
    ) -> None:
        self.words = words
        self.counts, self.sources, self.spread = counts, sources, spread
        self.num_sources = num_sources
        self.chunks = chunks
        self._places: dict[str, int] | None = None

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> "WordCounts":
        """The counts of a mapping, treated as a single source; `chunks` is then the number of words."""
        if isinstance(counts, WordCounts):
            return counts
        words = [word for word in counts if word and counts[word] > 0]
        numbers = np.array([counts[word] for word in words], dtype=np.int64)
        return cls(words, numbers, np.ones_like(numbers), SPREAD_UNIT * numbers, 1, int(numbers.sum()))

    @classmethod
    def merged(cls, parts: Iterable["WordCounts"]) -> "WordCounts":
        """The sum of counts that share no source; the order of `parts` does not matter."""
        parts = list(parts)
        words = list(dict.fromkeys(itertools.chain.from_iterable(part.words for part in parts)))
        places = {word: position for position, word in enumerate(words)}
        columns = np.zeros((3, len(words)), dtype=np.int64)
        for part in parts:
            chosen = np.fromiter((places[word] for word in part.words), np.int64, len(part.words))
            columns[:, chosen] += (part.counts, part.sources, part.spread)
        counts, sources, spread = columns
        num_sources, chunks = sum(part.num_sources for part in parts), sum(part.chunks for part in parts)
        return cls(words, counts, sources, spread, num_sources, chunks)

    @property
    def total(self) -> int:
        """The number of words, repetitions included."""
        return int(self.counts.sum())

    def places_in(self, others: "WordCounts") -> Integers:
        """The position of each word among `others`, which have all of them, int64 [W]."""
        ours, theirs = self.words, others.words
        if (
            isinstance(ours, ChosenWords)
            and isinstance(theirs, ChosenWords)
            and ours.words_of_counter is theirs.words_of_counter
        ):
            places = np.searchsorted(theirs.places, ours.places)
            if np.array_equal(theirs.places.take(places, mode="clip"), ours.places):
                return places
        return np.fromiter(map(others.position, ours), np.int64, len(self))

    def position(self, word: str) -> int:
        """The position of a word."""
        if self._places is None:
            self._places = {known: position for position, known in enumerate(self.words)}
        return self._places[word]

    def __getitem__(self, word: str) -> int:
        return int(self.counts[self.position(word)])

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __len__(self) -> int:
        return len(self.words)


class WordCounter:
    """Counts the words of texts that are added one after the other.

    Texts are grouped into sources in the order in which they are added; calling `end_source` at the end of each file
    makes the counts independent of the order of the files, unless words are dropped.

    Args:
        most_words: the most distinct words since the last call of `part`. When there are more, at least the rarer
            half of them is dropped; one that occurs again counts from then on. None: no limit.

    Attributes:
        dropped: how often the words that were dropped had occurred.
    """

    def __init__(
        self, rules: TextRules | None = None, *, threads: int | None = None, most_words: int | None = None
    ) -> None:
        self.rules = rules if rules is not None else TextRules()
        self._threads = threads or available_cores()
        keep_freed_memory()
        self._finder = UnitFinder(self.rules)
        self._pending: list[str] = []
        self._pending_size = 0
        self._source: list[_Counted] = []
        self._source_bytes = 0
        self._units = _Units(self.rules)
        self._columns = np.zeros((3, 1024), dtype=np.int64)
        self._num_sources = 0
        self._chunks = 0
        self._before = (self._columns.copy(), 0, 0)
        self._most_words = most_words
        self._num_returned = 0  # words that counts which were returned refer to
        self.dropped = 0

    def add(self, texts: Iterable[str]) -> None:
        """Counts the words of `texts`; no word spans two texts."""
        pending, size = self._pending, self._pending_size
        for text in [texts] if isinstance(texts, str) else texts:
            pending.append(text)
            size += len(text)
            if size >= SOURCE_BYTES:
                self._count_pending()
                pending, size = self._pending, 0
        self._pending_size = size

    def end_source(self) -> None:
        """Ends the current source, for instance at the end of a file."""
        self._count_pending()
        self._end_source()

    @property
    def counts(self) -> WordCounts:
        """All counts so far; reading them ends the current source."""
        self.end_source()
        met = np.flatnonzero(self._columns[0])
        return self._counts(met, self._columns[:, met], self._num_sources, self._chunks)

    def part(self) -> WordCounts:
        """The counts since the last call, such as the words of one file; the call ends the current source."""
        self.end_source()
        before, num_sources, chunks = self._before
        before = _padded(before, self._columns.shape[1])
        met = np.flatnonzero(self._columns[0] != before[0])
        columns = self._columns[:, met] - before[:, met]
        before[:, met] += columns
        self._before = before, self._num_sources, self._chunks
        return self._counts(met, columns, self._num_sources - num_sources, self._chunks - chunks)

    def _counts(self, met: Integers, columns: Integers, num_sources: int, chunks: int) -> WordCounts:
        counts, sources, spread = columns
        self._num_returned = len(self._units.words)
        return WordCounts(ChosenWords(self._units.words, met), counts, sources, spread, num_sources, chunks)

    def _count_pending(self) -> None:
        blocks = blocks_of(self._pending)
        self._pending, self._pending_size = [], 0
        if len(blocks) > 1 and self._threads > 1:
            with ThreadPoolExecutor(self._threads) as pool:
                counted: Iterable[_Counted] = list(pool.map(self._count_block, blocks))
        else:
            counted = map(self._count_block, blocks)
        for part in counted:
            self._source.append(part)
            self._source_bytes += part.size
            if self._source_bytes >= SOURCE_BYTES:
                self._end_source()

    def _count_block(self, block: Block) -> "_Counted":
        units = self._finder.find(block.data, block.borders)
        windows = windows_of(units.buffer)
        last = units.starts + units.reaches
        short, rest = [], np.arange(len(units.starts))
        for width in _WIDTHS:
            size = 8 * width
            # Units contain no zero byte, and white space is zero, so such a unit ends before its reach does.
            is_long = (units.reaches[rest] > size) & (units.buffer.take(units.starts[rest] + size, mode="clip") != 0)
            chosen, rest = rest[~is_long], rest[is_long]
            short.append(_value_counts(keys_at(windows, units.starts[chosen], units.reaches[chosen], width)))
        long = Counter(
            units.buffer[begin:end].tobytes().rstrip(b"\0")
            for begin, end in zip(units.starts[rest].tolist(), last[rest].tolist(), strict=True)
        )
        return _Counted(short, long, len(block.data), _num_chunks(units.buffer[: len(block.data)], block.borders))

    def _end_source(self) -> None:
        if not self._source:
            return
        parts, self._source, self._source_bytes = self._source, [], 0
        units, numbers = self._units.numbers(parts)
        words, counts = self._units.words_of(units, numbers)
        num_words = len(self._units.words)
        if num_words > self._columns.shape[1]:
            self._columns = _padded(self._columns, 2 * num_words)
        per_word = np.bincount(words, counts, minlength=num_words).astype(np.int64)
        met = np.flatnonzero(per_word)
        spread = np.rint(SPREAD_UNIT * per_word[met] ** DAMPING).astype(np.int64)
        self._columns[:, met] += (per_word[met], np.ones_like(met), spread)
        self._num_sources += 1
        self._chunks += sum(part.chunks for part in parts)
        if self._most_words is not None and num_words - self._num_returned > self._most_words:
            self._drop_rare_words(self._most_words // 2)

    def _drop_rare_words(self, most: int) -> None:
        """Drops words that were not returned yet, by their counts, until at most this many of them are left."""
        first = self._num_returned
        columns = self._columns[:, first : len(self._units.words)]
        highest_dropped = np.sort(columns[0])[-most - 1]
        kept = np.flatnonzero(columns[0] > highest_dropped)
        self.dropped += int(columns[0].sum() - columns[0, kept].sum())
        self._columns = _padded(np.hstack([self._columns[:, :first], columns[:, kept]]), self._columns.shape[1])
        words = self._units.words
        # In place, because counts that were returned refer to the list.
        words[first:] = [words[first + number] for number in kept.tolist()]
        self._units = _Units(self.rules, words)


def count_words(texts: Iterable[str], rules: TextRules | None = None, *, threads: int | None = None) -> WordCounts:
    """The word counts of `texts`; see `WordCounter`."""
    counter = WordCounter(rules, threads=threads)
    counter.add(texts)
    return counter.counts


class _Counted(NamedTuple):
    """The units of a block: (keys, counts) for each of `_WIDTHS`, longer units as bytes; its size and its chunks."""

    short: list[tuple[Keys, Integers]]
    long: Counter[bytes]
    size: int
    chunks: int


class _Units:
    """Numbers for units, and the words of each unit.

    Args:
        words: those that have a number already.
    """

    def __init__(self, rules: TextRules, words: list[str] | None = None) -> None:
        self.words = [] if words is None else words
        self._rules = rules
        self._places = {word: number for number, word in enumerate(self.words)}
        self._tables = [KeyTable(width) for width in _WIDTHS]
        # The words of unit u are `_flat[_ends[u]:_ends[u + 1]]`.
        self._flat = array("q")
        self._ends = array("q", [0])

    def numbers(self, parts: Sequence[_Counted]) -> tuple[Integers, Integers]:
        """(the numbers of units, their counts), with repetitions; new units get a number."""
        numbers, counts = [], []
        for position, table in enumerate(self._tables):
            keys = [np.concatenate([part.short[position][0][word] for part in parts]) for word in range(table.width)]
            counts.append(np.concatenate([part.short[position][1] for part in parts]))
            units, missing = table.find(keys)
            if len(missing):
                keys = [words[missing] for words in keys]
                chosen, groups = distinct(keys)
                keys = [words[chosen] for words in keys]
                new = self._register(strings_of(keys))
                table.insert(keys, new.astype(np.int32))
                units[missing] = new[groups]
            numbers.append(units.astype(np.int64))
        long: Counter[bytes] = sum((part.long for part in parts), Counter())
        numbers.append(self._register(list(long)))
        counts.append(np.fromiter(long.values(), np.int64, len(long)))
        return np.concatenate(numbers), np.concatenate(counts)

    def words_of(self, units: Integers, counts: Integers) -> tuple[Integers, Integers]:
        """(the numbers of the words of these units, their counts), with repetitions."""
        ends = np.frombuffer(self._ends, dtype=np.int64)
        lengths = ends[units + 1] - ends[units]
        flat = np.frombuffer(self._flat, dtype=np.int64)
        return flat[places_of(ends[units], lengths)], np.repeat(counts, lengths)

    def _register(self, strings: Sequence[bytes]) -> Integers:
        first = len(self._ends) - 1
        for string in strings:
            text = string.decode("utf-8", "surrogatepass")
            # The ASCII letters of units are already lowercase if the rules require it.
            is_word = string.isalnum()
            for word in [text] if is_word else basic_tokens(text, self._rules):
                number = self._places.setdefault(word, len(self.words))
                if number == len(self.words):
                    self.words.append(word)
                self._flat.append(number)
            self._ends.append(len(self._flat))
        return np.arange(first, first + len(strings))


def _value_counts(keys: Keys) -> tuple[Keys, Integers]:
    """The distinct keys and how often each occurs."""
    rows, width = np.stack(keys, axis=1).astype("<u8", copy=False), len(keys)
    kind = pa.uint64() if width == 1 else pa.binary(8 * width)
    table = pc.value_counts(pa.Array.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)]))
    (_, different), (_, counts) = (column.buffers() for column in table.flatten())
    columns = np.frombuffer(different, dtype="<u8")[: width * len(table)].astype(np.uint64).reshape(-1, width).T
    return [np.ascontiguousarray(column) for column in columns], np.frombuffer(counts, dtype=np.int64)[: len(table)]


def _num_chunks(buffer: Bytes, borders: npt.NDArray[np.int64]) -> int:
    """The number of stretches without white space; white space is zero in `buffer`."""
    filled = buffer != 0
    starts = filled.copy()
    starts[1:] &= ~filled[:-1]
    inside = borders[(borders > 0) & (borders < len(filled))]
    starts[inside] |= filled[inside]
    return int(np.count_nonzero(starts))


def _padded(columns: Integers, width: int) -> Integers:
    """The columns with zeros to their right, `width` in all."""
    return np.pad(columns, ((0, 0), (0, width - columns.shape[1]))) if width > columns.shape[1] else columns
