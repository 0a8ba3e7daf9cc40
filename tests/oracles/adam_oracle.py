"""BERT's Adam and LAMB, one number at a time, straight from the papers' formulas."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def bert_adam(
    start: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    bias_correction: bool = False,
) -> Array:
    """The parameter after one update for each gradient."""
    p = start.copy()
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        for i in np.ndindex(p.shape):
            update = _adam_update(m, v, g, i, t, beta1, beta2, epsilon, bias_correction) + decay * p[i]
            p[i] = p[i] - rate * update
    return p


def lamb(
    start: Array,
    gradients: Sequence[Array],
    rates: Sequence[float],
    *,
    decay: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    bias_correction: bool = False,
    adapted: bool = True,
) -> Array:
    """The parameter after one update for each gradient; the trust ratio is 1 if the tensor is not `adapted`."""
    p = start.copy()
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, (g, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        update = np.zeros_like(p)
        for i in np.ndindex(p.shape):
            update[i] = _adam_update(m, v, g, i, t, beta1, beta2, epsilon, bias_correction) + decay * p[i]
        size, length = math.sqrt((p**2).sum()), math.sqrt((update**2).sum())
        ratio = size / length if adapted and size > 0 and length > 0 else 1.0
        p = p - rate * ratio * update
    return p


def _adam_update(
    m: Array,
    v: Array,
    g: Array,
    i: tuple[int, ...],
    t: int,
    beta1: float,
    beta2: float,
    epsilon: float,
    bias_correction: bool,
) -> float:
    m[i] = beta1 * m[i] + (1 - beta1) * g[i]
    v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i]
    first, second = m[i], v[i]
    if bias_correction:
        first, second = first / (1 - beta1**t), second / (1 - beta2**t)
    return float(first / (math.sqrt(second) + epsilon))
