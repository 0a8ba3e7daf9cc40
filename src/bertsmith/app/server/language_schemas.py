"""Schemas of the routes of language models; see `schemas.py`."""

from typing import Annotated

from pydantic import BaseModel, Field

from bertsmith.app.server.schemas import Asked, Items, Reply


class CompleteAsked(Asked):
    """Texts to continue; without temperature, top_k and top_p a continuation takes the most likely piece each time."""

    texts: Items[str]
    top: Annotated[int, Field(ge=1, le=1000, description="candidates for the next piece")] = 5
    tokens: Annotated[int, Field(ge=0, le=256, description="maximum number of pieces of a continuation")] = 0
    temperature: Annotated[float | None, Field(ge=0, description="draw pieces, their scores divided by this")] = None
    top_k: Annotated[int | None, Field(ge=1, le=10**6, description="draw among this many pieces")] = None
    top_p: Annotated[
        float | None,
        Field(gt=0, le=1, description="sample from the most likely pieces that together have this probability"),
    ] = None
    seed: Annotated[int, Field(ge=0, le=2**63, description="seed of the draws")] = 1


class PerplexityAsked(Asked):
    """Texts to predict piece by piece."""

    texts: Items[str]


class NextPiece(BaseModel):
    """A piece that may follow a text, or does."""

    piece: str
    text: str = Field(description="what it adds to the text")
    probability: float | None


class Continued(BaseModel):
    """What a language model expects after a text."""

    text: str
    next: list[NextPiece]
    continuation: str
    pieces: list[NextPiece]
    has_ended: bool = Field(description="whether the model ended the text early")
    direction: str = Field(description="backward: pieces are in front of the text; forward: they follow it")


class CompleteReply(Reply):
    """The next pieces and the continuation of each text."""

    predictions: list[Continued]


class Predicted(BaseModel):
    """How well a language model predicts a text; null where there is nothing to predict."""

    perplexity: float | None
    word_perplexity: float | None
    bits_per_character: float | None
    nll: float = Field(description="summed negative log-likelihood, in nats")
    pieces: int
    words: int
    characters: int
    unknown: int = Field(description="pieces that stand for unknown words")
    direction: str = Field(
        description="forward: pieces are predicted from those before them; backward: from those after"
    )
    backward: "Predicted | None" = Field(
        default=None, description="the same in the other direction, of a model that reads in both"
    )


class PerplexityReply(Reply):
    """The perplexity of each text."""

    predictions: list[Predicted]
