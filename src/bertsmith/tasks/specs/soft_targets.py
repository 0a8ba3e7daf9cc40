"""The loss of a student against the logits of its teacher, for the decisions of every kind of task.

Letters: n decisions, C outcomes of each.

At temperature T both distributions are softened. Gradients of softened distributions shrink with 1 / T^2, so the
divergence is multiplied by T^2, and the weights of soft and hard targets mean the same at every temperature.

Source: Hinton, Vinyals and Dean (2015), "Distilling the Knowledge in a Neural Network", section 2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

NOWHERE = -1e30  # logit of an outcome that a decision does not have; finite, so that its product with 0 is 0


def divergence(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) of each decision between exclusive outcomes, in nats, [n].

    Args:
        logits: of the student, [n, C].
        wanted: the teacher's, [n, C].
    """
    student = (exact(logits) / temperature).log_softmax(-1)
    teacher = (exact(wanted) / temperature).log_softmax(-1)
    return F.kl_div(student, teacher, reduction="none", log_target=True).sum(-1) * temperature**2


def binary_divergence(logits: Tensor, wanted: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) of each yes or no, in nats, with the shape of `logits`."""
    mine, theirs = (
        torch.stack([exact(outputs), torch.zeros_like(exact(outputs))], dim=-1) for outputs in (logits, wanted)
    )
    return divergence(mine, theirs, temperature)


def exact(logits: Tensor) -> Tensor:
    """The logits in at least fp32."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
