"""What requests and replies look like: the forms that are checked, and that the OpenAPI document shows."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

ModelName = Annotated[
    str | None, Field(description="a name of GET /models; if left out, the first model that can do what is asked")
]
Pair = tuple[str, str]
TokenId = Annotated[int, Field(ge=0)]
Item = TypeVar("Item")
# The first item that is wrong is all that is told, so more of them are not looked for.
Items = Annotated[list[Item], Field(min_length=1, fail_fast=True)]
Endings = Annotated[list[str], Field(min_length=2, fail_fast=True)]


class Asked(BaseModel):
    """A body; unknown keys are refused, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: ModelName = None


class EmbeddingsAsked(Asked):
    """Texts to turn into vectors, as OpenAI's clients send them."""

    # Clients of OpenAI may send more than is of use here.
    model_config = ConfigDict(extra="ignore", strict=True)
    input: str | Items[str] | Items[TokenId] | Items[Items[TokenId]] = Field(
        description="a text, texts, the token ids of a text, or those of texts"
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="the first so many numbers of each vector")] = None
    user: str | None = None


class ChoiceQuestion(BaseModel):
    """A context and what may follow it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    context: str
    endings: Endings


class PredictAsked(Asked):
    """Texts or pairs of texts to classify or rate, or questions with endings to choose from."""

    texts: Items[str | Pair] | None = None
    questions: Items[ChoiceQuestion] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "PredictAsked":
        if (self.texts is None) == (self.questions is None):
            found = "neither" if self.texts is None else "both"
            raise ValueError(f"expected either 'texts' or 'questions'; found {found}; send one of them")
        return self


class TagAsked(Asked):
    """Texts whose words are tagged; a list of words is taken as it is."""

    texts: Items[str | Items[str]]


class Question(BaseModel):
    """A question about a context of any length."""

    model_config = ConfigDict(extra="forbid", strict=True)
    question: str
    context: str


class AnswerAsked(Asked):
    """Questions to answer from their contexts."""

    questions: Items[Question]
    n_best: Annotated[int, Field(ge=1, le=100, description="answers at most, the likeliest first")] = 3


class FillAsked(Asked):
    """Texts with [MASK] where a word is missing."""

    texts: Items[str]
    top: Annotated[int, Field(ge=1, le=1000, description="pieces for each gap")] = 5


class NextAsked(Asked):
    """Pairs of texts, of which the second may follow the first."""

    pairs: Items[Pair]


class RerankAsked(Asked):
    """Passages to put into the order in which they answer a query."""

    query: str
    passages: Items[str]
    top: Annotated[int | None, Field(ge=1, description="only the best so many")] = None


class TokenizeAsked(Asked):
    """Texts to cut into word pieces."""

    texts: Items[str]


class AttentionAsked(Asked):
    """A text, or a pair of texts, of at most 128 tokens."""

    text: str
    pair: str | None = None


class Usage(BaseModel):
    """Tokens, [CLS] and [SEP] included."""

    tokens_in: int = Field(description="of all texts that came in")
    tokens_used: int = Field(description="that were read")
    tokens_cut: int = Field(description="that were not, because a text is longer than the model reads")


class Reply(BaseModel):
    """What every answer of a model has."""

    model: str
    usage: Usage


class OpenAIUsage(Usage):
    """The same, with the names of OpenAI beside."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float | None] | str = Field(description="numbers, or little-endian float32 in base64")


class EmbeddingsReply(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: OpenAIUsage


class PredictReply(Reply):
    """For each text {label, chosen, probabilities} or {value}; for each question {index, text, probabilities}.

    Each of them also has its cut_tokens, those that were not read.
    """

    predictions: list[dict[str, Any]]


class Entity(BaseModel):
    """An entity; characters in the text, or null where words were given; its words from `words[0]` to before `[1]`."""

    type: str
    text: str
    begin: int | None
    end: int | None
    characters: tuple[int, int] | None = Field(description="`begin` and `end` together")
    words: tuple[int, int]
    probability: float | None


class Word(BaseModel):
    """A word with its tag."""

    text: str
    begin: int | None
    end: int | None
    tag: str
    probability: float | None


class Tags(BaseModel):
    """What was found in one text."""

    entities: list[Entity]
    words: list[Word]
    cut_tokens: int


class TagReply(Reply):
    """Entities and words of each text."""

    predictions: list[Tags]


class Answer(BaseModel):
    """An answer with its characters in the context."""

    text: str
    begin: int
    end: int
    probability: float | None


class Candidate(BaseModel):
    """A candidate for the answer, with its characters in the context; empty where it is no answer."""

    text: str
    start: int
    end: int
    probability: float | None


class Answers(BaseModel):
    """What answers a question, the likeliest first; with `has_answer` false the model says that nothing does."""

    text: str = Field(description="the answer that is given; empty where there is none")
    start: int = Field(description="its first character in the context")
    end: int
    probability: float | None
    answers: list[Answer]
    n_best: list[Candidate] = Field(description="the same, and among them no answer, where that is possible")
    has_answer: bool
    null_score_diff: float | None = Field(description="score of no answer minus that of the best answer")
    cut_tokens: int = Field(description="tokens of the question that were not read")
    no_answer_probability: float | None = None


class AnswerReply(Reply):
    """Answers to each question."""

    predictions: list[Answers]


class Piece(BaseModel):
    """A candidate for a masked position."""

    piece: str
    probability: float | None


class Gaps(BaseModel):
    """The candidates for each [MASK] of a text, twice: as `bertsmith fill --json` names them, and as before."""

    text: str
    masks: list[list[Piece]]
    gaps: list[list[Piece]]


class FillReply(Reply):
    """The gaps of each text."""

    predictions: list[Gaps]


class Follows(BaseModel):
    """How likely the second text follows the first."""

    first: str
    second: str
    probability: float | None
    cut_tokens: int


class NextReply(Reply):
    """The answer for each pair."""

    predictions: list[Follows]


class Ranked(BaseModel):
    """A passage, by its place in the request."""

    index: int
    score: float | None


class RerankReply(Reply):
    """The passages, the best first."""

    results: list[Ranked]


class Pieces(BaseModel):
    """The pieces of a text, without [CLS] and [SEP]; offsets are characters."""

    pieces: list[str]
    ids: list[int]
    offsets: list[tuple[int, int]]


class TokenizeReply(Reply):
    """The pieces of each text."""

    texts: list[Pieces]


class AttentionReply(Reply):
    """In `attention[l][h][i][j]` head h of layer l looks from piece i at piece j."""

    pieces: list[str]
    segments: list[int] = Field(description="0 for the pieces of the text, 1 for those of the second one")
    layers: int
    heads: int
    attention: list[list[list[list[float]]]]


class ModelShown(BaseModel):
    """A model that is served."""

    name: str
    task: str | None
    abilities: list[str]
    labels: list[str]
    pair: bool | None = Field(description="whether it reads pairs of texts; null where it takes both, or neither")
    max_length: int = Field(description="tokens of a text or pair at most; what is longer is cut, or read in windows")
    embed_length: int = Field(description="tokens of a text that becomes a vector")
    max_question: int = Field(description="tokens of a question; 0 where none are answered")
    width: int


class ModelsReply(BaseModel):
    """All of them."""

    models: list[ModelShown]


class Problem(BaseModel):
    """What is wrong."""

    message: str
    type: str


class ErrorReply(BaseModel):
    """A request that was not answered."""

    error: Problem
