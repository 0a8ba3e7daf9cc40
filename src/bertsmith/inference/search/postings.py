"""Inverted files: for each term, the rows that have it and its weight in each of them, memory-mapped.

::

    X.arrow         term (sorted), end (of its postings), most (its largest weight)
    X-rows.npy      uint32, the rows of each term, ascending
    X-weights.npy   a weight for each of them: counts as small unsigned integers, or floating-point numbers

Words are stored with their counts, from which BM25 computes weights; the dimensions of sparse vectors by their numbers,
with their weights.

Letters: n rows, V terms, P postings.
"""

import bisect
import contextlib
import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import scipy.sparse as sp

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.arrays import allocated_array, load_array
from bertsmith.base.storage.files import atomic_file
from bertsmith.inference.search.rankings import Ranking, best

_BLOCK = 4096  # texts whose terms are sorted together
_SAMPLE = 4096  # rows whose scores show what the best have at least
_ROUNDING = 1e-9  # a share of a score
_SCHEMA = pa.schema([("term", pa.large_string()), ("end", pa.int64()), ("most", pa.float64())])

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Block = tuple[Ints, Ints, Ints | Floats]


class _Numbers(dict[str, int]):
    """Numbers of terms, in the order in which they are first asked for."""

    def __missing__(self, term: str) -> int:
        self[term] = number = len(self)
        return number


def write_counts(folder: Path, name: str, texts: Iterable[Sequence[str]]) -> Ints:
    """Writes the counts of terms in texts, and returns the number of terms in each text, int64 [n].

    Args:
        texts: the terms of each text, in order.
    """
    numbers, lengths = _Numbers(), list[int]()

    def blocks() -> Iterator[Block]:
        first, source = 0, iter(texts)
        while block := list(itertools.islice(source, _BLOCK)):
            sizes = [len(terms) for terms in block]
            lengths.extend(sizes)
            terms = np.fromiter(
                map(numbers.__getitem__, itertools.chain.from_iterable(block)), np.int64, count=sum(sizes)
            )
            pairs = terms * _BLOCK + np.repeat(np.arange(len(block)), sizes)
            pairs, counts = np.unique(pairs, return_counts=True)
            yield pairs // _BLOCK, first + pairs % _BLOCK, counts
            first += len(block)

    _write(folder, name, numbers, blocks(), np.uint32)
    return np.array(lengths, dtype=np.int64)


def write_weights(
    folder: Path, name: str, rows: Iterable[sp.csr_matrix], num_terms: int, dtype: type[Any] = np.float16
) -> None:
    """Writes the weights of numbered terms in rows; those that are not positive are left out.

    Args:
        rows: blocks of them, [n, V].
        num_terms: V.
        dtype: of the weights, see `_write`.
    """

    def blocks() -> Iterator[Block]:
        first = 0
        for block in rows:
            by_term = block.tocsc()
            by_term.sort_indices()
            counts = by_term.data > 0
            terms = np.repeat(np.arange(num_terms), np.diff(by_term.indptr))
            yield terms[counts], (first + by_term.indices)[counts], by_term.data[counts]
            first += block.shape[0]

    _write(folder, name, {str(term): term for term in range(num_terms)}, blocks(), dtype)


def _write(folder: Path, name: str, numbers: Mapping[str, int], blocks: Iterable[Block], dtype: type[Any]) -> None:
    """Writes the files of blocks of postings.

    The postings wait in a temporary file until the number of postings of each term is known, so memory holds one block
    and the terms.

    Args:
        blocks: numbers of terms, ascending; their rows, ascending in each term and over the blocks; and weights.
        dtype: of the weights; unsigned integers are stored in the smallest type that fits.
    """
    posting = np.dtype([("term", "<u4"), ("row", "<u4"), ("weight", dtype)])
    sizes, totals, most = list[int](), np.zeros(0, np.int64), np.zeros(0)
    with tempfile.TemporaryFile(dir=folder) as waiting, contextlib.ExitStack() as stack:
        for terms, rows, weights in blocks:
            block = np.empty(len(terms), posting)
            block["term"], block["row"], block["weight"] = terms, rows, weights
            waiting.write(block.data)
            sizes.append(len(block))
            totals.resize(len(numbers), refcheck=False)
            most.resize(len(numbers), refcheck=False)
            totals += np.bincount(terms, minlength=len(numbers))
            np.maximum.at(most, terms, weights)
        waiting.seek(0)
        names = list(numbers)
        order = np.array(sorted(np.flatnonzero(totals).tolist(), key=names.__getitem__), dtype=np.int64)
        ends = np.cumsum(totals[order])
        free = np.empty(len(names), np.int64)  # where the next posting of a term goes
        free[order] = ends - totals[order]
        kept = _narrowest(most.max(initial=0)) if issubclass(dtype, np.unsignedinteger) else dtype
        stored = []
        for part, kind in (("rows", np.uint32), ("weights", kept)):
            file = stack.enter_context(atomic_file(folder / f"{name}-{part}.npy"))
            stored.append(allocated_array(file, np.dtype(kind), int(totals.sum())))
        for size in sizes:
            block = np.frombuffer(waiting.read(size * posting.itemsize), posting)
            terms = block["term"].astype(np.int64)
            starts = np.flatnonzero(np.diff(terms, prepend=-1))
            lengths = np.diff(starts, append=size)
            places = free[terms] + np.arange(size) - np.repeat(starts, lengths)
            free[terms[starts]] += lengths
            stored[0][places], stored[1][places] = block["row"], block["weight"]
        for array in stored:
            array.flush()
        del stored, array
    columns = [pa.array([names[number] for number in order], pa.large_string()), pa.array(ends), pa.array(most[order])]
    with atomic_file(folder / f"{name}.arrow") as file, pa.ipc.new_file(file, _SCHEMA) as writer:
        writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))


