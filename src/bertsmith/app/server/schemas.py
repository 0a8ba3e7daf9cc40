"""Schemas of requests and replies, for validation and for the OpenAPI document."""

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Of the library, see `AnswerSettings`; here only types of it are known.
ANSWER_SETTINGS = (
    "beam", "answers", "length_penalty", "no_repeat_ngram", "min_target_length", "max_target_length", "sentences",
)  # fmt: skip
SELECTING = ("accuracy", "coverage")  # of `SelectionSettings`
ModelName = Annotated[
    str | None, Field(description="a name from GET /models; by default the first model that supports the route")
]
Pair = tuple[str, str]
Span = tuple[int, int]
TokenId = Annotated[int, Field(ge=0)]
Item = TypeVar("Item")
# Only the first invalid item is reported, so validation stops there.
Items = Annotated[list[Item], Field(min_length=1, fail_fast=True)]
Texts = Annotated[list[str], Field(fail_fast=True)]
Endings = Annotated[list[str], Field(min_length=2, fail_fast=True)]


class Asked(BaseModel):
    """Base class of bodies: unknown keys are refused, and values are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True)
    model: ModelName = None


class EmbeddingsAsked(Asked):
    """Texts to embed, in the format of OpenAI's clients."""

    # OpenAI clients may send keys that are not used here.
    model_config = ConfigDict(extra="ignore", strict=True)
    input: str | Items[str] | Items[TokenId] | Items[Items[TokenId]] = Field(
        description="a text, a list of texts, the token ids of a text, or a list of those"
    )
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int | None, Field(ge=1, description="truncate each vector to this many numbers")] = None
    prompt_name: str | None = Field(
        default=None,
        description="the name of one of the model's prompts, such as query, or none; default: its own",
    )
    user: str | None = None


class ChoiceQuestion(BaseModel):
    """A context and its possible endings."""

    model_config = ConfigDict(extra="forbid", strict=True)
    context: str
    endings: Endings


class PredictAsked(Asked):
    """Texts or pairs of texts to classify or score, sources of texts to write, or questions with endings.

    The search of a model that writes, and the choice of one that chooses sentences, is by default that of its training.
    """

    texts: Items[str | Texts] | None = Field(
        default=None,
        description="texts, or pairs of texts; for a model that chooses sentences, also texts as lists of sentences",
    )
    questions: Items[ChoiceQuestion] | None = None
    beam: Annotated[int | None, Field(ge=1, le=64, description="open texts at each step; 1: greedy search")] = None
    answers: Annotated[int | None, Field(ge=1, le=64, description="texts for each source, at most the beam")] = None
    length_penalty: Annotated[
        float | None, Field(ge=0, le=1000, description="((5 + pieces) / 6) to this power divides the log probability")
    ] = None
    no_repeat_ngram: Annotated[
        int | None,
        Field(
            ge=0, le=1000, description="no run of this many pieces (of chosen sentences: words) occurs twice; 0: any"
        ),
    ] = None
    min_target_length: Annotated[int | None, Field(ge=0, le=10**5, description="minimum pieces of a text")] = None
    max_target_length: Annotated[int | None, Field(ge=1, le=10**5, description="maximum pieces of a text")] = None
    sentences: Annotated[int | None, Field(ge=1, le=10**4, description="sentences to choose")] = None
    accuracy: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="the model abstains, with null as `label`, where it is not certain enough, so that this share "
            "of the answers is right; any share if `calibrated_on` in GET /models is not 0, else one of `thresholds`",
        ),
    ] = None
    coverage: Annotated[
        float | None,
        Field(
            gt=0,
            lt=1,
            description="`chosen` is a set of labels, and this share of the sets contains the right one; any share, or "
            "one of `thresholds`, as for `accuracy`",
        ),
    ] = None

    @property
    def search(self) -> tuple[tuple[str, Any], ...]:
        """The settings of the answers that were sent."""
        values = ((name, getattr(self, name)) for name in (*ANSWER_SETTINGS, *SELECTING))
        return tuple((name, value) for name, value in values if value is not None)

    @model_validator(mode="after")
    def _one_of_both(self) -> "PredictAsked":
        if (self.texts is None) == (self.questions is None):
            sent = "neither" if self.texts is None else "both"
            raise ValueError(f"expected either 'texts' or 'questions'; found {sent}; send one of them")
        if self.questions is not None and self.search:
            raise ValueError(f"expected 'texts' with {self.search[0][0]!r}; found 'questions'; leave one of them out")
        if self.accuracy is not None and self.coverage is not None:
            raise ValueError("expected 'accuracy' or 'coverage'; found both; leave one of them out")
        return self


