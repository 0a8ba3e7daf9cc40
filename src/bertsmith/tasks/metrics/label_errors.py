"""Labels that are probably wrong, by the probabilities of models that were not trained on them: confident learning.

Each label has a threshold, the mean probability that its own examples get for it. An example is confidently of the
label with the highest probability among those that reach their thresholds; where that is not the label that it has, and
another one is more likely, the label is probably wrong.

Letters: E examples, K labels.

Source: Northcutt, Jiang and Chuang (2021), "Confident Learning: Estimating Uncertainty in Dataset Labels", sections 3.1
(thresholds and the confident joint) and 3.2 (ranking by normalized margin).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NO_LABEL = -1
_MOST_ROUNDS = 200  # of expectation maximization


def label_thresholds(probabilities: Floats, labels: Ints) -> Floats:
    """The mean probability of each label over the examples that have it, [K]; infinity for a label that none has.

    Args:
        probabilities: [E, K], of models that were not trained on the example.
        labels: the labels that the examples have, [E].

    >>> label_thresholds(np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]), np.array([0, 0, 1])).tolist()
    [0.7, 0.8]
    """
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    sums = np.bincount(labels, weights=_of_labels(probabilities, labels), minlength=probabilities.shape[1])
    thresholds: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    return thresholds


def confident_labels(probabilities: Floats, labels: Ints) -> Ints:
    """The label that each example confidently has, [E]; `NO_LABEL` where no label reaches its threshold.

    >>> confident_labels(np.array([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 0, 1, 1])).tolist()
    [0, 1, 0, 1]
    """
    reached = np.where(probabilities >= label_thresholds(probabilities, labels), probabilities, -np.inf)
    return np.where(np.isfinite(reached.max(axis=1)), reached.argmax(axis=1), NO_LABEL).astype(np.int64)


def probably_wrong(probabilities: Floats, labels: Ints, confident: Ints) -> npt.NDArray[np.bool_]:
    """Whether each example confidently has another label, and its own is not the most likely one, [E].

    A common label has a high threshold, so an example may miss it and reach that of a rare label, which is less likely.

    >>> probably_wrong(np.array([[0.6, 0.4], [0.4, 0.6]]), np.array([0, 0]), np.array([1, 1])).tolist()
    [False, True]
    """
    is_other = (confident != NO_LABEL) & (confident != labels)
    return np.asarray(is_other & (normalized_margins(probabilities, labels) < 0))


def joint_counts(confident: Ints, labels: Ints, num_labels: int) -> Floats:
    """Estimated numbers of examples by the label that they have and the one that they should have, [K, K].

    Each row is scaled to the number of examples with its label; a label without any confident example counts as right.
    """
    sure = confident != NO_LABEL
    cells = labels[sure] * num_labels + confident[sure]
    joint = np.bincount(cells, minlength=num_labels**2).reshape(num_labels, num_labels).astype(np.float64)
    totals, counts = joint.sum(axis=1), np.bincount(labels, minlength=num_labels)
    empty = totals == 0
    joint[empty, empty] = 1.0
    return joint * (counts / np.where(empty, 1.0, totals))[:, None]


def share_of_errors(probabilities: Floats, labels: Ints) -> float:
    """The estimated share of examples whose label is wrong.

    >>> share_of_errors(np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.2, 0.8]]), np.array([0, 0, 1, 1]))
    0.25
    """
    joint = joint_counts(confident_labels(probabilities, labels), labels, probabilities.shape[1])
    return float(1.0 - np.trace(joint) / len(labels))


def share_probably_wrong(probabilities: Floats, labels: Ints) -> float:
    """The share of examples whose label is probably wrong.

    Where most examples have one label, such as words outside of entities, it is nearer to the share of errors than
    `share_of_errors`, which takes every example without a confident label for one like the others of its label.
    """
    return float(probably_wrong(probabilities, labels, confident_labels(probabilities, labels)).mean())


def normalized_margins(probabilities: Floats, labels: Ints) -> Floats:
    """The probability of the label that an example has, less the highest one of the others, [E]; low where it is wrong.

    >>> normalized_margins(np.array([[0.75, 0.25], [0.75, 0.25]]), np.array([0, 1])).tolist()
    [0.5, -0.5]
    """
    others = probabilities.copy()
    others[np.arange(len(labels)), labels] = -np.inf
    margins: Floats = _of_labels(probabilities, labels) - others.max(axis=1)
    return margins


def mixture_weights(systems: Sequence[Floats], labels: Ints) -> Floats:
    """The weights of systems in the mean of their probabilities that gives the labels the highest likelihood, [S].

    Args:
        systems: the probabilities of each, [E, K].

    Source: Dempster, Laird and Rubin (1977), "Maximum Likelihood from Incomplete Data via the EM Algorithm", for the
    weights of a mixture whose parts are known.

    >>> right, wrong = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.1, 0.9], [0.8, 0.2]])
    >>> mixture_weights([right, wrong], np.array([0, 1])).round(3).tolist()
    [1.0, 0.0]
    """
    likelihoods = np.stack([part[np.arange(len(labels)), labels] for part in systems])  # [S, E]
    likelihoods = np.maximum(likelihoods, np.finfo(np.float64).tiny)
    weights = np.full(len(systems), 1 / len(systems))
    for _ in range(_MOST_ROUNDS):
        shares = weights[:, None] * likelihoods
        weights = (shares / shares.sum(axis=0)).mean(axis=1)
    return weights


def _of_labels(probabilities: Floats, labels: Ints) -> Floats:
    return np.asarray(probabilities[np.arange(len(labels)), labels])
