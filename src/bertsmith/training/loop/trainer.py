"""One optimizer step: forward and backward passes of its micro-batches, sums over ranks, clipping, update."""

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.randomness import derive
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes import distributed, sharding
from bertsmith.base.processes.watch import Watch
from bertsmith.training.loop.averaging import AveragedSgd
from bertsmith.training.loop.guard import StepAbandoned, StopRequest
from bertsmith.training.loop.lanes import Lanes, Loss
from bertsmith.training.loop.optimizer import BertAdam, Lamb, Muon, Optimizer, clip, global_norm
from bertsmith.training.loop.settings import MUON_RATE, TrainSettings
from bertsmith.training.loop.workload import StepPlan, Workload

OPTIMIZERS: dict[str, type[Optimizer]] = {"adam": BertAdam, "lamb": Lamb, "muon": Muon, "nt-asgd": AveragedSgd}


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of one step, summed over its micro-batches and ranks.

    Attributes:
        broken: the ranks whose own part of the loss is not finite.
    """

    loss: float
    gradient_norm: float
    sums: Mapping[str, float]
    stop: bool
    broken: tuple[int, ...] = ()


class Trainer:
    """Model and optimizer of one rank, and the parts of a step; used by `train` and by the budget.

    Args:
        stop: whether a stop was requested; every step shares it with all ranks.
    """

    def __init__(self, workload: Workload, settings: TrainSettings, rank: Rank, stop: StopRequest) -> None:
        self.workload, self.settings, self.rank, self.stop = workload, settings, rank, stop
        if settings.activation_checkpointing:
            workload.recompute()
        self.trained = workload.model
        self.is_divided = sharding.is_divided(self.trained)
        self.optimizer: Optimizer = OPTIMIZERS[settings.optimizer](
            self.trained,
            weight_decay=settings.weight_decay,
            betas=(settings.beta1, settings.beta2),
            epsilon=settings.epsilon,
            bias_correction=settings.bias_correction,
            rate_factor=workload.rate_factor,
            matrix_rate=(settings.muon_rate or MUON_RATE) / settings.learning_rate,
        )
        self._trained = [
            (name, parameter) for name, parameter in self.trained.named_parameters() if parameter.requires_grad
        ]
        # Several processes exchange the gradients of all parameters; one need not compute those of waiting ones.
        self._can_skip = rank.count == 1
        self.device = next(self.trained.parameters()).device
        # Modules of a divided model exchange their own gradients, wherever in the loss they are called.
        self._sums_late = workload.uses_other_parameters and rank.count > 1 and not self.is_divided
        whole = self.is_divided or self._sums_late
        self.model = self.trained if whole else distributed.replicate(workload.model, rank)
        self.watch = Watch(rank) if rank.count > 1 else None
        self._lanes = Lanes(workload.lanes) if workload.lanes > 1 and rank.count == 1 else None

    def plans(self, steps: Iterable[int]) -> Generator[tuple[int, StepPlan]]:
        """Yields each step with its plan; a thread prepares the next plan while the caller works on this one."""
        upcoming = iter(steps)
        with ThreadPoolExecutor(1, "bertsmith-plan") as thread:
            step = next(upcoming, None)
            ranks = self.rank.index, self.rank.count
            future = None if step is None else thread.submit(self.workload.plan, step, *ranks)
            while future is not None and step is not None:
                with self.watch or contextlib.nullcontext():
                    plan = future.result()
                following = next(upcoming, None)
                future = None if following is None else thread.submit(self.workload.plan, following, *ranks)
                yield step, plan
                step = following

    def gradient(self, step: int, plan: StepPlan) -> StepOutcome:
        """Runs all micro-batches of a step and returns the outcome; accumulates gradients in the parameters."""
        if not plan.micro_batches:
            raise ConfigError(
                expected=f"work for each of {self.rank.count} processes in every step",
                found=f"none for process {self.rank.index} in step {step}",
                fix="use larger steps or fewer processes",
            )
        # Code that uses torch's global generators (nn.Dropout) gets the same draws in this step, resumed or not.
        # `torch.manual_seed` does the same for every kind of device, and formats the stack for each in every step.
        seed = derive(self.settings.seed, "step", step, self.rank.index)
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed_all(seed)
        self.optimizer.clear_gradients()
        waiting = [parameter for name, parameter in self._trained if not self.workload.trains(name, step)]
        totals: dict[str, Tensor] = {}
        try:
            for parameter in waiting:
                parameter.requires_grad_(not self._can_skip)
            self.workload.begin_step(self.model, plan)
            for loss, sums in self._losses(plan):
                for name, value in (("", loss), *sums.items()):
                    value = value.to(self.device, torch.float64)
                    totals[name] = totals[name] + value if name in totals else value
            if self._sums_late:
                distributed.sum_gradients([parameter for _, parameter in self._trained], self.rank)
        finally:
            for parameter in waiting:
                parameter.requires_grad_(True)
                parameter.grad = None
        names = sorted(totals)
        flag = torch.tensor(float(self.stop.requested), dtype=torch.float64, device=self.device)
        broken = torch.zeros(self.rank.count, dtype=torch.float64, device=self.device)
        broken[self.rank.index] = (~torch.isfinite(totals[""])).double()
        sums_here = torch.cat([broken, torch.stack([flag, *(totals[name] for name in names)])])
        values = distributed.sum_over_ranks(sums_here, self.rank)
        norm = global_norm(self.optimizer.gradients()).to(self.device, torch.float64)
        if self.is_divided:
            norm = distributed.sum_over_ranks(norm.square(), self.rank).sqrt()
        # The only point of a step at which the host waits for the device.
        known = torch.cat([values, norm.reshape(1)]).tolist()
        wrong = tuple(index for index, is_broken in enumerate(known[: self.rank.count]) if is_broken)
        stop, *numbers, gradient_norm = known[self.rank.count :]
        sums_of_all = dict(zip(names, numbers, strict=True))
        return StepOutcome(sums_of_all.pop(""), gradient_norm, sums_of_all, stop > 0, wrong)

    def _losses(self, plan: StepPlan) -> Iterator[Loss]:
        """The detached loss and the sums of each micro-batch, in order; adds its gradients to the parameters."""
        if self._lanes is not None and len(plan.micro_batches) > 1:
            parameters = [p for p in self.workload.model.parameters() if p.requires_grad]
            results = self._lanes.losses(
                lambda micro_batch: self.workload.loss(self.model, micro_batch), plan.micro_batches, parameters
            )
            with contextlib.closing(results):
                for index, result in enumerate(results, start=1):
                    yield result
                    if index < len(plan.micro_batches):
                        self._abandon_if_urgent()
            return
        # A divided model is gathered in every pass, so all ranks make as many: one repeats its last one for nothing.
        start, count = time.monotonic(), len(plan.micro_batches)
        passes = distributed.most_over_ranks(count, self.rank) if self.is_divided else count
        for index in range(passes):
            self._abandon_if_urgent()
            micro_batch = plan.micro_batches[min(index, count - 1)]
            scale = 0 if index >= count else 1 if self._sums_late else self.rank.count
            with distributed.exchanging(self.model, index == passes - 1):
                loss, sums = self.workload.loss(self.model, micro_batch)
                # What follows the last pass waits for the other processes.
                if self.watch is not None and index == passes - 1 and not self.is_divided:
                    self.watch.add(time.monotonic() - start)
                (loss * scale).backward()  # type: ignore[no-untyped-call]
            if index < count:
                yield loss.detach(), sums

    def _abandon_if_urgent(self) -> None:
        """Abandons the step if a cluster is about to kill this process; several processes finish a step together."""
        if self.stop.is_urgent and self.rank.count == 1:
            raise StepAbandoned

    def apply(self, outcome: StepOutcome, rate: float) -> None:
        """Clips the gradients and updates the parameters."""
        clip(self.optimizer.gradients(), outcome.gradient_norm, self.settings.clip_norm)
        self.optimizer.step(rate)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The workload's scores on held-out data; all ranks call it, and share the work."""
        self.trained.eval()
        try:
            return dict(self.workload.evaluate(self.trained, self.rank))
        finally:
            self.trained.train()
