"""The interface between the training loop and its work: the batches of each step, the loss, the evaluation.

Pre-training and fine-tuning are workloads. The loop knows nothing about text, and a workload knows nothing about
learning rates, checkpoints or time.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.machine.runtime import ALONE, Rank
from bertsmith.training.loop.pace import Pace


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """The work of one rank in one optimizer step.

    Attributes:
        micro_batches: the batches of one forward and backward pass each; at least one on every rank.
        tokens: real tokens in the whole step, over all ranks.
        sequences: sequences in the whole step, over all ranks.
        everyone: the micro-batches of all ranks, in their order, if the loss compares what is in them.
    """

    micro_batches: Sequence[Any]
    tokens: int
    sequences: int
    everyone: Sequence[Any] = ()


class Workload(abc.ABC):
    """A model and the work that trains it.

    Everything is a function of (seed, step): the loop may ask for any step at any time, in another process, from
    another thread (`plan` only), or twice. What a step continues from, besides the model, is in `carried`.

    Attributes:
        model: the model to train, on its device.
        lanes: how many micro-batches may be computed side by side, in threads of one process; more than one only if
            `loss` draws nothing from torch's generators and changes nothing in the model.
        precision: the type of the matrix products, which advice about losses that are not finite takes into account.
        uses_other_parameters: whether `loss` may use parameters that a forward pass of the model does not use, or leave
            out some that it does; several processes then exchange gradients after the backward passes, not during them.
            If the model is divided among them, other parameters have to be in modules of their own, see `divide_part`.
    """

    model: nn.Module
    lanes: int = 1
    precision: str = "fp32"
    uses_other_parameters: bool = False

    def rate_factor(self, name: str) -> float:
        """The factor on the learning rate of the parameter with this name; by default 1 for all."""
        return 1.0

    def step_rate(self, step: int) -> float:
        """The factor on all learning rates in a step, counted from 0; by default 1."""
        return 1.0

    def trains(self, name: str, step: int) -> bool:
        """Whether a step changes the parameter with this name; by default always.

        A parameter that is not trained yet (gradual unfreezing) keeps its value and its moments.
        """
        return True

    def recompute(self) -> None:
        """Makes the model compute the states inside its layers again in the backward pass, instead of keeping them."""
        raise ConfigError(
            expected="a model with layers, to compute them again in the backward pass",
            found=type(self.model).__name__,
            fix="leave activation_checkpointing out",
        )

    def carried(self, step: int) -> Mapping[str, Tensor]:
        """The tensors besides the model that a step continues from; by default none.

        The loop asks for them when it writes a checkpoint after `step` steps. They were computed by the steps before.
        """
        return {}

    def carry(self, step: int, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027 - most workloads carry nothing
        """Receives the tensors that `carried` returned for a step; none, to begin without any.

        The loop calls it when it resumes, and after trial steps, whose states belong to no run.
        """

    def fix_steps(self, total: int) -> None:  # noqa: B027 - most workloads do not depend on it
        """Receives the number of steps of the run before the loop asks for plans; by default does nothing.

        This is for workloads that depend on the length of the run (a length curriculum). It may be called twice: a run
        with a budget in minutes does its trial steps as a run of another length.
        """

    @property
    def has_even_steps(self) -> bool:
        """Whether all steps of a run take about the same time, so that the last ones tell how long the rest will take.

        A run with a budget in minutes whose steps are faster than planned gets more of them only if they do.
        """
        return False

    def change_pace(self, pace: Pace) -> None:  # noqa: B027 - most workloads do not depend on it
        """Receives the new pace when the number of steps changes during the run; by default does nothing.

        The steps up to the change are the same in the old and the new pace.
        """

    def note_evaluations(self, evaluations: Mapping[int, Mapping[str, float]]) -> None:  # noqa: B027 - most need none
        """Receives the held-out values of all evaluations so far, by step, when it changes; by default does nothing.

        The loop calls it after each evaluation, and when it resumes. What the loss depends on them is then the same in
        a resumed run.
        """

    @abc.abstractmethod
    def plan(self, step: int, rank: int, world: int) -> StepPlan:
        """The work of `rank` out of `world` ranks in step `step`, counted from 0. Called from another thread."""

    def operations(self, plan: StepPlan) -> float:
        """The floating-point operations of the matrix products of the micro-batches of a plan; 0 if not counted."""
        return 0.0

    def begin_step(self, model: nn.Module, plan: StepPlan) -> None:  # noqa: B027 - most losses are sums
        """Computes what the losses of the micro-batches of a step share; by default does nothing.

        The loop calls it before the first `loss` of a step, with the same arguments.
        """

    @abc.abstractmethod
    def loss(self, model: nn.Module, micro_batch: Any) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The contribution of a micro-batch to the loss of the whole step, and sums for the log.

        The loss is a scalar that is already divided by the totals of the whole step (all micro-batches of all ranks),
        so the contributions add up to the loss. The sums are detached scalars that add up as well ("mlm_nll",
        "mlm_count"); every micro-batch has the same names. `model` is the workload's model or a wrapper around it that
        exchanges gradients: it is called once, as `model(...)`.
        """

    @abc.abstractmethod
    def summarize(self, sums: Mapping[str, float]) -> Mapping[str, float]:
        """The values of a log line, from the sums of one or several steps over all ranks."""

    def higher_is_better(self) -> Mapping[str, bool]:
        """The values of `evaluate` that can select a model, with whether a higher one is better; by default none."""
        return {}

    def evaluate(self, model: nn.Module, rank: Rank = ALONE) -> Mapping[str, float]:
        """Metrics on held-out data; by default none. Runs in evaluation mode, without gradients.

        All processes that train together call it, and each returns the metrics of all the data. They may divide the
        work among them; of a divided `model`, each has to make as many passes as the others (`Rank.dealt`).
        """
        return {}
