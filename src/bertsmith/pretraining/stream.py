"""Pre-training instances: which spans of which documents make row n of the run, by the rules of 2018.

The rules are those of `create_instances_from_document` in the original `create_pretraining_data.py`. The target length
is drawn once per document and pass; sentences are collected up to it; the chunk is cut at a random sentence into A and
B; with probability 0.5 (always, if the chunk is a single sentence) B comes from another document and the unused
sentences are put back; what is too long loses tokens at random ends of the longer part. `spans.py` holds these rules.

Where every draw comes from, so that none depends on workers, ranks, restarts or the order of calls:

* the order of the documents in an epoch: (seed, epoch);
* the walk of a document: a generator of (seed, pass, document). The pass is `epoch % dupe_factor`: the original writes
  `dupe_factor` duplicates of the data once and reads them again and again. With `dynamic` the pass is the epoch;
* which ends of a row are cut, and its masks: draws counted from the key of (seed, pass, document, ordinal);
* the shuffle: instances of one block, consecutive documents of the epoch's order of about `block_tokens` tokens, are
  shuffled by (seed, epoch, block). So memory is bounded by the block, not by the corpus.

N instances, T tokens.
"""

import dataclasses
from array import array
from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from bertsmith.errors import CorpusError
from bertsmith.pretraining.counted_draws import instance_keys
from bertsmith.pretraining.objectives import OBJECTIVES
from bertsmith.pretraining.settings import PretrainingDataSettings
from bertsmith.pretraining.spans import FIELDS, NOWHERE, OPEN, random_ends, uniforms
from bertsmith.progress import counted
from bertsmith.randomness import Words, generator
from bertsmith.text.pack import pack_rows
from bertsmith.text.template import Template
from bertsmith.text.vocabulary import Vocabulary

Ints = npt.NDArray[np.int64]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_CACHED_BLOCKS = 2  # a step rarely spans more; a block of 16 M tokens is planned in some 15 MB
_SHORTEST_ROW = 3  # tokens
_CACHED_COUNTS = 2**26  # instance counts kept for walking on, four bytes each


class Documents(Protocol):
    """What is read of a corpus: tokens and sentence boundaries of each document."""

    @property
    def num_documents(self) -> int:
        """The number of documents."""

    @property
    def document_lengths(self) -> Ints:
        """The tokens of each document, int64 [documents]."""

    def document_tokens(self, index: int, /) -> npt.NDArray[Any]:
        """The token ids of a document, an unsigned integer array [its tokens]."""

    def document_sentences(self, index: int, /) -> Ints:
        """Where its sentences start, and the end of the last: token offsets in the document, int64 [sentences + 1]."""


class Cursor(NamedTuple):
    """A place in the endless sequence of instances: the instance `offset` of a block of an epoch."""

    epoch: int = 0
    block: int = 0
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class InstancePlan:
    """Instances by where their tokens stand; no token has been read yet.

    Column 0 of an [N, 2] array is A, column 1 is B; where there is no B its document is -1 and its span empty.

    Attributes:
        documents: int64 [N, 2].
        starts: int64 [N, 2], the first token of the part in its document.
        ends: int64 [N, 2], the token after the last.
        labels: int64 [N]; 1 for a random next or a swapped pair, 0 for an actual next, -1 where there is no pair.
        keys: uint64 [N], from which truncation and masks are drawn.
        cut: int64 [N], tokens that truncation took away.
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
        """The tokens of each row with `[CLS]` and `[SEP]`, int64 [N]."""
        return np.asarray((self.ends - self.starts).sum(axis=1) + 2 + (self.documents[:, 1] >= 0))

    def select(self, rows: slice | npt.NDArray[np.integer] | Sequence[int]) -> "InstancePlan":
        """The plan of some of the rows, e.g. those of one rank."""
        return InstancePlan(**{field.name: getattr(self, field.name)[rows] for field in dataclasses.fields(self)})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Rows of tokens, flat and without padding.

    Attributes:
        token_ids: int32 [T].
        segment_ids: int32 [T].
        lengths: int64 [N], tokens of each row.
        labels: int64 [N], as in `InstancePlan`.
        keys: uint64 [N], from which masks are drawn.
    """

    token_ids: npt.NDArray[np.int32]
    segment_ids: npt.NDArray[np.int32]
    lengths: Ints
    labels: Ints
    keys: Words


