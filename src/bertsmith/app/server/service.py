"""The models of a server, and the life of a request: limits, waiting for the model, timeouts."""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from fastapi import Request

from bertsmith.app.server.answer_size import AnswerSize
from bertsmith.app.server.body import BodyReader
from bertsmith.app.server.held import HeldMemory, Lease
from bertsmith.app.server.prometheus import Metrics
from bertsmith.app.server.queue import Options, Work, WorkQueue, shared_encoder_of
from bertsmith.app.server.refusal import ClientGoneError, RefusalError
from bertsmith.app.server.settings import ServerSettings

if TYPE_CHECKING:
    from bertsmith.app.library.loading import Served

SEARCH, ADD, REMOVE = "search", "add_texts", "remove_texts"  # the abilities of an index
EMBED_IDS = "embed_ids"  # the ability `embed` for texts that are sent as token ids
_ASIDE = ("pieces", ADD, REMOVE)  # what does not wait for the answers of the model
OF_ALL = ("attention", "pieces")  # what the library does not list among the abilities of a model that reads texts
# The routes of each ability, for messages; `features` has none.
ROUTES_OF: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("classify", "score", "extract"), ("/predict with texts",)),
    "choose": ("/predict with questions",),
    **{name: (f"/{name}",) for name in ("tag", "answer", "resolve", "fill", "perplexity", "attention")},
    "rerank": ("/rerank", "/v1/rerank", "/v2/rerank"),
    "generate": ("/predict with texts", "/v1/completions"),
    "complete": ("/complete", "/v1/completions"),
    "embed": ("/v1/embeddings", "/embed", "/"),
    "classify_by_labels": ("/classify",),
    "next_sentence": ("/next",),
    "pieces": ("/tokenize",),
    SEARCH: ("/search",),
    ADD: ("/index/add",),
    REMOVE: ("/index/remove",),
    "predict_codes": ("/codes/predict",),
    "find_anomalies": ("/codes/anomalies",),
    "embed_subjects": ("/codes/embed",),
    "fill_codes": ("/codes/fill",),
    "match_codes": ("/codes/match",),
    "next_codes": ("/codes/next",),
    "answer_from_memory": ("/memory/answer",),
}


class Host:
    """A model that is served.

    Args:
        name: the name used in requests.
        settings: limits.
        metrics: counters to update.
        work: the queue of several models that share an encoder; None to make one.

    Attributes:
        promises: of accuracy and coverage, for which a threshold was saved with the model.
        calibrated_on: number of labelled texts whose scores were saved with it.
        kinds: the kinds of codes that it reads, each with its most frequent codes; none if it reads texts.
        abilities: all that the model supports, with those of `OF_ALL`: the list of every reply that names them.
        work: the queue for the model.
        text: the queue for the tokenizer alone and for changes of an index, in its own thread.
    """

    def __init__(
        self, name: str, model: "Served", settings: ServerSettings, metrics: Metrics, work: WorkQueue | None = None
    ) -> None:
        self.name = name
        self.model: Any = model  # what a route needs of it depends on the ability
        self.kinds: Mapping[str, Sequence[str]] = getattr(model, "kinds", {})
        saved = getattr(model, "thresholds", ())
        self.promises = [each.promise for each in saved]
        self.calibrated_on = sum(len(each.gold) for each in saved)
        shown = {"attention": model.shows_attention, "pieces": model.shows_pieces}
        self.abilities: tuple[str, ...] = (*model.abilities, *(ability for ability in OF_ALL if shown[ability]))
        for value, number in getattr(model, "training_texts", {}).items():
            metrics.training.labels(name, value).set(number)
        self.work = work or WorkQueue({name: model}, settings, metrics)
        self.text = WorkQueue({f"{name} tokenizer": model}, settings, metrics)

    @property
    def routes(self) -> str:
        """The routes that it answers, in words."""
        return ", ".join(dict.fromkeys(path for ability in self.abilities for path in ROUTES_OF.get(ability, ())))


class Hosts:
    """All models of a server.

    Args:
        models: by name; if a request names none, the first that can answer is used.
        settings: limits.
        metrics: counters to update.

    Attributes:
        open_requests: number of requests that these models answer.
    """

    def __init__(self, models: "Mapping[str, Served]", settings: ServerSettings, metrics: Metrics) -> None:
        self.models, self.open_requests = models, 0
        groups: dict[int, dict[str, Served]] = {}
        for name, model in models.items():
            if (shared := shared_encoder_of(model)) is not None:
                groups.setdefault(id(shared), {})[name] = model
        queues = {
            name: queue
            for group in groups.values()
            for queue in [WorkQueue(group, settings, metrics)]
            for name in group
        }
        self.all = [Host(name, model, settings, metrics, queues.get(name)) for name, model in models.items()]
        self._by_name = {host.name: host for host in self.all}

    def find(self, name: str | None, *abilities: str) -> tuple[Host, str]:
        """The named model, or the first suitable one, with the first of `abilities` that it supports.

        Raises:
            RefusalError: 404, no such model; 400, the model supports none of `abilities`.
        """
        if name is not None and name not in self._by_name:
            loaded = ", ".join(repr(known) for known in self._by_name)
            there = "there is" if len(self.all) == 1 else "there are"
            raise RefusalError(404, f"no model {name[:80]!r} is served here; {there} {loaded}")
        for host in self.all if name is None else [self._by_name[name]]:
            for ability in abilities:
                if ability in host.abilities:
                    return host, ability
        if name is not None:
            routes = self._by_name[name].routes
            raise RefusalError(400, f"model {name!r} does not answer such a request; it answers {routes}")
        known = "; ".join(f"{host.name!r} answers {host.routes}" for host in self.all)
        raise RefusalError(400, f"no model that is served here answers such a request; {known}")

    def close(self) -> None:
        """Closes the queues and waits for running computations."""
        for host in self.all:
            host.work.close()
            host.text.close()


