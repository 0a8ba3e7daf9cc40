"""The request queue of a model: requests are batched by tokens, computed in one thread, dropped when abandoned.

There is no batching delay: an idle model starts on whatever is queued, and the next batch gathers while it computes.
A batch has one ability and one set of options. It takes texts from requests in order until the token budget is
used up; a larger request returns to the end of the queue with its remaining texts, so that it does not delay small
ones. The event loop submits work and receives answers; tokens are counted and answers computed in the model's
thread.

A call of a model may need several forward passes through its encoder, and many through a decoder. A pass cannot be
interrupted, so before each pass the thread checks whether a client still waits for the answer.
"""

import asyncio
import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
        ability: as in `Model.compute`.
        items: one for each answer.
        options: shared by all items.
        done: resolves to the work itself when all answers are there, or to the error.
        size: an upper bound for the bytes of the answers.
        lease: holds these bytes.
        read: the items as the model has read them, once it has; see `Model.read`.
        lengths: the tokens of the texts of each item, once read.
        used: the tokens of each item that the model reads, once read.
        answers: the answers so far, to the first items.
        taken: number of items that the model has started on.
    """

    ability: str
    items: Sequence[Any]
    options: Options
    done: "asyncio.Future[Work]"
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
    """The queue of one model, and the thread that computes it.

    Args:
        model: is only called from that thread.
        name: the name of the model in the metrics.
        settings: limits.
        metrics: counters to update.

    Attributes:
        batch_tokens: maximum tokens per batch; one item may exceed it.
    """

    def __init__(self, model: "Served", name: str, settings: ServerSettings, metrics: Metrics) -> None:
        self.model, self.name, self.settings, self.metrics = model, name, settings, metrics
        self.batch_tokens = settings.tokens_of_batch(model.device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"model {name}")
        self._lock = threading.Lock()
        self._line: deque[Work] = deque()
        self._waiting = 0
        self._is_busy = False
        self._in_hand: list[Work] = []
        self._seconds_of_item = 0.0
        tokenizer = getattr(model, "tokenizer", None) if model.shows_pieces else None
        self._unknown: int | None = getattr(getattr(tokenizer, "vocabulary", None), "unk_id", None)
        metrics.waiting.labels(name).set_function(lambda: self._waiting)

    def put(self, ability: str, items: Sequence[Any], options: Options, size: AnswerSize, lease: Lease) -> Work:
        """The work for some items, added to the queue. Call it from the event loop.

        Args:
            ability, items, options, size, lease: see `Work`.

        Raises:
            RefusalError: 429, too many items are waiting.
        """
        work = Work(ability, items, options, asyncio.get_running_loop().create_future(), size, lease)
        with self._lock:
            if self._waiting and self._waiting + len(items) > self.settings.max_waiting:
                seconds = math.ceil(min(max(self._waiting * self._seconds_of_item, 1), _LONGEST_RETRY))
                raise RefusalError(
                    429,
                    f"{self._waiting:,} texts are waiting for '{self.name}' and the queue is full; "
                    f"try again in {seconds} s",
                    {"retry-after": str(seconds)},
                )
            self._line.append(work)
            self._waiting += len(items)
            begins, self._is_busy = not self._is_busy, True
        if begins:
            self._begin()
        return work

    def drop(self, work: Work, reason: str) -> bool:
        """Removes a request from the queue; returns whether the model had not started on it. Call it from the loop."""
        if not self._leave(work):
            return False
        self.metrics.dropped.labels(self.name, "aborted" if work.taken else reason).inc()
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
            kinds = [(work.ability, work.options) for work in self._line]
            return [work for work, kind in zip(self._line, kinds, strict=True) if kind == kinds[0]]

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
            work.read, work.lengths = self.model.read(work.items, work.ability, **options)
            work.used = [read_at_most(self.model, work.ability, of_item) for of_item in work.lengths]
        except BertsmithError as error:
            self._fail(work, of_user_error(error))
            return False
        tokens = sum(map(sum, work.lengths))
        size = work.size.of(tokens)
        limits = self.settings
        if tokens > limits.max_tokens:
            sentence = f"the request has {tokens:,} tokens; the limit is {limits.max_tokens:,}; split it"
            refusal = RefusalError(413, sentence)
        elif size > limits.max_answers:
            sentence = f"the answers could take {size:,} bytes of memory; the limit is {limits.max_answers:,}"
            refusal = RefusalError(413, f"{sentence}; {work.size.fix}")
        elif not work.lease.try_hold(size):
            refusal = RefusalError(
                429, "too many large replies are in progress; try again in 1 s", {"retry-after": "1"}
            )
        else:
            return True
        self._fail(work, refusal)
        return False

    def _taken(self, parts: Sequence[Part]) -> list[Part]:
        """The parts of requests that are still queued, taken from the queue; the rest of a request moves to its end."""
        kept = []
        with self._lock:
            for part in parts:
                work = part.work
                if work in self._line:
                    self._line.remove(work)
                    self._waiting -= part.end - part.begin
                    work.taken = part.end
                    if work.left:
                        self._line.append(work)
                    kept.append(part)
        return kept

    def _compute(self, parts: Sequence[Part]) -> None:
        """Computes a batch while at least one of its requests is wanted; after an invalid item, each request alone."""
        work = parts[0].work
        items = [item for part in parts for item in part.work.read[part.begin : part.end]]
        start = time.perf_counter()
        try:
            with cancelled_unless(self.model.hooked, lambda: any(part.work.is_wanted for part in parts)):
                answers = self.model.compute(work.ability, items, **dict(work.options))
        except ComputeCancelledError:
            self._count_aborted(parts)
            return
        except BertsmithError as error:
            if len(parts) > 1:
                wanted = [part for part in parts if part.work.is_wanted]
                self._count_aborted([part for part in parts if part not in wanted])
                for part in wanted:
                    self._compute([part])
                return
            refusal = of_user_error(error)
            if parts[0].begin:
                refusal.message = f"counted from number {parts[0].begin + 1} of the request: {refusal.message}"
            self._fail(work, refusal)
            return
        assert len(answers) == len(items), "an answer for each item"
        self._count(parts, time.perf_counter() - start)
        self._count_texts(parts, answers)
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
        aborted = sum(not part.work.left for part in parts)
        self.metrics.dropped.labels(self.name, "aborted").inc(aborted)

    def _count(self, parts: Sequence[Part], seconds: float) -> None:
        ability, count = parts[0].work.ability, sum(part.end - part.begin for part in parts)
        known = self._seconds_of_item or seconds / count
        self._seconds_of_item = _FORGETTING * known + (1 - _FORGETTING) * seconds / count
        used = sum(sum(part.work.used[part.begin : part.end]) for part in parts)
        self.metrics.texts.labels(self.name, ability).inc(count)
        self.metrics.batch_tokens.labels(self.name).observe(used)
        self.metrics.batch_seconds.labels(self.name).observe(seconds)

    def _count_texts(self, parts: Sequence[Part], answers: Sequence[Any]) -> None:
        """Counts what drift shows in: unknown pieces, tokens of texts, truncated texts, confidence."""
        metrics, name = self.metrics, self.name
        tokens, cut = metrics.text_tokens.labels(name), 0
        pieces = unknown = 0
        places = [(part.work, number) for part in parts for number in range(part.begin, part.end)]
        for (work, number), answer in zip(places, answers, strict=True):
            length = sum(work.lengths[number])
            tokens.observe(length)
            cut += length > work.used[number] or getattr(answer, "cut_tokens", 0) > 0
            if (confidence := getattr(answer, "confidence", None)) is not None:
                metrics.confidence.labels(name).observe(confidence)
            ids = getattr(getattr(work.read[number], "pieces", None), "ids", None)
            if ids is not None and self._unknown is not None:
                pieces += len(ids)
                unknown += int((ids == self._unknown).sum())
        metrics.cut_texts.labels(name).inc(cut)
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
                self._waiting -= work.left
            return is_there


def _tell(works: Sequence[Work], error: BaseException | None) -> None:
    """Resolves the futures of some requests in the event loop, with their answers or an error."""
    if works and not (loop := works[0].done.get_loop()).is_closed():
        loop.call_soon_threadsafe(_settle, works, error)


def _settle(works: Sequence[Work], error: BaseException | None) -> None:
    for work in works:
        if not work.done.done():
            if error is None:
                work.done.set_result(work)
            else:
                work.done.set_exception(error)
