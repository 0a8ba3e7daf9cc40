"""The model routes: each one reads its body, queues the work and formats the answers."""

import asyncio
import base64
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from fastapi import Request, Response
from pydantic import BaseModel

from bertsmith.app.server import answer_size, language_schemas, schemas
from bertsmith.app.server.completions import completed, completion_jobs, streamed
from bertsmith.app.server.held import Lease
from bertsmith.app.server.queue import Work
from bertsmith.app.server.refusal import ClientGoneError, RefusalError, json_bytes
from bertsmith.app.server.replies import ModelReply, Streamed, StreamReply
from bertsmith.app.server.service import EMBED_IDS, Host, Service
from bertsmith.base.core.errors import BertsmithError

CLIENT_GONE = 499  # never sent; only counted in the metrics
LARGE = 32  # replies with at least this many values are serialized in another thread
_SMALL = 8  # this many words, candidates or pieces serialize at least as fast as one vector
_UNIT = 1e-3  # tolerance for the length of a normalized vector
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorReply, "description": description}
    for status, description in {
        400: "not JSON, two lengths, or not supported by the model",
        401: "missing or wrong key",
        403: "this server does not allow it",
        404: "no such model",
        408: "the body did not arrive in time",
        409: "the index is being changed by another request or process, or cannot be written",
        413: "too large, or the answers would be",
        415: "not application/json, or a compression other than gzip",
        421: "a host name that this server does not answer to",
        422: "the body does not match the schema, an item is invalid, or the model computed no finite numbers for it",
        429: "the queue is full, or too much memory is in use; see the header retry-after",
        503: "the model did not start in time, or too many connections are open",
        504: "the model did not finish in time",
    }.items()
}


# Without a schema: tools disagree whether that of events is about the whole text or about each of them.
_EVENTS: dict[str, dict[str, Any]] = {"/v1/completions": {"content": {"text/event-stream": {}}}}


@dataclasses.dataclass(frozen=True)
class Listed:
    """A reply: a list of values under a key, and the other keys; without a key, the list alone.

    Attributes:
        values: computed while they are serialized.
        others: the other keys with their values.
        count: approximate number of values; large replies are serialized in another thread.
    """

    key: str
    values: Iterable[Any]
    others: Mapping[str, Any]
    count: int

    def bytes(self) -> bytes:
        """The JSON, serialized value by value so that other threads can run in between."""
        values = b",".join(map(json_bytes, self.values))
        if not self.key:
            return b"[%s]" % values
        return b'{"%s":[%s],%s' % (self.key.encode(), values, json_bytes(self.others)[1:])


Vector = npt.NDArray[np.float32]
Handler = Callable[[Service, Request, Any], Awaitable["Listed | Streamed"]]
Handling = TypeVar("Handling", bound=Handler)
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclasses.dataclass(frozen=True)
class ModelRoute:
    """A route that calls a model.

    Attributes:
        path: the path for POST requests.
        request_schema: the schema of the body.
        reply: the schema of the reply.
        handler: returns the reply to a body.
    """

    path: str
    request_schema: type[BaseModel]
    reply: Any
    handler: Handler

    def endpoint(self, service: Service) -> Endpoint:
        """The endpoint for requests to this route."""

        async def endpoint(request: Request) -> Response:
            lease = request.state.answers = Lease(service.held)
            reply: Response | None = None
            try:
                async with service.reader.read(request, self.request_schema) as body:
                    answer = await self.handler(service, request, body)
                    if isinstance(answer, Streamed):
                        reply = StreamReply(answer, lease, service.settings.write_seconds)
                        return reply
                    content = answer.bytes() if answer.count < LARGE else await asyncio.to_thread(answer.bytes)
                reply = ModelReply(content, lease, service.settings.seconds_to_read(len(content)))
            except RefusalError as refusal:
                return refusal.response()
            except ClientGoneError:
                return Response(status_code=CLIENT_GONE)
            finally:
                if reply is None:
                    lease.end()
            return reply

        return endpoint

    def document(self) -> dict[str, Any]:
        """The arguments for FastAPI's `add_api_route`, for the OpenAPI document."""
        schema = {"$ref": f"#/components/schemas/{self.request_schema.__name__}"}
        return {
            "methods": ["POST"],
            "name": self.handler.__name__,
            "summary": self.handler.__doc__,
            "description": self.request_schema.__doc__,
            "responses": {200: {"model": self.reply, **_EVENTS.get(self.path, {})}, **_ERRORS},
            "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
        }