def _pairs(labels: list[str] | dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Names of labels with their descriptions, "" for none."""
    pairs = labels.items() if isinstance(labels, dict) else ((name, "") for name in labels)
    return tuple((name.strip(), description.strip()) for name, description in pairs)


class ClassifyAsked(Asked):
    """Texts, and labels to choose from, which the model was not trained on."""

    texts: Items[str]
    labels: Items[str] | dict[str, str] = Field(description="names of the labels, or descriptions by name")
    multi_label: bool = Field(default=False, description="a text may have several labels, or none")
    threshold: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="answer `none of these` where the best label has a lower probability; with multi_label, "
            "predict the labels from this probability on, by default 0.5",
        ),
    ] = None
    template: Texts = Field(
        default_factory=list,
        description="for a model of entailment: sentences with {} for the label, whose scores are averaged; by default "
        "`This example is {}.`",
    )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The names with their descriptions."""
        return _pairs(self.labels)


class TagAsked(Asked):
    """Texts to tag; a list of words is not split further."""

    texts: Items[str | Items[str]]
    labels: Items[str] | dict[str, str] | None = Field(
        default=None,
        description="of a model for entities by name: the labels to look for, or descriptions by name; by default "
        "those of its training",
    )
    threshold: Annotated[
        float | None,
        Field(ge=0, le=1, description="of a model of spans: probability from which one is an entity"),
    ] = None
    overlap: Literal["any", "nested", "none"] | None = Field(
        default=None, description="of a model of spans: which entities may share words"
    )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...] | None:
        """The names of the labels with their descriptions."""
        return None if self.labels is None else _pairs(self.labels)

    @property
    def options(self) -> tuple[tuple[str, Any], ...]:
        """What was sent of labels, threshold and overlap."""
        values = (("question", self.pairs), ("threshold", self.threshold), ("overlap", self.overlap))
        return tuple((name, value) for name, value in values if value is not None)


class Question(BaseModel):
    """A question about a context of any length."""

    model_config = ConfigDict(extra="forbid", strict=True)
    question: str
    context: str


class AnswerAsked(Asked):
    """Questions to answer from their contexts."""

    questions: Items[Question]
    n_best: Annotated[int, Field(ge=1, le=100, description="maximum number of answers, most probable first")] = 3


class Pronoun(BaseModel):
    """A text with a pronoun and the names that it may refer to, as spans of characters, the end exclusive."""

    model_config = ConfigDict(extra="forbid", strict=True)
    text: str
    pronoun: Span
    candidates: Items[Span]


class ResolveAsked(Asked):
    """Pronouns to resolve."""

    pronouns: Items[Pronoun]


class FillAsked(Asked):
    """Texts with [MASK] where a word is missing."""

    texts: Items[str]
    top: Annotated[int, Field(ge=1, le=1000, description="pieces for each [MASK]")] = 5


class NextAsked(Asked):
    """Pairs of texts; the second may follow the first."""

    pairs: Items[Pair]


class Truncating(Asked):
    """How long texts are truncated, in the words of TEI (text-embeddings-inference); always at their end."""

    truncate: bool | None = Field(default=None, description="false: a text that is too long for the model is refused")
    truncation_direction: Literal["Right", "right"] = "Right"


