"""What the new layer of a task reads, and where it starts: both from linear models on the vectors of the base model.

Letters: U units, N rows, R positions that are read, D width, K outputs, E examples, W width of what is read.

The layer starts as the linear model that predicts the training labels from the frozen vectors, so that the first steps
do not pull the encoder towards a random layer. Of several vectors of a row, the head reads the one on which such a
model has the lowest loss on held-out folds.

Few labels say little about the thousands of weights of a layer on [a, b, |a - b|, a * b], but how similar a and b are
follows from these numbers by a few fixed sums. The penalty therefore favors these sums (`similarity_directions`),
unless the loss on held-out folds speaks against it: with the strictest penalty, only the meaning of a similarity is
learned.

Sources: Kumar et al. (2022), "Fine-Tuning can Distort Pretrained Features and Underperform Out-of-Distribution",
section 4 (linear probing, then fine-tuning); Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning"
(2nd edition, 2009), section 7.10 (the simpler of two models, unless it is worse by more than one standard error).
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.progress import quiet
from bertsmith.base.core.randomness import generator
from bertsmith.base.core.settings import require
from bertsmith.models.checkpoints.model_folder import ModelFolder
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.heads.own_head import OwnHead
from bertsmith.models.parts.batch import rows_index
from bertsmith.models.parts.head_inputs import APART, OF_TWO_TEXTS, VECTORS_OF_PAIR
from bertsmith.recipes.finetuning.settings import LINEAR_KINDS, PROBE, FinetuningSettings
from bertsmith.tasks.baselines.linear import PENALTIES, PENALTIES_WITH_FAVORED, LinearModel, fit_linear
from bertsmith.tasks.encoding.frozen import SharedEncoder, Vectors
from bertsmith.tasks.encoding.loading import loaded
from bertsmith.tasks.encoding.units import NO_LABEL, PER_POSITION, PER_UNIT, EncodedExamples, Ints
from bertsmith.tasks.specs.task import Task
from bertsmith.tasks.specs.whole_texts import pooled_logits
from bertsmith.text.tokenizers.pack import PackedRows

MOST_PROBED, MOST_FITTED = 2_000, 20_000  # training examples that are compared, and that a layer is fitted to
# Of what is read, as a fraction of its typical size: a layer is not fitted to differences that are smaller, since the
# first steps of training move the vectors by more than that, and weights that magnify them would magnify the steps.
# On 300 sentences of SST-2, nine of ten columns spread by 0.18 or more in four architectures and MiniLM, but by 0.02 to
# 0.03 in the [CLS] of a BERT that was trained for 20 steps.
LEAST_SPREAD = 0.1
_FOLDS = 3
_LEAST = 2 * _FOLDS  # examples, below which nothing is compared

Losses = npt.NDArray[np.float64]


class LinearStart:
    """Linear models on the vectors of a base model, for the head of a task.

    Args:
        frozen: the base model.
        features: the encoded training examples, with targets.
        outputs: K.
        pooling: how the logits of the rows of a unit are pooled, as in `TaskSettings`.
    """

    def __init__(self, frozen: SharedEncoder, features: EncodedExamples, outputs: int, pooling: str = "mean") -> None:
        self._frozen, self.features, self.outputs, self.pooling = frozen, features, outputs, pooling

    def best_reads(self, seed: int = 1, *, pairs: bool = True) -> str:
        """What a head on whole rows should read: "mean", "cls", or where it makes sense "pooler", "pair" or "apart".

        The pooler is a candidate if an earlier head was trained on it, pairs read together and apart if every row has
        two texts. The mean, unless another is clearly better; with very few examples the pooler if it was trained, and
        else the mean. Texts apart, if the model on them favors similarity and none is clearly better.

        Args:
            pairs: whether the head can read pairs.
        """
        assert self.features.targets_per == PER_UNIT, "a label per example"
        assert self.features.targets is not None, "labelled examples"
        trained = pooler_was_trained(self._frozen.folder)
        units = _sample(len(self.features), MOST_PROBED, seed)
        if len(units) < _LEAST:
            return "pooler" if trained else "mean"
        known = ["mean", "cls"]
        known += ["pooler"] if trained else []
        known += OF_TWO_TEXTS if pairs and self._has_pairs() else ()
        if len(np.unique(self.features.targets[units], axis=0)) < 2:
            return "mean"
        targets = self.features.targets[units]
        tried = {reads: self._better(self._vectors(units, reads), targets, reads, seed) for reads in known}
        best = min(known, key=lambda reads: float(tried[reads][0].mean()))
        if APART in tried and tried[APART][1] and not _clearly_lower(tried[best][0], tried[APART][0]):
            return APART  # a few sums are simpler than any other model
        return best if _clearly_lower(tried[best][0], tried["mean"][0]) else "mean"

    def layer(self, head: Head, seed: int = 1) -> LinearModel:
        """The linear model that the layer starts from."""
        targets = self.features.targets
        assert targets is not None, "labelled examples"
        if head.pooled:
            units = _sample(len(self.features), MOST_FITTED, seed)
            vectors = self._vectors(units, head.reads)
            of_two = head.reads in OF_TWO_TEXTS
            favors = of_two and self._favors_similarity(vectors, targets[units], head.reads, seed)
            model = fitted(
                vectors,
                targets[units],
                self.outputs,
                seed,
                favors=favors,
                least_spread=LEAST_SPREAD,
                weights=None if self.features.weights is None else self.features.weights[units],
            )
            # Each row adds the bias to a sum of logits.
            times = int(self.features.rows_per_unit.max(initial=1)) if self.pooling == "sum" else 1
            return dataclasses.replace(model, bias=model.bias / np.float32(times))
        assert self.features.targets_per == PER_POSITION
        rows, read, positions = _labelled_rows(self.features, targets != NO_LABEL, MOST_FITTED, seed)
        frozen, labelled = loaded(self._frozen), targets[positions] != NO_LABEL
        with quiet():
            vectors = frozen.token_vectors(rows, frozen.choice("last"), read)
        return fit_linear(
            vectors[labelled],
            targets[positions][labelled],
            num_outputs=self.outputs,
            seed=seed,
            least_spread=LEAST_SPREAD,
        )

    def _favors_similarity(self, vectors: Vectors, targets: npt.NDArray[np.generic], reads: str, seed: int) -> bool:
        """Whether a layer on two texts starts from a model that favors their similarity."""
        part = _sample(len(vectors), MOST_PROBED, seed)
        if len(part) < _LEAST or len(np.unique(targets[part], axis=0)) < 2:
            return False
        return self._better(vectors[part], targets[part], reads, seed)[1]

    def _better(self, vectors: Vectors, targets: npt.NDArray[np.generic], reads: str, seed: int) -> tuple[Losses, bool]:
        """The losses of examples in held-out folds, [E], and whether they are those of a model that favors similarity.

        Of two texts, those of the plain model only if they are clearly lower.
        """
        plain = held_out_losses(vectors, targets, self.outputs, seed, favors=False)
        if reads not in OF_TWO_TEXTS:
            return plain, False
        favoring = held_out_losses(vectors, targets, self.outputs, seed, favors=True)
        return (plain, False) if _clearly_lower(plain, favoring) else (favoring, True)

    def _has_pairs(self) -> bool:
        """Whether every row has a second text."""
        rows = self.features.rows
        return bool(np.maximum.reduceat(rows.segment_ids, rows.offsets[:-1]).min() > 0)

    def _vectors(self, units: Ints, reads: str) -> Vectors:
        """What a head would read of some units, float32 [U, D] (of pairs [U, 4D]), pooled over the rows of a unit."""
        features, frozen = _units(self.features, units), loaded(self._frozen)
        with quiet():
            vectors = frozen.row_vectors(features.rows, frozen.choice("last"), reads)
        # The maximum of logits is that of no vectors; their mean is the nearest.
        return pooled_logits(vectors, features, "sum" if self.pooling == "sum" else "mean")


def read_by_head(
    asked: str,
    frozen: SharedEncoder,
    task: Task,
    features: EncodedExamples,
    own_head: type[OwnHead] | None = None,
) -> str:
    """What the head of a task on whole rows reads: as asked, or what a probe finds.

    Args:
        asked: one of `head_inputs.READS`, or "probe"; where no linear model fits the task, that means the pooler if it
            was trained, the state of the row for an encoder that cannot have a pooler, and else the mean.
        frozen: the base model.
        features: the encoded training examples, with targets.
        own_head: the user's head, which reads no pairs.
    """
    if asked != PROBE:
        return asked
    if task.head.windows:
        return "mean"
    if task.spec.kind in LINEAR_KINDS:
        start = LinearStart(frozen, features, task.head.outputs, task.spec.settings.pooling)
        return start.best_reads(pairs=own_head is None and task.spec.pair is True)
    if pooler_was_trained(frozen.folder):
        return "pooler"
    return "mean" if frozen.folder.config.can_pool else "cls"


def require_linear(task: Task, settings: FinetuningSettings, own_head: type[OwnHead] | None) -> None:
    """Checks that the new layer can start from a linear model.

    Raises:
        ConfigError: the head is the user's, layers are re-initialized, or the task has no such model.
    """
    for wrong, obstacle in (
        (own_head is not None, "a head of your own"),
        (settings.reinit_layers > 0, "re-initialized layers, whose vectors mean nothing"),
        (task.head.has_blocks, "a head with a hidden layer"),
        (task.head.has_reader, "a head with a BiLSTM"),
        (bool(task.head.windows), "a layer over the windows of a text"),
        (task.spec.kind not in LINEAR_KINDS, f"a task of the kind {task.spec.kind}"),
    ):
        require(
            not wrong, expected="a linear layer on vectors of the base model", found=obstacle, fix="use --start random"
        )


def pooler_was_trained(folder: ModelFolder) -> bool:
    """Whether a head that reads the pooler is in the folder, so that something trained it.

    Encoders of sentences keep the pooler of the model that they come from, but were trained without it.
    """
    spec = folder.metadata.spec or {}
    reads = "nsp" in folder.parts or ("classifier" in folder.parts and spec.get("reads", "pooler") == "pooler")
    return "pooler" in folder.parts and reads


def _units(features: EncodedExamples, units: Ints) -> EncodedExamples:
    """Some of the units, without targets."""
    packed = features.rows.select(rows_index(features.rows_per_unit, units))
    counts = features.rows_per_unit[units]
    return dataclasses.replace(
        features,
        rows=packed,
        rows_per_unit=counts,
        example_of_row=np.repeat(np.arange(len(units)), counts),
        read=packed.offsets[:-1],
        targets=None,
        weights=None,
    )


def _labelled_rows(
    features: EncodedExamples, is_labelled: npt.NDArray[np.bool_], most: int, seed: int
) -> tuple[PackedRows, Ints | None, Ints]:
    """Rows with at most about `most` labelled positions, all rows if they have no more.

    Args:
        is_labelled: bool [R].

    Returns:
        The rows, the positions that are read in them (None for all), and their indices among those of the features.
    """
    counts = features.read_per_row
    of_row = np.bincount(np.repeat(np.arange(len(counts)), counts)[is_labelled], minlength=len(counts))
    order = generator(seed, "sample of a linear start").permutation(len(counts))
    before = np.cumsum(of_row[order]) - of_row[order]
    rows = np.arange(len(counts)) if of_row.sum() <= most else np.sort(order[before < most])
    packed, positions = features.rows.select(rows), rows_index(counts, rows)
    if features.read is None:
        return packed, None, positions
    shift = np.repeat(packed.offsets[:-1] - features.rows.offsets[:-1][rows], counts[rows])
    return packed, features.read[positions] + shift, positions


def _sample(count: int, most: int, seed: int) -> Ints:
    """At most `most` of the numbers below `count`, ascending."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.sort(generator(seed, "sample of a linear start").permutation(count)[:most]).astype(np.int64)


