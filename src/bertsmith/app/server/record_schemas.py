"""Schemas of the routes of models that answer about records; see `schemas.py`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from bertsmith.app.server.schemas import Asked, Items, Piece, Reply, Texts


class Visit(BaseModel):
    """What happened to a subject at one time."""

    model_config = ConfigDict(extra="forbid", strict=True)
    codes: Texts | dict[str, Texts] = Field(description="codes, or codes by kind")
    time: str = Field(default="", description="an ISO date or a number; visits are sorted by it")


class Subject(BaseModel):
    """A subject with its visits, as in a file of visits."""

    model_config = ConfigDict(extra="forbid", strict=True)
    subject: str = Field(default="", description="its name; by default its number in the request")
    visits: Items[Visit]


class SubjectsAsked(Asked):
    """Subjects with their visits, in the order of time."""

    subjects: Items[Subject]


class Segment(BaseModel):
    """A text and the codes of the same moment."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str = ""
    codes: Texts = Field(default_factory=list, description="in their order; those of a kind are written kind:code")


class SegmentsAsked(Asked):
    """Texts with codes."""

    segments: Items[Segment]


class FillCodesAsked(SegmentsAsked):
    """Texts with [MASK] where a word is missing, and codes."""

    top: Annotated[int, Field(ge=1, le=1000, description="pieces for each [MASK]")] = 5


class NextCodesAsked(SegmentsAsked):
    """Codes to continue, each with what is said at that moment, which may be empty."""

    top: Annotated[int, Field(ge=1, le=10**6, description="codes for each segment")] = 5


class MatchCodesAsked(SegmentsAsked):
    """A text whose codes are among the segments, or codes whose text is.

    Codes of segments that the model does not know are left out.
    """

    text: str | None = Field(default=None, description="find the segments whose codes belong to this text")
    codes: Texts | None = Field(default=None, description="find the segments whose text belongs to these codes")
    top: Annotated[int | None, Field(ge=1, description="only the best segments, this many")] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "MatchCodesAsked":
        if (self.text is None) == (self.codes is None):
            sent = "neither" if self.text is None else "both"
            raise ValueError(f"expected either 'text' or 'codes'; found {sent}; send one of them")
        return self


class CodesFilling(BaseModel):
    """The candidates for each [MASK] next to the codes, and what the text alone says."""

    codes: list[str]
    gaps: list[list[Piece]]
    alone: list[list[Piece]]


class FillCodesReply(Reply):
    """The candidates for each segment."""

    predictions: list[CodesFilling]


class NextCode(BaseModel):
    """A code that may follow."""

    code: str
    probability: float


class NextCodes(BaseModel):
    """The codes that may follow, most likely first."""

    codes: list[NextCode]


class NextCodesReply(Reply):
    """The codes that may follow each segment."""

    predictions: list[NextCodes]


class CodesMatch(BaseModel):
    """A segment, by its index in the request."""

    index: int
    probability: float = Field(description="that text and codes belong together")
    unknown_codes: int = Field(description="how many of its codes the model does not know; they were left out")


class MatchCodesReply(Reply):
    """The segments, best first."""

    results: list[CodesMatch]


class Story(BaseModel):
    """Facts, the earliest first, and a question about them."""

    model_config = ConfigDict(extra="forbid", strict=True)
    facts: Items[str]
    question: str


class StoriesAsked(Asked):
    """Questions about lists of facts."""

    stories: Items[Story]


class MemoryAnswer(BaseModel):
    """What a memory network answers."""

    answer: str | None = Field(description="null if the model knows no answers, only facts")
    probability: float | None = Field(description="of the answer, among those of the model")
    facts: list[str] = Field(description="those that were read, the last ones")
    attention: list[list[float]] = Field(description="for each hop the weight of each of these facts")
    unknown_words: int = Field(description="how many words of facts and question the model does not know")


class MemoryAnswersReply(Reply):
    """The answer to each question."""

    predictions: list[MemoryAnswer]


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
