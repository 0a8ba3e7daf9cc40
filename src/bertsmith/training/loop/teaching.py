"""What a teacher adds to a training: a loss next to the workload's own, and what the records say about it.

A workload that has a teaching runs its model as always, computes its own loss, and hands both over. So learning from a
teacher is the same loop, the same run folder and the same checkpoints with another loss.
"""

import abc
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


class Teaching(abc.ABC):
    """A teacher, as a training sees it."""

    needs_states: bool = False  # whether `loss` reads the student's hidden states, so that its model computes all
    trains_own: bool = True  # whether the workload's own loss has a weight, so that what it trains is worth storing
    # plain values for settings.json, and the digests of the teacher and of what is stored of it; a resumed run must
    # have the same
    record: Mapping[str, Any]
    digests: Mapping[str, str]
    origin: Mapping[str, Any]  # where the student comes from, for the metadata and the card of its model

    def prepare(self, model: nn.Module, seed: int) -> None:  # noqa: B027 - most teachings add nothing
        """Adds parameters to the student that are trained with it but are not part of it; by default none.

        They are in the module `part_names.PROJECTION`, so that checkpoints hold them and model folders do not.
        """

    def initialize(self, model: nn.Module) -> None:  # noqa: B027 - most teachings leave it as it is
        """Sets parameters of the student, in place, before the first step of a new run; by default none."""

    @abc.abstractmethod
    def new_trace(self) -> Any:
        """What records the hidden states of a forward pass of the student (a `Trace`); None if nothing is needed."""

    @abc.abstractmethod
    def loss(
        self, model: nn.Module, micro_batch: Any, output: Any, trace: Any, workload_loss: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The contribution of a micro-batch to the loss of its step, and more sums for the log.

        Args:
            output: what it returned for the micro-batch.
            trace: from `new_trace`, after that forward pass.
            workload_loss: the workload's own loss of the micro-batch, already divided by the totals of the step.
        """

    def figures(self, sums: Mapping[str, float]) -> dict[str, float]:
        """The values of a log line, from the sums of `loss`; by default none."""
        return {}