class RerankAsked(Truncating):
    """Passages to rank by relevance to a query; with `texts` in their place, as in TEI, the reply is a list.

    Scores are probabilities, cosines or numbers, as in the library.
    """

    query: str
    passages: Items[str] | None = None
    texts: Items[str] | None = None
    top: Annotated[int | None, Field(ge=1, description="return only the best passages, this many")] = None
    raw_scores: bool = Field(
        default=False, description="of a model of pairs: the numbers whose sigmoid are scores between 0 and 1"
    )
    return_text: bool = Field(default=False, description="repeat each text")

    @property
    def ranked(self) -> list[str]:
        """The passages."""
        return list(self.passages or self.texts or ())

    @model_validator(mode="after")
    def _one_of_both(self) -> "RerankAsked":
        if (self.texts is None) == (self.passages is None):
            sent = "neither" if self.texts is None else "both"
            raise ValueError(f"expected either 'passages' or 'texts'; found {sent}; send one of them")
        return self


class TokenizeAsked(Asked):
    """Texts to split into pieces."""

    texts: Items[str]


class AttentionAsked(Asked):
    """A text, or a pair of texts, of at most 128 tokens."""

    text: str
    pair: str | None = None


class Usage(BaseModel):
    """Tokens, [CLS] and [SEP] included."""

    tokens_in: int = Field(description="tokens of all texts received")
    tokens_used: int = Field(description="tokens that the model read")
    tokens_cut: int = Field(description="tokens truncated because a text is too long for the model")


class Reply(BaseModel):
    """Fields of every model reply."""

    model: str
    usage: Usage
    note: str = Field(description="a sentence to read with the answers; empty if there is none")