def similarity_directions(vectors: Vectors) -> Vectors:
    """Weights with which vectors of two texts give similarities of the two, float32 [4, W].

    The products of a and b about their mean, summed, and the negative distances |a - b|, summed: each once as they are
    and once in units of the spread of each number.

    Args:
        vectors: [a, b, |a - b|, a * b] of the examples, float32 [E, W].
    """
    width = vectors.shape[1] // VECTORS_OF_PAIR
    both = vectors[:, : 2 * width].reshape(-1, width).astype(np.float64)  # of a and b, [2E, D]
    mean = both.mean(axis=0)
    spread = np.maximum(both.std(axis=0), LEAST_SPREAD * np.sqrt(np.square(both).mean()))
    spread[spread == 0] = 1.0
    nothing = np.zeros(width)
    products = [np.concatenate([-mean * unit, -mean * unit, nothing, unit]) for unit in (nothing + 1, spread**-2)]
    distances = [np.concatenate([nothing, nothing, -unit, nothing]) for unit in (nothing + 1, 1 / spread)]
    return np.stack(products + distances).astype(np.float32)


def fitted(
    vectors: Vectors,
    targets: npt.NDArray[np.generic],
    outputs: int,
    seed: int,
    *,
    favors: bool,
    penalty: float | None = None,
    least_spread: float = 0.0,
    weights: Vectors | None = None,
) -> LinearModel:
    """The linear model of examples.

    Args:
        vectors: float32 [E, W].
        outputs: K.
        favors: whether the penalty favors the similarity of two texts.
        penalty: by default, cross-validation chooses it.
        least_spread, weights: see `fit_linear`.
    """
    known = PENALTIES_WITH_FAVORED if favors else PENALTIES
    return fit_linear(
        vectors,
        targets,
        num_outputs=outputs,
        seed=seed,
        penalties=known if penalty is None else (penalty,),
        least_spread=least_spread,
        weights=weights,
        favored=similarity_directions(vectors) if favors else None,
    )


