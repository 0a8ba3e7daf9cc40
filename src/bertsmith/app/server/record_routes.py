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
    return listed(host, work, small=sum(len(answer.codes) for answer in work.answers))


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
    return listed(host, work, (visit.to_dict() for visit in visits), small=small)


@post("/codes/embed", schemas.SubjectsAsked, schemas.EmbedSubjectsReply)
async def embed_subjects(service: Service, request: Request, body: schemas.SubjectsAsked) -> Listed:
    """A vector for each subject."""
    host, ability = service.hosts.find(body.model, "embed_subjects")
    subjects = _records(body.subjects)
    work = await service.work(request, host, ability, subjects, answer_size.vectors_of_subjects(host.model, subjects))
    return listed(host, work)


def _records(items: Sequence[Any]) -> list[dict[str, Any]]:
    """Records of a request as plain values, without what was left out."""
    return [item.model_dump(exclude_defaults=True) for item in items]
