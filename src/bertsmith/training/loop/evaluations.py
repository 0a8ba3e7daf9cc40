"""The evaluations of a run: their held-out values by step, and the step with the best one."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bertsmith.base.core.errors import ConfigError, nearest

PREFIX = "held_out_"


class Evaluations:
    """The held-out values of each evaluated step.

    Args:
        keep_best: the value to keep the best model by, without its prefix, or None.
    """

    def __init__(
        self, lines: Iterable[Mapping[str, Any]], keep_best: str | None, directions: Mapping[str, bool]
    ) -> None:
        self._by_step: dict[int, Mapping[str, Any]] = {int(line["step"]): line for line in lines}
        self._name = f"{PREFIX}{keep_best}"
        if keep_best is not None and keep_best not in directions:
            raise ConfigError(
                expected="a held-out value to keep the best model by",
                found=repr(keep_best),
                fix=nearest(keep_best, directions) if directions else "evaluate on held-out data, or omit keep_best",
            )
        self._sign = 1 if keep_best is None or directions[keep_best] else -1

    def __contains__(self, step: int) -> bool:
        return step in self._by_step

    def add(self, step: int, tokens: int, values: Mapping[str, float]) -> None:
        """Adds an evaluation."""
        self._by_step[step] = {"tokens": tokens, **values}

    def tokens(self, step: int) -> int:
        """The real tokens up to an evaluated step."""
        return int(self._by_step[step]["tokens"])

    def scores(self, step: int) -> dict[str, float]:
        """The held-out values after a step, with their prefix; empty if it was not evaluated."""
        return {name: value for name, value in self._by_step.get(step, {}).items() if name.startswith(PREFIX)}

    def until(self, step: int) -> dict[int, dict[str, float]]:
        """The held-out values of each evaluation up to a step, without their prefix."""
        return {
            seen: {name.removeprefix(PREFIX): value for name, value in self.scores(seen).items()}
            for seen in sorted(self._by_step)
            if seen <= step
        }

    def losses(self, until: int) -> list[float]:
        """The held-out loss after each evaluated step from 1 to `until`, in order."""
        name = f"{PREFIX}loss"
        return [float(line[name]) for step, line in sorted(self._by_step.items()) if 0 < step <= until and name in line]

    def best_step(self) -> int | None:
        """The first step after which the value of `keep_best` was best; None if it was never a finite number."""
        seen = {step: line[self._name] for step, line in self._by_step.items() if step and self._name in line}
        finite: dict[int, float] = {step: value for step, value in seen.items() if math.isfinite(value)}
        if not finite:
            return None
        return max(finite, key=lambda step: (self._sign * finite[step], -step))

    def since_best(self) -> int:
        """The number of evaluations after the best one; 0 if there is none."""
        best = self.best_step()
        return 0 if best is None else sum(step > best for step in self._by_step)