ROUTES: list[ModelRoute] = []


def post(path: str, request_schema: type[BaseModel], reply: Any) -> Callable[[Handling], Handling]:
    """A decorator that registers a handler as a route for bodies of the schema `request_schema`."""

    def register(handler: Handling) -> Handling:
        ROUTES.append(ModelRoute(path, request_schema, reply, handler))
        return handler

    return register


def listed(
    host: Host,
    work: Work,
    values: Iterable[Any] | None = None,
    *,
    key: str = "predictions",
    small: int = 0,
    least: int = 0,
    note: str = "",
) -> Listed:
    """The reply with the answers of a request.

    Args:
        values: the answers as they are shown; None for the library's JSON form.
        small: total number of words, candidates or pieces in the answers.
        least: the count of the reply is at least this.
        note: a sentence to read with the answers.
    """
    shown = (answer.to_dict() for answer in work.answers) if values is None else values
    others = {"model": host.name, "usage": work.usage, "note": note}
    return Listed(key, shown, others, max(len(work.items), small // _SMALL, least))


@post("/v1/embeddings", schemas.EmbeddingsAsked, schemas.EmbeddingsReply)
async def embeddings(service: Service, request: Request, body: schemas.EmbeddingsAsked) -> Listed:
    """One vector per text, in OpenAI's format."""
    host, ability = service.hosts.find(body.model, "embed")
    cut = shortened(host, body.dimensions)
    is_text = isinstance(body.input, str) or isinstance(body.input[0], int)
    texts: list[Any] = [body.input] if is_text else list(body.input)
    if not isinstance(texts[0], str):
        ability = EMBED_IDS
        await asyncio.to_thread(_require_ids, service, host.model, texts, body.prompt_name)
    size = answer_size.vectors(host.model, len(texts), packed=body.encoding_format == "base64")
    options = () if body.prompt_name is None else (("prompt", body.prompt_name),)
    work = await service.work(request, host, ability, texts, size, options)
    usage = {**work.usage, "prompt_tokens": work.usage["tokens_used"], "total_tokens": work.usage["tokens_used"]}
    pieces = host.model.tokenizer.vocabulary.pieces if host.model.is_sparse else ()
    shown = _openai_embeddings(map(cut, work.answers), body.encoding_format, pieces)
    return Listed("data", shown, {"object": "list", "model": host.name, "usage": usage}, len(texts))


def _require_ids(service: Service, model: Any, rows: Sequence[Sequence[int]], prompt: str | None) -> None:
    """Refuses token ids that the model cannot read, and all of them if the server was not started to accept them.

    Ids of another tokenizer are mostly ids of this vocabulary too, and some clients send them without being asked to.

    Raises:
        RefusalError: 413, there are more than a request may have; 422, one is not in the vocabulary, or a text has more
            than the model reads, or none is accepted.
    """
    if not service.settings.token_ids:
        raise RefusalError(
            422,
            "input: expected texts; found token ids; send texts, or start the server with --token-ids if the ids are "
            "of the model's own vocabulary",
        )
    count = sum(map(len, rows))
    if count > service.settings.max_tokens:
        raise RefusalError(
            413, f"the request has {count:,} tokens; the limit is {service.settings.max_tokens:,}; split it"
        )
    try:
        model.check_ids(rows, prompt=prompt)
    except BertsmithError as error:
        raise RefusalError(422, f"input: {error}") from None


@post("/predict", schemas.PredictAsked, schemas.PredictReply)
async def predict(service: Service, request: Request, body: schemas.PredictAsked) -> Listed:
    """The label, the number, the text that is written, the sentences that are chosen, or the best ending."""
    if body.questions is not None:
        host, ability = service.hosts.find(body.model, "choose")
        questions = [(question.context, question.endings) for question in body.questions]
        endings = sum(len(question.endings) for question in body.questions)
        size = answer_size.endings(questions)
        work = await service.work(request, host, ability, questions, size, texts=endings)
    else:
        assert body.texts is not None, "the schema requires one of the two"
        host, ability = service.hosts.find(body.model, "classify", "score", "generate", "extract")
        size = answer_size.labels(host.model, len(body.texts))
        if ability == "generate":
            size = answer_size.texts(host.model, len(body.texts), body.answers, body.max_target_length)
        elif ability == "extract":
            size = answer_size.extracts(body.texts)
        work = await service.work(request, host, ability, body.texts, size, body.search)
    small = len(work.answers) * len(host.model.labels)
    note = host.model.remark(work.read)
    return listed(host, work, small=small, note=note)


@post("/classify", schemas.ClassifyAsked, schemas.ClassifyReply)
async def classify(service: Service, request: Request, body: schemas.ClassifyAsked) -> Listed:
    """The label of each text among labels that are only named."""
    host, ability = service.hosts.find(body.model, "classify_by_labels")
    pairs, texts = body.pairs, len(body.texts)
    if host.model.task is None:  # reads texts and labels alone, or else each text with a sentence about each label
        rows = texts + sum(1 + bool(description) for _, description in pairs)
    else:
        rows = texts * len(pairs) * max(1, len(body.template))
    options = (("question", (pairs, body.multi_label, tuple(body.template))), ("threshold", body.threshold))
    size = answer_size.of_labels([name for name, _ in pairs], texts)
    work = await service.work(
        request, host, ability, body.texts, size, options, texts=rows, others=(pairs, body.template)
    )
    return listed(host, work, small=texts * len(pairs))


@post("/tag", schemas.TagAsked, schemas.TagReply)
async def tag(service: Service, request: Request, body: schemas.TagAsked) -> Listed:
    """The entities of each text, and the tag of each word."""
    host, ability = service.hosts.find(body.model, "tag")
    pairs = body.pairs or ()
    size = answer_size.words(host.model, body.texts, [name for name, _ in pairs], body.overlap)
    work = await service.work(request, host, ability, body.texts, size, body.options, others=pairs)
    return listed(host, work, map(_tags, work.answers), small=sum(len(tags.words) for tags in work.answers))


@post("/answer", schemas.AnswerAsked, schemas.AnswerReply)
async def answer(service: Service, request: Request, body: schemas.AnswerAsked) -> Listed:
    """Answers to questions from their contexts, which may have any length."""
    host, ability = service.hosts.find(body.model, "answer")
    questions = [(question.question, question.context) for question in body.questions]
    size = answer_size.answers(host.model, questions, body.n_best)
    work = await service.work(request, host, ability, questions, size, (("n_best", answer_size.MOST_CANDIDATES),))
    return listed(host, work, (_answers(candidates, body.n_best) for candidates in work.answers))


@post("/resolve", schemas.ResolveAsked, schemas.ResolveReply)
async def resolve(service: Service, request: Request, body: schemas.ResolveAsked) -> Listed:
    """The names that pronouns refer to."""
    host, ability = service.hosts.find(body.model, "resolve")
    pronouns = [pronoun.model_dump() for pronoun in body.pronouns]
    size = answer_size.mentions(pronouns)
    work = await service.work(request, host, ability, pronouns, size)
    return listed(host, work, small=sum(len(pronoun["candidates"]) for pronoun in pronouns))


@post("/fill", schemas.FillAsked, schemas.FillReply)
async def fill(service: Service, request: Request, body: schemas.FillAsked) -> Listed:
    """The most probable pieces for each [MASK]."""
    host, ability = service.hosts.find(body.model, "fill")
    size = answer_size.candidates(host.model, body.texts, body.top)
    work = await service.work(request, host, ability, body.texts, size, (("top", body.top),))
    candidates = sum(len(gap) for gaps in work.answers for gap in gaps)
    return listed(host, work, small=candidates)


@post("/complete", language_schemas.CompleteAsked, language_schemas.CompleteReply)
async def complete(service: Service, request: Request, body: language_schemas.CompleteAsked) -> Listed:
    """The most likely next pieces of each text, and its continuation."""
    host, ability = service.hosts.find(body.model, "complete")
    size = answer_size.completions(host.model, body.texts, body.top, body.tokens)
    names = ("top", "tokens", "temperature", "top_k", "top_p", "seed")
    options = tuple((name, getattr(body, name)) for name in names)
    work = await service.work(request, host, ability, body.texts, size, options)
    return listed(host, work, small=len(body.texts) * (body.top + body.tokens))


@post("/v1/completions", language_schemas.CompletionsAsked, language_schemas.CompletionsReply)
async def completions(service: Service, request: Request, body: language_schemas.CompletionsAsked) -> Listed | Streamed:
    """Continuations, or texts that are written, in OpenAI's format, whole or part by part."""
    host, jobs, common = completion_jobs(service, body)
    if body.stream:
        return await streamed(service, request, host, jobs, common)
    choices, usage = await completed(service, request, host, jobs)
    return Listed("choices", choices, {**common, "usage": usage}, len(choices))


@post("/perplexity", language_schemas.PerplexityAsked, language_schemas.PerplexityReply)
async def perplexity(service: Service, request: Request, body: language_schemas.PerplexityAsked) -> Listed:
    """How well a language model predicts each text."""
    host, ability = service.hosts.find(body.model, "perplexity")
    size = answer_size.predicted(len(body.texts))
    work = await service.work(request, host, ability, body.texts, size)
    return listed(host, work)


@post("/next", schemas.NextAsked, schemas.NextReply)
async def next_sentence(service: Service, request: Request, body: schemas.NextAsked) -> Listed:
    """The probability that the second text of a pair follows the first."""
    host, ability = service.hosts.find(body.model, "next_sentence")
    size = answer_size.echoes(body.pairs, len(body.pairs))
    work = await service.work(request, host, ability, body.pairs, size)
    return listed(host, work)


@post("/rerank", schemas.RerankAsked, schemas.RerankReply | list[schemas.Ranked])
async def rerank(service: Service, request: Request, body: schemas.RerankAsked) -> Listed:
    """Passages ranked by relevance to a query."""
    host, ability = service.hosts.find(body.model, "rerank")
    passages = body.ranked
    pairs = [(body.query, passage) for passage in passages]
    size = answer_size.scores(host.model, len(pairs), passages if body.return_text else ())
    options = (("query", body.query), *((("raw_scores", True),) if body.raw_scores else ()))
    work = await service.work(request, host, ability, pairs, size, options)
    require_whole(work, body.truncate)
    scores, vectors = zip(*work.answers, strict=True)
    note = await asyncio.to_thread(host.model.remark, (), vectors)
    ranked = _ranked(scores, body.top, passages if body.return_text else None)
    return listed(host, work, ranked, key="results" if body.texts is None else "", note=note)


@post("/tokenize", schemas.TokenizeAsked, schemas.TokenizeReply)
async def tokenize(service: Service, request: Request, body: schemas.TokenizeAsked) -> Listed:
    """The pieces of each text, with character offsets."""
    host, ability = service.hosts.find(body.model, "pieces")
    work = await service.work(request, host, ability, body.texts, answer_size.pieces(body.texts))
    return listed(host, work, work.answers, key="texts", small=sum(len(text["ids"]) for text in work.answers))


@post("/attention", schemas.AttentionAsked, schemas.AttentionReply)
async def attention(service: Service, request: Request, body: schemas.AttentionAsked) -> Listed:
    """The attention weights of each head of each layer."""
    host, ability = service.hosts.find(body.model, "attention")
    item = body.text if body.pair is None else (body.text, body.pair)
    work = await service.work(request, host, ability, [item], answer_size.weights(host.model))
    weights = work.answers[0]
    others = {"model": host.name, **weights.shape(), "usage": work.usage, "note": ""}
    return Listed("attention", weights.layers(), others, LARGE)


def _tags(prediction: Any) -> dict[str, Any]:
    """Entities and words with character offsets; unlike in the library, words are objects, and entities have an end."""
    tags = prediction.to_dict()
    spans = tags["offsets"] or [(None, None)] * len(tags["words"])
    entities = []
    for entity in tags["entities"]:
        begin, end = entity["characters"] or (None, None)
        shown = {name: value for name, value in entity.items() if name != "start"}
        entities.append({**shown, "begin": begin, "end": end})
    without = [None] * len(spans)  # of entities that may be inside one another
    columns = (tags["words"], spans, tags.get("tags", without), tags.get("probabilities", without))
    words = [
        {"text": word, "begin": begin, "end": end, "tag": tag, "probability": chance}
        for word, (begin, end), tag, chance in zip(*columns, strict=True)
    ]
    return {"entities": entities, "words": words, "cut_tokens": tags["cut_tokens"]}


def _answers(prediction: Any, n_best: int) -> dict[str, Any]:
    """The answer to a question with its best candidates."""
    values = prediction.to_dict()
    return {**values, "n_best": values["n_best"][:n_best], "answers": values["answers"][:n_best]}


def require_whole(work: Work, truncate: bool | None) -> None:
    """Refuses truncated texts if the request does; the model has read their beginnings then."""
    if truncate is False and (cut := work.usage["tokens_cut"]):
        raise RefusalError(413, f"truncate: {cut:,} tokens are too many for the model; send shorter texts, or true")


def _ranked(scores: Sequence[float], top: int | None, texts: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The passages, best first, with their texts if there are any; ties stay in request order."""
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[:top]
    return [
        {"index": index, "score": scores[index], **({} if texts is None else {"text": texts[index]})} for index in order
    ]


def _openai_embeddings(vectors: Iterable[Vector], encoding: str, pieces: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Vectors in OpenAI's format; of sparse vectors, numbers are shown as the weights of `pieces`."""
    for index, vector in enumerate(vectors):
        value: Any = vector.tolist()
        if encoding == "base64":
            value = base64.b64encode(vector.astype("<f4").tobytes()).decode()
        elif pieces:
            value = {pieces[piece]: value[piece] for piece in np.flatnonzero(vector).tolist()}
        yield {"object": "embedding", "index": index, "embedding": value}


def shortened(host: Host, dimensions: int | None, *, is_unit: bool | None = None) -> Callable[[Vector], Vector]:
    """The function that keeps the first numbers of a vector, which has length 1 again if the whole one has.

    Args:
        dimensions: how many; None for all.
        is_unit: whether vectors have length 1; None to look at each.

    Raises:
        RefusalError: 422, the vectors have fewer, or are sparse.
    """
    width = host.model.width
    if dimensions is not None and dimensions > width:
        raise RefusalError(422, f"dimensions: the vectors of {host.name!r} have only {width} numbers; lower it")
    if dimensions is not None and host.model.is_sparse:
        raise RefusalError(422, f"dimensions: the vectors of {host.name!r} are sparse; leave it out")

    def cut(vector: Vector) -> Vector:
        if dimensions is None:
            return vector
        short = vector[:dimensions]
        length = float(np.linalg.norm(short))
        unit = abs(float(np.linalg.norm(vector)) - 1) < _UNIT if is_unit is None else is_unit
        return short / np.float32(length) if unit and length > 0 else short

    return cut
