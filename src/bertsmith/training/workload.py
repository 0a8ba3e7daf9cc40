"""What the training loop receives: the work of each step, its loss, its evaluation.

Pre-training and fine-tuning are workloads. The loop knows nothing of text, and a workload knows nothing of
learning rates, checkpoints or time.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The work of one rank in one optimizer step.

    Attributes:
        micro_batches: what is run forward and backward at a time; at least one on every rank.
        tokens: real tokens of the whole step, over all ranks.
        sequences: sequences of the whole step, over all ranks.
    """

    micro_batches: Sequence[Any]
    tokens: int
    sequences: int


class Workload(abc.ABC):
    """A model and the work that trains it.

    Everything is a function of (seed, step): the loop may ask for any step at any time, in another process,
    from another thread (`plan` only), or twice.

    Attributes:
        model: what is trained, on the device where it is trained.
    """

    model: nn.Module

    def rate_factor(self, name: str) -> float:
        """The fraction of the learning rate that the parameter of this name is trained with; by default 1 for all."""
        return 1.0

    def fix_steps(self, total: int) -> None:  # noqa: B027 - most workloads do not depend on it
        """Receives the number of steps of the run, before the loop asks for its plans; by default ignores it.

        A workload whose work depends on the length of the run (a length curriculum) takes it from here. It
        may be called twice: a run with a budget in minutes makes its trial steps as a run of another length.
        """

    @abc.abstractmethod
    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The work of `rank` among `world` ranks in step `step`, counted from 0. Called from a thread."""

    @abc.abstractmethod
    def loss(self, model: nn.Module, micro_batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The part of a micro-batch in the loss of the whole step, and sums to be logged.

        The loss is a scalar that is already divided by the totals of the whole step (all micro-batches of all
        ranks), so that the parts add up to the loss. The sums are detached scalars that add up as well
        ("mlm_nll", "mlm_count"); every micro-batch has the same names. `model` is the workload's model or a
        wrapper around it that exchanges gradients: it is called once, as `model(...)`.
        """

    @abc.abstractmethod
    def summarize(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """The values of a line of the log, from the sums of one or several steps over all ranks."""

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Values on held-out data, by default none. Runs in evaluation mode, without gradients."""
        return {}
