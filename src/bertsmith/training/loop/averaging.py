"""Averaged SGD that starts to average when held-out text no longer improves: NT-ASGD.

SGD with a constant learning rate moves around an optimum; the average of its parameters is nearer to it. The average
begins at the first evaluation whose value is worse than the best one of those that are more than `NONMONOTONE`
evaluations ago. From then on the average is what is evaluated, selected and saved, while the steps continue from the
parameters themselves.

Source: Merity, Keskar and Socher (2018), "Regularizing and Optimizing LSTM Language Models", section 3 and algorithm 1.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from bertsmith.base.core.settings import require
from bertsmith.training.loop.optimizer import Optimizer, ParameterGroup, WithGradients

NONMONOTONE = 5  # n of the paper


class AveragedSgd(Optimizer):
    """SGD, and from some step on the average of the parameters after each step.

    Per tensor: p -= rate (g + decay p); once it averages, m is the mean of p after each update since then.
    """

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]
        # The number of updates that are averaged; -1 before. A tensor, because it is part of the state on disk.
        self._averaged = torch.full((), -1, dtype=torch.int64)

    @staticmethod
    def num_moments(group: ParameterGroup) -> int:
        """The average alone."""
        return 1

    @property
    def is_averaging(self) -> bool:
        """Whether the parameters are averaged."""
        return int(self._averaged) >= 0

    def start_averaging(self) -> None:
        """Averages from the next update on; does nothing if it averages already."""
        if not self.is_averaging:
            self._averaged.zero_()

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Updates every parameter that has a gradient, and the average of all."""
        super().step(learning_rate)
        if not self.is_averaging:
            return
        self._averaged += 1
        for group in self.groups:
            averages = [self.moments[name][0] for name in group.names]
            torch._foreach_lerp_(
                averages, [parameter.detach() for parameter in group.parameters], 1 / int(self._averaged)
            )

    def _update(self, tensors: WithGradients, learning_rate: float) -> None:
        if tensors.group.decay:
            torch._foreach_mul_(tensors.parameters, 1 - learning_rate * tensors.group.decay)
        torch._foreach_add_(tensors.parameters, tensors.gradients, alpha=-learning_rate)

    def reset(self) -> None:
        """Resets the average, as if no update had been made."""
        super().reset()
        self._averaged.fill_(-1)

    def state_tensors(self) -> dict[str, Tensor]:
        """The averages as `m.<parameter>`, and the number of updates in them."""
        return {**super().state_tensors(), "averaged": self._averaged}

    @contextlib.contextmanager
    def averages(self) -> Iterator[None]:
        """Has the averages as the parameters inside the block, if there are any."""
        if int(self._averaged) <= 0:
            yield
            return
        with torch.no_grad():
            before = [[tensor.clone() for tensor in group.parameters] for group in self.groups]
            self.take_averages()
        try:
            yield
        finally:
            with torch.no_grad():
                for group, kept in zip(self.groups, before, strict=True):
                    for parameter, value in zip(group.parameters, kept, strict=True):
                        parameter.copy_(value)

    @torch.no_grad()
    def take_averages(self) -> None:
        """Replaces the parameters by their averages, if there are any."""
        if int(self._averaged) > 0:
            for group in self.groups:
                for name, parameter in zip(group.names, group.parameters, strict=True):
                    parameter.copy_(self.moments[name][0])


def require_averaging(processes: int, directions: Mapping[str, bool]) -> None:
    """Checks that it can be seen when held-out text no longer improves."""
    require(
        "loss" in directions,
        expected="a held-out loss, from which nt-asgd sees when to average",
        found="no held-out documents" if not directions else "other values",
        fix="build the corpus with --held-out, or use another optimizer",
    )
    require(
        processes == 1,
        expected="one process for nt-asgd",
        found=f"{processes} processes",
        fix="start it without torchrun, or use another optimizer",
    )


def no_longer_improves(values: Sequence[float]) -> bool:
    """Whether the last of the values so far, lower is better, is worse than the best of those long before it.

    >>> no_longer_improves([5, 4, 3, 3, 3, 3, 3.5]), no_longer_improves([5, 4, 3, 3, 3, 3.5])
    (False, False)
    >>> no_longer_improves([5, 4, 3, 3, 3, 3, 3, 3.5, 3.2])
    True
    """
    return len(values) > NONMONOTONE + 1 and values[-1] > min(values[: -1 - NONMONOTONE])
