"""Whole documents: answers to questions with their positions in the file, and sentences ranked by a label."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.app.library.inputs import checked_text, warn_cut
from bertsmith.base.core.errors import CheckpointError, ConfigError, InputError, nearest
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.requests import takes
from bertsmith.inference.predictors.loading import load_predictor, said_weak
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.inference.search.request import AskRequest, RankRequest
from bertsmith.inference.search.senses import Occurrence, read_sentences
from bertsmith.tasks.datasets.examples import QuestionExample, TextExample
from bertsmith.tasks.datasets.file_text import file_text
from bertsmith.tasks.specs.predictions import AnswerPrediction, LabelPrediction
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.readers import ReadingSettings

AROUND = 60  # characters of context on each side of an answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlacedAnswer:
    """An answer, and where it is in the file.

    Attributes:
        text: the answer, its words joined with single spaces.
        probability: by a softmax over all candidates, overlapping ones and no answer included.
        line: the line of its first character, from 1.
        column: the place of that character in its line, from 1.
        begin, end: its characters in the file, from 0, end exclusive; a line end counts as one character.
        context: the answer with the text around it: left, word and right.
    """

    text: str
    probability: float
    line: int
    column: int
    begin: int
    end: int
    context: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentAnswers:
    """What a document answers to a question.

    Attributes:
        question: the question.
        has_answer: whether the model finds an answer; always true if it was not trained to find none.
        no_answer_probability: None if the model was not trained to find none.
        answers: the most likely answers, best first, of which no two overlap; without an answer, they are withheld.
        cut_tokens: tokens cut from the question; documents are never cut.
    """

    question: str
    has_answer: bool
    no_answer_probability: float | None
    answers: tuple[PlacedAnswer, ...]
    cut_tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**dataclasses.asdict(self), "answers": [answer.to_dict() for answer in self.answers]}

    def lines(self) -> list[str]:
        """The answers with their positions and contexts, or that there is none, as lines of text."""
        if not self.has_answer:
            share = "" if self.no_answer_probability is None else f"{self.no_answer_probability:.0%}  "
            return [f"{share}(no answer)"]
        lines = []
        for answer in self.answers:
            size = answer.end - answer.begin
            where = f"line {answer.line:,}, characters {answer.column:,} to {answer.column + size - 1:,}"
            context = " ".join(f"{answer.context['left']}[{answer.text}]{answer.context['right']}".split())
            lines += [f"{answer.probability:.0%}  {answer.text}", f"  {where}: {context}"]
        return lines


@takes(AskRequest)
def ask_document(request: AskRequest) -> list[DocumentAnswers]:
    """The answers of a document of any length to each question; long documents are read in overlapping windows.

    Raises:
        CheckpointError: the model does not answer questions.
        InputError: the file cannot be read or has no text, or a question is empty.
        ConfigError: the model keeps fewer than `top` candidates.
    """
    text = file_text(Path(request.file), kind="text", encoding=request.encoding)
    predictor = _predictor_for("span", "answers questions", request)
    most = predictor.task.spec.settings.n_best
    if request.top > most:
        raise ConfigError(
            expected=f"at most {most} answers, the candidates that the model keeps",
            found=f"{request.top:,}",
            fix="ask for fewer",
        )
    examples = [
        QuestionExample(
            id=str(number),
            question=checked_text(question, f"question {number}"),
            context=text,
            location=f"question {number}",
        )
        for number, question in enumerate(request.questions, start=1)
    ]
    stream = predictor.stream(predictor.tokenized(examples), total=len(examples))
    answers = cast("list[AnswerPrediction]", [answer for _, answer in stream])
    warn_cut(answer.cut_tokens for answer in answers)
    return [
        DocumentAnswers(
            question=example.question,
            has_answer=answer.has_answer,
            no_answer_probability=answer.no_answer_probability,
            answers=tuple(_placed(text, answer)[: request.top]),
            cut_tokens=answer.cut_tokens,
        )
        for example, answer in zip(examples, answers, strict=True)
    ]


def _placed(text: str, prediction: AnswerPrediction) -> list[PlacedAnswer]:
    """The candidates that do not overlap a more likely one, with their positions."""
    kept: list[PlacedAnswer] = []
    for answer, begin, end, probability in prediction.n_best:
        if answer and all(end <= other.begin or other.end <= begin for other in kept):
            kept.append(
                PlacedAnswer(
                    text=answer,
                    probability=probability,
                    line=text.count("\n", 0, begin) + 1,
                    column=begin - text.rfind("\n", 0, begin),
                    begin=begin,
                    end=end,
                    context=Occurrence(sentence=text, start=begin, end=end).context(AROUND),
                )
            )
    return kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedSentence:
    """A sentence of a document, and the probability that it has the label.

    Attributes:
        sentence: its number in the document, from 1.
        text: the sentence.
        probability: of the label.
        cut_tokens: tokens cut from the sentence because it is too long for the model.
    """

    sentence: int
    text: str
    probability: float
    cut_tokens: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


@takes(RankRequest)
def rank_sentences(request: RankRequest) -> list[RankedSentence]:
    """The sentences of a document by descending probability of a label; of equal ones, the first in the text is first.

    The label may be left out if the model has only one.

    Raises:
        CheckpointError: the model does not classify single texts.
        ConfigError: the label is unknown, or missing.
        InputError: the file cannot be read, or has no sentences.
    """
    settings = ReadingSettings(form=request.form, **request.values(EncodingSettings))
    predictor = _predictor_for("classification", "classifies texts", request)
    spec = predictor.task.spec
    if spec.pair:
        raise CheckpointError(
            expected="a model that classifies single texts",
            found=f"'{request.model}', a model of pairs",
            fix="name a model that was fine-tuned on single texts",
        )
    column = _column_of(request.label, spec.labels)
    sentences = []
    for number, (example, answer) in enumerate(predictor.stream(_sentences(Path(request.file), settings)), start=1):
        assert isinstance(example, TextExample)
        assert isinstance(answer, LabelPrediction)
        sentences.append(
            RankedSentence(
                sentence=number,
                text=example.first,
                probability=answer.probabilities[column],
                cut_tokens=answer.cut_tokens,
            )
        )
    if not sentences:
        raise InputError(expected=f"sentences in '{request.file}'", found="none", fix="name a file with text")
    warn_cut(sentence.cut_tokens for sentence in sentences)
    return sorted(sentences, key=lambda sentence: -sentence.probability)[: request.top]


def _sentences(path: Path, settings: ReadingSettings) -> Iterator[TextExample]:
    for number, sentence in enumerate(read_sentences(path, settings), start=1):
        yield TextExample(id=str(number), first=sentence, location=f"sentence {number:,} of '{path}'")


def _column_of(label: str | None, labels: Sequence[str]) -> int:
    """The number of a label."""
    if label is None and len(labels) == 1:
        return 0
    if label is None:
        raise ConfigError(
            expected=f"the label to rank by, one of {', '.join(map(repr, labels))}",
            found="none",
            fix=f"give --label {labels[-1]!r}",
        )
    if label not in labels:
        raise ConfigError(
            expected=f"a label of the model, one of {', '.join(labels)}",
            found=repr(label),
            fix=nearest(label, labels),
        )
    return labels.index(label)


def _predictor_for(kind: str, does: str, request: AskRequest | RankRequest) -> Predictor:
    """The predictor of a model for one kind of task."""
    predictor = load_predictor(request.model, **request.values(ComputeSettings))
    if predictor.task.spec.kind != kind:
        raise CheckpointError(
            expected=f"a model that {does}",
            found=f"'{request.model}', a model for {predictor.task.spec.kind}",
            fix="name a model that was fine-tuned for it",
        )
    return said_weak(predictor, request.model)
