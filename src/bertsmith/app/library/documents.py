"""Whole documents: answers to questions with their positions in the file, and sentences ranked by a label."""

import bisect
import dataclasses
import itertools
import math
import re
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
from bertsmith.tasks.datasets.examples import QuestionExample, SequenceExample, TextExample
from bertsmith.tasks.datasets.file_text import file_text
from bertsmith.tasks.datasets.sequences import source_of_question
from bertsmith.tasks.specs.predictions import AnswerPrediction, LabelPrediction, TextPrediction
from bertsmith.tasks.specs.task import GENERATION
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.readers import ReadingSettings

AROUND = 60  # characters of context on each side of an answer
PASSAGE = 800  # the most characters of a passage that a text is written from
WRITES = "text-to-text"  # the task of models that write answers
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


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
class WrittenAnswer:
    """An answer in words, and the passage that it was written from.

    Attributes:
        score: its log probability in nats by the model that wrote it, divided by the length penalty.
        passage: the paragraph with a likely answer, or the words around it if that is long.
        probability: of the likely answer in the passage, by the model that found it.
        line, last_line: the first and last line of the passage, from 1.
        begin, end: its characters in the file, as in `PlacedAnswer`.
        cut_tokens: tokens cut from question and passage because they are too long for the model.
    """

    text: str
    score: float
    passage: str
    probability: float
    line: int
    last_line: int
    begin: int
    end: int
    cut_tokens: int = 0

    def lines(self) -> list[str]:
        """The answer, its score and its passage, as lines of text."""
        words = " ".join(self.passage.split())
        shown = words if len(words) <= 2 * AROUND else f"{words[: 2 * AROUND]}…"
        where = f"line {self.line:,}" if self.line == self.last_line else f"lines {self.line:,} to {self.last_line:,}"
        return [f"{self.text}  (score {self.score:.2f})", f"  from {where}, {self.probability:.0%}: {shown}"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DocumentAnswers:
    """What a document answers to a question.

    Attributes:
        has_answer: whether the model finds an answer; always true if it was not trained to find none.
        no_answer_probability: None if the model was not trained to find none.
        answers: the most likely answers, best first, of which no two overlap; without an answer, they are withheld.
        cut_tokens: tokens cut from the question; documents are never cut.
        written: the answers in words, best first, by the sum of score and log probability of the passage; None if no
            model writes them.
    """

    question: str
    has_answer: bool
    no_answer_probability: float | None
    answers: tuple[PlacedAnswer, ...]
    cut_tokens: int = 0
    written: tuple[WrittenAnswer, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; the key "written" is left out if no model writes answers."""
        values = {**dataclasses.asdict(self), "answers": [answer.to_dict() for answer in self.answers]}
        values["written"] = [dataclasses.asdict(answer) for answer in self.written or ()]
        if self.written is None:
            del values["written"]
        return values

    def lines(self) -> list[str]:
        """The answers with their positions and contexts, or that there is none, as lines of text."""
        if not self.has_answer:
            share = "" if self.no_answer_probability is None else f"{self.no_answer_probability:.0%}  "
            return [f"{share}(no answer)"]
        lines = [line for answer in self.written or () for line in answer.lines()]
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
    predictor = _predictor_for("span", "answers questions", request.model, request)
    writer = None
    if request.writer is not None:
        writer = _predictor_for(GENERATION, "writes texts (--task text-to-text)", request.writer, request, WRITES)
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
    placed = [_placed(text, answer) for answer in answers]
    written: Sequence[tuple[WrittenAnswer, ...] | None] = [None] * len(examples)
    if writer is not None:
        sources = [
            _passages(text, candidates)[: request.passages] if answer.has_answer else []
            for answer, candidates in zip(answers, placed, strict=True)
        ]
        written = _written(writer, [example.question for example in examples], sources, request.top)
        warn_cut(answer.cut_tokens for of_question in written for answer in of_question or ())
    return [
        DocumentAnswers(
            question=example.question,
            has_answer=answer.has_answer,
            no_answer_probability=answer.no_answer_probability,
            answers=tuple(candidates[: request.top]),
            cut_tokens=answer.cut_tokens,
            written=in_words,
        )
        for example, answer, candidates, in_words in zip(examples, answers, placed, written, strict=True)
    ]


def _written(
    writer: Predictor, questions: Sequence[str], passages: Sequence[Sequence[WrittenAnswer]], top: int
) -> list[tuple[WrittenAnswer, ...]]:
    """The passages of each question, best first, with what a model writes as its answer from each of them."""
    examples = [
        SequenceExample(
            id=f"{number}.{rank}",
            source=source_of_question(question, passage.passage),
            location=f"passage {rank} of question {number}",
        )
        for number, (question, of_question) in enumerate(zip(questions, passages, strict=True), start=1)
        for rank, passage in enumerate(of_question, start=1)
    ]
    stream = writer.stream(writer.tokenized(examples), total=len(examples)) if examples else iter(())
    texts = (cast("TextPrediction", prediction) for _, prediction in stream)
    result = []
    for of_question in passages:
        answers = [
            dataclasses.replace(passage, text=text.text, score=text.score, cut_tokens=text.cut_tokens)
            for passage, text in zip(of_question, itertools.islice(texts, len(of_question)), strict=True)
        ]
        answers.sort(key=lambda answer: -(answer.score + math.log(max(answer.probability, 1e-300))))
        result.append(tuple(answers[:top]))
    return result


def _passages(text: str, candidates: Sequence[PlacedAnswer]) -> list[WrittenAnswer]:
    """The passages with the candidates, the most likely first and each once, without texts so far."""
    breaks = [0, *(match.end() for match in _BLANK_LINE.finditer(text)), len(text)]
    passages: list[WrittenAnswer] = []
    for answer in candidates:
        if any(passage.begin <= answer.begin and answer.end <= passage.end for passage in passages):
            continue
        number = bisect.bisect_right(breaks, answer.begin, hi=len(breaks) - 1)
        begin, end = breaks[number - 1], breaks[number]
        if end - begin > PASSAGE:  # whole words around the answer
            spare = max(0, PASSAGE - (answer.end - answer.begin)) // 2
            begin, end = max(begin, answer.begin - spare), min(end, answer.end + spare)
            while begin < answer.begin and begin and not text[begin - 1].isspace():
                begin += 1
            while end > answer.end and end < len(text) and not text[end].isspace():
                end -= 1
        passage = text[begin:end]
        begin += len(passage) - len(passage.lstrip())
        passage = passage.strip()
        line = text.count("\n", 0, begin) + 1
        passages.append(
            WrittenAnswer(
                text="",
                score=0.0,
                passage=passage,
                probability=answer.probability,
                line=line,
                last_line=line + passage.count("\n"),
                begin=begin,
                end=begin + len(passage),
            )
        )
    return passages


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
    predictor = _predictor_for("classification", "classifies texts", request.model, request)
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


def _predictor_for(
    kind: str, does: str, model: str | Path, request: AskRequest | RankRequest, name: str = ""
) -> Predictor:
    """The predictor of a model for one kind of task, or for the task of that name."""
    predictor = load_predictor(model, **request.values(ComputeSettings))
    spec = predictor.task.spec
    if spec.kind != kind or (name and spec.name != name):
        raise CheckpointError(
            expected=f"a model that {does}",
            found=f"'{model}', a model for {spec.title if spec.kind == kind else spec.kind}",
            fix="name a model that was fine-tuned for it",
        )
    return said_weak(predictor, model)
