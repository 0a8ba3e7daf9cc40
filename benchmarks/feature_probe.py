"""Text classification on a frozen encoder: a classifier on one vector per text.

Letters: E examples, K labels.

Labels, encoding, predictions and scores are the fine-tuned task's, so the two strategies can be compared.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.randomness import derive
from bertsmith.base.core.settings import require
from bertsmith.tasks.baselines.linear import LEAST_CHANCE, LinearModel, fit_linear
from bertsmith.tasks.baselines.text_vectors import text_vectors
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.encoding.row_encoder import RowEncoder, Vectors
from bertsmith.tasks.specs.classification import ClassificationTask
from bertsmith.tasks.specs.predictions import LabelPrediction

PROBES = ("logistic", "mlp")
HIDDEN = 64  # width of the MLP
_MOST_ROUNDS = 2000  # of the optimizer, which converges long before


class FeatureProbe:
    """A classifier on the text vectors of a frozen encoder.

    Vectors are standardized to mean 0 and standard deviation 1 over the training texts.

    Args:
        encoder: the encoder.
        task: labels, encoding, scores; single-label only.
        layers: a choice of `layer_choice`; sums are unweighted.
        pooling: "mean" over the tokens of a text, or "cls".
        classifier: "logistic" regression, or "mlp" with one hidden layer.
        penalty: the L2 penalty on the weights, relative to the loss summed over the training texts.
        seed: the seed of the MLP's initial weights.
    """

    def __init__(
        self,
        encoder: RowEncoder,
        task: ClassificationTask,
        *,
        layers: str = "last",
        pooling: str = "mean",
        classifier: str = "logistic",
        penalty: float = 10.0,
        seed: int = 1,
    ) -> None:
        require(
            classifier in PROBES, expected="a known classifier", found=repr(classifier), fix=nearest(classifier, PROBES)
        )
        require(penalty > 0, expected="a penalty above 0", found=penalty, fix="raise it")
        require(
            not task.spec.multi_label, expected="a single-label task", found="multi-label", fix="fine-tune it instead"
        )
        self.encoder, self.task, self.pooling = encoder, task, pooling
        self.choice = encoder.choice(layers)
        self._classifier, self._penalty, self._seed = classifier, penalty, seed
        self._fitted: LinearModel | Pipeline | None = None

    def fit(self, examples: Sequence[Example]) -> None:
        """Trains on labelled texts."""
        self.task.check(examples, gold=True, training=True)
        targets = self.task.encode(examples, self.encoder.tokenizer).targets
        if targets is None or len(np.unique(targets)) < 2:
            raise InputError(
                expected="texts with at least two labels", found="one label or none", fix="name a file with several"
            )
        vectors, labels = self.vectors(examples), self.task.spec.labels
        if self._classifier == "logistic":
            self._fitted = fit_linear(vectors, targets, num_outputs=len(labels), penalties=(self._penalty,))
        else:
            self._fitted = _network(self._penalty, self._seed).fit(vectors, targets)

    def predict(self, examples: Sequence[Example]) -> list[LabelPrediction]:
        """One prediction per text, in order; call `fit` first."""
        if not examples:
            return []
        self.task.check(examples, gold=False)
        features = self.task.encode(examples, self.encoder.tokenizer)
        return self.task.decode(examples, features, self._logits(self.vectors(examples)), self.encoder.tokenizer)

    def score(self, examples: Sequence[Example]) -> dict[str, float]:
        """The scores of the task on labelled texts."""
        self.task.check(examples, gold=True)
        return self.task.score(examples, self.predict(examples))

    def vectors(self, examples: Sequence[Example]) -> Vectors:
        """The inputs of the classifier, float32 [E, width]."""
        return text_vectors(self.encoder, self.task, examples, self.choice, self.pooling)

    def _logits(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """Log-probabilities, float32 [E, K], plus a constant; very low for labels that no training text has."""
        assert self._fitted is not None, "fit comes first"
        # Equal vectors are classified once, because the last digits of a row depend on its position in the batch.
        different, which = np.unique(vectors, axis=0, return_inverse=True)
        if isinstance(self._fitted, LinearModel):
            return self._fitted.outputs(different)[which.reshape(-1)]
        logits = np.full((len(vectors), len(self.task.spec.labels)), np.log(LEAST_CHANCE), dtype=np.float32)
        chances = self._fitted.predict_proba(different)[which.reshape(-1)]
        logits[:, self._fitted[-1].classes_] = np.log(np.maximum(chances, LEAST_CHANCE))
        return logits


def _network(penalty: float, seed: int) -> Pipeline:
    network = MLPClassifier(
        (HIDDEN,),
        solver="lbfgs",
        alpha=penalty,
        max_iter=_MOST_ROUNDS,
        max_fun=10 * _MOST_ROUNDS,
        random_state=derive(seed, "mlp probe") % 2**32,
    )
    return make_pipeline(StandardScaler(), network)
