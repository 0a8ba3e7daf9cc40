"""Relevance of passages to a query, scored by a fine-tuned model that reads both in one row."""

from collections.abc import Sequence
from typing import cast

from bertsmith.base.core.errors import ConfigError
from bertsmith.inference.predictors.predictor import Predictor
from bertsmith.tasks.datasets.examples import TextExample, pairs_of
from bertsmith.tasks.specs.predictions import LabelPrediction, NumberPrediction
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.text.tokenizers.encoded import Encoded

RELEVANT = "relevant"
_ENTAILMENT = "entail"  # what the name of the label begins with


def can_score_pairs(spec: TaskSpec) -> bool:
    """Whether a model of this task gives a pair of texts one score."""
    return spec.kind in ("classification", "regression") and spec.pair is not False and not spec.multi_label


def entailed_label(spec: TaskSpec) -> int | None:
    """The number of the label of a model of pairs that says that the second text follows from the first, if any."""
    if spec.kind != "classification" or spec.pair is False or spec.multi_label:
        return None
    names = enumerate(label.lower() for label in spec.labels)
    return next((number for number, name in names if name.startswith(_ENTAILMENT)), None)


class PairScorer:
    """A fine-tuned model of pairs that scores how well a passage answers a query.

    The score is the probability of the label "relevant" (of the last label if none has that name), or the predicted
    number of a regression.

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
                found=f"one for {spec.title}",
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

    def scored(self, pairs: Sequence[TextExample]) -> list[tuple[float, int]]:
        """The score of each pair of query and passage, and the tokens that it lost."""
        results = []
        for prediction in self.predictor.predict(pairs):
            if isinstance(prediction, LabelPrediction):
                score = prediction.probabilities[prediction.labels.index(self.label)]
            else:
                score = cast("NumberPrediction", prediction).value
            self.cut += prediction.cut_tokens > 0
            results.append((score, prediction.cut_tokens))
        return results