class PretrainingStream:
    """The endless sequence of instances of a corpus, cut into steps; every answer is a pure function of the arguments.

    A step holds `rows_per_step` instances or, greedily in order, as many as fit into `tokens_per_step` (at least one).

    Raises:
        CorpusError: no document holds text.
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
        # A document that is too short makes no instance and is never a random next.
        shortest = OBJECTIVES[settings.objective].shortest_document
        self._usable = np.flatnonzero(np.asarray(documents.document_lengths) >= shortest)
        if not len(self._usable):
            raise CorpusError(
                expected="a corpus with text",
                found=f"{counted(documents.num_documents, 'document')}, none with enough tokens",
                fix="build it from files that hold text",
            )
        self.left_out = documents.num_documents - len(self._usable)
        self._epochs: dict[int, tuple[Ints, Ints]] = {}
        self._blocks: dict[tuple[int, int], InstancePlan] = {}
        self._counts: dict[int, npt.NDArray[np.int32]] = {}
        # Places that are known: the first step of each block that was walked through, and the step asked for last.
        self._marks: list[tuple[int, Cursor]] = [(0, Cursor())]
        self._latest: tuple[int, Cursor] = self._marks[0]

    def step_rows(self, step: int) -> Rows:
        """The rows of a step (counted from 0), unmasked."""
        return self.materialise(self.plan_step(step))

    def plan_step(self, step: int) -> InstancePlan:
        """The plan of a step (counted from 0): all its lengths are known, no token has been read."""
        return self._take(self.cursor(step), self._budget, by_tokens=self._by_tokens)[0]

    def cursor(self, step: int) -> Cursor:
        """Where a step begins.

        Walks on from the nearest known place, which costs up to a second or so per 10 million tokens never
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
        """The next `rows` instances from `cursor` on, and the place after them."""
        return self._take(cursor, rows, by_tokens=False)

    def materialise(self, plan: InstancePlan) -> Rows:
        """The rows of a plan: tokens are read and packed as `[CLS] A [SEP] B [SEP]`."""
        read = self.documents.document_tokens
        parts = zip(plan.documents.tolist(), plan.starts.tolist(), plan.ends.tolist(), strict=True)
        first, second = [], []
        for (document, other), (start, other_start), (end, other_end) in parts:
            first.append(read(document)[start:end])
            if other >= 0:
                second.append(read(other)[other_start:other_end])
        packed = pack_rows(
            first,
            second if self.settings.pairs else None,
            template=Template.bert(self.vocabulary.cls_id, self.vocabulary.sep_id),
            max_length=self.settings.max_length,
            # The plan cut what was too long: pack's own coins would depend on the rows beside a row.
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
        """The number of instances of an epoch, for which all its documents are walked."""
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
        """The (epoch, block, start, stop) that a budget takes from `cursor` on, and where the next one begins."""
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
        """The order of the usable documents in an epoch, and where in it each block begins (and the last ends)."""
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
        """The number of instances of a block, from the cheapest source there is."""
        if (epoch, block) in self._blocks:
            return len(self._blocks[epoch, block])
        order, bounds = self._order(epoch)
        ranks = order[bounds[block] : bounds[block + 1]]
        known = self._counts.get(self._pass(epoch))
        if known is not None and (known[ranks] > 0).all():
            return int(known[ranks].sum())
        return int(self._walk(epoch, ranks)[2].sum())

    def _walk(self, epoch: int, ranks: Ints) -> tuple[Ints, npt.NDArray[np.float64], Ints]:
        """The instances of some documents as the walk finds them.

        Returns:
            The fields of each instance, int64 [N, 7], with the spans of random nexts still open; the draw for the first
            sentence of each random next, float64 [their number]; the number of instances of each document, int64.
        """
        settings, seed, pass_number = self.settings, self.settings.seed, self._pass(epoch)
        walk = OBJECTIVES[settings.objective].walk
        room = settings.room
        found, openings = array("q"), array("d")
        counts, before = np.empty(len(ranks), dtype=np.int64), 0
        for place, (rank, document) in enumerate(zip(ranks.tolist(), self._usable[ranks].tolist(), strict=True)):
            draw = uniforms(generator(seed, "walk", pass_number, document)).__next__
            short = draw() < settings.short_sequence_probability
            target = 2 + int(draw() * (room - 1)) if short else room
            walk(self._edges(document).tolist(), target, rank, len(self._usable), draw, found, openings)
            counts[place] = len(found) // FIELDS - before
            before += int(counts[place])
        if pass_number not in self._counts and (len(self._counts) + 1) * len(self._usable) <= _CACHED_COUNTS:
            self._counts[pass_number] = np.zeros(len(self._usable), dtype=np.int32)
        if pass_number in self._counts:
            self._counts[pass_number][ranks] = counts
        fields = np.array(found, dtype=np.int64).reshape(-1, FIELDS)
        return fields, np.array(openings, dtype=np.float64), counts

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
        """Fills in the spans of random nexts: from the drawn sentence on, whole sentences up to the wanted tokens."""
        rows = np.flatnonzero(starts[:, 1] == OPEN)
        by_document = np.argsort(documents[rows, 1], kind="stable")
        rows, openings = rows[by_document], openings[by_document]
        groups = np.flatnonzero(np.diff(documents[rows, 1], prepend=-1, append=-1))
        for start, stop in zip(groups[:-1].tolist(), groups[1:].tolist(), strict=True):
            group = rows[start:stop]
            edges = self._edges(int(documents[group[0], 1]))
            starts[group, 1] = edges[(openings[start:stop] * (len(edges) - 1)).astype(np.int64)]
            # At least one sentence, even where A has filled the target already.
            last = np.searchsorted(edges, starts[group, 1] + np.maximum(ends[group, 1], 1))
            ends[group, 1] = edges[np.minimum(last, len(edges) - 1)]

    def _edges(self, document: int) -> Ints:
        """The sentence boundaries of a document, without empty sentences."""
        edges = self.documents.document_sentences(document)
        filled = edges[1:] > edges[:-1]
        return edges if filled.all() else np.append(edges[:1], edges[1:][filled])


def _keep_last(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Puts a value into a cache that holds the last few."""
    while len(cache) >= _CACHED_BLOCKS:
        del cache[next(iter(cache))]
    cache[key] = value
