"""Extractive question answering: a span of the context as the answer, or no answer.

Letters: E questions, N windows (one unit each), T tokens of all windows.

Each position has two logits, for being the start and the end of the answer. The softmax is over all positions of the
window, including the question and special tokens. Without an answer, both targets are [CLS].

Source: Devlin et al. (2018), sections 4.2 and 4.3; the original run_squad.py.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import Example, QuestionExample
from bertsmith.tasks.encoding.units import EncodedExamples, Logits
from bertsmith.tasks.metrics.answers import answer_f1, best_threshold, ranked_answer_scores, squad2_scores, squad_scores
from bertsmith.tasks.metrics.calibration import softmax
from bertsmith.tasks.specs.answer_search import Found, find_answers, null_scores_of
from bertsmith.tasks.specs.predictions import AnswerPrediction
from bertsmith.tasks.specs.question_windows import encode_questions, with_read
from bertsmith.tasks.specs.task import OVERLAP, TaskSpec, TaskWithLoss
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.tokenizer import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from bertsmith.models.heads.head_spec import Head
    from bertsmith.models.parts.runs import Run
    from bertsmith.tasks.encoding.units import TaskBatch

Value = TypeVar("Value")

DEFAULT_THRESHOLD = 0.0
# The same candidates under two names: `n_best` as the original scorer writes them, `answers` in the style of entities.


class SpanTask(TaskWithLoss):
    """Finds the answer to each question in its context, or that there is none."""

    kind = "span"
    baselines = (OVERLAP,)
    settings_used = frozenset({"stride", "max_question", "max_answer", "n_best"})
    epochs_count_examples = True  # `int(len(train_examples) / batch * epochs)` in the original run_squad.py

    @property
    def head(self) -> "Head":
        """A linear layer with two outputs per position: start and end."""
        return self.head_on_tokens("span", 2)

    def check(self, examples: Sequence[Example], *, gold: bool, training: bool = False) -> None:
        """Checks that questions and contexts are present and answers are at their offsets; see `Task.check`."""
        for example in examples:
            assert isinstance(example, QuestionExample), "a span task takes question examples"
            for name, text in (("question", example.question), ("context", example.context)):
                if not text.strip():
                    raise InputError.at(example.location, f"a {name}", "an empty one", "fill it or remove the question")
            _check_answers(example)
            if gold and not _gold_texts(example) and not example.is_impossible:
                raise InputError.at(example.location, "answers", "none", "give them, or mark it as impossible")
            if gold and example.is_impossible and not self.spec.unanswerable:
                raise InputError(
                    expected=f"a question with an answer in {example.location}",
                    found="one marked as impossible",
                    fix="use --task squad2, whose questions may have no answer",
                )

    def tokenized(
        self, examples: Sequence[Any], tokenizer: Tokenizer, known: dict[str, Encoded] | None = None
    ) -> Sequence[Any]:
        """The questions with the pieces of their texts; see `Task.tokenized`."""
        return with_read(examples, tokenizer)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, *, training: bool = False) -> EncodedExamples:
        """One unit per window; see `question_windows.encode_questions`."""
        return encode_questions(_questions(examples), tokenizer, self.spec.settings, training=training)

    def loss(self, logits: "Tensor", batch: "TaskBatch") -> "tuple[Tensor, dict[str, Tensor]]":
        """The mean of the start and end cross-entropies, summed over windows. See `TaskWithLoss.loss`.

        Args:
            logits: [T, 2].
        """
        import torch
        import torch.nn.functional as F

        assert batch.targets is not None
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses, hits = [], []
        for run in batch.batch.runs:
            ends = _ends_of_rows(exact, run)
            targets = batch.targets[run.row : run.row + run.rows].reshape(-1)
            losses.append(F.cross_entropy(ends, targets, reduction="sum"))
            hits.append((ends.detach().argmax(1) == targets).view(run.rows, 2).all(1).sum())
        loss = torch.stack(losses).sum() / 2
        count = torch.tensor(batch.batch.num_rows, device=logits.device)
        return loss, {"nll": loss.detach(), "correct": torch.stack(hits).sum(), "count": count}

    def soft_loss(self, logits: "Tensor", wanted: "Tensor", batch: "TaskBatch", temperature: float) -> "Tensor":
        """The mean of the start and end divergences, summed over windows. See `TaskWithLoss.soft_loss`."""
        import torch

        from bertsmith.tasks.specs.soft_targets import divergence

        both = [
            divergence(_ends_of_rows(logits, run), _ends_of_rows(wanted, run), temperature) for run in batch.batch.runs
        ]
        return torch.cat(both).sum() / 2

    def decode(
        self, examples: Sequence[Example], features: EncodedExamples, logits: Logits, tokenizer: Tokenizer
    ) -> list[AnswerPrediction]:
        """One `AnswerPrediction` per question; see `Task.decode`."""
        questions = _questions(examples)
        nulls = null_scores_of(features, logits, len(questions)) if self.spec.unanswerable else None
        answers_of_all = find_answers(questions, features, logits, tokenizer, self.spec.settings, nulls)
        cut = np.zeros(len(questions), dtype=np.int64)
        cut[features.example_of_row] = features.rows.cut_by_row  # the same for all windows of a question
        return [
            self._prediction(answers, None if nulls is None else float(nulls[number]), int(cut[number]))
            for number, answers in enumerate(answers_of_all)
        ]

    def _prediction(self, answers: list[Found], null_score: float | None, cut_tokens: int) -> AnswerPrediction:
        # A context of only white space has no span; the original code then answers "empty" with a score of 0.
        kept = answers or [Found("", 0, 0, 0.0)]
        scores = np.array([answer.score for answer in kept]) / self.spec.temperature
        probabilities = softmax(scores).tolist()
        best = next((number for number, answer in enumerate(kept) if answer.text), None)
        empty = next((number for number, answer in enumerate(kept) if not answer.text), None)
        difference = None
        chosen = 0 if best is None else best
        if null_score is not None:
            difference = null_score - (0.0 if best is None else kept[best].score)
            if difference > self.threshold:
                assert empty is not None, "the empty answer is a candidate"
                chosen = empty
        text, start, end, _ = kept[chosen]
        return AnswerPrediction(
            text=text,
            start=start,
            end=end,
            probability=probabilities[chosen],
            n_best=tuple((*answer[:3], share) for answer, share in zip(kept, probabilities, strict=True)),
            null_score_diff=difference,
            has_answer=bool(text),
            no_answer_probability=None if null_score is None or empty is None else probabilities[empty],
            cut_tokens=cut_tokens,
        )

    @property
    def threshold(self) -> float:
        """The margin by which the no-answer score must exceed the best answer's score to withhold the answer."""
        return DEFAULT_THRESHOLD if self.spec.threshold is None else self.spec.threshold

    def score(self, examples: Sequence[Example], predictions: Sequence[AnswerPrediction]) -> dict[str, float]:
        """Exact match and F1 in percent; see `squad_scores` and, with unanswerable questions, `squad2_scores`.

        Also how early an exact match is among the candidates, `ranked_answer_scores`.

        The best scores and thresholds of `squad2_scores` consider the best answers, including withheld ones.
        """
        golds, predicted = _by_number(map(_gold_texts, _questions(examples))), _by_number(p.text for p in predictions)
        ranked = ranked_answer_scores(golds, _by_number(map(_candidates, predictions)))
        if not self.spec.unanswerable:
            return squad_scores(golds, predicted) | ranked
        any_threshold = squad2_scores(golds, *_before_threshold(predictions))
        best = {name: value for name, value in any_threshold.items() if name.startswith("best_")}
        return squad2_scores(golds, predicted) | best | ranked

    def example_scores(
        self, examples: Sequence[Example], predictions: Sequence[AnswerPrediction]
    ) -> npt.NDArray[np.float64]:
        """The F1 of each answer against its best-matching gold answer, 0 to 1, float64 [E]."""
        pairs = zip(_questions(examples), predictions, strict=True)
        return np.array([answer_f1(prediction.text, _gold_texts(question)) for question, prediction in pairs])

    def golds(self, examples: Sequence[Example]) -> list[Any]:
        """See `Task.golds`; the answers; an answer that is not in the context has no start."""
        return [
            [
                *map(dataclasses.asdict, question.answers),
                *({"text": text, "start": None} for text in question.absent_answers),
            ]
            for question in _questions(examples)
        ]

    @property
    def selection_metric(self) -> str:
        """F1; with unanswerable questions, F1 at the best threshold, which is fitted after training."""
        return "best_f1" if self.spec.unanswerable else self.spec.metric

    def tuned(self, examples: Sequence[Example], predictions: Sequence[AnswerPrediction]) -> TaskSpec:
        """The spec with the threshold of the best F1, if questions may be unanswerable. See `Task.tuned`."""
        if not self.spec.unanswerable:
            return self.spec
        golds = _by_number(map(_gold_texts, _questions(examples)))
        _, threshold = best_threshold(golds, *_before_threshold(predictions))
        return dataclasses.replace(self.spec, threshold=threshold)

    def is_collapsed(self, predictions: Sequence[AnswerPrediction], examples: Sequence[Example]) -> bool:
        """Whether all questions get the same answer, or none, although no single answer is right for all."""
        golds = [set(_gold_texts(question) or [""]) for question in _questions(examples)]
        return (
            bool(golds) and len({prediction.text for prediction in predictions}) == 1 and not set.intersection(*golds)
        )


