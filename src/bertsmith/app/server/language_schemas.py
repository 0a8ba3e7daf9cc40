"""Schemas of the routes of language models; see `schemas.py`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from bertsmith.app.server.schemas import Asked, Items, OpenAIUsage, Reply


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


class StreamOptions(BaseModel):
    """What a stream has besides its texts."""

    model_config = ConfigDict(extra="ignore", strict=True)
    include_usage: bool = Field(default=False, description="send the usage in an event of its own, before [DONE]")


class CompletionsAsked(Asked):
    """Texts to continue, or sources of texts to write, in the format of OpenAI's clients.

    Without temperature and top_p, the most likely piece is taken each time. Unknown keys are ignored; those of OpenAI
    that would change the answer, and are not supported, are refused.
    """

    model_config = ConfigDict(extra="ignore", strict=True)
    prompt: str | Items[str] = Field(description="a text, or a list of texts")
    max_tokens: Annotated[
        int | None,
        Field(ge=1, le=256, description="maximum number of pieces; default: 16, or that of a model that writes"),
    ] = None
    n: Annotated[int | None, Field(ge=1, le=16, description="texts for each prompt; default: 1")] = None
    stream: bool | None = Field(default=None, description="send each part of the text as an event while it is written")
    stream_options: StreamOptions | None = None
    temperature: Annotated[float | None, Field(ge=0, description="draw pieces, their scores divided by this")] = None
    top_p: Annotated[
        float | None,
        Field(gt=0, le=1, description="sample from the most likely pieces that together have this probability"),
    ] = None
    seed: Annotated[int | None, Field(ge=0, le=2**62, description="seed of the draws; each further text adds 1")] = None
    best_of: Literal[1] | None = Field(default=None, description="not supported")
    echo: Literal[False] | None = Field(default=None, description="not supported")
    frequency_penalty: Annotated[float | None, Field(ge=0, le=0, description="not supported")] = None
    logit_bias: None = Field(default=None, description="not supported")
    logprobs: None = Field(default=None, description="not supported")
    presence_penalty: Annotated[float | None, Field(ge=0, le=0, description="not supported")] = None
    stop: None = Field(default=None, description="not supported")
    suffix: None = Field(default=None, description="not supported")


class TextChoice(BaseModel):
    """A continuation, or a text that was written."""

    index: int = Field(description="texts of the first prompt come first")
    text: str
    logprobs: None
    finish_reason: Literal["stop", "length"] | None = Field(
        description="stop: the model ended the text; length: it has the maximum length; null: more follows"
    )


class CompletionsUsage(OpenAIUsage):
    """The same, with the pieces that were written."""

    completion_tokens: int


class CompletionsReply(BaseModel):
    """The texts; as events (`data: {...}`), each has a part of one choice, and the last one is `data: [DONE]`."""

    id: str
    object: Literal["text_completion"]
    created: int = Field(description="seconds since 1970")
    model: str
    choices: list[TextChoice]
    usage: CompletionsUsage | None = None


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
