"""The routes of indexes, next to those in `routes.py`: search, and with the index key change."""

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from fastapi import Request

from bertsmith.app.server import answer_size
from bertsmith.app.server import index_schemas as schemas
from bertsmith.app.server.queue import Options
from bertsmith.app.server.routes import LARGE, ROUTES, Listed, listed, post
from bertsmith.app.server.service import ADD, REMOVE, SEARCH, Service

if TYPE_CHECKING:
    from bertsmith.app.library.open_index import RankedTexts

__all__ = ["CHANGING", "ROUTES"]

CHANGING = ("/index/add", "/index/remove")
_number = itertools.count()


@post("/search", schemas.SearchAsked, schemas.SearchReply)
async def search(service: Service, request: Request, body: schemas.SearchAsked) -> Listed:
    """The texts of an index that are nearest to a query."""
    host, ability = service.hosts.find(body.model, SEARCH)
    reranker = None if body.rerank is None else service.hosts.find(body.rerank, "rerank")[0].model
    options: Options = (
        ("top", body.top),
        ("method", body.method),
        ("by", tuple(body.by)),
        ("fuse", body.fuse),
        ("depth", body.depth),
        ("where", tuple(body.where)),
        ("exact", body.exact),
        ("reranker", reranker),
    )
    size = answer_size.rankings(len(body.items), body.top if reranker is None else max(body.top, body.depth))
    work = await service.work(request, host, ability, body.items, size, options, others=body.where)
    answers = work.answers
    if body.rerank is not None and not answers[0].is_reranked:
        answers = [await _reranked(service, request, body.rerank, answer, body.top) for answer in answers]
    # In another thread, because rows are read from the disk to measure them.
    request.state.answers.require(await asyncio.to_thread(answer_size.found_texts, answers))
    shown = ({**answer.to_dict(), "id": str(number)} for number, answer in enumerate(answers, start=1))
    # In another thread as well, as texts are read while they are serialized.
    return listed(host, work, shown, key="results", least=LARGE, note=host.model.note(ability, answers))


async def _reranked(service: Service, request: Request, model: str, answer: "RankedTexts", top: int) -> "RankedTexts":
    """The best texts of an answer by the scores that a served model gives them."""
    host, ability = service.hosts.find(model, "rerank")
    texts = await asyncio.to_thread(lambda: answer.texts)
    if not texts:
        return answer
    pairs = [(answer.query, text) for text in texts]
    size = answer_size.scores(host.model, len(pairs))
    work = await service.work(request, host, ability, pairs, size, (("query", answer.query),))
    return answer.reranked([score for score, _ in work.answers], top)


@post(CHANGING[0], schemas.AddTextsAsked, schemas.IndexChangeReply)
async def add_texts(service: Service, request: Request, body: schemas.AddTextsAsked) -> Listed:
    """Adds rows to an index, or replaces those with their ids; needs the index key."""
    return await _changed(service, request, body.model, ADD, body.rows)


@post(CHANGING[1], schemas.RemoveTextsAsked, schemas.IndexChangeReply)
async def remove_texts(service: Service, request: Request, body: schemas.RemoveTextsAsked) -> Listed:
    """Removes rows from an index by their ids; needs the index key."""
    return await _changed(service, request, body.model, REMOVE, body.ids)


async def _changed(service: Service, request: Request, name: str | None, ability: str, items: list[Any]) -> Listed:
    host, ability = service.hosts.find(name, ability)
    # A request is one item, computed by itself: its rows are added together or not at all.
    work = await service.work(
        request, host, ability, [items], answer_size.echoes((), 1), (("change", next(_number)),), texts=len(items)
    )
    return listed(host, work, key="changes", note=host.model.note(ability, work.answers))
