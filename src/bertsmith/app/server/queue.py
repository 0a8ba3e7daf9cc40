"""The request queue of a model, or of several on one encoder: batched by tokens, computed in one thread.

There is no batching delay: an idle model starts on whatever is queued, and the next batch gathers while it computes.
A batch has one ability and one set of options, or any number of them if the models share an encoder, which computes
all of its rows together. It takes texts from requests in order until the token budget is used up; a larger request
returns to the end of the queue with its remaining texts, so that it does not delay small ones. The event loop submits
work and receives answers; tokens are counted and answers computed in the model's thread.

A call of a model may need several forward passes through its encoder, and many through a decoder. A pass cannot be
interrupted, so before each pass the thread checks whether a client still waits for the answer.
"""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from bertsmith.app.server.answer_size import AnswerSize
from bertsmith.app.server.held import Lease
from bertsmith.app.server.prometheus import Metrics
from bertsmith.app.server.refusal import RefusalError, of_user_error
from bertsmith.app.server.settings import ServerSettings
from bertsmith.base.core.errors import BertsmithError

if TYPE_CHECKING:
    from bertsmith.app.library.loading import Served
    from bertsmith.models.products.adapted import SharedEncoder
    from bertsmith.tasks.encoding.row_encoder import Hooked

Options = tuple[tuple[str, Any], ...]

# Truncated tokens are counted from the length of a row, or reported by an answer; for others, long texts are refused.
_CUT_BY_LENGTH = ("embed", "rerank", "classify_by_labels")
_CUT_BY_ANSWER = ("next_sentence", "classify", "score", "choose", "tag", "answer", "generate", "extract", "resolve")
_READ_WITH = ("prompt", "question")  # options of `Model.read`
_LONGEST_RETRY = 60  # seconds
_FORGETTING = 0.8  # decay of the moving average of seconds per text, with each batch


class ComputeCancelledError(Exception):
    """All clients that waited for the computation are gone."""


@contextlib.contextmanager
def cancelled_unless(hooked: Iterable["Hooked"], is_wanted: Callable[[], bool]) -> Iterator[None]:
    """A context in which this thread starts forward passes of a model only while `is_wanted` returns True.

    Args:
        hooked: see `Model`.

    Raises:
        ComputeCancelledError: instead of the first pass that is no longer wanted.
    """
    thread = threading.get_ident()

    def ask(*_: object) -> None:
        if threading.get_ident() == thread and not is_wanted():
            raise ComputeCancelledError

    with contextlib.ExitStack() as hooks:
        for part in hooked:
            hooks.callback(part.register_forward_pre_hook(ask).remove)
        yield


def read_at_most(model: "Served", ability: str, lengths: Sequence[int]) -> int:
    """The tokens that a model reads of rows with these lengths; long texts read in windows are read in full."""
    longest = model.reads_at_most(ability)
    return sum(lengths if longest is None else (min(length, longest) for length in lengths))


@dataclasses.dataclass(eq=False)
class Work:
    """The items of one request.

    Attributes:
        name: the model, as the metrics name it.
        ability: as in `Model.compute`.
        items: one for each answer.
        options: shared by all items.
        done: resolves when all answers are there, to None, or to the error. A future that had the work as its result
            would keep it, with the index of its answers, until Python looks for cycles.
        size: an upper bound for the bytes of the answers.
        lease: holds these bytes.
        read: the items as the model has read them, once it has; see `Model.read`.
        lengths: the tokens of the texts of each item, once read.
        used: the tokens of each item that the model reads, once read.
        answers: the answers so far, to the first items.
        taken: number of items that the model has started on.
    """

    name: str
    ability: str
    items: Sequence[Any]
    options: Options
    done: "asyncio.Future[None]"
    size: AnswerSize
    lease: Lease
    read: Sequence[Any] = ()
    lengths: list[list[int]] = dataclasses.field(default_factory=list)
    answers: list[Any] = dataclasses.field(default_factory=list)
    used: list[int] = dataclasses.field(default_factory=list)
    taken: int = 0

    @functools.cached_property
    def usage(self) -> dict[str, int]:
        """Tokens received, used and truncated, of finished work."""
        came = sum(map(sum, self.lengths))
        cut = came - sum(self.used) if self.ability in _CUT_BY_LENGTH else 0
        if self.ability in _CUT_BY_ANSWER:
            cut = sum(answer.cut_tokens for answer in self.answers)
        else:  # records say it themselves
            cut += sum(getattr(item, "cut_tokens", 0) for item in self.read)
        return {"tokens_in": came, "tokens_used": came - cut, "tokens_cut": cut}

    @property
    def kind(self) -> tuple[str, str, Options]:
        """What a call of a model has one of."""
        return self.name, self.ability, self.options

    @property
    def left(self) -> int:
        """Number of items still waiting."""
        return len(self.items) - self.taken

    @property
    def is_wanted(self) -> bool:
        """Whether a client still waits for it."""
        return not self.done.done()


