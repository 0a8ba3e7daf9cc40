"""The routes of models that answer about records, next to those in `routes.py`; a path has the words of its command."""

from collections.abc import Sequence
from typing import Any

from fastapi import Request

from bertsmith.app.server import answer_size
from bertsmith.app.server import record_schemas as schemas
from bertsmith.app.server.routes import ROUTES, Listed, listed, post
from bertsmith.app.server.service import Service

__all__ = ["ROUTES"]


@post("/codes/predict", schemas.PredictCodesAsked, schemas.PredictCodesReply)
async def predict_codes(service: Service, request: Request, body: schemas.PredictCodesAsked) -> Listed:
    """The codes that each subject is likely to have, at its last visit or at the next one."""
    host, ability = service.hosts.find(body.model, "predict_codes")
    subjects = _records(body.subjects)
    size = answer_size.codes_of_subjects(host.model, subjects, body.top)
    options = (("top", body.top), ("threshold", body.threshold))
    work = await service.work(request, host, ability, subjects, size, options)
    note = host.model.note(ability, work.answers)
    return listed(host, work, small=sum(len(answer.codes) for answer in work.answers), note=note)


@post("/codes/anomalies", schemas.AnomaliesAsked, schemas.AnomaliesReply)
async def find_anomalies(service: Service, request: Request, body: schemas.AnomaliesAsked) -> Listed:
    """How improbable each visit of each subject is."""
    host, ability = service.hosts.find(body.model, "find_anomalies")
    subjects = _records(body.subjects)
    work = await service.work(request, host, ability, subjects, answer_size.codes_of_visits(host.model, subjects))
    visits = [visit for of_subject in work.answers for visit in of_subject]
    if body.top is not None:
        judged = [visit for visit in visits if visit.surprise is not None]
        visits = sorted(judged, key=lambda visit: -visit.surprise)[: body.top]
    small = sum(1 + len(visit.codes) for visit in visits)
    note = host.model.note(ability, visits)
    return listed(host, work, (visit.to_dict() for visit in visits), small=small, note=note)


@post("/codes/embed", schemas.SubjectsAsked, schemas.EmbedSubjectsReply)
async def embed_subjects(service: Service, request: Request, body: schemas.SubjectsAsked) -> Listed:
    """A vector for each subject."""
    host, ability = service.hosts.find(body.model, "embed_subjects")
    subjects = _records(body.subjects)
    work = await service.work(request, host, ability, subjects, answer_size.vectors_of_subjects(host.model, subjects))
    return listed(host, work, note=host.model.note(ability, work.answers))


@post("/codes/fill", schemas.FillCodesAsked, schemas.FillCodesReply)
async def fill_codes(service: Service, request: Request, body: schemas.FillCodesAsked) -> Listed:
    """The words that are missing in texts, next to codes."""
    host, ability = service.hosts.find(body.model, "fill_codes")
    segments = _records(body.segments)
    size = answer_size.fillings(host.model, segments, body.top)
    work = await service.work(request, host, ability, segments, size, (("top", body.top),))
    return listed(host, work, small=sum(2 * len(gap) for answer in work.answers for gap in answer.gaps))


@post("/codes/match", schemas.MatchCodesAsked, schemas.MatchCodesReply)
async def match_codes(service: Service, request: Request, body: schemas.MatchCodesAsked) -> Listed:
    """The segments whose codes belong to a text, or whose text to codes, most likely first."""
    host, ability = service.hosts.find(body.model, "match_codes")
    query = {"text": body.text} if body.text is not None else {"codes": body.codes}
    pairs = [{"query": query, "segment": record} for record in _records(body.segments)]
    work = await service.work(request, host, ability, pairs, answer_size.echoes((), len(pairs)))
    order = sorted(range(len(pairs)), key=lambda index: -work.answers[index][0])
    results = [
        {"index": index, "probability": work.answers[index][0], "unknown_codes": work.answers[index][1]}
        for index in order[: body.top]
    ]
    return listed(host, work, results, key="results", note=host.model.note(ability, work.answers))


@post("/codes/next", schemas.NextCodesAsked, schemas.NextCodesReply)
async def next_codes(service: Service, request: Request, body: schemas.NextCodesAsked) -> Listed:
    """The codes that are likely to follow codes."""
    host, ability = service.hosts.find(body.model, "next_codes")
    segments = _records(body.segments)
    size = answer_size.next_codes(host.model, len(segments), body.top)
    work = await service.work(request, host, ability, segments, size, (("top", body.top),))
    answers = ({"codes": [{"code": code, "probability": chance} for code, chance in answer]} for answer in work.answers)
    return listed(host, work, answers, small=sum(map(len, work.answers)))


@post("/memory/answer", schemas.StoriesAsked, schemas.MemoryAnswersReply)
async def answer_from_memory(service: Service, request: Request, body: schemas.StoriesAsked) -> Listed:
    """Answers to questions about lists of facts, and the facts that were attended to."""
    host, ability = service.hosts.find(body.model, "answer_from_memory")
    records = _records(body.stories)
    work = await service.work(request, host, ability, records, answer_size.stories(host.model, records))
    weights = sum(len(answer.facts) * len(answer.attention) for answer in work.answers)
    return listed(host, work, small=weights, note=host.model.note(ability, work.answers))


def _records(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Records of a request as plain values, without what was left out."""
    return [item.model_dump(exclude_defaults=True) for item in items]
