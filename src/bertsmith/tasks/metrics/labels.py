"""Scores of predicted classes, each a fraction or a coefficient; none is ever NaN.

Letters: E examples, K classes.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted

Counts = npt.NDArray[np.int64]


def accuracy(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The fraction of examples whose class is correct.

    Args:
        gold: int [E].
        predicted: int [E].
    """
    gold, predicted = _same_examples(gold, predicted, axes=1)
    return float(np.mean(gold == predicted))


def f1(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """F1 of class 1 against all others, the score of MRPC and QQP; 0 if class 1 is neither gold nor predicted.

    >>> f1([1, 1, 0, 0], [1, 0, 1, 0])
    0.5
    """
    gold, predicted = _same_examples(gold, predicted, axes=1)
    return float(_f1(np.sum((gold == 1) & (predicted == 1)), np.sum(gold == 1), np.sum(predicted == 1)))


def macro_f1(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The unweighted mean F1 of the classes that are gold or predicted at least once."""
    table = _confusion_of_present(gold, predicted)
    return float(np.mean(_f1(table.diagonal(), table.sum(axis=1), table.sum(axis=0))))


def micro_f1(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """F1 over the pooled decisions of all classes; with one class per example it equals the accuracy."""
    return accuracy(gold, predicted)


def matthews(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """The Matthews correlation for any number of classes, from -1 to 1; 0 if gold or prediction is constant.

    Source: Gorodkin, "Comparing two K-category assignments by a K-category correlation coefficient" (2004).
    """
    table = _confusion_of_present(gold, predicted)
    in_gold, in_predicted = table.sum(axis=1).astype(np.float64), table.sum(axis=0).astype(np.float64)
    total = in_gold.sum()
    covariance = table.trace() * total - in_gold @ in_predicted
    spread = (total**2 - in_gold @ in_gold) * (total**2 - in_predicted @ in_predicted)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0


CLASS_METRICS: dict[str, Callable[[npt.ArrayLike, npt.ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
}
"""The scores by which the best model of a task can be selected, by name."""


def multi_label_scores(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> dict[str, float]:
    """Scores of examples with any number of classes each: `micro_f1`, `macro_f1` and `subset_accuracy`.

    A class that is never gold or predicted has an F1 of 0 in `macro_f1`; `subset_accuracy` is the fraction of examples
    whose classes are all correct.

    Args:
        gold: bool [E, K].
        predicted: bool [E, K].
    """
    gold, predicted = _same_examples(gold, predicted, axes=2)
    asked, chosen = gold.astype(np.bool_), predicted.astype(np.bool_)
    right, in_gold, in_predicted = (np.sum(part, axis=0) for part in (asked & chosen, asked, chosen))
    return {
        "micro_f1": float(_f1(right.sum(), in_gold.sum(), in_predicted.sum())),
        "macro_f1": float(np.mean(_f1(right, in_gold, in_predicted))) if right.size else 0.0,
        "subset_accuracy": float(np.mean(np.all(asked == chosen, axis=1))),
    }


AT = (1, 5)
AT_METRICS = tuple(f"{name}@{k}" for k in AT for name in ("precision", "recall", "f1"))
"""Scores of the k most probable labels, by name."""


def scores_at(gold: npt.ArrayLike, chances: npt.ArrayLike) -> dict[str, float]:
    """The scores of the k most probable classes of each example, for each k of `AT`, over all examples (micro).

    Precision is the fraction of the k classes that are gold, recall that of the gold classes that are among the k, and
    F1 their harmonic mean. With fewer than k classes, k is their number. Of equal probabilities the first class counts.

    Args:
        gold: bool [E, K].
        chances: the probability of each class, [E, K].

    Source: Lee and Hsiang (2020), "Patent classification by fine-tuning BERT language model", section 4.

    >>> found = scores_at([[1, 1, 0], [0, 0, 1]], [[0.9, 0.1, 0.2], [0.8, 0.1, 0.3]])
    >>> found["precision@1"], found["recall@1"], round(found["f1@1"], 4)
    (0.5, 0.3333333333333333, 0.4)
    """
    gold, chances = _same_examples(gold, chances, axes=2)
    asked = gold.astype(np.bool_)
    ranked = np.argsort(-np.asarray(chances, dtype=np.float64), axis=1, kind="stable")[:, : max(AT)]
    is_hit = np.take_along_axis(asked, ranked, axis=1)
    result = {}
    for k in AT:
        hits, num_chosen = float(is_hit[:, :k].sum()), is_hit[:, :k].size
        result[f"precision@{k}"] = hits / max(num_chosen, 1)
        result[f"recall@{k}"] = hits / max(int(asked.sum()), 1)
        result[f"f1@{k}"] = float(_f1(hits, asked.sum(), num_chosen))
    return result


def confusion(gold: npt.ArrayLike, predicted: npt.ArrayLike, num_labels: int) -> Counts:
    """The number of examples of each gold class (row) predicted as each class (column), int64 [K, K].

    >>> confusion([0, 0, 1], [0, 1, 1], 2).tolist()
    [[1, 1], [0, 1]]
    """
    gold, predicted = _same_examples(gold, predicted, axes=1)
    for classes in (gold, predicted):
        if classes.min() < 0 or classes.max() >= num_labels:
            raise InputError(
                expected=f"classes from 0 to {num_labels - 1}",
                found=f"classes from {classes.min()} to {classes.max()}",
                fix="count all labels of the task",
            )
    cells = gold.astype(np.int64) * num_labels + predicted.astype(np.int64)
    return np.bincount(cells, minlength=num_labels**2).reshape(num_labels, num_labels).astype(np.int64)


def _confusion_of_present(gold: npt.ArrayLike, predicted: npt.ArrayLike) -> Counts:
    """The confusion matrix of the classes that occur, in ascending order."""
    gold, predicted = _same_examples(gold, predicted, axes=1)
    present, numbers = np.unique(np.concatenate([gold, predicted]), return_inverse=True)
    return confusion(numbers[: len(gold)], numbers[len(gold) :], len(present))


def _f1(right: npt.ArrayLike, in_gold: npt.ArrayLike, in_predicted: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """F1 from the counts of one class or many; 0 if all counts are 0."""
    both = np.asarray(in_gold, dtype=np.float64) + np.asarray(in_predicted)
    return np.asarray(2.0 * np.asarray(right) / np.maximum(both, 1.0))


def _same_examples(
    gold: npt.ArrayLike, predicted: npt.ArrayLike, *, axes: int
) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    """Both as arrays, after checking that they have the same shape and at least one example."""
    first, second = np.asarray(gold), np.asarray(predicted)
    if first.shape != second.shape or first.ndim != axes or not len(first):
        raise InputError(
            expected=f"as many predictions as gold labels, at least one, in {counted(axes, 'dimension')}",
            found=f"gold labels of shape {list(first.shape)}, predictions of shape {list(second.shape)}",
            fix="predict every example that has a gold label",
        )
    return first, second