@dataclasses.dataclass(frozen=True)
class Part:
    """The items `begin` to `end` (exclusive) of a request, as a part of a batch."""

    work: Work
    begin: int
    end: int


class WorkQueue:
    """The queue of one model, or of several that share an encoder, and the thread that computes it.

    Args:
        models: by their names in the metrics; they are only called from that thread.
        settings: limits.
        metrics: counters to update.

    Attributes:
        batch_tokens: maximum tokens per batch; one item may exceed it.
    """

    def __init__(self, models: "Mapping[str, Served]", settings: ServerSettings, metrics: Metrics) -> None:
        self.models, self.settings, self.metrics = models, settings, metrics
        first = next(iter(models))
        self.batch_tokens = settings.tokens_of_batch(models[first].device)
        self._shared = shared_encoder_of(models[first]) if len(models) > 1 else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"model {first}")
        self._lock = threading.Lock()
        self._line: deque[Work] = deque()
        self._waiting = collections.Counter[str]()
        self._is_busy = False
        self._in_hand: list[Work] = []
        self._seconds_of_item = 0.0
        self._unknown = {name: _unknown_piece(model) for name, model in models.items()}
        for name in models:
            metrics.waiting.labels(name).set_function(functools.partial(self._waiting.__getitem__, name))

    def put(
        self, name: str, ability: str, items: Sequence[Any], options: Options, size: AnswerSize, lease: Lease
    ) -> Work:
        """The work for some items, added to the queue. Call it from the event loop.

        Args:
            name, ability, items, options, size, lease: see `Work`.

        Raises:
            RefusalError: 429, too many items are waiting.
        """
        work = Work(name, ability, items, options, asyncio.get_running_loop().create_future(), size, lease)
        with self._lock:
            waiting = self._waiting.total()
            if waiting and waiting + len(items) > self.settings.max_waiting:
                seconds = math.ceil(min(max(waiting * self._seconds_of_item, 1), _LONGEST_RETRY))
                raise RefusalError(
                    429,
                    f"{waiting:,} texts are waiting for {' and '.join(map(repr, self.models))} and the queue is full; "
                    f"try again in {seconds} s",
                    {"retry-after": str(seconds)},
                )
            self._line.append(work)
            self._waiting[name] += len(items)
            begins, self._is_busy = not self._is_busy, True
        if begins:
            self._begin()
        return work

    def drop(self, work: Work, reason: str) -> bool:
        """Removes a request from the queue; returns whether the model had not started on it. Call it from the loop."""
        if not self._leave(work):
            return False
        self.metrics.dropped.labels(work.name, "aborted" if work.taken else reason).inc()
        return not work.taken

    def close(self) -> None:
        """Shuts the thread down and waits for it."""
        self._thread.shutdown()

    def _begin(self) -> None:
        self._thread.submit(self._compute_all).add_done_callback(self._after)

    def _after(self, future: "Future[None]") -> None:
        """Fails the requests of a batch that raised an internal error, and continues with the others."""
        error = future.exception()
        if error is not None:
            for work in self._in_hand:
                self._fail(work, error)
            self._in_hand = []
            self._begin()

    def _compute_all(self) -> None:
        """Computes batches until the queue is empty."""
        while line := self._same_kind():
            if parts := self._taken(self._fitting(line)):
                self._in_hand = [part.work for part in parts]
                self._compute(parts)

    def _same_kind(self) -> list[Work]:
        """The work that can be batched with the first in the queue; empty if the queue is empty."""
        with self._lock:
            self._is_busy = bool(self._line)
            if self._shared is not None:
                return list(self._line)
            return [work for work in self._line if work.kind == self._line[0].kind]

    def _fitting(self, line: Sequence[Work]) -> list[Part]:
        """The first items, as many as fit into the token budget, but at least one."""
        parts: list[Part] = []
        spare = self.batch_tokens
        for work in line:
            self._in_hand = [work]
            if not work.is_wanted or not (work.lengths or self._measure(work)):
                continue
            end = work.taken
            while end < len(work.items):
                spare -= work.used[end]
                if spare < 0 and (parts or end > work.taken):
                    break
                end += 1
            if end > work.taken:
                parts.append(Part(work, work.taken, end))
            if spare <= 0:
                break
        return parts

    def _measure(self, work: Work) -> bool:
        """Reads a request and counts its tokens; returns False if it was refused, as invalid or because of its size."""
        try:
            options = {name: value for name, value in work.options if name in _READ_WITH}
            model = self.models[work.name]
            work.read, work.lengths = model.read(work.items, work.ability, **options)
            work.used = [read_at_most(model, work.ability, of_item) for of_item in work.lengths]
        except BertsmithError as error:
            self._fail(work, of_user_error(error))
            return False
        tokens = sum(map(sum, work.lengths))
        try:
            if tokens > self.settings.max_tokens:
                sentence = f"the request has {tokens:,} tokens; the limit is {self.settings.max_tokens:,}; split it"
                raise RefusalError(413, sentence)
            work.lease.require(work.size, tokens)
        except RefusalError as refusal:
            self._fail(work, refusal)
            return False
        return True

    def _taken(self, parts: Sequence[Part]) -> list[Part]:
        """The parts of requests that are still queued, taken from the queue; the rest of a request moves to its end."""
        kept = []
        with self._lock:
            for part in parts:
                work = part.work
                if work in self._line:
                    self._line.remove(work)
                    self._waiting[work.name] -= part.end - part.begin
                    work.taken = part.end
                    if work.left:
                        self._line.append(work)
                    kept.append(part)
        return kept

    def _compute(self, parts: Sequence[Part]) -> None:
        """Computes a batch while at least one of its requests is wanted; after an invalid item, each request alone."""
        kinds: dict[tuple[str, str, Options], list[Part]] = {}
        for part in parts:
            kinds.setdefault(part.work.kind, []).append(part)
        calls = [
            functools.partial(
                self.models[name].compute,
                ability,
                [item for part in group for item in part.work.read[part.begin : part.end]],
                **dict(options),
            )
            for (name, ability, options), group in kinds.items()
        ]
        start = time.perf_counter()
        try:
            with cancelled_unless(self._hooked(kinds), lambda: any(part.work.is_wanted for part in parts)):
                results = [_called(calls[0])] if self._shared is None else self._shared.together(calls)
        except ComputeCancelledError:
            self._count_aborted(parts)
            return
        seconds = time.perf_counter() - start
        every = sum(part.end - part.begin for part in parts)
        for group, answers in zip(kinds.values(), results, strict=True):
            if isinstance(answers, BertsmithError):
                self._refuse(group, answers)
            else:
                count = sum(part.end - part.begin for part in group)
                assert len(answers) == count, "an answer for each item"
                self._count(group, seconds * count / every)
                self._count_texts(group, answers)
                self._answer(group, answers)

    def _hooked(self, kinds: Iterable[tuple[str, str, Options]]) -> Iterable["Hooked"]:
        """What computes the passes of a batch."""
        if self._shared is not None:
            return (self._shared.encoder,)
        return [part for name, *_ in kinds for part in self.models[name].hooked]

    def _refuse(self, parts: Sequence[Part], error: BertsmithError) -> None:
        """Answers a request with the error of its call; of several requests, computes each alone."""
        if len(parts) > 1:
            wanted = [part for part in parts if part.work.is_wanted]
            self._count_aborted([part for part in parts if part not in wanted])
            for part in wanted:
                self._compute([part])
            return
        refusal = of_user_error(error)
        if parts[0].begin:
            refusal.message = f"counted from number {parts[0].begin + 1} of the request: {refusal.message}"
        self._fail(parts[0].work, refusal)

    def _answer(self, parts: Sequence[Part], answers: Sequence[Any]) -> None:
        """Gives each request its answers; those that have all of them are finished."""
        begin = 0
        finished = []
        for part in parts:
            end = begin + part.end - part.begin
            part.work.answers.extend(answers[begin:end])
            begin = end
            if len(part.work.answers) == len(part.work.items):
                finished.append(part.work)
        _tell(finished, None)

    def _count_aborted(self, parts: Sequence[Part]) -> None:
        """Counts aborted requests; those with items left in the queue were counted when they were removed from it."""
        for part in parts:
            self.metrics.dropped.labels(part.work.name, "aborted").inc(not part.work.left)

    def _count(self, parts: Sequence[Part], seconds: float) -> None:
        (name, ability, _), count = parts[0].work.kind, sum(part.end - part.begin for part in parts)
        known = self._seconds_of_item or seconds / count
        self._seconds_of_item = _FORGETTING * known + (1 - _FORGETTING) * seconds / count
        used = sum(sum(part.work.used[part.begin : part.end]) for part in parts)
        self.metrics.texts.labels(name, ability).inc(count)
        self.metrics.batch_tokens.labels(name).observe(used)
        self.metrics.batch_seconds.labels(name).observe(seconds)

    def _count_texts(self, parts: Sequence[Part], answers: Sequence[Any]) -> None:
        """Counts what drift shows in: unknown pieces, tokens of texts, truncated texts, confidence, abstention."""
        metrics, name = self.metrics, parts[0].work.name
        unknown_id = self._unknown[name]
        tokens, cut = metrics.text_tokens.labels(name), 0
        pieces = unknown = unanswered = 0
        places = [(part.work, number) for part in parts for number in range(part.begin, part.end)]
        for (work, number), answer in zip(places, answers, strict=True):
            length = sum(work.lengths[number])
            tokens.observe(length)
            cut += length > work.used[number] or getattr(answer, "cut_tokens", 0) > 0
            unanswered += getattr(answer, "label", None) == ""  # of several labels, there is always a best one
            if (confidence := getattr(answer, "confidence", None)) is not None:
                metrics.confidence.labels(name).observe(confidence)
            ids = getattr(getattr(work.read[number], "pieces", None), "ids", None)
            if ids is not None and unknown_id is not None:
                pieces += len(ids)
                unknown += int((ids == unknown_id).sum())
        metrics.cut_texts.labels(name).inc(cut)
        metrics.unanswered.labels(name).inc(unanswered)
        metrics.pieces.labels(name, "all").inc(pieces)
        metrics.pieces.labels(name, "unknown").inc(unknown)

    def _fail(self, work: Work, error: BaseException) -> None:
        self._leave(work)
        _tell([work], error)

    def _leave(self, work: Work) -> bool:
        """Removes a request from the queue; returns whether it was queued."""
        with self._lock:
            is_there = work in self._line
            if is_there:
                self._line.remove(work)
                self._waiting[work.name] -= work.left
            return is_there


