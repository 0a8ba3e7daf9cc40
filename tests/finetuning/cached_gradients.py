"""Training of vectors with cached gradients: a step cut into micro-batches, and as one large batch."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch

from bertsmith.base.machine.runtime import choose
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.recipes.finetuning.settings import FinetuningSettings
from bertsmith.recipes.finetuning.vector_workload import VectorTraining
from bertsmith.tasks.encoding.units import micro_batches
from bertsmith.tasks.specs.task import Task
from bertsmith.training.loop.workload import StepPlan
from tasks.task_samples import CONFIG, TOKENIZER, examples_of

UNITS = 20


def assert_cached_as_whole(
    task: Task,
    kind: str,
    settings: FinetuningSettings,
    *,
    micro_tokens: int,
    before_cut: Callable[[], None] = lambda: None,
) -> Mapping[str, torch.Tensor]:
    """The gradients of a step with dropout, once they are those of one large batch.

    Args:
        kind: of examples.
        micro_tokens: of the micro-batches.
        before_cut: called before the step is cut.
    """
    features, result = task.encode(examples_of(kind, UNITS), TOKENIZER, training=True), []
    for tokens in (100_000, micro_tokens):
        if result:
            before_cut()
        config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
        model = EncoderForTask(new_encoder(config), task.head, seed=3).double()
        work = VectorTraining(model, task, features, None, TOKENIZER, settings, choose("cpu", "fp64"), seed=5)
        batches = list(micro_batches(features, np.arange(UNITS), micro_tokens=tokens, device="cpu", step=4))
        work.begin_step(model, StepPlan(micro_batches=batches, tokens=1, sequences=UNITS))
        losses = [work.loss(model, batch)[0] for batch in batches]
        for loss in losses:
            loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        result.append((float(sum(losses).detach()), gradients, len(batches)))
    (whole, gradients, passes), (cut, cut_gradients, several) = result
    assert (passes, several > 3) == (1, True)
    assert cut == pytest.approx(whole, rel=1e-9)
    assert gradients.keys() == cut_gradients.keys()
    assert max(float(gradient.abs().max()) for gradient in gradients.values()) > 1e-3
    for name, gradient in gradients.items():
        torch.testing.assert_close(cut_gradients[name], gradient, rtol=1e-6, atol=1e-9)
    return gradients
