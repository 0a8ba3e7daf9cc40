"""Relevance of passages to a query, scored by a fine-tuned model that reads both in one row."""

import math
import sys
from collections.abc import Sequence
from typing import cast

from bertsmith.base.core.errors import ConfigError
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.models.heads.head_spec import RERANKING
from bertsmith.tasks.datasets.examples import TextExample, pairs_of
from bertsmith.tasks.specs.predictions import LabelPrediction, NumberPrediction
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.encoded import Encoded

RELEVANT = "relevant"
_LEAST = sys.float_info.min  # in place of a probability of 0
_ENTAILMENT = "entail"  # what the name of the label begins with


def can_score_pairs(spec: TaskSpec) -> bool:
    """Whether a model of this task gives a pair of texts one score."""
    return spec.kind in ("classification", "regression", RERANKING) and spec.pair is not False and not spec.multi_label


def entailed_label(spec: TaskSpec) -> int | None:
    """The number of the label of a model of pairs that says that the second text follows from the first, if any."""
    if spec.kind != "classification" or spec.pair is False or spec.multi_label:
        return None
    names = enumerate(label.lower() for label in spec.labels)
    return next((number for number, name in names if name.startswith(_ENTAILMENT)), None)


class PairScorer:
    """A fine-tuned model of pairs that scores how well a passage answers a query.

    The score is the probability of the label "relevant" (of the last label if none has that name), or the predicted
    number of a regression. The raw score is the number whose sigmoid is a score between 0 and 1: the log odds of the
    label, or the output of the model before its activation; where there is no activation, it is the score.

    Args:
        predictor: the model.

    Attributes:
        label: the label whose probability is the score; "" for a regression.
        cut: the number of pairs truncated so far.
    """

    def __init__(self, predictor: Predictor) -> None:
        spec = predictor.task.spec
        if not can_score_pairs(spec):
            raise ConfigError(
                expected="a single-label classification or regression model of text pairs, for re-ranking",
                found=f"one for {spec.title}{' of single texts' if spec.pair is False else ''}",
                fix="fine-tune a model on pairs of query and passage",
            )
        self.predictor = predictor
        self.cut = 0
        self.label = ""
        if spec.kind == "classification":
            self.label = RELEVANT if RELEVANT in spec.labels else spec.labels[-1]

    def scores(self, query: str, passages: Sequence[str], known: dict[str, Encoded] | None = None) -> list[float]:
        """One score per passage; higher is better.

        Args:
            known: the pieces of texts of earlier calls; see `specs.tokenized.tokenized`.
        """
        return [score for score, _ in self.scored(self.predictor.tokenized(pairs_of(query, passages), known))]

    def scored(self, pairs: Sequence[TextExample], *, raw: bool = False) -> list[tuple[float, int]]:
        """The score, or the raw score, of each pair of query and passage, and the tokens that it lost."""
        results = []
        for prediction in self.predictor.predict(pairs):
            if isinstance(prediction, LabelPrediction):
                shares = list(prediction.probabilities)
                score = shares.pop(prediction.labels.index(self.label))
                score = _log_odds(score, sum(shares)) if raw else score
            else:
                number = cast("NumberPrediction", prediction)
                score = number.raw if raw and number.raw is not None else number.value
            self.cut += prediction.cut_tokens > 0
            results.append((score, prediction.cut_tokens))
        return results


def _log_odds(share: float, rest: float) -> float:
    """The number whose sigmoid is a share, from the share and the rest, of which one may be nearly 0."""
    return math.log(max(share, _LEAST)) - math.log(max(rest, _LEAST))
