"""Schemas of the routes of models that answer about records; see `schemas.py`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bertsmith.app.server.schemas import Asked, Items, Reply

Codes = list[str]


class Visit(BaseModel):
    """What happened to a subject at one time."""

    model_config = ConfigDict(extra="forbid", strict=True)
    codes: Codes | dict[str, Codes] = Field(description="codes, or codes by kind")
    time: str = Field(default="", description="an ISO date or a number; visits are sorted by it")


class Subject(BaseModel):
    """A subject with its visits, as in a file of visits."""

    model_config = ConfigDict(extra="forbid", strict=True)
    subject: str = Field(default="", description="its name; by default its number in the request")
    visits: Items[Visit]


class SubjectsAsked(Asked):
    """Subjects with their visits, in the order of time."""

    subjects: Items[Subject]


class PredictCodesAsked(SubjectsAsked):
    """Subjects with their visits; a model that recommends reads the last visit without the codes that it predicts."""

    top: Annotated[int | None, Field(ge=1, le=10**6, description="at most that many codes of each subject")] = None
    threshold: Annotated[
        float | None,
        Field(
            ge=0, le=1, description="probability from which a code is predicted; default: the model's, or 0 with top"
        ),
    ] = None


class AnomaliesAsked(SubjectsAsked):
    """Subjects with their visits, which are compared with what the model expects."""

    top: Annotated[
        int | None, Field(ge=1, le=10**6, description="only that many visits, the most improbable first")
    ] = None


class PredictedCode(BaseModel):
    """A code with its probability."""

    code: str
    kind: str
    probability: float
    description: str


class CodesOfSubject(BaseModel):
    """The codes that a subject is likely to have, most likely first."""

    subject: str
    time: str = Field(description="of the last visit")
    codes: list[PredictedCode]
    unknown_codes: int = Field(description="how many of its codes the model does not know")
    unlike_training: str = Field(description="what the model read that its training did not have; empty if nothing")


class PredictCodesReply(Reply):
    """The answer for each subject."""

    predictions: list[CodesOfSubject]


class VisitSurprise(BaseModel):
    """How improbable a visit is, with its codes, the least likely first."""

    subject: str
    time: str
    surprise: float | None = Field(description="mean of -ln p over its codes; null if the model can judge none of them")
    codes: list[PredictedCode]
    unknown_codes: int


class AnomaliesReply(Reply):
    """The visits of all subjects."""

    predictions: list[VisitSurprise]


class SubjectVector(BaseModel):
    """The vector of a subject."""

    subject: str
    vector: list[float]
    unknown_codes: int


class EmbedSubjectsReply(Reply):
    """A vector for each subject."""

    predictions: list[SubjectVector]
