"""How the accuracy grows with the number of labels, and what more of them would give.

Letters: E examples, P points of the curve.

The share of errors is taken as a power of the number of labels, fitted to the points by least squares in logarithms.

Source: Cortes et al. (1993), "Learning Curves: Asymptotic Values and Rate of Convergence", with 0 as the asymptotic
error.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.recipes.audit.out_of_fold import Features
from bertsmith.tasks.metrics.label_errors import Floats, Ints
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, proportion_interval
from bertsmith.tasks.specs.task import TaskSpec

_SHARES = (0.25, 0.5)  # of the labels that the models of a fold are fitted to, for points before the last one


def learning_curve(
    features: Sequence[Features],
    spec: TaskSpec,
    labels: Ints,
    folds: Ints,
    weights: Floats,
    last: Floats,
    more: int,
    seed: int,
) -> dict[str, Any]:
    """The "curve", accuracies out of fold by the number of labels, and the "forecast" of the gain by `more` of them.

    Args:
        weights: of the features in the mean.
        last: the probabilities with all labels, [E, K].
    """
    order = generator(seed, "learning curve").permutation(len(labels))
    parts = []
    for share in _SHARES:
        systems = [part.out_of_fold(spec, labels, folds, seed, order=order, share=share) for part in features]
        parts.append(np.average(systems, axis=0, weights=weights))
    right = np.stack([part.argmax(axis=1) == labels for part in (*parts, last)], axis=1)  # [E, P]
    fitted = len(labels) * (1 - 1 / len(np.unique(folds)))
    sizes = np.array([share * fitted for share in (*_SHARES, 1.0)])
    curve = [
        {
            "labels": round(size),
            "accuracy": float(column.mean()),
            "interval": list(proportion_interval(int(column.sum()), len(column))),
        }
        for size, column in zip(sizes.tolist(), right.T, strict=True)
    ]
    low, high = bootstrap_interval(right, lambda drawn: gain(drawn, sizes, more), seed=seed, draws=500)
    if right.all():  # no draw has an error; what may be gained is the share that may be wrong all the same
        high = 1 - proportion_interval(len(labels), len(labels))[0]
    return {"curve": curve, "forecast": {"more": more, "gain": gain(right, sizes, more), "interval": [low, high]}}


def gain(right: npt.NDArray[Any], sizes: Floats, more: int) -> float:
    """The accuracy that more labels would add.

    Args:
        right: whether each example is predicted right, [E, P].
        sizes: the number of labels at each point, [P], ascending.

    >>> right = np.arange(1000)[:, None] >= np.array([400, 200, 100])
    >>> round(gain(right, np.array([100.0, 200.0, 400.0]), 400), 3)
    0.05
    """
    errors = ((~right.astype(bool)).sum(axis=0) + 0.5) / (len(right) + 1)  # never 0, of which there is no logarithm
    slope, level = np.polyfit(np.log(sizes), np.log(errors), 1)
    now, then = np.exp(level + min(slope, 0.0) * np.log([sizes[-1], sizes[-1] + more]))
    return float(now - then)