class OpenAIUsage(Usage):
    """The same, plus OpenAI's names."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """The vector of one text."""

    object: Literal["embedding"]
    index: int
    embedding: list[float | None] | dict[str, float] | str = Field(
        description="numbers, or the weights of pieces if vectors are sparse; or little-endian float32 in base64"
    )


class EmbeddingsReply(BaseModel):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: OpenAIUsage


class PredictReply(Reply):
    """For each text {label, chosen, probabilities}, {value} or {text, score, has_ended, answers}.

    `label` is null where the model abstains, see `accuracy`, and where a text has none of several labels. Of
    sentences that were chosen, {text, sentences, scores}. For each question {index, text, probabilities}.

    Each also has cut_tokens, the number of truncated tokens.
    """

    predictions: list[dict[str, Any]]


class LabelAnswer(BaseModel):
    """The label of a text; of several labels, those that are predicted, separated by commas."""

    label: str
    chosen: list[str] = Field(description="the predicted labels")
    probabilities: dict[str, float | None]
    cut_tokens: int


class ClassifyReply(Reply):
    """The answers, in the order of the texts."""

    predictions: list[LabelAnswer]


class ResolvedName(BaseModel):
    """A mention of a text, with its span of characters."""

    text: str
    start: int
    end: int


class CandidateName(ResolvedName):
    """A candidate with its probability."""

    probability: float | None


class Resolved(BaseModel):
    """What a pronoun refers to; index, start and end are null, and text is empty, if it is none of its candidates."""

    text: str
    index: int | None
    start: int | None
    end: int | None
    probability: float | None
    pronoun: ResolvedName
    candidates: list[CandidateName]
    none_probability: float | None
    cut_tokens: int = Field(description="tokens that the model did not read")


class ResolveReply(Reply):
    """The answers, in the order of the pronouns."""

    predictions: list[Resolved]


class Entity(BaseModel):
    """An entity; character offsets, or null if words were given; its words are `words[0]` to `words[1]`, exclusive."""

    type: str
    text: str
    begin: int | None
    end: int | None
    characters: tuple[int, int] | None = Field(description="`begin` and `end` together")
    words: tuple[int, int]
    probability: float | None


class Word(BaseModel):
    """A word with its tag; without one, and without its probability, if entities may be inside one another."""

    text: str
    begin: int | None
    end: int | None
    tag: str | None
    probability: float | None


class Tags(BaseModel):
    """The entities and words of one text."""

    entities: list[Entity]
    words: list[Word]
    cut_tokens: int


class TagReply(Reply):
    """Entities and words of each text."""

    predictions: list[Tags]


class Answer(BaseModel):
    """An answer with its character offsets in the context."""

    text: str
    begin: int
    end: int
    probability: float | None


class Candidate(BaseModel):
    """A candidate with its character offsets in the context; empty text means no answer."""

    text: str
    start: int
    end: int
    probability: float | None


class Answers(BaseModel):
    """The answers to a question, most probable first; `has_answer` is false if the model finds none in the context."""

    text: str = Field(description="the answer; empty if there is none")
    start: int = Field(description="offset of its first character in the context")
    end: int
    probability: float | None
    answers: list[Answer]
    n_best: list[Candidate] = Field(description="the same candidates, plus no answer if the model supports it")
    has_answer: bool
    null_score_diff: float | None = Field(description="score of no answer minus score of the best answer")
    cut_tokens: int = Field(description="truncated tokens of the question")
    no_answer_probability: float | None = None


class AnswerReply(Reply):
    """Answers to each question."""

    predictions: list[Answers]


class Piece(BaseModel):
    """A candidate for a masked position."""

    piece: str
    probability: float | None


class Gaps(BaseModel):
    """The candidates for each [MASK] of a text, under two keys: `masks` as in `bertsmith fill --json`, and `gaps`."""

    text: str
    masks: list[list[Piece]]
    gaps: list[list[Piece]]


class FillReply(Reply):
    """The candidates for the masked positions of each text."""

    predictions: list[Gaps]


class Follows(BaseModel):
    """The probability that the second text follows the first, or that both are in order."""

    first: str
    second: str
    probability: float | None
    cut_tokens: int
    relation: str = Field("follows", description="`in order` for a model of sentence order, otherwise `follows`")


class NextReply(Reply):
    """The answer for each pair."""

    predictions: list[Follows]


class Ranked(BaseModel):
    """A passage, by its index in the request."""

    index: int
    score: float | None
    text: str | None = Field(default=None, description="the passage; only there with return_text")


class RerankReply(Reply):
    """The passages, best first."""

    results: list[Ranked]


class Pieces(BaseModel):
    """The pieces of a text, without [CLS] and [SEP], with character offsets."""

    pieces: list[str]
    ids: list[int]
    offsets: list[tuple[int, int]]
    special: list[bool] = Field(description="true for special tokens such as [MASK] and [UNK]")


class TokenizeReply(Reply):
    """The pieces of each text."""

    texts: list[Pieces]


class AttentionReply(Reply):
    """`attention[l][h][i][j]` is the attention from piece i to piece j in head h of layer l."""

    pieces: list[str]
    segments: list[int] = Field(description="0 for pieces of the text, 1 for pieces of the second text")
    special: list[bool] = Field(description="true for special tokens such as [CLS] and [SEP]")
    layers: int
    heads: int
    attention: list[list[list[list[float]]]]


class ModelShown(BaseModel):
    """A model that is served."""

    name: str
    task: str | None
    abilities: list[str] = Field(
        description="what it can do; each ability has a route, except `features` (library and commands only)"
    )
    labels: list[str]
    kinds: dict[str, list[str]] = Field(
        description="the kinds of codes that it reads, each with its most frequent codes; empty if it reads texts"
    )
    pair: bool | None = Field(
        description="whether it takes pairs of texts; null if it takes both texts and pairs, or neither"
    )
    max_length: int = Field(
        description="maximum tokens of a text or pair; longer ones are truncated or read in windows"
    )
    embed_length: int = Field(description="maximum tokens of a text to embed")
    max_question: int = Field(description="maximum tokens of a question; 0 if it does not answer questions")
    width: int
    thresholds: list[dict[str, float]] = Field(
        description="values of `accuracy` or `coverage` for which a threshold was saved with the model"
    )
    calibrated_on: int = Field(
        description="labelled texts whose scores were saved with the model, so that `accuracy` and `coverage` can be "
        "any share that they suffice for; 0 if none"
    )
    weakness: str = Field(
        description="what the scores of its own dev or test examples say against its answers; empty if nothing"
    )


class ModelsReply(BaseModel):
    """All models that are served."""

    models: list[ModelShown]


class Problem(BaseModel):
    """An error."""

    message: str
    type: str


class ErrorReply(BaseModel):
    """An error reply."""

    error: Problem
