"""A whole step of a workload: its loss and gradients, and steps that are compared."""

from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.recipes.finetuning.workload import Finetuning
from bertsmith.tasks.encoding.units import EncodedExamples, micro_batches
from bertsmith.training.loop.workload import StepPlan, Workload

Gradients = dict[str, torch.Tensor]
WholeStep = tuple[float, dict[str, float], Gradients]


def whole_step(workload: Workload, step: int, ranks: int = 1) -> WholeStep:
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
    return total, sums, _gradients(model)


def step_on_all(workload: Finetuning, features: EncodedExamples, micro_tokens: int) -> Gradients:
    """The gradients of a step on all examples, cut into micro-batches of that many tokens."""
    units = np.arange(len(features))
    batches = list(micro_batches(features, units, micro_tokens=micro_tokens, device="cpu", step=4))
    workload.begin_step(workload.model, StepPlan(micro_batches=batches, tokens=1, sequences=1))
    for batch in batches:
        workload.loss(workload.model, batch)[0].backward()
    return _gradients(workload.model)


def assert_same_step(step: WholeStep, expected: WholeStep, **tolerance: float) -> None:
    """Two steps have the same loss, sums and gradients."""
    assert step[0] == pytest.approx(expected[0], abs=1e-12)
    assert step[1] == pytest.approx(expected[1])
    assert_same_gradients(step[2], expected[2], **tolerance)


def assert_same_gradients(gradients: Gradients, expected: Gradients, **tolerance: float) -> None:
    """Two steps have gradients for the same parameters, and the same ones; by default up to rounding."""
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, msg=name, **tolerance)


def _gradients(model: torch.nn.Module) -> Gradients:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
