"""A whole step of a workload, for tests that compare its loss and gradients."""

from typing import Any

import torch

from bertsmith.training.loop.workload import Workload


def whole_step(
    workload: Workload, step: int, ranks: int = 1
) -> tuple[float, dict[str, float], dict[str, torch.Tensor]]:
    """The loss, sums and gradients of a step, over all micro-batches of all ranks."""
    model: Any = workload.model
    model.zero_grad(set_to_none=True)
    total, sums = 0.0, dict[str, float]()
    for rank in range(ranks):
        for micro_batch in workload.plan(step, rank, ranks).micro_batches:
            loss, parts = workload.loss(model, micro_batch)
            loss.backward()
            total += loss.item()
            sums |= {name: sums.get(name, 0.0) + float(value) for name, value in parts.items()}
    return total, sums, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
