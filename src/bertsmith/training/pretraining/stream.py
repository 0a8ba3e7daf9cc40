"""Pre-training instances: which spans of which documents form each row of the run, by the rules of 2018.

The source of every random draw, so that none depends on workers, ranks, restarts or the order of calls:

* the order of the documents in an epoch: (seed, epoch);
* the walk of a document: a generator seeded with (seed, pass, document). The pass is `epoch % dupe_factor`: the
  original writes `dupe_factor` duplicates of the data once and reads them repeatedly. With `dynamic` it is the epoch;
* truncation and masks of a row: counter-based draws from the key of (seed, pass, document, ordinal);
* the shuffle: the instances of one block (consecutive documents in the epoch's order, about `block_tokens` tokens) are
  shuffled by (seed, epoch, block). So memory is bounded by the block, not by the corpus.

N instances, T tokens.
"""

import dataclasses
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CorpusError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import Words, generator
from bertsmith.text.tokenizers.pack import pack_rows
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.counted_draws import instance_keys
from bertsmith.training.pretraining.objectives import OBJECTIVES
from bertsmith.training.pretraining.settings import PretrainingDataSettings
from bertsmith.training.pretraining.spans import (
    FIELDS,
    NOWHERE,
    OPEN,
    Instances,
    random_ends,
    uniforms,
    walk_contiguous,
)

Ints = npt.NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_CACHED_BLOCKS = 2  # a step rarely spans more; the plan of a block of 16 M tokens takes about 15 MB
_SHORTEST_ROW = 3  # tokens
_CACHED_COUNTS = 2**26  # cached instance counts, four bytes each


class Documents(Protocol):
    """The part of a corpus that is read here: tokens and sentence boundaries of each document."""

    @property
    def num_documents(self) -> int:
        """The number of documents."""

    @property
    def document_lengths(self) -> Ints:
        """The number of tokens of each document, int64 [documents]."""

    def document_tokens(self, index: int, /) -> npt.NDArray[Any]:
        """The token ids of a document, an array of unsigned integers [tokens]."""

    def prefetch(self, documents: npt.NDArray[np.integer]) -> None:
        """Fetches the tokens of documents that are about to be read, and ignores negative numbers."""

    def document_sentences(self, index: int, /) -> Ints:
        """The sentence starts and the end of the last sentence, as token offsets, int64 [sentences + 1]."""


