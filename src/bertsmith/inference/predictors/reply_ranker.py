"""Ranking one list of replies for many contexts: the vectors of the replies are computed once.

Letters: E contexts, N replies, D width of the vectors.
"""

import dataclasses
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from bertsmith.base.core.settings import require
from bertsmith.inference.predictors.predictor import BLOCK, Predictor
from bertsmith.tasks.datasets.examples import ChoiceExample, Example
from bertsmith.tasks.datasets.replies import read_reply_list
from bertsmith.tasks.encoding.engine import TASK
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.candidates import choices_of
from bertsmith.tasks.specs.predictions import ChoicePrediction
from bertsmith.tasks.specs.selection import SCALE, SelectionTask
from bertsmith.tasks.specs.task import Prediction

_REPLIES_AT_ONCE = 20_000  # that are encoded together
_PAIRS_AT_ONCE = 20_000  # of a context and a reply that are read together


class ReplyRanker(Predictor):
    """A predictor whose examples have no candidates of their own; its predictions hold the best `top` of a list.

    Vectors of the replies are computed once; any other model scores every reply with each context.

    Args:
        predictor: a model that ranks.
        replies: the candidates.
    """

    def __init__(self, predictor: Predictor, replies: Sequence[str], top: int) -> None:
        spec = predictor.task.spec
        require(
            spec.ranks,
            expected="a model of response-selection, for --replies",
            found=f"one of {spec.title}",
            fix="leave --replies out, or name another model",
        )
        self.task, self.runtime, self.weakness = predictor.task, predictor.runtime, predictor.weakness
        self._predictor, self._top, self._replies = predictor, top, tuple(replies)
        self._vectors = None
        if isinstance(self.task, SelectionTask) and type(predictor) is Predictor:  # not a baseline, on words
            parts = [self._replies[at : at + _REPLIES_AT_ONCE] for at in range(0, len(replies), _REPLIES_AT_ONCE)]
            # The first row of each part is a context, which is empty.
            self._vectors = unit(np.concatenate([self._read([_listed(part)])[0][1:] for part in parts]))

    def predict(self, examples: Sequence[Example], advance: Callable[[float], None] | None = None) -> list[Prediction]:
        """One prediction per context, in order; see `Predictor.predict`."""
        contexts = choices_of(examples)
        if self._vectors is None:
            whole = [dataclasses.replace(example, endings=self._replies) for example in contexts]
            answers = self._predictor.predict(whole, advance)
            return [self._best(np.array(vars(each)["probabilities"]), each.cut_tokens) for each in answers]
        vectors, cut = self._read([dataclasses.replace(example, endings=()) for example in contexts], advance)
        predictions: list[Prediction] = []
        for vector, lost in zip(unit(vectors), cut.tolist(), strict=True):
            scores = np.exp(SCALE * (self._vectors @ vector - 1))  # of at most 1
            predictions.append(self._best(scores / scores.sum(), lost))
        return predictions

    def stream(
        self, examples: Iterable[Example], block: int = BLOCK, total: int | None = None
    ) -> Iterator[tuple[Example, Prediction]]:
        """Each context with its prediction, in smaller blocks if each is read with all replies; see `stream`."""
        if self._vectors is None:
            block = max(1, min(block, _PAIRS_AT_ONCE // len(self._replies)))
        return super().stream(examples, block, total)

    def _read(
        self, examples: Sequence[ChoiceExample], advance: Callable[[float], None] | None = None
    ) -> "tuple[np.ndarray, np.ndarray]":
        """The vectors of all texts of the examples, and the tokens that each text lost."""
        features = self.task.encode(examples, self._predictor.tokenizer)
        return self._predictor.engine.logits(features, TASK, advance=advance), features.rows.cut_by_row

    def _best(self, probabilities: np.ndarray, cut: int) -> ChoicePrediction:
        """The prediction with the best candidates; equal ones in the order of the list."""
        values = probabilities.tolist()
        best = heapq.nsmallest(self._top, range(len(values)), key=lambda number: (-values[number], number))
        return ChoicePrediction(
            index=best[0],
            probabilities=(),
            text=self._replies[best[0]],
            ranking=tuple((number, self._replies[number], values[number]) for number in best),
            cut_tokens=cut,
        )


def with_replies(predictor: Predictor, replies: str | Path | None, top: int) -> Predictor:
    """The predictor that ranks the replies of a file; the predictor itself without one."""
    return predictor if replies is None else ReplyRanker(predictor, read_reply_list(Path(replies)), top)


def _listed(replies: Sequence[str]) -> ChoiceExample:
    return ChoiceExample(id="", context="", endings=tuple(replies), location="the list of replies")
