"""Encoded examples, and how they are split into micro-batches without padding.

Letters: U units, N rows, T tokens of all rows, R positions that the head reads.

A *unit* is what is shuffled and counted in a step: an example with all its rows (the endings of a choice, the windows
of a long text), or a single window if each window is trained separately (questions, tags).

Outside training, rows do not depend on each other; see `passes.py`. Only the micro-batches of training import torch.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.models.parts.batch import (
    Batch,
    GatheredRows,
    Read,
    WindowsOfTexts,
    cut_by_tokens,
    gather_rows,
    rows_index,
)
from bertsmith.models.parts.runs import copied
from bertsmith.tasks.encoding.writing import Guide, Writing
from bertsmith.text.tokenizers.encoded import offsets_of, places_of
from bertsmith.text.tokenizers.pack import PackedRows

if TYPE_CHECKING:
    from torch import Tensor

Ints = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]
PER_UNIT, PER_ROW, PER_POSITION, PER_PIECE = "unit", "row", "position", "piece"
NO_LABEL = -1  # of a position that is read but has no target


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncodedExamples:
    """Examples in the form that a model reads.

    Attributes:
        rows: N rows; those of a unit are consecutive.
        rows_per_unit: int64 [U], at least 1 each.
        example_of_row: int64 [N], the index of the example that each row belongs to, ascending.
        read: int64 [R], the flat positions that the head reads, ascending, at least one in every row; None for all. For
            a pooled head the first position of every row: the encoder says which position represents the row.
        targets: the values to predict, or None if there is no gold; the first axis is U, N or R by `targets_per`,
            or the tokens of `target_rows`.
        targets_per: unit, row, position or piece.
        losses_per_unit: int64 [U], how many losses each unit has, if that is not one for each target.
        weights: float32 [U], of the losses of the units in training, with mean 1; None if all are equal.
        windows_of_first: int64 [U], if the head reads all rows of a unit together: how many of them are windows of its
            first text; None if rows do not depend on each other.
        target_rows: for a head that writes, the text to write for each unit, with special tokens; None without gold.
        writing: how such a head writes; None for heads that give logits.
        guides: what it may write for each row; None for any text.
        unseen: int64 [N], how many tokens at the end of each row no token attends to; None for none.
        extra: data that the task needs for decoding, by name; arrays or lists over rows or examples.
    """

    rows: PackedRows
    rows_per_unit: Ints
    example_of_row: Ints
    read: Ints | None
    targets: npt.NDArray[np.generic] | None
    targets_per: str
    losses_per_unit: Ints | None = None
    weights: npt.NDArray[np.float32] | None = None
    windows_of_first: Ints | None = None
    target_rows: PackedRows | None = None
    writing: Writing | None = None
    guides: Sequence[Guide] | None = None
    unseen: Ints | None = None
    extra: dict[str, object] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows_per_unit)

    @functools.cached_property
    def first_rows(self) -> Ints:
        """The first row of each unit, int64 [U]."""
        return np.cumsum(self.rows_per_unit) - self.rows_per_unit

    @functools.cached_property
    def lengths(self) -> Ints:
        """The number of tokens in each row, int64 [N]."""
        return self.rows.lengths.astype(np.int64)

    @functools.cached_property
    def unit_tokens(self) -> Ints:
        """The number of tokens in each unit, those of its target included, int64 [U]."""
        tokens: Ints = np.add.reduceat(self.lengths, self.first_rows) if len(self) else np.zeros(0, np.int64)
        return tokens if self.target_rows is None else tokens + self.target_rows.lengths.astype(np.int64)

    @functools.cached_property
    def read_per_row(self) -> Ints:
        """The number of positions that the head reads in each row, int64 [N]."""
        if self.read is None:
            return self.lengths
        if len(self.rows) == 1:
            return np.array([len(self.read)])
        return np.diff(np.searchsorted(self.read, self.rows.offsets))

    @functools.cached_property
    def read_offsets(self) -> Ints:
        """Where the positions of each row begin among those that the head reads, and the end, int64 [N + 1]."""
        return offsets_of(self.read_per_row)

    @property
    def for_selection(self) -> "EncodedExamples":
        """The same examples for the evaluations of a training, in which texts are written greedily."""
        return self if self.writing is None else dataclasses.replace(self, writing=self.writing.greedy)

    @property
    def num_read(self) -> int:
        """R, the rows of the logits."""
        return int(self.read_per_row.sum())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskBatch:
    """A micro-batch: some units of a step, with their rows sorted by length.

    Attributes:
        batch: the rows.
        read: the positions that the head reads; None for all.
        chosen: int64 [r], the indices of these positions among the positions of the features.
        unit_of_row: int64 [n], the unit of each row, numbered within this micro-batch.
        place_in_unit: int64 [n], the index of each row in its unit.
        targets: the targets of these units, rows or positions; None if there is no gold.
        weights: float32 [u], of the losses of these units; None if all are equal.
        num_units: number of units in this micro-batch.
        step: the optimizer step, for the noise.
        step_targets: number of targets, or losses, in the whole step, by which losses are divided.
        target: for a head that writes, the target of each row without its last token; `targets` are the tokens that
            follow each of these.
    """

    batch: Batch
    read: Read | None
    chosen: Ints
    unit_of_row: "Tensor"
    place_in_unit: "Tensor"
    targets: "Tensor | None"
    num_units: int
    step: int
    step_targets: int
    target: Batch | None = None
    weights: "Tensor | None" = None

    def weighted(self, losses: "Tensor") -> "Tensor":
        """The sum of the losses of the units, [u], by their weights."""
        return (losses if self.weights is None else losses * self.weights).sum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowPart:
    """Some rows of encoded examples that are computed together.

    Attributes:
        features: the examples.
        rows: int64 [n], indices of their rows, sorted by length.
    """

    features: EncodedExamples
    rows: Ints

    @functools.cached_property
    def lengths(self) -> Ints:
        """The number of tokens in each row, int64 [n]."""
        return self.features.lengths[self.rows]

    @functools.cached_property
    def chosen(self) -> Ints:
        """Int64 [r], the positions that are read in these rows, as indices among those of the features."""
        return places_of(self.features.read_offsets[self.rows], self.features.read_per_row[self.rows])

    def gather(self, device: str) -> GatheredRows:
        """The rows as a batch of torch on a device."""
        features = self.features
        gathered = gather_rows(
            self.rows,
            token_ids=features.rows.token_ids,
            segment_ids=features.rows.segment_ids,
            lengths=features.lengths,
            wanted=features.read,
            wanted_per_row=features.read_per_row,
            device=device,
        )
        gathered = with_unseen(gathered, features, self.rows)
        if features.windows_of_first is None:
            return gathered
        every = np.repeat(np.arange(len(features)), features.rows_per_unit)
        units, unit_of_row = np.unique(every[self.rows], return_inverse=True)
        place_in_unit = self.rows - features.first_rows[units[unit_of_row]]
        return with_windows(gathered, unit_of_row, place_in_unit, features.windows_of_first[units])


def with_unseen(gathered: GatheredRows, features: EncodedExamples, rows: Ints) -> GatheredRows:
    """Some rows as a batch that says which of their tokens no token attends to."""
    if features.unseen is None:
        return gathered
    unseen = copied(features.unseen[rows], gathered.batch.token_ids.device)
    return dataclasses.replace(gathered, batch=dataclasses.replace(gathered.batch, unseen=unseen))


def with_windows(gathered: GatheredRows, unit_of_row: Ints, place_in_unit: Ints, first_counts: Ints) -> GatheredRows:
    """The rows of whole units as a batch that says which of them belong together; see `WindowsOfTexts.of`."""
    windows = WindowsOfTexts.of(unit_of_row, place_in_unit, first_counts)
    return dataclasses.replace(gathered, batch=dataclasses.replace(gathered.batch, windows=windows))


def sorted_rows(features: EncodedExamples, rows: Ints) -> Ints:
    """Some rows, ascending by length."""
    return rows[_by_length(features, rows)]


def _by_length(features: EncodedExamples, rows: Ints) -> Ints:
    """The order of some rows by length, and among equal lengths by the number of positions that are read."""
    return np.lexsort((features.read_per_row[rows], features.lengths[rows]))


def rows_by_first(rows: PackedRows) -> EncodedExamples:
    """Rows as separate units with one vector each, from [CLS] or from the position that represents the row."""
    return separate_rows(rows, rows.offsets[:-1])


def separate_rows(rows: PackedRows, read: Ints | None, unseen: Ints | None = None) -> EncodedExamples:
    """Rows as separate units without gold; see `EncodedExamples` for `read` and `unseen`."""
    return EncodedExamples(
        rows=rows,
        rows_per_unit=np.ones(len(rows), dtype=np.int64),
        example_of_row=np.arange(len(rows)),
        read=read,
        targets=None,
        targets_per=PER_ROW,
        unseen=unseen,
    )


def micro_batches(
    features: EncodedExamples,
    units: Ints,
    *,
    micro_tokens: int,
    device: str,
    step: int = 0,
    rank: int = 0,
    world: int = 1,
    least_parts: int = 1,
) -> Iterator[TaskBatch]:
    """The units of a step, in micro-batches of at most `micro_tokens` tokens (or one unit) each.

    Args:
        units: indices of units, int64; a unit may occur twice if a step extends into the next epoch.
        rank, world: select every `world`-th of the units, sorted by length, starting at `rank`.
        least_parts: the least number of micro-batches, if there are that many units.
    """
    tokens = features.unit_tokens[units]
    counts = features.rows_per_unit[units]
    # Noise depends on the row's place in the step, not on its micro-batch.
    names = np.cumsum(counts) - counts
    step_targets = _count_targets(features, units)
    order = np.argsort(tokens // counts, kind="stable")[rank::world]
    for part in cut_by_tokens(order, tokens, micro_tokens, least_parts) if len(order) else ():
        yield _micro_batch(features, units[part], names[part], device, step, step_targets)


def _micro_batch(
    features: EncodedExamples, units: Ints, names: Ints, device: str, step: int, step_targets: int
) -> TaskBatch:
    import torch

    counts = features.rows_per_unit[units]
    rows = rows_index(features.rows_per_unit, units)
    place_in_unit = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    unit_of_row = np.repeat(np.arange(len(units)), counts)
    row_names = np.repeat(names, counts) + place_in_unit
    by_length = _by_length(features, rows)
    rows, place_in_unit, unit_of_row = rows[by_length], place_in_unit[by_length], unit_of_row[by_length]
    gathered = gather_rows(
        rows,
        token_ids=features.rows.token_ids,
        segment_ids=features.rows.segment_ids,
        lengths=features.lengths,
        wanted=features.read,
        wanted_per_row=features.read_per_row,
        row_ids=row_names[by_length],
        device=device,
    )
    gathered = with_unseen(gathered, features, rows)
    if features.windows_of_first is not None:
        gathered = with_windows(gathered, unit_of_row, place_in_unit, features.windows_of_first[units])
    targets = target = None
    if features.target_rows is not None:
        target, targets = _target_of(features.target_rows.select(units[unit_of_row]), gathered.batch)
    elif features.targets is not None:
        entries = {PER_UNIT: units, PER_ROW: rows, PER_POSITION: gathered.chosen}[features.targets_per]
        targets = torch.from_numpy(np.ascontiguousarray(features.targets[entries])).to(device)
    return TaskBatch(
        batch=gathered.batch,
        read=gathered.read,
        chosen=gathered.chosen,
        unit_of_row=torch.from_numpy(unit_of_row).to(device),
        place_in_unit=torch.from_numpy(place_in_unit).to(device),
        targets=targets,
        num_units=len(units),
        step=step,
        step_targets=step_targets,
        target=target,
        weights=None if features.weights is None else torch.from_numpy(features.weights[units]).to(device),
    )


def _target_of(rows: PackedRows, source: Batch) -> "tuple[Batch, Tensor]":
    """The target of each row of a batch without its last token, and the tokens that follow, int64 [T]."""
    import torch

    ids, segments, firsts = rows.token_ids, rows.segment_ids, rows.offsets[:-1]
    without_last, without_first = np.delete(np.arange(len(ids)), rows.offsets[1:] - 1), np.delete(ids, firsts)
    device = source.token_ids.device
    target = Batch.from_flat(ids[without_last], segments[without_last], rows.lengths - 1, source.row_ids, device)
    return target, torch.from_numpy(without_first.astype(np.int64)).to(device)


def _count_targets(features: EncodedExamples, units: Ints) -> int:
    """The number of targets in some units, or of losses where these are others."""
    if features.losses_per_unit is not None:
        return max(1, int(features.losses_per_unit[units].sum()))
    if features.target_rows is not None:
        return int((features.target_rows.lengths[units] - 1).sum())
    if features.targets is None or features.targets_per == PER_UNIT:
        return len(units)
    rows = rows_index(features.rows_per_unit, units)
    if features.targets_per == PER_ROW:
        return len(rows)
    chosen = rows_index(features.read_per_row, rows)
    return int((features.targets[chosen] != NO_LABEL).sum())
