"""The predictions of all kinds of task: their values, their lines, and their form in JSON."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.models.heads.vector_forms import BY_COSINE
from bertsmith.tasks.datasets.examples import DocumentExample, WordSpan
from bertsmith.tasks.metrics.token_vectors import TokenMatrix, max_sim
from bertsmith.tasks.specs.task import Prediction

_MOST_SHOWN = 20  # labels in a line
_CANDIDATE = ("text", "start", "end", "probability")
_ANSWER = ("text", "begin", "end", "probability")
_RANKED = ("index", "text", "probability")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelPrediction(Prediction):
    """The label of a text with its probability, and the other labels with theirs."""

    label: str  # the most likely one; empty if the model does not answer
    probability: float  # of the most likely label
    probabilities: tuple[float, ...]  # one per label, in the model's order; single-label probabilities sum to 1
    labels: tuple[str, ...]
    # the predicted labels: the most likely one, for multi-label tasks all above the threshold, or those of a set
    chosen: tuple[str, ...]

    @property
    def outcome(self) -> str:
        """The predicted labels."""
        return ", ".join(self.chosen)

    @property
    def confidence(self) -> float:
        """The probability of the most likely label."""
        return self.probability

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "label": self.label or None,
            "chosen": list(self.chosen),
            "probabilities": dict(zip(self.labels, self.probabilities, strict=True)),
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The predicted labels, then the labels with their probabilities in percent, most likely first, at most 20.

        >>> LabelPrediction(label="Spam", probability=0.75, probabilities=(0.75, 0.25), labels=("Spam", "Not Spam"),
        ...     chosen=("Spam",)).line()
        'Spam\t75% Spam, 25% Not Spam'
        """
        exclusive = abs(sum(self.probabilities) - 1) < 1e-6
        percentages = _percent(self.probabilities) if exclusive else [round(100 * p) for p in self.probabilities]
        ranked = sorted(zip(self.probabilities, percentages, self.labels, strict=True), key=lambda item: -item[0])
        shown = [f"{percentage}% {label}" for _, percentage, label in ranked[:_MOST_SHOWN]]
        shown += [f"{len(ranked) - len(shown)} more"] if len(ranked) > len(shown) else []
        return f"{', '.join(self.chosen) if self.label else '(no answer)'}\t" + ", ".join(shown)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumberPrediction(Prediction):
    """The predicted number for a text; `raw` is what the activation turns into it, if there is one."""

    value: float
    raw: float | None = None

    @property
    def outcome(self) -> float:
        """The number."""
        return float(self.value)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"value": self.value, "cut_tokens": self.cut_tokens}

    def line(self) -> str:
        """The number with four decimal places."""
        return f"{self.value:.4f}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoicePrediction(Prediction):
    """The ending that fits best; `cut_tokens` were cut from all rows of the example."""

    index: int  # of the ending, from 0
    probabilities: tuple[float, ...]  # one per ending; they sum to 1
    text: str
    # of a task that ranks: index, text and probability of the candidates, the best one first
    ranking: tuple[tuple[int, str, float], ...] = ()

    @property
    def outcome(self) -> str:
        """The ending."""
        return self.text

    @property
    def confidence(self) -> float:
        """The probability of the ending."""
        return self.ranking[0][2] if self.ranking else self.probabilities[self.index]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; "ranking" is left out if it is empty."""
        ranking = [dict(zip(_RANKED, candidate, strict=True)) for candidate in self.ranking]
        return {
            "index": self.index,
            "text": self.text,
            "probabilities": list(self.probabilities),
            **({"ranking": ranking} if ranking else {}),
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The index of the ending, its probability and its text.

        >>> ChoicePrediction(index=1, probabilities=(0.25, 0.75), text="he sings\nloudly").line()
        '1\t75%\the sings loudly'
        """
        return f"{self.index}\t{self.confidence:.0%}\t{' '.join(self.text.split())}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entity:
    """An entity in a sentence."""

    type: str
    start: int  # its first word, from 0
    end: int  # one past its last word
    text: str  # its words, with a space wherever there is a gap between them in the original text
    # its character span (start, end) in that text; None if the sentence was given as words
    characters: tuple[int, int] | None = None

    def to_dict(self, probability: float) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "words": [self.start, self.end], "probability": probability}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntitiesPrediction(Prediction):
    """The entities of a sentence, which may be inside one another or overlap."""

    words: tuple[str, ...]
    entities: tuple[Entity, ...]  # by their first words, longer ones first
    probabilities: tuple[float, ...]  # of each of them
    # the character span (start, end) of each word in its text; None if the sentence was given as words
    offsets: tuple[tuple[int, int], ...] | None = None
    # spans with their probabilities, falling, that a lower threshold would predict
    candidates: tuple[tuple[WordSpan, float], ...] = dataclasses.field(default=(), repr=False, compare=False)

    @property
    def confidence(self) -> float | None:
        """The lowest probability of an entity; None without entities."""
        return min(self.probabilities, default=None)

    @property
    def spans(self) -> frozenset[WordSpan]:
        """The words and the type of each entity."""
        return frozenset(WordSpan(entity.start, entity.end, entity.type) for entity in self.entities)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        entities = zip(self.entities, self.probabilities, strict=True)
        return {
            "words": list(self.words),
            "entities": [entity.to_dict(probability) for entity, probability in entities],
            "offsets": None if self.offsets is None else [list(span) for span in self.offsets],
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The entities with their types, separated by tabs.

        >>> entities = (Entity(type="ORG", start=0, end=2, text="Oslo University"),
        ...     Entity(type="LOC", start=0, end=1, text="Oslo"))
        >>> EntitiesPrediction(words=("Oslo", "University"), entities=entities, probabilities=(1.0, 0.5)).line()
        'Oslo University/ORG\tOslo/LOC'
        """
        return "\t".join(f"{' '.join(entity.text.split())}/{entity.type}" for entity in self.entities) or "(none)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagsPrediction(Prediction):
    """The tags of a sentence."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]  # the probability that the model gives to each of these tags
    entities: tuple[Entity, ...] = ()  # the entities that the tags mark, in order; empty if the tags have no scheme
    # the character span (start, end) of each word in its text; None if the sentence was given as words
    offsets: tuple[tuple[int, int], ...] | None = None

    @property
    def confidence(self) -> float | None:
        """The lowest probability of a tag; None without words."""
        return min(self.probabilities, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; an entity also has its "words" (start, end) and their lowest "probability"."""
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "probabilities": list(self.probabilities),
            "entities": [
                entity.to_dict(min(self.probabilities[entity.start : entity.end])) for entity in self.entities
            ],
            "offsets": None if self.offsets is None else [list(span) for span in self.offsets],
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        """The words with their tags, except O.

        >>> TagsPrediction(words=("In", "New", "York"), tags=("O", "B-LOC", "I-LOC"), probabilities=(1, 1, 1)).line()
        'In New/B-LOC York/I-LOC'
        """
        pairs = zip(self.words, self.tags, strict=True)
        return " ".join(" ".join((word if tag == "O" else f"{word}/{tag}").split()) for word, tag in pairs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerPrediction(Prediction):
    """The answer to a question.

    Attributes:
        text: the answer, its words joined with single spaces; empty if there is none.
        start, end: its character span in the context, end exclusive; 0 if there is none.
        probability: its probability, by a softmax over the kept candidates.
        n_best: the kept candidates as (text, start, end, probability), most likely first.
        null_score_diff: no-answer score minus the score of the best answer; None if every question has an answer.
        no_answer_probability: the probability of no answer; None if every question has an answer, or if the empty
            answer was not among the candidates.
        cut_tokens: tokens cut from the question; contexts are never cut.
    """

    text: str
    start: int
    end: int
    probability: float
    n_best: tuple[tuple[str, int, int, float], ...]
    null_score_diff: float | None
    has_answer: bool
    no_answer_probability: float | None = None

    @property
    def outcome(self) -> str:
        """The answer, or that there is none."""
        return " ".join(self.text.split()) if self.has_answer else "(no answer)"

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return self.probability

    @property
    def best_answer(self) -> str:
        """The most likely answer, even if withheld; empty if no span is valid."""
        return next((text for text, _, _, _ in self.n_best if text), "")

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; "answers" are the non-empty candidates, most likely first.

        The key "no_answer_probability" is left out if the value is None.
        """
        values: dict[str, Any] = {
            "text": self.text,
            "start": self.start,
            "end": self.end,
            "probability": self.probability,
            "n_best": [dict(zip(_CANDIDATE, candidate, strict=True)) for candidate in self.n_best],
            "null_score_diff": self.null_score_diff,
            "has_answer": self.has_answer,
            "answers": [dict(zip(_ANSWER, candidate, strict=True)) for candidate in self.n_best if candidate[0]],
            "cut_tokens": self.cut_tokens,
        }
        if self.no_answer_probability is not None:
            values["no_answer_probability"] = self.no_answer_probability
        return values

    def line(self) -> str:
        r"""The answer with its probability.

        >>> AnswerPrediction(text="in 1895", start=4, end=11, probability=0.5, n_best=(), null_score_diff=None,
        ...     has_answer=True).line()
        'in 1895\t50%'
        """
        return f"{self.outcome}\t{self.probability:.0%}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextPrediction(Prediction):
    """The text that was written for a source.

    Attributes:
        score: its log probability in nats, divided by the length penalty.
        has_ended: whether the model ended it; otherwise it has the maximum length.
        answers: the texts with their scores, the best one first.
    """

    text: str
    score: float
    has_ended: bool = True
    answers: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "text": self.text,
            "score": self.score,
            "has_ended": self.has_ended,
            "answers": [{"text": text, "score": score} for text, score in self.answers],
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The text.

        >>> TextPrediction(text="a summary\nof two lines", score=-0.5).line()
        'a summary of two lines'
        """
        return " ".join(self.text.split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChosenSentence:
    """A sentence of a text: its text, its number from 0, its character span, and its score from 0 to 1."""

    text: str
    index: int
    start: int
    end: int
    score: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExtractPrediction(Prediction):
    """The sentences that were chosen in a text, in its order, and the scores of all of its sentences."""

    sentences: tuple[ChosenSentence, ...]
    scores: tuple[float, ...]

    @property
    def text(self) -> str:
        """The chosen sentences, with spaces between them."""
        return " ".join(sentence.text for sentence in self.sentences)

    @staticmethod
    def of(
        document: DocumentExample, chosen: Sequence[int], scores: tuple[float, ...], cut_tokens: int = 0
    ) -> "ExtractPrediction":
        """The prediction of these sentences of a text; `scores` are those of all sentences."""
        texts, spans = document.texts, document.sentences
        return ExtractPrediction(
            sentences=tuple(
                ChosenSentence(text=texts[n], index=n, start=spans[n][0], end=spans[n][1], score=scores[n])
                for n in chosen
            ),
            scores=scores,
            cut_tokens=cut_tokens,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "text": self.text,
            "sentences": [dataclasses.asdict(sentence) for sentence in self.sentences],
            "scores": list(self.scores),
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The text.

        >>> chosen = ChosenSentence(text="It\nrained.", index=1, start=9, end=19, score=0.75)
        >>> ExtractPrediction(sentences=(chosen,), scores=(0.25, 0.75)).line()
        'It rained.'
        """
        return " ".join(self.text.split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A name that a pronoun may refer to: its text, its character span, and its probability."""

    text: str
    start: int
    end: int
    probability: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class MentionPrediction(Prediction):
    """What a pronoun refers to: one of its candidates, or none of them."""

    index: int | None  # of the candidate, from 0; None for none of them
    pronoun: tuple[str, int, int]  # its text and its character span
    candidates: tuple[Candidate, ...]
    none_probability: float  # with the probabilities of the candidates it sums to 1

    @property
    def answer(self) -> Candidate | None:
        """The candidate; None for none of them."""
        return None if self.index is None else self.candidates[self.index]

    @property
    def text(self) -> str:
        """The text of the candidate; empty for none of them."""
        return "" if self.answer is None else self.answer.text

    @property
    def outcome(self) -> str:
        """The text of the candidate, or that it is none of them."""
        return "(none)" if self.answer is None else " ".join(self.text.split())

    @property
    def confidence(self) -> float:
        """The probability of the answer."""
        return self.probability

    @property
    def probability(self) -> float:
        """The probability of the answer."""
        return self.none_probability if self.answer is None else self.answer.probability

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "text": self.text,
            "index": self.index,
            "start": None if self.answer is None else self.answer.start,
            "end": None if self.answer is None else self.answer.end,
            "probability": self.probability,
            "pronoun": dict(zip(("text", "start", "end"), self.pronoun, strict=True)),
            "candidates": [dataclasses.asdict(candidate) for candidate in self.candidates],
            "none_probability": self.none_probability,
            "cut_tokens": self.cut_tokens,
        }

    def line(self) -> str:
        r"""The pronoun, the answer and its probability.

        >>> anna = Candidate(text="Anna", start=0, end=4, probability=0.75)
        >>> MentionPrediction(index=0, pronoun=("she", 9, 12), candidates=(anna,), none_probability=0.25).line()
        'she\tAnna\t75%'
        """
        return f"{' '.join(self.pronoun[0].split())}\t{self.outcome}\t{self.probability:.0%}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilarityPrediction(Prediction):
    """The vectors of the texts of an example."""

    value: float  # the similarity of the first two texts, usually the cosine; 1 for a single text
    others: tuple[float, ...] = ()  # those of the first text and texts that do not belong to it; empty for pairs
    vectors: npt.NDArray[np.float32] = dataclasses.field(repr=False, compare=False)  # float32 [texts, D]
    # of vectors of tokens, how many each text has, int64 [texts]; the cosines are then means, see `of_tokens`
    lengths: npt.NDArray[np.int64] | None = dataclasses.field(default=None, repr=False, compare=False)

    @staticmethod
    def of(
        vectors: npt.NDArray[np.float32], cut_tokens: int = 0, similarity: str = BY_COSINE
    ) -> "SimilarityPrediction":
        """The prediction for an example whose texts have these vectors [texts, D]."""
        from bertsmith.tasks.metrics.vectors import similarities

        firsts = np.repeat(vectors[:1], len(vectors) - 1, axis=0)
        values = similarities(firsts, vectors[1:], similarity).tolist() or [1.0]
        return SimilarityPrediction(value=values[0], others=tuple(values[1:]), vectors=vectors, cut_tokens=cut_tokens)

    @staticmethod
    def of_each(
        vectors: npt.NDArray[np.float32],
        counts: npt.ArrayLike,
        cut: npt.ArrayLike | None = None,
        similarity: str = BY_COSINE,
    ) -> "list[SimilarityPrediction]":
        """The predictions for examples of `counts` texts each; each of the texts lost `cut` tokens, or none."""
        if not len(vectors):
            return []
        starts = np.asarray(np.cumsum(counts) - np.asarray(counts), dtype=np.int64)
        lost = np.add.reduceat(
            np.zeros(len(vectors), dtype=np.int64) if cut is None else np.asarray(cut), starts
        ).tolist()
        return list(map(SimilarityPrediction.of, np.split(vectors, starts[1:]), lost, itertools.repeat(similarity)))

    @staticmethod
    def of_tokens(
        vectors: npt.NDArray[np.float32], lengths: npt.NDArray[np.int64], cut_tokens: int = 0
    ) -> "SimilarityPrediction":
        """The prediction for an example whose texts have `lengths` vectors of tokens each, [T, K] in all.

        In place of a cosine: the mean over the tokens of the first text of the largest cosine with a token of another.
        """
        texts, others = TokenMatrix(vectors, lengths), np.arange(1, len(lengths))
        values = max_sim(texts.select(np.zeros(1, dtype=np.int64)), texts.select(others), is_mean=True)
        first, *rest = values[0].tolist() or [1.0]
        return SimilarityPrediction(
            value=first, others=tuple(rest), vectors=vectors, lengths=lengths, cut_tokens=cut_tokens
        )

    @property
    def outcome(self) -> float:
        """The similarity."""
        return self.value

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        others = {"others": list(self.others)} if self.others else {}
        return {"value": self.value, **others, "cut_tokens": self.cut_tokens}

    def line(self) -> str:
        """The similarity with four decimal places."""
        return f"{self.value:.4f}"


def _percent(probabilities: Sequence[float]) -> list[int]:
    """Integer percentages that sum to 100, by the largest-remainder method.

    >>> _percent([1 / 3, 1 / 3, 1 / 3])
    [34, 33, 33]
    """
    exact = [100 * probability for probability in probabilities]
    rounded = [int(value) for value in exact]
    by_rest = sorted(range(len(exact)), key=lambda index: rounded[index] - exact[index])
    for index in by_rest[: max(0, 100 - sum(rounded))]:
        rounded[index] += 1
    return rounded