def held_out_losses(
    vectors: Vectors, targets: npt.NDArray[np.generic], outputs: int, seed: int, *, favors: bool
) -> Losses:
    """The loss of each example, float64 [E], of models that were not fitted to its fold, with one penalty for all.

    Args:
        vectors, outputs, favors: see `fitted`.
    """
    penalty = fitted(vectors, targets, outputs, seed, favors=favors).penalty
    fold = generator(seed, "folds of a linear start").permutation(len(vectors)) % _FOLDS
    losses = np.empty(len(vectors))
    for number in range(_FOLDS):
        inside = fold != number
        model = fitted(vectors[inside], targets[inside], outputs, seed, favors=favors, penalty=penalty)
        losses[~inside] = _losses(model.outputs(vectors[~inside]).astype(np.float64), targets[~inside])
    return losses


def _clearly_lower(losses: Losses, others: Losses) -> bool:
    """Whether losses of examples are lower than others by more than one standard error of the mean difference."""
    away = others - losses
    return bool(away.mean() > away.std() / np.sqrt(len(away)))


def _losses(outputs: npt.NDArray[np.float64], targets: npt.NDArray[np.generic]) -> Losses:
    """The loss of each of the outputs [E, K]: cross-entropy, binary cross-entropy of all labels, or squared error."""
    numbers = np.asarray(targets, dtype=np.float64)
    if numbers.ndim == 2:
        return np.asarray((np.logaddexp(0.0, outputs) - numbers * outputs).sum(axis=1))
    if np.issubdtype(targets.dtype, np.integer):
        # A label that only the held-out fold has costs the same for all vectors.
        outputs = np.maximum(outputs - outputs.max(axis=1, keepdims=True), -20.0)
        gold = outputs[np.arange(len(outputs)), targets.astype(np.int64)]
        return np.asarray(np.log(np.exp(outputs).sum(axis=1)) - gold)
    return np.asarray((outputs[:, 0] - numbers) ** 2)
