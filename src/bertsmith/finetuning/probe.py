"""Classes of texts on an encoder that is not trained: a classifier of scikit-learn on one vector a text.

Letters: E examples, K labels.

Labels, reading of texts, predictions and scores are those of the fine-tuned task, so that both strategies compare.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bertsmith.datasets.examples import Example
from bertsmith.encoding.frozen import FrozenEncoder, Vectors
from bertsmith.errors import InputError, nearest
from bertsmith.model.layer_mix import LayerChoice
from bertsmith.randomness import derive
from bertsmith.settings import require
from bertsmith.tasks.classification import ClassificationTask, LabelPrediction
from bertsmith.tasks.whole_texts import pooled_logits

PROBES = ("logistic", "mlp")
HIDDEN = 64  # width of the MLP
_MOST_ROUNDS = 2000  # of the optimizer, which stops by itself long before
_LEAST_CHANCE = 1e-30


class FeatureProbe:
    """A classifier on the text vectors of an encoder that stays as it is.

    Vectors are scaled to mean 0 and deviation 1 of the training texts.

    Args:
        encoder: the encoder.
        task: labels, reading of texts, scores; one label a text.
        layers: a choice of `layer_mix`; sums are plain ones.
        pooling: "mean" over the tokens of a text, or "cls".
        classifier: "logistic" regression, or "mlp" with one hidden layer.
        penalty: how strongly large weights are punished (L2); a sum over the training texts stands beside it.
        seed: of the first weights of the MLP.

    Raises:
        ConfigError: a name is unknown, or the task gives several labels to a text.
    """

    def __init__(
        self,
        encoder: FrozenEncoder,
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
        require(not task.spec.multi_label, expected="a task with one label a text", found="several", fix="fine-tune it")
        self.encoder, self.task, self.pooling = encoder, task, pooling
        self.choice = encoder.choice(layers)
        self._pipeline = _pipeline(classifier, penalty, seed)

    def fit(self, examples: Sequence[Example]) -> None:
        """Learns from labelled texts.

        Raises:
            InputError: a text or label is missing or unknown, or all labels are the same.
        """
        self.task.check(examples, gold=True, training=True)
        targets = self.task.encode(examples, self.encoder.tokenizer).targets
        if targets is None or len(np.unique(targets)) < 2:
            raise InputError(
                expected="texts of two labels at least", found="one label or none", fix="name a file that has several"
            )
        self._pipeline.fit(self.vectors(examples), targets)

    def predict(self, examples: Sequence[Example]) -> list[LabelPrediction]:
        """One prediction a text, in their order; `fit` comes first.

        Raises:
            InputError: a text is empty.
        """
        if not examples:
            return []
        self.task.check(examples, gold=False)
        features = self.task.encode(examples, self.encoder.tokenizer)
        return self.task.decode(examples, features, self._logits(self.vectors(examples)), self.encoder.tokenizer)

    def score(self, examples: Sequence[Example]) -> dict[str, float]:
        """The scores of the task on labelled texts.

        Raises:
            InputError: a text or label is missing or unknown.
        """
        self.task.check(examples, gold=True)
        return self.task.score(examples, self.predict(examples))

    def vectors(self, examples: Sequence[Example]) -> Vectors:
        """What the classifier is given, float32 [E, width]."""
        return text_vectors(self.encoder, self.task, examples, self.choice, self.pooling)

    def _logits(self, vectors: Vectors) -> npt.NDArray[np.float32]:
        """Logarithms of probabilities, float32 [E, K]; a label that was never seen has hardly any."""
        logits = np.full((len(vectors), len(self.task.spec.labels)), np.log(_LEAST_CHANCE), dtype=np.float32)
        seen = self._pipeline[-1].classes_
        # Equal vectors are classified once: the last digits of a row depend on its place among the others.
        different, which = np.unique(vectors, axis=0, return_inverse=True)
        chances = self._pipeline.predict_proba(different)[which.reshape(-1)]
        logits[:, seen] = np.log(np.maximum(chances, _LEAST_CHANCE))
        return logits


def text_vectors(
    encoder: FrozenEncoder,
    task: ClassificationTask,
    examples: Sequence[Example],
    choice: LayerChoice,
    pooling: str = "mean",
) -> Vectors:
    """One vector a text, float32 [E, width], read as the task reads its texts; sums of layers are plain ones.

    Args:
        pooling: one of `encoding.frozen.POOLINGS`. Windows of one text are averaged.

    Raises:
        ConfigError: the rows are longer than the model reads, the pooling is unknown, or the vectors take too much
            memory.
        CheckpointError: the pooler is asked for and was never trained.
    """
    encoder.require_positions(task.spec.settings.max_length)
    features = task.encode(examples, encoder.tokenizer)
    with encoder.progress(features.rows) as progress:
        vectors = encoder.row_vectors(features.rows, choice, pooling, progress)
    return pooled_logits(vectors, features, "mean")


def _pipeline(classifier: str, penalty: float, seed: int) -> Pipeline:
    if classifier == "logistic":
        return make_pipeline(StandardScaler(), LogisticRegression(C=1 / penalty, max_iter=_MOST_ROUNDS))
    network = MLPClassifier(
        (HIDDEN,),
        solver="lbfgs",
        alpha=penalty,
        max_iter=_MOST_ROUNDS,
        max_fun=10 * _MOST_ROUNDS,
        random_state=derive(seed, "mlp probe") % 2**32,
    )
    return make_pipeline(StandardScaler(), network)