def _narrowest(most: float) -> type[Any]:
    return next(kind for kind in (np.uint8, np.uint16, np.uint32) if most <= np.iinfo(kind).max)


class Term(NamedTuple):
    """The postings of a term.

    Attributes:
        rows: uint32, ascending.
        weights: of the term in these rows.
        most: the largest of all weights.
    """

    rows: npt.NDArray[np.uint32]
    weights: npt.NDArray[Any]
    most: float


class Postings:
    """An inverted file, memory-mapped; a ValueError or OSError if a file is damaged."""

    def __init__(self, folder: Path, name: str) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(folder / f"{name}.arrow"))).read_all().combine_chunks()
        self._terms, self._ends, self._most = (
            TextColumn(table["term"]),
            table["end"].to_numpy(),
            table["most"].to_numpy(),
        )
        self._rows = load_array(folder / f"{name}-rows.npy")
        self._weights = load_array(folder / f"{name}-weights.npy")
        count = int(self._ends[-1]) if len(self._ends) else 0
        if len(self._rows) != count or len(self._weights) != count:
            raise ValueError(f"{count:,} postings, {len(self._rows):,} rows and {len(self._weights):,} weights")

    def of(self, term: str) -> Term | None:
        """The postings of a term; None if no row has it."""
        number = bisect.bisect_left(self._terms, term)
        if number == len(self._terms) or self._terms[number] != term:
            return None
        part = slice(int(self._ends[number - 1]) if number else 0, int(self._ends[number]))
        return Term(self._rows[part], self._weights[part], float(self._most[number]))


class TextColumn(Sequence[str]):
    """A column of texts of which values are read one by one; an InputError if one is damaged."""

    def __init__(self, values: pa.ChunkedArray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[str]: ...
    def __getitem__(self, number: int | slice) -> str | Sequence[str]:
        if isinstance(number, slice):
            return TextColumn(self._values[number])
        return str(value_at(self._values, number))


def value_at(values: pa.ChunkedArray, number: int) -> str | None:
    """A value of a column of texts; an InputError if it is damaged."""
    try:
        values.slice(number, 1).validate(full=True)  # a damaged offset would end the process
        value: str | None = values[number].as_py()
    except (UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise InputError(
            expected="whole texts in an index", found=str(error), fix="build it again, or restore it"
        ) from None
    return value


class Summand(NamedTuple):
    """What a term of a query adds to the scores of rows.

    Attributes:
        rows: that have the term, ascending.
        scores: what it adds to some of them, positive; the argument chooses among `rows`.
        bound: no less than any of these scores.
    """

    rows: npt.NDArray[np.uint32]
    scores: Callable[[Any], Floats]
    bound: float


def best_rows(summands: Sequence[Summand], n: int, top: int, allowed: Mask | None, least: float) -> Ranking:
    """The rows with the largest sums, at most `top`, for one query; rows with no term of it are not ranked.

    The terms are added from the one that can add most to the one that can add least. Once rows that have none of the
    first terms cannot be among the best, the others are only looked up in the rows that still can.

    Args:
        n: the number of rows.
        allowed: bool [n], the rows that may be ranked; None for all.
        least: a score that a row must reach; minus infinity for none.

    Source: Turtle and Flood, "Query evaluation: strategies and optimizations" (1995), section 4, the term-at-a-time
    form of max_score.
    """
    ordered = sorted(summands, key=lambda each: -each.bound)
    left = np.cumsum([0.0, *(each.bound for each in reversed(ordered))])[::-1]  # that the terms from here on can add
    scores, sample, number = np.zeros(n), np.empty(0, np.uint32), 0
    for number, term in enumerate(ordered):
        if left[number] * (1 + _ROUNDING) < least:
            break
        part = slice(None) if allowed is None else np.flatnonzero(allowed[term.rows])
        rows = term.rows[part]
        before = scores[rows]
        if len(sample) < max(_SAMPLE, top):
            sample = np.concatenate([sample, rows[before == 0]])
        scores[rows] = before + term.scores(part)
        if len(sample) >= top and number + 1 < len(ordered):  # the best of some rows are no better than those of all
            least = max(least, float(np.partition(scores[sample], len(sample) - top)[len(sample) - top]))
    else:
        number = len(ordered)
    lowest = least * (1 - _ROUNDING) - left[number]
    reached = np.flatnonzero(scores >= lowest if lowest > 0 else scores)
    values = scores[reached]
    for position in range(number, len(ordered)):
        may_be = values + left[position] >= least * (1 - _ROUNDING)
        reached, values = reached[may_be], values[may_be]
        places, is_there = located(ordered[position].rows, reached)
        values[is_there] += ordered[position].scores(places[is_there])
    return best(values[None], top, reached[None])


def located(ordered: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> tuple[Ints, Mask]:
    """The places of values in an ascending array, int64, and whether they are there, bool."""
    places = np.searchsorted(ordered, wanted)
    is_there = places < len(ordered)
    is_there[is_there] = ordered[places[is_there]] == wanted[is_there]
    return places, is_there