class Cursor(NamedTuple):
    """A position in the endless sequence of instances: instance `offset` of a block of an epoch."""

    epoch: int = 0
    block: int = 0
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class InstancePlan:
    """Instances as spans in documents, before any token is read.

    Column 0 of an [N, 2] array is A, column 1 is B; without a B, its document is -1 and its span empty.

    Attributes:
        documents: int64 [N, 2].
        starts: int64 [N, 2], the first token of the part in its document.
        ends: int64 [N, 2], one past the last token.
        labels: int64 [N]; 1 for a random next or a swapped pair, 0 for an actual next, -1 without a pair.
        keys: uint64 [N], the random keys for truncation and masks.
        cut: int64 [N], the number of truncated tokens.
    """

    documents: Ints
    starts: Ints
    ends: Ints
    labels: Ints
    keys: Words
    cut: Ints

    def __len__(self) -> int:
        """The number of instances."""
        return len(self.labels)

    @property
    def lengths(self) -> Ints:
        """The number of tokens of each row, including `[CLS]` and `[SEP]`, int64 [N]."""
        return np.asarray((self.ends - self.starts).sum(axis=1) + 2 + (self.documents[:, 1] >= 0))

    def select(self, rows: slice | npt.NDArray[np.integer] | Sequence[int]) -> "InstancePlan":
        """The plan of some of the rows, e.g. of one rank."""
        return InstancePlan(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of tokens as a flat batch.

    Attributes:
        token_ids: int32 [T].
        segment_ids: int32 [T].
        lengths: int64 [N], tokens of each row.
        labels: int64 [N], as in `InstancePlan`.
        keys: uint64 [N], the random keys for masks.
    """

    token_ids: npt.NDArray[np.int32]
    segment_ids: npt.NDArray[np.int32]
    lengths: Ints
    labels: Ints
    keys: Words


class PretrainingStream:
    """The endless sequence of instances of a corpus, split into steps; all results are pure functions of the arguments.

    A step holds `rows_per_step` instances or, greedily in order, as many as fit into `tokens_per_step` (at least one).
    """

    def __init__(
        self,
        documents: Documents,
        settings: PretrainingDataSettings,
        vocabulary: Vocabulary,
        *,
        rows_per_step: int = 256,
        tokens_per_step: int | None = None,
    ) -> None:
        assert rows_per_step > 0
        assert tokens_per_step is None or tokens_per_step > 0
        self.documents, self.settings, self.vocabulary = documents, settings, vocabulary
        self._budget = rows_per_step if tokens_per_step is None else tokens_per_step
        self._by_tokens = tokens_per_step is not None
        # Documents that are too short yield no instance and are never a random next.
        shortest = OBJECTIVES[settings.objective].shortest_document
        self._usable = np.flatnonzero(np.asarray(documents.document_lengths) >= shortest)
        if not len(self._usable):
            raise CorpusError(
                expected="a corpus with text",
                found=f"{counted(documents.num_documents, 'document')}, none with enough tokens",
                fix="build it from files that contain text",
            )
        self.left_out = documents.num_documents - len(self._usable)
        self._epochs: dict[int, tuple[Ints, Ints]] = {}
        self._blocks: dict[tuple[int, int], InstancePlan] = {}
        self._counts: dict[int, npt.NDArray[np.int32]] = {}
        # Known positions: the first step of each block walked so far, and the last requested step.
        self._marks: list[tuple[int, Cursor]] = [(0, Cursor())]
        self._latest: tuple[int, Cursor] = self._marks[0]

    def step_rows(self, step: int) -> Rows:
        """The rows of a step (counted from 0), unmasked."""
        return self.materialise(self.plan_step(step))

    def plan_step(self, step: int) -> InstancePlan:
        """The plan of a step (counted from 0): all lengths are known, no token is read yet."""
        return self._take(self.cursor(step), self._budget, by_tokens=self._by_tokens)[0]

    def cursor(self, step: int) -> Cursor:
        """The position where a step begins.

        Continues the walk from the nearest known position, which takes up to about a second per 10 million tokens not
        walked before.
        """
        known, cursor = self._marks[bisect_right(self._marks, step, key=lambda mark: mark[0]) - 1]
        if known <= self._latest[0] <= step:
            known, cursor = self._latest
        while known < step:
            _, following = self._parts(cursor, self._budget, by_tokens=self._by_tokens)
            known += 1
            if following[:2] != cursor[:2] and known > self._marks[-1][0]:
                self._marks.append((known, following))
            cursor = following
        self._latest = (step, cursor)
        return cursor

    def take(self, cursor: Cursor, rows: int) -> tuple[InstancePlan, Cursor]:
        """The next `rows` instances from `cursor` on, and the position after them."""
        return self._take(cursor, rows, by_tokens=False)

    def materialise(self, plan: InstancePlan) -> Rows:
        """The rows of a plan, read from the corpus and packed as `[CLS] A [SEP] B [SEP]`."""
        read = self.documents.document_tokens
        self.documents.prefetch(plan.documents.ravel())
        parts = zip(plan.documents.tolist(), plan.starts.tolist(), plan.ends.tolist(), strict=True)
        first, second = [], []
        for (document, other), (start, other_start), (end, other_end) in parts:
            first.append(read(document)[start:end])
            if other >= 0:
                second.append(read(other)[other_start:other_end])
        packed = pack_rows(
            first,
            second if self.settings.has_two_parts else None,
            template=Template.bert(self.vocabulary.cls_id, self.vocabulary.sep_id),
            max_length=self.settings.max_length,
            # The plan has already truncated: the random truncation of `pack_rows` would depend on neighboring rows.
            truncation="error",
            model_limit=self.settings.max_length,
        )
        return Rows(
            token_ids=packed.token_ids,
            segment_ids=packed.segment_ids,
            lengths=plan.lengths,
            labels=plan.labels,
            keys=plan.keys,
        )

    def num_blocks(self, epoch: int) -> int:
        """The number of blocks of an epoch."""
        return len(self._order(epoch)[1]) - 1

    def num_instances(self, epoch: int) -> int:
        """The number of instances of an epoch; walks all its documents."""
        return sum(self._block_size(epoch, block) for block in range(self.num_blocks(epoch)))

    def _take(self, cursor: Cursor, budget: int, *, by_tokens: bool) -> tuple[InstancePlan, Cursor]:
        parts, following = self._parts(cursor, budget, by_tokens=by_tokens)
        plans = [self._plan(epoch, block).select(slice(start, stop)) for epoch, block, start, stop in parts]
        if len(plans) == 1:
            return plans[0], following
        names = [field.name for field in dataclasses.fields(InstancePlan)]
        joined = {name: np.concatenate([getattr(plan, name) for plan in plans]) for name in names}
        return InstancePlan(**joined), following

    def _parts(self, cursor: Cursor, budget: int, *, by_tokens: bool) -> tuple[list[tuple[int, int, int, int]], Cursor]:
        """The (epoch, block, start, stop) parts that fill a budget from `cursor` on, and the position after them."""
        epoch, block, start = cursor
        parts: list[tuple[int, int, int, int]] = []
        while True:
            if by_tokens:
                plan = self._plan(epoch, block)
                size = len(plan)
                ends = np.cumsum(plan.select(slice(start, start + budget // _SHORTEST_ROW + 1)).lengths)
                fits = max(int(np.searchsorted(ends, budget, side="right")), int(not parts))
                stop = start + fits
                budget -= int(ends[fits - 1]) if fits else 0
            else:
                size = self._block_size(epoch, block)
                stop = min(size, start + budget)
                budget -= stop - start
            if stop > start:
                parts.append((epoch, block, start, stop))
            if stop < size:
                return parts, Cursor(epoch, block, stop)
            epoch, block = (epoch, block + 1) if block + 1 < self.num_blocks(epoch) else (epoch + 1, 0)
            start = 0
            if budget <= 0:
                return parts, Cursor(epoch, block, 0)

    def _order(self, epoch: int) -> tuple[Ints, Ints]:
        """The order of the usable documents in an epoch, and the borders of the blocks in it."""
        if epoch not in self._epochs:
            order = generator(self.settings.seed, "documents", epoch).permutation(len(self._usable))
            lengths = np.asarray(self.documents.document_lengths)[self._usable[order]]
            block = (np.cumsum(lengths) - lengths) // self.settings.block_tokens
            bounds = np.append(np.flatnonzero(np.diff(block, prepend=-1)), len(order))
            _keep_last(self._epochs, epoch, (order, bounds))
        return self._epochs[epoch]

    def _pass(self, epoch: int) -> int:
        return epoch if self.settings.dynamic else epoch % self.settings.dupe_factor

    def _block_size(self, epoch: int, block: int) -> int:
        """The number of instances of a block, from the cheapest available source."""
        if (epoch, block) in self._blocks:
            return len(self._blocks[epoch, block])
        order, bounds = self._order(epoch)
        ranks = order[bounds[block] : bounds[block + 1]]
        known = self._counts.get(self._pass(epoch))
        if known is not None and (known[ranks] > 0).all():
            return int(known[ranks].sum())
        return int(self._walk(epoch, ranks)[2].sum())

    def _walk(self, epoch: int, ranks: Ints) -> tuple[Ints, npt.NDArray[np.float64], Ints]:
        """The fields of the instances, int64 [N, 7], in walk order; the draws of open random nexts; document sizes."""
        settings, seed, pass_number = self.settings, self.settings.seed, self._pass(epoch)
        walk = walk_contiguous if settings.contiguous else OBJECTIVES[settings.objective].walk
        room = settings.room
        instances = Instances(len(self._usable))
        counts, before = np.empty(len(ranks), dtype=np.int64), 0
        for position, (rank, document) in enumerate(zip(ranks.tolist(), self._usable[ranks].tolist(), strict=True)):
            draw = uniforms(generator(seed, "walk", pass_number, document)).__next__
            short = draw() < settings.short_sequence_probability
            target = 2 + int(draw() * (room - 1)) if short else room
            walk(self._edges(document).tolist(), target, rank, draw, instances)
            counts[position] = len(instances.fields) // FIELDS - before
            before += int(counts[position])
        if pass_number not in self._counts and (len(self._counts) + 1) * len(self._usable) <= _CACHED_COUNTS:
            self._counts[pass_number] = np.zeros(len(self._usable), dtype=np.int32)
        if pass_number in self._counts:
            self._counts[pass_number][ranks] = counts
        fields = np.array(instances.fields, dtype=np.int64).reshape(-1, FIELDS)
        return fields, np.array(instances.openings, dtype=np.float64), counts

    def _plan(self, epoch: int, block: int) -> InstancePlan:
        """The instances of a block, shuffled."""
        if (epoch, block) in self._blocks:
            return self._blocks[epoch, block]
        order, bounds = self._order(epoch)
        ranks = order[bounds[block] : bounds[block + 1]]
        fields, openings, counts = self._walk(epoch, ranks)
        documents = np.where(fields[:, [0, 3]] == NOWHERE, NOWHERE, self._usable[fields[:, [0, 3]]])
        starts, ends, labels = fields[:, [1, 4]], fields[:, [2, 5]], fields[:, 6]
        self._open_random_next(documents, starts, ends, openings)
        ordinals = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = instance_keys(self.settings.seed, self._pass(epoch), documents[:, 0], ordinals)
        front, back = random_ends(ends - starts, self.settings.room, keys)
        plan = InstancePlan(
            documents=documents,
            starts=starts + front,
            ends=ends - back,
            labels=labels,
            keys=keys,
            cut=(front + back).sum(axis=1),
        )
        shuffle = generator(self.settings.seed, "shuffle", epoch, block).permutation(len(labels))
        _keep_last(self._blocks, (epoch, block), plan.select(shuffle))
        return self._blocks[epoch, block]

    def _open_random_next(self, documents: Ints, starts: Ints, ends: Ints, openings: npt.NDArray[np.float64]) -> None:
        """Fills in the spans of random nexts: whole sentences from the drawn one on, up to the tokens wanted."""
        rows = np.flatnonzero(starts[:, 1] == OPEN)
        by_document = np.argsort(documents[rows, 1], kind="stable")
        rows, openings = rows[by_document], openings[by_document]
        groups = np.flatnonzero(np.diff(documents[rows, 1], prepend=-1, append=-1))
        for start, stop in zip(groups[:-1].tolist(), groups[1:].tolist(), strict=True):
            group = rows[start:stop]
            edges = self._edges(int(documents[group[0], 1]))
            starts[group, 1] = edges[(openings[start:stop] * (len(edges) - 1)).astype(np.int64)]
            # At least one sentence, even if A already fills the target.
            last = np.searchsorted(edges, starts[group, 1] + np.maximum(ends[group, 1], 1))
            ends[group, 1] = edges[np.minimum(last, len(edges) - 1)]

    def _edges(self, document: int) -> Ints:
        """The sentence boundaries of a document, without empty sentences."""
        edges = self.documents.document_sentences(document)
        filled = edges[1:] > edges[:-1]
        return edges if filled.all() else np.append(edges[:1], edges[1:][filled])


def _keep_last(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Adds a value to a cache of the last few values."""
    while len(cache) >= _CACHED_BLOCKS:
        del cache[next(iter(cache))]
    cache[key] = value
