"""The one batch type: sequences of any length as one flat row of real tokens.

Letters: T tokens in the batch, N sequences, R positions that are read, s length of one sequence.

There is no padding and no mask anywhere. Linear layers see [T, width]; attention makes one call for each run of
consecutive sequences of the same length, so a batch that is sorted by length needs the fewest calls.

Tensors are made only in `copied`, so that the functions over arrays work without torch.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.models.parts.runs import Runs, copied, runs_of
from bertsmith.text.tokenizers.encoded import places_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Flat sequences.

    Attributes:
        token_ids: int64 [T].
        segment_ids: int64 [T].
        positions: int64 [T], counted from 0 in each sequence.
        lengths: tokens of each sequence; they add up to T.
        row_ids: the id of each sequence in its step; its dropout noise depends on it.
        windows: which sequences are windows of one text or pair, for a head that reads these together.
        unseen: int64 [N], how many tokens at the end of each sequence no token attends to; None for none.
    """

    token_ids: "Tensor"
    segment_ids: "Tensor"
    positions: "Tensor"
    lengths: tuple[int, ...]
    row_ids: tuple[int, ...]
    windows: "WindowsOfTexts | None" = None
    unseen: "Tensor | None" = None

    @staticmethod
    def from_flat(
        token_ids: npt.NDArray[np.integer],
        segment_ids: npt.NDArray[np.integer],
        lengths: Sequence[int] | npt.NDArray[np.integer],
        row_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
        device: "torch.device | str" = "cpu",
    ) -> "Batch":
        """A batch from flat arrays, as `text.tokenizers.pack` makes them.

        Args:
            lengths: [N], at least one token each.
            row_ids: [N]; 0, 1, 2 ... if not given.
        """
        counts = np.asarray(lengths, dtype=np.int64)
        sizes = tuple(counts.tolist())
        assert sizes, "a batch has a sequence"
        assert min(sizes) > 0, "each sequence has a token"
        assert sum(sizes) == len(token_ids) == len(segment_ids), "the lengths add up to the tokens"
        positions = np.arange(len(token_ids), dtype=np.int64)
        if len(sizes) > 1:
            positions -= np.repeat(np.cumsum(counts) - counts, counts)
        return Batch(
            token_ids=_on(token_ids, device),
            segment_ids=_on(segment_ids, device),
            positions=_on(positions, device),
            lengths=sizes,
            row_ids=tuple(range(len(sizes))) if row_ids is None else tuple(int(row) for row in row_ids),
        )

    @staticmethod
    def from_rows(
        rows: Sequence[npt.NDArray[np.integer]],
        row_ids: Sequence[int] | None = None,
        device: "torch.device | str" = "cpu",
    ) -> "Batch":
        """A batch of N rows of token ids, each of which is one text; see `from_flat`."""
        ids = np.concatenate(rows)
        return Batch.from_flat(ids, np.zeros_like(ids), [len(row) for row in rows], row_ids, device)

    def select(self, rows: Sequence[int]) -> "Batch":
        """Some of the rows, as a batch of their own."""
        import torch

        index = torch.from_numpy(rows_index(np.asarray(self.lengths), np.asarray(rows))).to(self.token_ids.device)
        return Batch(
            token_ids=self.token_ids[index],
            segment_ids=self.segment_ids[index],
            positions=self.positions[index],
            lengths=tuple(self.lengths[row] for row in rows),
            row_ids=tuple(self.row_ids[row] for row in rows),
            unseen=None if self.unseen is None else self.unseen[list(rows)],
        )

    @property
    def num_tokens(self) -> int:
        """T."""
        return int(self.token_ids.shape[0])

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.lengths)

    @functools.cached_property
    def first_positions(self) -> "Tensor":
        """The start of each sequence, that is, its [CLS]: int64 [N]."""
        starts = np.cumsum(self.lengths) - np.asarray(self.lengths)
        return _on(starts, self.token_ids.device)

    @functools.cached_property
    def last_positions(self) -> "Tensor":
        """The end of each sequence, that is, its last [SEP]: int64 [N]."""
        return _on(np.cumsum(self.lengths) - 1, self.token_ids.device)

    @functools.cached_property
    def runs(self) -> Runs:
        """The runs of equal length, with every token a query."""
        return runs_of(self.lengths, self.lengths)

    @functools.cached_property
    def texts_apart(self) -> "TextsApart":
        """The two texts of each row as sequences of their own.

        A row [CLS] A [SEP] B [SEP] becomes [CLS] A [SEP], its tokens of segment 0, and [CLS] B [SEP], its first token
        and segment 1. Positions restart at 0, and all segment ids are 0. Without a second text, the second
        sequence is [CLS].
        """
        lengths = np.asarray(self.lengths, dtype=np.int64)
        starts = np.cumsum(lengths) - lengths
        is_second = self.segment_ids.cpu().numpy() > 0
        is_second[starts] = False
        text = 2 * np.repeat(np.arange(len(lengths)), lengths) + is_second  # [T], the texts of all rows are numbered
        tokens = np.concatenate([starts, np.arange(len(text))])
        text = np.concatenate([2 * np.arange(len(lengths)) + 1, text])
        counts = np.bincount(text)  # [2N]
        by_length = np.argsort(counts, kind="stable")
        places = np.argsort(by_length)
        tokens = tokens[np.argsort(places[text], kind="stable")]
        ids = self.token_ids.cpu().numpy()[tokens]
        batch = Batch.from_flat(ids, np.zeros_like(ids), counts[by_length], device=self.token_ids.device)
        return TextsApart(batch=batch, places=tuple(places.tolist()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextsApart:
    """The texts of N rows of two, as 2N sequences that do not see each other.

    Attributes:
        batch: the sequences, ascending by length. For their noise see `noise.NoiseOfTexts`.
        places: where in the batch the first text of the first row is, its second text, the texts of the second row ...
    """

    batch: Batch
    places: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowsOfTexts:
    """Which rows of a batch are windows of the same unit, a text or a pair; N rows, U units.

    Attributes:
        order: the rows, unit by unit, in a unit by their position in it, [N].
        counts: the rows of each unit, [U].
        texts: of each row in that order 0 or 1, the text of the pair that it is a window of, [N].
        places: of each row in that order its position in its text, [N].
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]
    texts: tuple[int, ...]
    places: tuple[int, ...]

    @staticmethod
    def of(
        unit_of_row: npt.NDArray[np.integer],
        place_in_unit: npt.NDArray[np.integer],
        first_counts: npt.NDArray[np.integer],
    ) -> "WindowsOfTexts":
        """The windows of rows.

        Args:
            unit_of_row: numbered from 0, [N]; every unit has a row.
            place_in_unit: [N].
            first_counts: how many rows of each unit are windows of its first text, [U].

        >>> WindowsOfTexts.of(np.array([1, 0, 1]), np.array([1, 0, 0]), np.array([1, 1])).order
        (1, 2, 0)
        """
        order = np.lexsort((place_in_unit, unit_of_row))
        units, places = unit_of_row[order], place_in_unit[order]
        is_second = places >= first_counts[units]
        return WindowsOfTexts(
            order=tuple(order.tolist()),
            counts=tuple(np.bincount(units).tolist()),
            texts=tuple(is_second.astype(int).tolist()),
            places=tuple((places - np.where(is_second, first_counts[units], 0)).tolist()),
        )

    @functools.cached_property
    def firsts(self) -> tuple[int, ...]:
        """The first row of each unit, [U]."""
        return tuple(self.order[start] for start in np.cumsum((0, *self.counts))[:-1].tolist())

    @functools.cached_property
    def counts_of_texts(self) -> tuple[int, ...]:
        """The rows of the first and of the second text of each unit, [2U]."""
        unit = np.repeat(np.arange(len(self.counts)), self.counts)
        counts = np.bincount(2 * unit + np.asarray(self.texts), minlength=2 * len(self.counts))
        return tuple(counts.tolist())

    @functools.cached_property
    def unit_of_row(self) -> tuple[int, ...]:
        """The unit of each row of the batch, [N]."""
        units = np.empty(len(self.order), dtype=np.int64)
        units[list(self.order)] = np.repeat(np.arange(len(self.counts)), self.counts)
        return tuple(units.tolist())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Read:
    """The positions that a head reads, so that the last layer computes nothing else.

    Attributes:
        positions: int64 [R], flat and ascending.
        counts: the number of them in each sequence, at least one.
        backward: int64 [R], where the second half of the hidden states is read, if that is elsewhere: of an encoder
            that reads in both directions, the forward half has seen a row at its end, the backward half at its start.
    """

    positions: "Tensor"
    counts: tuple[int, ...]
    runs: Runs
    backward: "Tensor | None" = None

    @staticmethod
    def at(batch: Batch, positions: npt.NDArray[np.integer]) -> "Read":
        """The flat ascending `positions` [R] of `batch`, at least one in each sequence."""
        ends = np.cumsum(batch.lengths)
        edges = np.searchsorted(positions, np.concatenate([[0], ends]))
        counts = np.diff(edges)
        assert counts.min() > 0, "each sequence has a position that is read"
        assert np.all(np.diff(positions) > 0), "positions ascend"
        read = tuple(int(count) for count in counts)
        return Read(positions=_on(positions, batch.token_ids.device), counts=read, runs=runs_of(batch.lengths, read))

    @staticmethod
    def first(batch: Batch) -> "Read":
        """The positions of [CLS] only."""
        return Read._one_each(batch, batch.first_positions)

    @staticmethod
    def last(batch: Batch) -> "Read":
        """The last position of each sequence only."""
        return Read._one_each(batch, batch.last_positions)

    @staticmethod
    def ends(batch: Batch) -> "Read":
        """The forward half at the last position of each sequence, and the backward half at the first."""
        return dataclasses.replace(Read.last(batch), backward=batch.first_positions)

    def lengths(self, batch: Batch) -> tuple[int, ...]:
        """The number of tokens from each position to the next, [R]; every row is read at its start."""
        positions = self.positions.tolist()
        assert positions[0] == 0, "every row is read at its start"
        return tuple(np.diff([*positions, batch.num_tokens]).tolist())

    def pick(self, hidden: "Tensor") -> "Tensor":
        """The hidden states [R, D] that are read, of those [T, D] of all positions."""
        if self.backward is None:
            return hidden[self.positions]
        import torch

        forward, backward = hidden.chunk(2, dim=1)
        return torch.cat([forward[self.positions], backward[self.backward]], dim=1)

    @staticmethod
    def _one_each(batch: Batch, positions: "Tensor") -> "Read":
        ones = (1,) * batch.num_rows
        return Read(positions=positions, counts=ones, runs=runs_of(batch.lengths, ones))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GatheredRows:
    """Some rows of flat arrays, ready for the model.

    Attributes:
        wanted: int64 [r], the wanted positions in them, ascending; None for all.
        chosen: int64 [r], the indices of these positions among the wanted positions of the arrays, in the same order.
    """

    batch: Batch
    wanted: npt.NDArray[np.int64] | None
    chosen: npt.NDArray[np.int64]

    @functools.cached_property
    def read(self) -> Read | None:
        """The wanted positions as the model reads them; None for all."""
        return None if self.wanted is None else Read.at(self.batch, self.wanted)


def gather_rows(
    rows: npt.NDArray[np.int64],
    *,
    token_ids: npt.NDArray[np.integer],
    segment_ids: npt.NDArray[np.integer],
    lengths: npt.NDArray[np.int64],
    wanted: npt.NDArray[np.int64] | None = None,
    wanted_per_row: npt.NDArray[np.int64] | None = None,
    row_ids: Sequence[int] | npt.NDArray[np.integer] | None = None,
    device: "torch.device | str" = "cpu",
) -> GatheredRows:
    """Some rows of flat arrays as one batch, in the given order, and the wanted positions in them.

    Args:
        rows: indices of rows, int64 [n].
        wanted: flat positions, int64 [R], ascending, at least one in each of `rows`; None for every position.
        wanted_per_row: the number of wanted positions in each row, int64 [N]; required with `wanted`.
        row_ids: the ids of the rows in the batch, [n]; 0, 1, 2 ... if not given.

    >>> tokens, lengths = np.array([2, 7, 3, 2, 9, 9, 3]), np.array([3, 4])
    >>> gathered = gather_rows(
    ...     np.array([1, 0]), token_ids=tokens, segment_ids=0 * tokens, lengths=lengths,
    ...     wanted=np.array([1, 4, 5]), wanted_per_row=np.array([1, 2]),
    ... )
    >>> gathered.batch.token_ids.tolist(), gathered.read.positions.tolist(), gathered.chosen.tolist()
    ([2, 9, 9, 3, 2, 7, 3], [1, 2, 5], [1, 2, 0])
    """
    if len(rows) == len(lengths) == 1:
        # A single row, such as a query, is only a few milliseconds of work: there is nothing to gather.
        batch = Batch.from_flat(token_ids, segment_ids, lengths, row_ids, device)
        places = np.arange(len(token_ids) if wanted is None else len(wanted))
        return GatheredRows(batch=batch, wanted=wanted, chosen=places)
    index = rows_index(lengths, rows)
    batch = Batch.from_flat(token_ids[index], segment_ids[index], lengths[rows], row_ids, device)
    if wanted is None:
        return GatheredRows(batch=batch, wanted=None, chosen=index)
    assert wanted_per_row is not None
    chosen = rows_index(wanted_per_row, rows)
    starts, new_starts = np.cumsum(lengths) - lengths, np.cumsum(lengths[rows]) - lengths[rows]
    moved = wanted[chosen] + np.repeat(new_starts - starts[rows], wanted_per_row[rows])
    return GatheredRows(batch=batch, wanted=moved, chosen=chosen)


def rows_index(lengths: npt.NDArray[np.integer], rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """The positions of the tokens of some `rows` in a flat array whose rows have `lengths`: int64 [their tokens].

    >>> rows_index(np.array([2, 3, 1]), np.array([2, 0]))
    array([5, 0, 1])
    """
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    counts = np.asarray(lengths, dtype=np.int64)[rows]
    return places_of(starts[rows], counts)


def cut_by_tokens(
    order: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], most_tokens: int, least_parts: int = 1
) -> list[npt.NDArray[np.int64]]:
    """The rows of `order`, split into as few parts of nearly equal size as `most_tokens` per part (or one row) allows.

    With `least_parts`, into at least that number of parts if there are that many rows, and no row is too long for it.

    >>> cut_by_tokens(np.array([2, 0, 1]), np.array([3, 3, 5]), 8)
    [array([2]), array([0, 1])]
    """
    if len(order) and 2 * int(lengths[order].min()) > most_tokens:  # no two rows fit together
        return np.split(order, np.arange(1, len(order)))
    ends = np.cumsum(lengths[order])
    parts = max(least_parts, -(-int(ends[-1]) // most_tokens))
    while True:
        borders = np.searchsorted(ends, ends[-1] * np.arange(1, parts) / parts, side="right")
        cuts = [part for part in np.split(order, borders) if len(part)]
        if all(len(part) == 1 or lengths[part].sum() <= most_tokens for part in cuts):
            return cuts
        parts += 1


def _on(array: npt.NDArray[np.integer], device: "torch.device | str") -> "Tensor":
    return copied(array.astype(np.int64, copy=False), device)