def shared_encoder_of(model: "Served") -> "SharedEncoder | None":
    """The encoder that a model shares with others, if it is one of several adapters; see `load_models`."""
    shared: SharedEncoder | None = getattr(next(iter(model.hooked), None), "shared_encoder", None)
    return shared


def _called(call: Callable[[], Sequence[Any]]) -> Sequence[Any] | BertsmithError:
    """The result of a call, or an error that a user can fix, without the frames, which would keep what they use."""
    try:
        return call()
    except BertsmithError as error:
        return error.with_traceback(None)


def _unknown_piece(model: "Served") -> int | None:
    """The id of the piece for unknown words, if the model has one."""
    tokenizer = getattr(model, "tokenizer", None) if model.shows_pieces else None
    return getattr(getattr(tokenizer, "vocabulary", None), "unk_id", None)


def _tell(works: Sequence[Work], error: BaseException | None) -> None:
    """Resolves the futures of some requests in the event loop, with their answers or an error."""
    if works and not (loop := works[0].done.get_loop()).is_closed():
        loop.call_soon_threadsafe(_settle, works, error)


def _settle(works: Sequence[Work], error: BaseException | None) -> None:
    for work in works:
        if not work.done.done():
            if error is None:
                work.done.set_result(None)
            else:
                work.done.set_exception(error)