_hosts: ContextVar[Hosts | None] = ContextVar("hosts", default=None)  # those that answer this request


class Service:
    """What all routes of one server share.

    Args:
        hosts: the models.
        settings: limits.
        metrics: counters to update.

    Attributes:
        held: the memory of open requests.
        reader: reads request bodies.
        is_ready: whether the models accept requests.
        is_leaving: whether the server is shutting down.
    """

    def __init__(self, hosts: Hosts, settings: ServerSettings, metrics: Metrics) -> None:
        self._hosts, self.settings, self.metrics = hosts, settings, metrics
        self.held = HeldMemory(settings, metrics)
        self.reader = BodyReader(settings, self.held)
        self.is_ready = self.is_leaving = False

    @property
    def hosts(self) -> Hosts:
        """The models: of a request, all the time those that it began with."""
        return _hosts.get() or self._hosts

    @property
    def models(self) -> "Mapping[str, Served]":
        """The models that answer new requests, by name."""
        return self._hosts.models

    @contextlib.contextmanager
    def steady(self) -> Iterator[None]:
        """A context for one request, in which the models are not replaced."""
        hosts = self._hosts
        hosts.open_requests += 1
        token = _hosts.set(hosts)
        try:
            yield
        finally:
            _hosts.reset(token)
            hosts.open_requests -= 1
            self._close_unused(hosts)

    def replace(self, models: "Mapping[str, Served]") -> None:
        """Answers new requests with other models; the old ones are closed after their last request."""
        old, self._hosts = self._hosts, Hosts(models, self.settings, self.metrics)
        self._close_unused(old)

    def _close_unused(self, hosts: Hosts) -> None:
        if hosts is not self._hosts and not hosts.open_requests:
            asyncio.get_running_loop().run_in_executor(None, hosts.close)

    def close(self) -> None:
        """Closes the queues of the models, and waits for running computations."""
        self._hosts.close()

    def set_ready(self, ready: bool) -> None:
        """Sets whether the models accept requests."""
        self.is_ready = ready
        self.metrics.ready.set(ready)

    def leave(self) -> None:
        """Starts the shutdown: the server is no longer ready, and every reply closes its connection."""
        self.is_leaving = True
        self.set_ready(False)

    async def work(
        self,
        request: Request,
        host: Host,
        ability: str,
        items: Sequence[Any],
        size: AnswerSize,
        options: Options = (),
        texts: int = 0,
        others: Sequence[Any] = (),
        deadline: float = math.inf,
    ) -> Work:
        """The finished work of a request.

        Args:
            request: is abandoned if its client disconnects; the lease in its state holds the bytes of the answers.
            host: the model.
            ability: an ability of the model.
            items: one for each answer.
            size: of the answers.
            options: options of the request.
            texts: number of texts, if it is more than one per item.
            others: texts of the request that are no items, for the limit on characters.
            deadline: the time of the event loop when it must be finished, if that is before its own timeout.

        Raises:
            RefusalError: 413, the request or its answers are too large; 422, an item is invalid; 429, the queue is
                full, or too much memory is held; 503, timeout before the model started; 504, before it finished.
            ClientGoneError: the client disconnected; what had not started was dropped.
        """
        self._require_small(max(texts, len(items)), characters(items) + characters(others))
        queue = host.text if ability in _ASIDE else host.work
        lease: Lease = request.state.answers
        name = next(iter(queue.models)) if queue is host.text else host.name
        work = queue.put(name, ability, items, options, size, lease)
        watch = asyncio.ensure_future(_watch(request, queue, work))
        seconds = self.settings.request_seconds
        loop = work.done.get_loop()
        clock = loop.call_at(min(loop.time() + seconds, deadline), _give_up, queue, work, seconds)
        try:
            await work.done
        finally:
            watch.cancel()
            clock.cancel()
            queue.drop(work, "cancelled")
        for kind, count in work.usage.items():
            self.metrics.tokens.labels(host.name, kind.removeprefix("tokens_")).inc(count)
        return work

    def _require_small(self, texts: int, count: int) -> None:
        for number, most, unit in (
            (texts, self.settings.max_texts, "texts"),
            (count, self.settings.max_characters, "characters"),
        ):
            if number > most:
                raise RefusalError(413, f"the request has {number:,} {unit}; the limit is {most:,}; split it")


def characters(items: Sequence[Any]) -> int:
    """The total number of characters in some items, which may be records."""
    return sum(map(_characters, items))


def _characters(item: Any) -> int:
    if isinstance(item, Mapping):
        return characters(list(item.values()))
    if isinstance(item, str):
        return len(item)
    return characters(item) if isinstance(item, Sequence) else 1


async def _watch(request: Request, queue: WorkQueue, work: Work) -> None:
    """Drops the work of a request when its client disconnects; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    if not work.done.done():
        queue.drop(work, "client_gone")
        work.done.set_exception(ClientGoneError())


def _give_up(queue: WorkQueue, work: Work, seconds: float) -> None:
    """Drops work whose time is up."""
    if work.done.done():
        return
    if queue.drop(work, "timeout"):
        sentence = f"the model did not start on this request within {seconds:g} s; try again later"
        work.done.set_exception(RefusalError(503, sentence, {"retry-after": "5"}))
    else:
        sentence = f"the model needed more than {seconds:g} s for this request; send fewer or shorter texts"
        work.done.set_exception(RefusalError(504, sentence))
