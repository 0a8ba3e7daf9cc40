"""Learning rates as pure functions of the step.

`step` is always the number of updates already made, so the first update has `step` 0, and with warm-up a learning rate
of 0. Nothing here has state: the learning rate of step 70,000 is known without taking the steps before it. A run whose
number of steps changed is between the steps of its schedule (`pace.py`), so a step may be a fraction.
"""

import math
from collections.abc import Callable

from bertsmith.base.core.errors import ConfigError

_RATIO = 32  # of the highest to the lowest rate of slanted triangles


def tf_linear(step: float, *, peak: float, warmup: int, total: int) -> float:
    """The learning rate of the 2018 code: linear warm-up, then linear decay along the line from `peak` at step 0.

    This causes a small drop at the end of the warm-up. Source: `create_optimizer` in the original `optimization.py`.

    >>> [tf_linear(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 5, 10)]
    [0.0, 0.5, 0.8, 0.5, 0.0]
    """
    if step < warmup:
        return peak * step / warmup
    return peak * max(0.0, 1.0 - step / total)


def hf_linear(step: float, *, peak: float, warmup: int, total: int) -> float:
    """The linear schedule of Hugging Face: linear warm-up, then linear decay from `peak` at the end of the warm-up.

    >>> [hf_linear(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return peak * step / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))


def constant(step: float, *, peak: float, warmup: int, total: int) -> float:
    """Linear warm-up, then `peak` to the end.

    >>> [constant(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return peak * step / warmup if step < warmup else peak


def slanted_triangular(step: float, *, peak: float, warmup: int, total: int) -> float:
    """Linear from a 32nd of `peak` to `peak` in the warm-up, then linear back to a 32nd at the end.

    Source: Howard and Ruder (2018), section 3.2, with the cut at the end of the warm-up (a tenth of the steps there).

    >>> [slanted_triangular(t, peak=32.0, warmup=10, total=100) for t in (0, 5, 10, 55, 100)]
    [1.0, 16.5, 32.0, 16.5, 1.0]
    """
    share = step / warmup if step < warmup else max(0.0, (total - step) / max(1, total - warmup))
    return peak * (1 + share * (_RATIO - 1)) / _RATIO


def cosine(step: float, *, peak: float, warmup: int, total: int) -> float:
    """Linear warm-up, then half a period of a cosine from `peak` to 0 at the end.

    Source: Radford et al. (2018), section 4.1.

    >>> [round(cosine(t, peak=1.0, warmup=2, total=10), 3) for t in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return peak * step / warmup
    share = min(1.0, (step - warmup) / max(1, total - warmup))
    return peak * (1 + math.cos(math.pi * share)) / 2


def noam(step: float, *, peak: float, warmup: int, total: int) -> float:
    """Linear warm-up to `peak`, then a fall with the inverse square root of the step.

    With a peak of (width * warmup)**-0.5 it is width**-0.5 * min(n**-0.5, n * warmup**-1.5), where n is the step
    counted from 1.

    Source: Vaswani et al. (2017), section 5.3.

    >>> [noam(t, peak=1.0, warmup=4, total=100) for t in (0, 1, 3, 15, 63)]
    [0.25, 0.5, 1.0, 0.5, 0.25]
    """
    number, rising = step + 1, max(1, warmup)
    return peak * min(number / rising, math.sqrt(rising / number))


SCHEDULES: dict[str, Callable[..., float]] = {
    "tf_linear": tf_linear,
    "hf_linear": hf_linear,
    "constant": constant,
    "slanted_triangular": slanted_triangular,
    "cosine": cosine,
    "noam": noam,
}


def learning_rate(schedule: str, step: float, *, peak: float, warmup: int, total: int) -> float:
    """The learning rate of the update after `step` updates."""
    if schedule not in SCHEDULES:
        raise ConfigError.unknown("schedule", schedule, SCHEDULES)
    return SCHEDULES[schedule](step, peak=peak, warmup=warmup, total=total)
