"""Completions in OpenAI's format: the work that a request needs, its choices, and the events of a stream.

A language model continues each prompt. One that writes texts takes it as a source, and writes greedily, so
that the parts of a stream are the whole text. Each job is one call of the model; a stream computes one choice after
another.
"""

import asyncio
import dataclasses
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi import Request

from bertsmith.app.server import answer_size
from bertsmith.app.server.answer_size import AnswerSize
from bertsmith.app.server.language_schemas import CompletionsAsked
from bertsmith.app.server.queue import ComputeCancelledError, Options, Work
from bertsmith.app.server.refusal import ClientGoneError, RefusalError, json_bytes
from bertsmith.app.server.replies import Streamed
from bertsmith.app.server.service import Host, Service

_PIECES = 16  # of a continuation by default, as OpenAI has it
_MOST_STREAMED = 16  # each is computed alone, and the memory of all is held until the end
_DONE = b"[DONE]"


@dataclasses.dataclass(frozen=True)
class Job:
    """Work for the model.

    Attributes:
        indexes: of each prompt, the number of the choice that the work gives.
        ability, items, options, size: see `Work`.
        is_further: whether other work reads the same prompts, for their first texts.
    """

    indexes: Sequence[int]
    ability: str
    items: Sequence[str]
    options: Options
    size: AnswerSize
    is_further: bool = False


def completion_jobs(service: Service, body: CompletionsAsked) -> tuple[Host, list[Job], dict[str, Any]]:
    """The model of a request, the work that it needs, and what its reply and all events have in common.

    Raises:
        RefusalError: the model is none, or does not support the options.
    """
    host, ability = service.hosts.find(body.model, "complete", "generate")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    each = body.n or 1
    count = len(prompts) * each
    _require(
        not body.stream or count <= _MOST_STREAMED,
        "stream",
        f"at most {_MOST_STREAMED} texts; found {count:,}; split it",
    )
    _require(body.stream or body.stream_options is None, "stream_options", "stream: true with it; found none; add it")
    of_prompt = [at * each for at in range(len(prompts))]
    jobs = []
    if ability == "generate":
        for key in ("temperature", "top_p"):
            _require(not getattr(body, key), key, f"a language model; found {host.name!r}, which writes texts")
        _require(each == 1, "n", f"1; found {each} for {host.name!r}, which writes texts; use /predict with answers")
        options: Options = (("beam", 1), ("answers", 1))
        options += () if body.max_tokens is None else (("max_target_length", body.max_tokens),)
        size = answer_size.texts(host.model, len(prompts), 1, body.max_tokens)
        jobs.append(Job(of_prompt, ability, prompts, options, size))
    else:
        _require(
            not (body.stream and host.model.reads_backward),
            "stream",
            f"a model that reads forward; found {host.name!r}, which continues texts at their beginning; leave it out",
        )
        is_drawn = body.top_p is not None or bool(body.temperature)
        _require(each == 1 or is_drawn, "n", f"1 without temperature or top_p; found {each}; add one of them")
        tokens, first = body.max_tokens or _PIECES, 1 if body.seed is None else body.seed
        size = answer_size.completions(host.model, prompts, 1, tokens)
        for number in range(each):
            options = (
                ("top", 1),
                ("tokens", tokens),
                ("temperature", body.temperature),
                ("top_p", body.top_p),
                ("seed", first + number),
            )
            indexes = [index + number for index in of_prompt]
            jobs.append(Job(indexes, ability, prompts, options, size, is_further=number > 0))
    if body.stream:  # one choice after another
        jobs = [
            dataclasses.replace(job, indexes=[index], items=[prompt])
            for job in jobs
            for index, prompt in zip(job.indexes, job.items, strict=True)
        ]
        jobs.sort(key=lambda job: job.indexes[0])
    common: dict[str, Any] = {
        "id": f"cmpl-{uuid.uuid4().hex}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": host.name,
    }
    if body.stream_options is not None and body.stream_options.include_usage:
        common["usage"] = None  # in all events but one
    return host, jobs, common


def _require(condition: bool, key: str, rest: str) -> None:
    if not condition:
        raise RefusalError(422, f"{key}: expected {rest}")


async def completed(
    service: Service, request: Request, host: Host, jobs: Sequence[Job]
) -> tuple[list[dict[str, Any]], Mapping[str, int]]:
    """The choices of a request, and its usage."""
    choices: dict[int, dict[str, Any]] = {}
    usage: Counter[str] = Counter()
    deadline = _deadline(service)
    for job in jobs:
        work = await service.work(request, host, job.ability, job.items, job.size, job.options, deadline=deadline)
        for index, answer in zip(job.indexes, work.answers, strict=True):
            choices[index] = _choice(index, _text(answer), _reason(answer))
        usage.update(await _usage(host, job, work))
    return [choices[index] for index in sorted(choices)], usage


async def streamed(
    service: Service, request: Request, host: Host, jobs: Sequence[Job], common: Mapping[str, Any]
) -> Streamed:
    """The events of a request, once the first part of its text is there.

    Raises:
        RefusalError: as `Service.work`, before the first part.
    """
    loop, deadline = asyncio.get_running_loop(), _deadline(service)
    events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

    async def compute() -> None:
        usage: Counter[str] = Counter()
        for job in jobs:
            index = job.indexes[0]

            def send(text: str, index: int = index) -> None:  # from the model's thread
                if task.done():
                    raise ComputeCancelledError
                loop.call_soon_threadsafe(events.put_nowait, {"choices": [_choice(index, text, None)]})

            options = (*job.options, ("on_text", send))
            work = await service.work(request, host, job.ability, job.items, job.size, options, deadline=deadline)
            events.put_nowait({"choices": [_choice(index, "", _reason(work.answers[0]))]})
            usage.update(await _usage(host, job, work))
        if "usage" in common:
            events.put_nowait({"choices": [], "usage": usage})

    task = loop.create_task(compute())
    task.add_done_callback(lambda _: events.put_nowait(None))
    is_streamed = False
    try:
        first = await events.get()
        if first is None:
            await task
        is_streamed = True
    finally:
        if not is_streamed:
            task.cancel()

    async def shown() -> AsyncIterator[bytes]:
        event = first
        while event is not None:
            yield json_bytes({**common, **event})
            event = await events.get()
        try:
            await task
        except RefusalError as refusal:
            yield refusal.response().body  # type: ignore[misc]
        except ClientGoneError:
            return
        else:
            yield _DONE

    return Streamed(shown(), task)


def _deadline(service: Service) -> float:
    return asyncio.get_running_loop().time() + service.settings.request_seconds


def _text(answer: Any) -> str:
    """The text of an answer of the library: a continuation, or one that was written."""
    return str(answer.continuation if hasattr(answer, "continuation") else answer.text)


def _reason(answer: Any) -> str:
    return "stop" if answer.has_ended else "length"


def _choice(index: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason}


async def _usage(host: Host, job: Job, work: Work) -> dict[str, int]:
    """What finished work adds to the usage of its request, which counts a prompt once for all of its texts."""
    pieces = await asyncio.to_thread(_count_pieces, host, work)
    usage = {name: 0 if job.is_further else count for name, count in work.usage.items()}
    read = usage["tokens_used"]
    return {**usage, "prompt_tokens": read, "completion_tokens": pieces, "total_tokens": read + pieces}


def _count_pieces(host: Host, work: Work) -> int:
    """The pieces of all texts of finished work."""
    if work.ability == "complete":
        return sum(len(answer.pieces) for answer in work.answers)
    return sum(len(host.model.tokenizer.encode(answer.text)) for answer in work.answers)
