"""Calibration of probabilities, the temperature that calibrates them, and the threshold between two classes.

Letters: E examples, K classes. The confidence of an example is its highest probability.

Source: Guo et al., "On Calibration of Modern Neural Networks" (2017), sections 2 and 4.2.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator

FEWEST_GOLD = 5  # examples of a label, for a threshold of its own
LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0
_MOST_TRIED = 200  # thresholds; of more different probabilities, their quantiles
_USUAL = 0.5
FOLDS = 5  # of the dev examples, for scores with fitted thresholds

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class ReliabilityBin(NamedTuple):
    """The examples whose confidence falls into one bin."""

    confidence: float
    accuracy: float
    num_examples: int


def softmax(logits: Floats) -> Floats:
    """The probabilities of logits [..., K] over their last axis.

    >>> softmax(np.log([1.0, 2.0, 1.0])).round(6).tolist()
    [0.25, 0.5, 0.25]
    """
    shifted = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def reliability(probabilities: npt.ArrayLike, gold: npt.ArrayLike, bins: int = 10) -> list[ReliabilityBin]:
    """Confidence and accuracy in bins of equal width, lowest confidence first; empty bins are left out.

    Args:
        probabilities: float [E, K].
        gold: int [E], the correct class of each example.
        bins: the number of bins between 0 and 1; each includes its upper edge.
    """
    assert bins >= 1, bins
    values, classes = _examples(probabilities, gold)
    if not (values.min() >= 0.0 and values.max() <= 1.0 + 1e-6):
        raise InputError(
            expected="probabilities from 0 to 1",
            found=f"values from {values.min():g} to {values.max():g}",
            fix="give softmax(logits / temperature), not logits",
        )
    confidence = values.max(axis=1)
    right = values.argmax(axis=1) == classes
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    return [
        ReliabilityBin(float(confidence[inside].mean()), float(right[inside].mean()), int(inside.sum()))
        for inside in (bin_of == number for number in np.unique(bin_of))
    ]


def expected_calibration_error(probabilities: npt.ArrayLike, gold: npt.ArrayLike, bins: int = 10) -> float:
    """The mean gap between confidence and accuracy over the bins, weighted by their examples; from 0 to 1.

    >>> round(expected_calibration_error([[0.8, 0.2]] * 5, [0, 0, 0, 0, 1]), 6)
    0.0
    >>> round(expected_calibration_error([[0.8, 0.2]] * 5, [1, 1, 1, 1, 1]), 6)
    0.8
    """
    parts = reliability(probabilities, gold, bins)
    total = sum(part.num_examples for part in parts)
    return sum(part.num_examples * abs(part.accuracy - part.confidence) for part in parts) / total


def fit_temperature(logits: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """The temperature T for which softmax(logits / T) has the lowest mean negative log-likelihood of the gold classes.

    It is between `LOWEST_TEMPERATURE` and `HIGHEST_TEMPERATURE`: the lower bound if every example is correct (no
    temperature is low enough), the upper bound if the logits are no better than chance. Logits that are equal for all
    classes give 1.

    Args:
        logits: float [E, K].
        gold: int [E].
    """
    from scipy.optimize import brentq  # the import takes a second, which predictions need not wait for

    values, classes = _examples(logits, gold)
    right = values[np.arange(len(values)), classes]

    def slope(inverse: float) -> float:
        """The derivative of the loss with respect to 1 / T; the loss is convex in 1 / T, so the root is the minimum."""
        expected = np.sum(softmax(values * inverse) * values, axis=1)
        return float(np.mean(expected - right))

    at_highest, at_lowest = slope(1.0 / HIGHEST_TEMPERATURE), slope(1.0 / LOWEST_TEMPERATURE)
    if at_highest == at_lowest == 0.0:
        return 1.0
    if at_highest >= 0.0:
        return HIGHEST_TEMPERATURE
    if at_lowest <= 0.0:
        return LOWEST_TEMPERATURE
    return 1.0 / float(brentq(slope, 1.0 / HIGHEST_TEMPERATURE, 1.0 / LOWEST_TEMPERATURE))


def _examples(values: npt.ArrayLike, gold: npt.ArrayLike) -> tuple[Floats, Ints]:
    """Both as validated arrays, float64 [E, K] and int64 [E]."""
    table, classes = np.asarray(values, dtype=np.float64), np.asarray(gold, dtype=np.int64)
    if table.ndim != 2 or classes.shape != table.shape[:1] or not table.size:
        raise InputError(
            expected="a row of class values for each gold class, at least one",
            found=f"values of shape {list(table.shape)}, gold classes of shape {list(classes.shape)}",
            fix="predict every example that has a gold label",
        )
    if classes.min() < 0 or classes.max() >= table.shape[1]:
        raise InputError(
            expected=f"gold classes from 0 to {table.shape[1] - 1}",
            found=f"classes from {classes.min()} to {classes.max()}",
            fix="score with the labels that the model was trained on",
        )
    if not np.isfinite(table).all():
        raise InputError(
            expected="finite values",
            found=f"{table[~np.isfinite(table)][0]}",
            fix="find its cause before scoring",
        )
    return table, classes


def best_label_threshold(
    gold: npt.NDArray[np.bool_], chances: Floats, metric: Callable[[npt.ArrayLike, npt.ArrayLike], float]
) -> float:
    """The probability from which labels are predicted that gives the highest score, 0.01 to 0.99.

    Of equally good ones, the closest to 0.5.

    Args:
        gold: bool [E, K].
        chances: the probability of each label, [E, K].
        metric: a score of gold and predicted labels, bool [E, K] each; higher is better.
    """
    tried = _hundredths(_USUAL)
    scores = [metric(gold, chances >= threshold) for threshold in tried.tolist()]
    return float(tried[int(np.argmax(scores))])


def _hundredths(near: float) -> Floats:
    """0.01 to 0.99, those closest to `near` first."""
    tried = np.arange(1, 100) / 100
    return np.asarray(tried[np.argsort(np.abs(tried - near), kind="stable")])


def best_thresholds_of_labels(
    gold: npt.NDArray[np.bool_], chances: Floats, common: float, *, macro: bool
) -> tuple[float, ...]:
    """A threshold for each label, 0.01 to 0.99: of a label that is gold in few examples the common one, else the best.

    For the best macro F1, each label is fitted alone. For the best micro F1, one label is changed at a time, the others
    fixed, until no change helps. Of equally good thresholds, the closest to the common one. A decision about one label
    is taken to change no other label; the caller has to score the thresholds again where it does (a label hierarchy).

    Args:
        gold: bool [E, K].
        chances: the probability of each label, [E, K].
        common: the threshold that the search starts from, a multiple of 0.01; see `best_label_threshold`.

    Source: Yang, "A Study of Thresholding Strategies for Text Categorization" (2001), "SCut", for the fit of each label
    alone.
    """
    tried = _hundredths(common)  # [T]
    predicted = np.stack([(chances >= threshold).sum(axis=0) for threshold in tried.tolist()], axis=1)  # [K, T]
    right = np.stack([(gold & (chances >= threshold)).sum(axis=0) for threshold in tried.tolist()], axis=1)  # [K, T]
    asked = gold.sum(axis=0)  # [K]
    chosen = np.zeros(len(asked), dtype=np.int64)  # of those tried; the first is the common one
    fitted = np.flatnonzero(asked >= FEWEST_GOLD)
    if macro:
        chosen[fitted] = (2 * right[fitted] / (asked[fitted, None] + predicted[fitted])).argmax(axis=1)
        return tuple(tried[chosen].tolist())
    changed = True
    while changed:
        changed = False
        for label in fitted.tolist():
            others = np.arange(len(asked)) != label
            rights = right[others, chosen[others]].sum() + right[label]  # [T]
            scores = 2 * rights / (asked.sum() + predicted[others, chosen[others]].sum() + predicted[label])
            best = int(scores.argmax())
            if scores[best] > scores[chosen[label]]:
                chosen[label], changed = best, True
    return tuple(tried[chosen].tolist())


def best_threshold(
    gold: npt.NDArray[np.integer],
    chances: npt.NDArray[np.floating],
    metric: Callable[[npt.ArrayLike, npt.ArrayLike], float],
) -> float:
    """The probability from which class 1 is predicted that gives the highest score, from 0 to 1.

    Tried are the points halfway between neighboring probabilities, and 0.5. Of equally good ones, the closest to 0.5.

    Args:
        gold: the class of each example, int64 [E].
        chances: the probability of class 1, [E].

    >>> from bertsmith.tasks.metrics.labels import accuracy
    >>> best_threshold(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.3, 0.9]), accuracy)
    0.25
    """
    values = np.unique(chances)
    tried = (values[1:] + values[:-1]) / 2
    if len(tried) > _MOST_TRIED:
        tried = np.unique(np.quantile(tried, np.linspace(0, 1, _MOST_TRIED)))
    tried = np.append(tried, _USUAL)
    tried = tried[np.argsort(np.abs(tried - _USUAL), kind="stable")]
    scores = [metric(gold, (chances >= threshold).astype(np.int64)) for threshold in tried.tolist()]
    return float(tried[int(np.argmax(scores))])


def all_but_one_fold(count: int) -> Iterator[npt.NDArray[np.bool_]]:
    """For each fold of the examples, which of them belong to the other folds, [count]."""
    fold = generator(0, "folds of a threshold").permutation(count) % min(FOLDS, count)
    for number in np.unique(fold):
        yield fold != number