def _ends_of_rows(logits: "Tensor", run: "Run") -> "Tensor":
    """The logits [2n, s] of the start and the end of each of n rows, which alternate, from tokens' logits [T, 2]."""
    rows = logits[run.token : run.token + run.rows * run.length].view(run.rows, run.length, 2)
    return rows.transpose(1, 2).reshape(2 * run.rows, run.length)


def _questions(examples: Sequence[Example]) -> Sequence[QuestionExample]:
    return cast("Sequence[QuestionExample]", examples)


def _gold_texts(question: QuestionExample) -> list[str]:
    """The gold answers; the empty text if there is none."""
    return [*(answer.text for answer in question.answers), *question.absent_answers]


def _candidates(prediction: AnswerPrediction) -> list[str]:
    """The texts of the candidates, the most probable first; without any, the answer."""
    return [text for text, *_ in prediction.n_best if text] or [prediction.text]


def _by_number(values: Iterable[Value]) -> dict[str, Value]:
    """The values keyed by question number, since ids in files need not be unique."""
    return {str(number): value for number, value in enumerate(values)}


def _before_threshold(predictions: Sequence[AnswerPrediction]) -> tuple[dict[str, str], dict[str, float]]:
    """The best answer to each question, even if withheld, and the no-answer score differences."""
    differences = [prediction.null_score_diff for prediction in predictions if prediction.null_score_diff is not None]
    assert len(differences) == len(predictions), "the task has unanswerable questions"
    return _by_number(prediction.best_answer for prediction in predictions), _by_number(differences)


def _check_answers(question: QuestionExample) -> None:
    if question.is_impossible and question.answers:
        raise InputError(
            expected=f"no answers to the impossible question in {question.location}",
            found=repr(question.answers[0].text),
            fix="remove the answers, or do not mark it as impossible",
        )
    for answer in question.answers:
        marked = question.context[max(0, answer.start) : max(0, answer.start) + len(answer.text)]
        if answer.start < 0 or not answer.text.strip() or marked != answer.text:
            raise InputError(
                expected=f"answer {answer.text!r} at character {answer.start} of the context in {question.location}",
                found=repr(marked),
                fix="correct answer_start or remove the answer",
            )
