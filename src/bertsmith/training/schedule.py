"""Learning rates as pure functions of the step.

`step` is always the number of updates already done, so the first update has `step` 0, and rate 0 where there
is a warm-up. Nothing here has a state: the rate of step 70,000 is known without taking the steps before it.
"""

from collections.abc import Callable

from bertsmith.errors import ConfigError, nearest


def tf_linear(step: int, *, peak: float, warmup: int, total: int) -> float:
    """The rate of the 2018 code: a linear rise, then a fall on the line that starts at `peak` at step 0.

    So there is a small drop at the end of the warm-up. Source: `create_optimizer` of the original
    `optimization.py`.

    >>> [tf_linear(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 5, 10)]
    [0.0, 0.5, 0.8, 0.5, 0.0]
    """
    if step < warmup:
        return peak * step / warmup
    return peak * max(0.0, 1.0 - step / total)


def hf_linear(step: int, *, peak: float, warmup: int, total: int) -> float:
    """The linear rate of Hugging Face: the fall starts at `peak` where the warm-up ends.

    >>> [hf_linear(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 6, 10)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if step < warmup:
        return peak * step / warmup
    return peak * max(0.0, (total - step) / max(1, total - warmup))


def constant(step: int, *, peak: float, warmup: int, total: int) -> float:
    """A linear rise, then `peak` to the end.

    >>> [constant(t, peak=1.0, warmup=2, total=10) for t in (0, 1, 2, 10)]
    [0.0, 0.5, 1.0, 1.0]
    """
    return peak * step / warmup if step < warmup else peak


SCHEDULES: dict[str, Callable[..., float]] = {"tf_linear": tf_linear, "hf_linear": hf_linear, "constant": constant}


def learning_rate(schedule: str, step: int, *, peak: float, warmup: int, total: int) -> float:
    """The rate of the update that follows `step` updates.

    Args:
        schedule: "tf_linear", "hf_linear" or "constant".
        step: updates already done.
        peak: the highest rate.
        warmup: steps of the linear rise; 0 for none.
        total: steps of the whole run.

    Raises:
        ConfigError: the schedule is unknown.
    """
    if schedule not in SCHEDULES:
        raise ConfigError(expected="a known schedule", found=repr(schedule), fix=nearest(schedule, SCHEDULES))
    return SCHEDULES[schedule](step, peak=peak, warmup=warmup, total=total)
