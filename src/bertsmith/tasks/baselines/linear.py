"""A linear model on frozen vectors or on sparse features, as the weight and the bias of a linear layer.

Letters: E examples, D width of a vector, K outputs.

Logistic regression for labels, one logistic regression per label for multi-label tasks, ridge regression for numbers.
Vectors are standardized over the training examples, which is folded into weight and bias; sparse features are used as
they are. The L2 penalty is chosen by cross-validation, with folds that depend on the seed alone.

Sources: Hastie, Tibshirani and Friedman, "The Elements of Statistical Learning" (2nd edition, 2009), sections 3.4.1
(ridge), 4.4 (logistic regression) and 7.10 (cross-validation).
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.labels import CLASS_METRICS
from bertsmith.tasks.specs.task import TaskSpec

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController
    from torch import nn

PENALTIES = (10_000.0, 3_000.0, 1_000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)
# For sparse rows of length 1, which need less of a penalty than standardized vectors.
PENALTIES_OF_BAGS = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01)
LEAST_CHANCE = 1e-30  # probability of a label that no training example has
# With favored directions: the strictest leave next to nothing but these.
PENALTIES_WITH_FAVORED = (1e6, 3e5, 1e5, 3e4, *PENALTIES)
USUAL_PENALTY = 100.0  # where cross-validation cannot choose: too few examples, or one label

_FAVOR = 1e4  # how many times less the weights of favored directions are penalized
_FOLDS, _FEWER_FOLDS, _FEW = 5, 3, 1_000  # five folds below that number of examples
_MOST_COMPARED = 3_000  # examples in cross-validation
_MOST_CELLS = 5 * 10**7  # their number times width times outputs
_TOLERANCE, _MOST_ROUNDS = 1e-5, 2_000  # of the optimizer: largest slope of the mean loss; converges long before
_ROUGHLY, _FEWER_ROUNDS = 1e-3, 50  # in cross-validation, which only compares penalties
_SETBACKS = 2  # penalties in a row that are worse than the best so far: lower ones are not tried

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating]
Ints = npt.NDArray[np.int64]
Inputs = Vectors | Any  # or sparse: a `csr_array`, which has no type information, or `SparseRows` to predict

Score = Callable[[Vectors, Ints], float]
_Fit = Callable[[float], tuple[Floats, Floats]]


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearModel:
    """A linear layer."""

    weight: Vectors  # float32 [K, D]
    bias: Vectors  # float32 [K]
    # the L2 penalty on the weights of standardized vectors (or of sparse features), relative to the loss summed over
    # the examples
    penalty: float

    def copy_to(self, layer: "nn.Module") -> None:
        """Copies weight and bias into a layer of the same shape."""
        import torch

        with torch.no_grad():
            layer.get_parameter("weight").copy_(torch.from_numpy(self.weight))
            layer.get_parameter("bias").copy_(torch.from_numpy(self.bias))

    def outputs(self, vectors: Inputs) -> Vectors:
        """float32 [E, K]: log-probabilities plus a constant per example, log-odds of multi-label tasks, or numbers."""
        return np.asarray(vectors @ self.weight.T + self.bias, dtype=np.float32)


def fit_linear(
    vectors: Inputs,
    targets: npt.NDArray[np.generic],
    *,
    num_outputs: int,
    seed: int = 1,
    penalties: Sequence[float] = PENALTIES,
    score: Score | None = None,
    least_spread: float = 0.0,
    exclusive: bool = False,
    favored: Vectors | None = None,
    weights: Vectors | None = None,
) -> LinearModel:
    """The linear model that predicts the targets of tasks from vectors.

    A label without examples gets the probability `LEAST_CHANCE`; if all examples have the same label, it is always
    predicted. With two labels in the training examples, the penalty is a single logistic regression's.

    Args:
        vectors: float32 [E, D], at least one; a sparse array is not standardized.
        targets: as `Task.encode` returns them: numbers of labels, int64 [E]; 0 or 1 per label of a multi-label task,
            [E, K]; or numbers, float [E].
        num_outputs: K; 1 for numbers.
        penalties: the candidates, strictest first; a single one is used as it is.
        score: of held-out outputs [e, K] and the numbers of their examples [e], higher is better; it chooses the
            penalty, and the loss decides between equal scores. For scores such as Matthews correlation, which are 0 for
            the strict penalties that the loss prefers when one label is rare.
        least_spread: what a column is divided by is at least this fraction of the root mean square of all entries, so
            that weights stay bounded although a column is nearly constant.
        exclusive: targets [E, K] are distributions over labels of which one is right, such as a teacher's.
        favored: directions [J, D] of dense vectors, whose weights are penalized `_FAVOR` times less than all others.
        weights: of the losses of the examples, float32 [E], with mean 1; by default all are equal.
    """
    assert vectors.shape[0] == len(targets) > 0, "vectors and targets of the same examples"
    mean, scale = _moments(vectors, least_spread)
    inputs = vectors if _is_sparse(vectors) else ((vectors - mean) / scale).astype(np.float32)
    spread = np.ones(0)
    if favored is not None:
        along = (vectors - mean) @ favored.T.astype(np.float64)  # [E, J]
        spread = _moments(along, 0.0)[1] / np.sqrt(_FAVOR)
        inputs = np.concatenate([inputs, (along / spread).astype(np.float32)], axis=1)
    used, golds, loss = _golds(targets, num_outputs, exclusive)
    single = (targets.ndim == 1 and loss is not _squares) or exclusive
    answers = targets.argmax(axis=1) if exclusive else targets
    classes = np.asarray(answers if single else np.zeros(len(targets)), dtype=np.int64)
    if golds.shape[1]:
        on_fitted = None if score is None else functools.partial(_of_all, score, used, num_outputs)
        # The products are so small that on a busy machine the threads of OpenBLAS mostly spin and wait for each other.
        with _blas().limit(limits=1, user_api="blas"):
            penalty = _best_penalty(inputs, golds, loss, classes, seed, penalties, on_fitted, weights)
            slopes, biases = _fit(inputs, golds, loss, _TOLERANCE, _MOST_ROUNDS, weights)(penalty)
    else:
        penalty = penalties[0] if len(penalties) == 1 else USUAL_PENALTY
        slopes, biases = np.zeros((0, inputs.shape[1])), np.zeros(0)
    if single and len(used) == 2:
        # One logistic regression for two labels, as a softmax of two outputs.
        slopes, biases = np.concatenate([-slopes / 2, slopes / 2]), np.concatenate([-biases / 2, biases / 2])
    weight, bias = _without_examples(targets, num_outputs, vectors.shape[1])
    weight[used] = slopes[:, : vectors.shape[1]] / scale
    if favored is not None:
        weight[used] += (slopes[:, vectors.shape[1] :] / spread) @ favored
    bias[used] = biases - weight[used] @ mean
    return LinearModel(weight=weight.astype(np.float32), bias=bias.astype(np.float32), penalty=float(penalty))


def fit_for(spec: TaskSpec, inputs: Inputs, targets: npt.NDArray[np.generic], **options: Any) -> LinearModel:
    """The linear model of a task on whole texts; by default its metric chooses the penalty, if it is one of labels."""
    options = {"score": score_of_metric(spec.metric, targets), **options}
    return fit_linear(inputs, targets, num_outputs=max(1, len(spec.labels)), **options)


@functools.cache
def _blas() -> "ThreadpoolController":
    """The BLAS libraries of this process; to search all its libraries for them takes as long as a small fit."""
    from threadpoolctl import ThreadpoolController  # like SciPy, not needed to predict

    return ThreadpoolController()


def score_of_metric(metric: str, targets: npt.NDArray[np.generic]) -> Score | None:
    """The score by which `fit_linear` chooses the penalty for a metric of labels; None where the loss chooses it."""
    scorer = CLASS_METRICS.get(metric)
    if scorer is None or targets.ndim > 1 or metric == "accuracy":
        return None

    def score(outputs: Vectors, numbers: Ints) -> float:
        return float(scorer(targets[numbers], outputs.argmax(axis=1)))

    return score


def _is_sparse(inputs: Any) -> bool:
    return not isinstance(inputs, np.ndarray)


def _moments(vectors: Inputs, least_spread: float) -> tuple[Floats, Floats]:
    """(offsets to subtract from vectors, scales to divide them by), float64 [D] each; sparse ones stay as they are."""
    if _is_sparse(vectors):
        return np.zeros(vectors.shape[1]), np.ones(vectors.shape[1])
    mean, scale = vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64)
    scale[scale < 1e-6 * max(1.0, float(scale.max(initial=0.0)))] = 1.0  # a constant column stays constant
    if least_spread:
        typical = np.sqrt(np.square(vectors, dtype=np.float64).mean())
        scale = np.maximum(scale, least_spread * typical)
    return mean, scale


def _golds(targets: npt.NDArray[np.generic], num_outputs: int, exclusive: bool = False) -> tuple[Ints, Floats, "_Loss"]:
    """The outputs that are fitted, what they should predict, float32 [E, fitted], and the loss."""
    if targets.ndim == 2:
        share = np.asarray(targets, dtype=np.float64).mean(axis=0)
        used = np.flatnonzero((share > 0) & (share < 1))
        if exclusive:
            golds = np.asarray(targets[:, used], dtype=np.float32)
            return (used, golds, _softmax) if len(used) > 2 else (used, golds[:, 1:], _sigmoids)
        return used, np.asarray(targets[:, used], dtype=np.float32), _sigmoids
    if not np.issubdtype(targets.dtype, np.integer):
        return np.arange(1), np.asarray(targets, dtype=np.float64)[:, None], _squares
    used = np.unique(targets).astype(np.int64)
    hot = (np.asarray(targets)[:, None] == used).astype(np.float32)
    if len(used) > 2:
        return used, hot, _softmax
    return (used, hot[:, 1:], _sigmoids) if len(used) == 2 else (used[:0], hot[:, :0], _sigmoids)


def _without_examples(targets: npt.NDArray[np.generic], num_outputs: int, width: int) -> tuple[Floats, Floats]:
    """Weight and bias of the outputs that are not fitted, float64 [K, D] and [K]."""
    bias = np.full(num_outputs, np.log(LEAST_CHANCE))
    if targets.ndim == 2:
        bias[np.asarray(targets, dtype=np.float64).mean(axis=0) == 1] *= -1
    elif np.issubdtype(targets.dtype, np.integer):
        bias[np.unique(targets).astype(np.int64)] = 0.0
    return np.zeros((num_outputs, width)), bias


def _best_penalty(
    inputs: Inputs,
    golds: Floats,
    loss: "_Loss",
    classes: Ints,
    seed: int,
    penalties: Sequence[float],
    score: Score | None,
    weights: Vectors | None = None,
) -> float:
    """The penalty with the best score on held-out folds, then with the lowest loss; the strictest of equal ones."""
    width = inputs.shape[1] if isinstance(inputs, np.ndarray) else inputs.nnz // inputs.shape[0] + 1
    most = max(1, min(_MOST_COMPARED, _MOST_CELLS // (width * golds.shape[1])))
    chosen, folds = _folds(classes, seed, most)
    held_out = [fold for fold in np.unique(folds).tolist() if fold >= 0]
    if len(penalties) == 1 or len(held_out) < 2:
        return penalties[0] if len(penalties) == 1 else USUAL_PENALTY
    parts = [(chosen[folds != fold], chosen[folds == fold]) for fold in held_out]
    fits = [
        _fit(inputs[train], golds[train], loss, _ROUGHLY, _FEWER_ROUNDS, _some(weights, train)) for train, _ in parts
    ]
    numbers = np.concatenate([dev for _, dev in parts])
    best, reached, setbacks = penalties[0], (-np.inf, -np.inf), 0
    for penalty in penalties:
        parts_of_outputs = [_outputs(inputs[dev], *fit(penalty)) for fit, (_, dev) in zip(fits, parts, strict=True)]
        outputs = np.concatenate(parts_of_outputs)
        merit = (
            0.0 if score is None else score(outputs, numbers),
            -loss(outputs, golds[numbers], _some(weights, numbers))[0],
        )
        if merit > reached:
            best, reached, setbacks = penalty, merit, 0
        else:
            setbacks += 1
        if setbacks == _SETBACKS and score is None:
            break
    return best


def _of_all(score: Score, used: Ints, num_outputs: int, outputs: Vectors, numbers: Ints) -> float:
    """A score from the outputs that are fitted: a column per used label, or one column for two labels."""
    all_outputs = np.full((len(outputs), num_outputs), -np.inf, dtype=np.float32)
    all_outputs[:, used] = np.concatenate([-outputs, outputs], axis=1) if outputs.shape[1] < len(used) else outputs
    return score(all_outputs, numbers)


def _folds(classes: Ints, seed: int, most: int) -> tuple[Ints, Ints]:
    """At most `most` examples, and their folds; -1 for the only example of a class, which is always trained on."""
    order = generator(seed, "folds of a linear model").permutation(len(classes))
    _, kind, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    rank = np.empty(len(order), dtype=np.int64)  # of an example within its class
    by_class = np.argsort(kind, kind="stable")
    rank[by_class] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    if len(order) > most:
        kept = np.sort(np.argsort((rank + 0.5) / counts[kind], kind="stable")[:most])
        order, kind, rank = order[kept], kind[kept], rank[kept]
        counts = np.bincount(kind, minlength=len(counts))
    number = _FOLDS if len(order) < _FEW else _FEWER_FOLDS
    return order, np.where(counts[kind] > 1, (rank + kind) % number, -1)


def _some(weights: Vectors | None, numbers: Ints) -> Vectors | None:
    return None if weights is None else weights[numbers]


def _fit(
    inputs: Inputs, golds: Floats, loss: "_Loss", tolerance: float, rounds: int, weights: Vectors | None = None
) -> _Fit:
    """A function from a penalty to weights [K, D] and biases [K]; each call starts where the last one ended."""
    if loss is _squares and weights is None and not _is_sparse(inputs):
        return _ridge(inputs, golds)
    return _descent(inputs, golds, loss, tolerance, rounds, weights)


def _ridge(inputs: Vectors, golds: Floats) -> _Fit:
    from scipy.linalg import solve  # the import takes a moment

    center, level = inputs.mean(axis=0, dtype=np.float64), golds.mean(axis=0)
    centered = inputs.astype(np.float64) - center
    dual = centered.shape[0] < centered.shape[1]  # the smaller of the two equivalent systems
    products = centered @ centered.T if dual else centered.T @ centered
    right = golds - level if dual else centered.T @ (golds - level)

    def fit(penalty: float) -> tuple[Floats, Floats]:
        solved = solve(products + penalty * np.eye(len(products)), right, assume_a="pos")
        weights = (centered.T @ solved if dual else solved).T
        return weights, level - weights @ center

    return fit


def _descent(
    inputs: Inputs, golds: Floats, loss: "_Loss", tolerance: float, rounds: int, of_examples: Vectors | None
) -> _Fit:
    from scipy.optimize import minimize  # the import takes a moment

    num_outputs, width = golds.shape[1], inputs.shape[1]
    level = golds.mean(axis=0, dtype=np.float64)
    if loss is not _squares:
        share = np.clip(level, 0.5 / len(golds), 1 - 0.5 / len(golds))
        level = np.log(share) if loss is _softmax else np.log(share / (1 - share))
    start = np.concatenate([np.zeros(num_outputs * width), level])

    def objective(values: Floats, penalty: float) -> tuple[float, Floats]:
        weights, biases = values[:-num_outputs].reshape(num_outputs, width), values[-num_outputs:]
        total, slopes = loss(_outputs(inputs, weights, biases), golds, of_examples)  # slopes [E, K]
        by_weight = (inputs.T @ slopes.astype(np.float32)).T.astype(np.float64) + penalty * weights
        gradient = np.concatenate([by_weight.reshape(-1), slopes.sum(axis=0)])
        return (total + penalty / 2 * float((weights**2).sum())) / len(golds), gradient / len(golds)

    def fit(penalty: float) -> tuple[Floats, Floats]:
        nonlocal start
        limits = {"maxiter": rounds, "maxls": 50, "gtol": tolerance, "ftol": 64 * np.finfo(np.float64).eps}
        minimum = minimize(objective, start, args=(penalty,), jac=True, method="L-BFGS-B", options=limits)
        start = minimum.x
        return start[:-num_outputs].reshape(num_outputs, width), start[-num_outputs:]

    return fit


def _outputs(inputs: Inputs, weights: Floats, biases: Floats) -> Floats:
    return np.asarray(inputs @ weights.T.astype(np.float32) + biases)


_Loss = Callable[[Floats, Floats, Vectors | None], tuple[float, Floats]]


def _summed(losses: Floats, slopes: Floats, weights: Vectors | None) -> tuple[float, Floats]:
    """The sum of losses [E, K] by the weights of the examples, and its slopes."""
    if weights is None:
        return float(losses.sum()), slopes
    by_example = weights.astype(np.float64)[:, None]
    return float((by_example * losses).sum()), by_example * slopes


def _squares(outputs: Floats, golds: Floats, weights: Vectors | None = None) -> tuple[float, Floats]:
    """Half the summed squared error, and its slopes."""
    away = outputs - golds
    total, slopes = _summed(away**2, away, weights)
    return total / 2, slopes


def _softmax(logits: Floats, golds: Floats, weights: Vectors | None = None) -> tuple[float, Floats]:
    """The summed cross-entropy of logits [E, K], and its slopes."""
    exact = logits.astype(np.float64)
    exact -= exact.max(axis=1, keepdims=True)
    chances = np.exp(exact)
    sums = chances.sum(axis=1, keepdims=True)
    return _summed(golds * (np.log(sums) - exact), chances / sums - golds, weights)


def _sigmoids(logits: Floats, golds: Floats, weights: Vectors | None = None) -> tuple[float, Floats]:
    """The summed binary cross-entropy of logits [E, K], and its slopes."""
    exact = logits.astype(np.float64)
    chances = np.exp(-np.logaddexp(0.0, -exact))
    return _summed(np.logaddexp(0.0, exact) - golds * exact, chances - golds, weights)
