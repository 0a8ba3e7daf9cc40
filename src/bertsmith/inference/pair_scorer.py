"""How well a passage answers a query, by a fine-tuned model that reads both together."""

from collections.abc import Sequence

from bertsmith.datasets.examples import TextExample
from bertsmith.errors import ConfigError
from bertsmith.inference.predictor import Predictor
from bertsmith.tasks.classification import LabelPrediction
from bertsmith.tasks.regression import NumberPrediction

RELEVANT = "relevant"


class PairScorer:
    """A fine-tuned model of pairs that says how well a passage answers a query.

    The score is the probability of the label "relevant", of the last label where none is called so, or the number of a
    regression.

    Args:
        predictor: the model.

    Attributes:
        label: whose probability is the score; "" for a regression.
        cut: pairs so far that were longer than the model reads.
        cut_tokens: the tokens that they lost.

    Raises:
        ConfigError: the model's task does not read pairs of texts, or gives several labels.
    """

    def __init__(self, predictor: Predictor) -> None:
        spec = predictor.task.spec
        if spec.kind not in ("classification", "regression") or spec.pair is False or spec.multi_label:
            raise ConfigError(
                expected="a model of pairs of texts, a classification with one label or a regression, for re-ranking",
                found=f"one for {spec.name} ({spec.kind})",
                fix="fine-tune one on pairs of query and passage",
            )
        self.predictor = predictor
        self.cut = self.cut_tokens = 0
        self.label = ""
        if spec.kind == "classification":
            self.label = RELEVANT if RELEVANT in spec.labels else spec.labels[-1]

    def scores(self, query: str, passages: Sequence[str]) -> list[float]:
        """One score a passage; higher is better."""
        pairs = [
            TextExample(id=str(number), first=query, second=passage, place=f"passage {number}")
            for number, passage in enumerate(passages)
        ]
        scores = []
        for prediction in self.predictor.predict(pairs):
            if isinstance(prediction, LabelPrediction):
                scores.append(prediction.probabilities[prediction.labels.index(self.label)])
            else:
                assert isinstance(prediction, NumberPrediction), "a regression gives numbers"
                scores.append(prediction.value)
            self.cut += prediction.cut_tokens > 0
            self.cut_tokens += prediction.cut_tokens
        return scores
