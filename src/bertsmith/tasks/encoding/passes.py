"""Inference over encoded rows: equal rows are computed once, in batches of similar length, one by one or in parallel.

The function that computes a batch is given; nothing here needs torch, except to join the results of several processes.

Letters: U units, N rows, R positions that the head reads, r those of some rows, K outputs of the head.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.finite import require_finite
from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.models.parts.batch import cut_by_tokens, rows_index
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits, RowPart, separate_rows, sorted_rows
from bertsmith.text.tokenizers.pack import PackedRows

_COPIED = 2**16  # entries copied at a time, so that copying takes hardly any memory


class Parallel(NamedTuple):
    """How batches are computed at the same time, each by a thread of its own.

    Attributes:
        workers: number of threads.
        tokens: maximum tokens (or one row) of a batch.
        min_tokens: with fewer tokens in total, batches are computed one by one.
        new_compute: returns what computes a batch, as in `computed`; several threads call it.
        before_each: called before every batch, by the thread that waits for all of them.
    """

    workers: int
    tokens: int
    min_tokens: int
    new_compute: Callable[[], Callable[[RowPart], Logits]]
    before_each: Callable[[], None]


def computed(
    features: EncodedExamples,
    compute: Callable[[RowPart], Logits],
    *,
    width: tuple[int, ...],
    micro_tokens: int,
    advance: Callable[[float], None] | None = None,
    rank: Rank = ALONE,
    parallel: Parallel | None = None,
) -> npt.NDArray[np.float32]:
    """The results of `compute` for every position that is read, float32 [R, *width], in the order of the features.

    Equal rows are computed once: the last digits of a result depend on the row's place in the batch, so only this way
    do equal texts in one call get equal numbers. Rows are sorted by length and split by tokens, even those of one unit,
    unless the head reads these together; then equal units are computed once.

    Args:
        compute: returns float32 [r, *width] for some rows.
        width: the shape of the result for one position.
        micro_tokens: maximum tokens (or one row) to compute together.
        advance: receives the fraction of rows done since its last call.
        rank: this process among those that call it together with the same features. They share the work and all get
            the results of one process: the same bytes, unless it would compute fewer parts than there are processes.
        parallel: how batches of many rows are computed at the same time; None if one by one is as fast.

    Raises:
        NotFiniteError: a result is NaN or infinite; its `index` is the example.
    """
    results = np.zeros((features.num_read, *width), dtype=np.float32)
    if features.windows_of_first is not None and len(features):
        results = _computed_by_unit(features, compute, results, micro_tokens, advance, rank)
    elif len(features.rows) == 1:
        results[:] = compute(RowPart(features=features, rows=np.zeros(1, dtype=np.int64)))
        if advance is not None:
            advance(1.0)
    elif len(features):
        results = _computed_by_row(features, compute, results, micro_tokens, advance, rank, parallel)
    require_finite(results, lambda position: _example_at(features, position))
    return results


def _computed_by_row(
    features: EncodedExamples,
    compute: Callable[[RowPart], Logits],
    results: npt.NDArray[np.float32],
    micro_tokens: int,
    advance: Callable[[float], None] | None,
    rank: Rank,
    parallel: Parallel | None,
) -> npt.NDArray[np.float32]:
    """`results`, filled with those of rows that do not depend on each other."""
    different, position = _different(features)
    # Each result is written to the first position that needs it, then copied to the others.
    first = np.unique(position, return_index=True)[1]
    order = np.argsort(different.lengths, kind="stable")
    if parallel is not None and int(different.lengths.sum()) < parallel.min_tokens:
        parallel = None
    micro_tokens = micro_tokens if parallel is None else parallel.tokens
    cuts = cut_by_tokens(order, different.lengths, micro_tokens, rank.count)
    dealt = rank.dealt(len(cuts))
    parts = (RowPart(features=different, rows=sorted_rows(different, cuts[number])) for number, _ in dealt)
    # Each part with its results, in order.
    one_by_one = ((part, compute(part)) for part in parts)
    computing = one_by_one if parallel is None else _in_parallel(parallel, parts)
    for (number, counts), (part, values) in zip(dealt, computing, strict=True):
        if counts:
            results[first[part.chosen]] = values
        if advance is not None:
            advance(sum(map(len, cuts[number : number + rank.count])) / len(different))
    if rank.count > 1:
        results = _joined(results, rank)
    source = first[position]
    copies = np.flatnonzero(source != np.arange(len(source)))
    for begin in range(0, len(copies), _COPIED):
        entries = copies[begin : begin + _COPIED]
        results[entries] = results[source[entries]]
    return results


def _in_parallel(parallel: Parallel, parts: Iterable[RowPart]) -> Iterator[tuple[RowPart, Logits]]:
    """Each part with its results, in order, with several computed at a time; after an error, no other is begun."""
    compute, begun = parallel.new_compute(), collections.deque[tuple[RowPart, Future[Logits]]]()
    threads = ThreadPoolExecutor(parallel.workers)
    try:
        for part in parts:
            parallel.before_each()
            begun.append((part, threads.submit(compute, part)))
            if len(begun) > parallel.workers:  # one is ready for the first thread that is free
                first, results = begun.popleft()
                yield first, results.result()
        for first, results in begun:
            yield first, results.result()
    finally:
        threads.shutdown(cancel_futures=True)  # waits for the parts that are being computed


def _computed_by_unit(
    features: EncodedExamples,
    compute: Callable[[RowPart], Logits],
    results: npt.NDArray[np.float32],
    micro_tokens: int,
    advance: Callable[[float], None] | None,
    rank: Rank,
) -> npt.NDArray[np.float32]:
    """`results`, filled with the results for units whose rows are computed together."""
    rows = features.rows
    lengths = features.unit_tokens.astype(np.int32)
    whole = PackedRows(rows.token_ids, rows.segment_ids, lengths, np.zeros_like(lengths))
    which = whole.distinct()[1]
    first = np.unique(which, return_index=True)[1]
    order = first[np.argsort(features.unit_tokens[first], kind="stable")]
    cuts = cut_by_tokens(order, features.unit_tokens, micro_tokens, rank.count)
    for number, counts in rank.dealt(len(cuts)):
        rows_of_units = rows_index(features.rows_per_unit, cuts[number])
        part = RowPart(features=features, rows=sorted_rows(features, rows_of_units))
        values = compute(part)
        if counts:
            results[part.chosen] = values
        if advance is not None:
            advance(sum(map(len, cuts[number : number + rank.count])) / len(order))
    if rank.count > 1:
        results = _joined(results, rank)
    source = first[which]
    copied = np.flatnonzero(source != np.arange(len(source)))
    reads = np.add.reduceat(features.read_per_row, features.first_rows)
    results[rows_index(reads, copied)] = results[rows_index(reads, source[copied])]
    return results


def _joined(results: npt.NDArray[np.float32], rank: Rank) -> npt.NDArray[np.float32]:
    """The results of all processes, which are zero wherever a process has computed none."""
    import torch

    from bertsmith.base.processes.distributed import sum_over_ranks

    return sum_over_ranks(torch.from_numpy(results), rank).numpy()


def _example_at(features: EncodedExamples, position: int) -> int:
    """The example that a position which is read belongs to."""
    row = np.searchsorted(np.cumsum(features.read_per_row), position, side="right")
    return int(features.example_of_row[row])


def _different(features: EncodedExamples) -> tuple[EncodedExamples, Ints]:
    """The distinct rows as separate units, and for each position that is read its index among theirs, int64 [R].

    If different positions are read in equal rows, all of them are read in the row that represents them.
    """
    guides, unseen = features.guides, features.unseen
    rows, which = features.rows.distinct(guides if unseen is None else unseen.tolist())
    if guides is not None or unseen is not None:
        firsts = np.unique(which, return_index=True)[1]
        guides = None if guides is None else [guides[row] for row in firsts]
        unseen = None if unseen is None else unseen[firsts]
    if features.read is None:
        read, position = None, rows_index(rows.lengths, which)
    else:
        shift = np.repeat(rows.offsets[which] - features.rows.offsets[:-1], features.read_per_row)
        read, position = np.unique(features.read + shift, return_inverse=True)
    different = separate_rows(rows, read, unseen)
    return dataclasses.replace(different, writing=features.writing, guides=guides), position
