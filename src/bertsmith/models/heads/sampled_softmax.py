"""Sampled softmax: each target is compared with the same sample of pieces instead of the whole vocabulary.

Letters: M positions, H width of what the softmax reads, V vocabulary, S distinct pieces in the sample.

A logit is lowered by the logarithm of the chance that its piece is compared at all, so that training on samples leads
to the same probabilities as training on the whole vocabulary.

Source: Jean et al. (2015), "On Using Very Large Target Vocabulary for Neural Machine Translation", section 3;
`sampled_softmax_loss` of TensorFlow, with which ELMo was trained.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.base.core.randomness import generator


@dataclasses.dataclass(frozen=True)
class PieceSample:
    """The pieces that all targets of a step are compared with.

    Attributes:
        pieces: int64 [S], ascending.
        log_chances: float32 [V], the logarithm of the chance of each piece to be among them.
    """

    pieces: Tensor
    log_chances: Tensor


class PieceSampler:
    """Draws a sample of pieces for each step, a function of (seed, step).

    Args:
        counts: how often each piece occurs, [V]; each draw takes a piece with the chance (count + 1) / sum.
        draws: the number of draws; a piece that is drawn twice is in the sample once.
    """

    def __init__(self, counts: npt.NDArray[np.integer], draws: int, seed: int, device: torch.device) -> None:
        frequencies = (counts + 1) / (counts + 1).sum()
        self._ends, self._draws, self._seed, self._device = np.cumsum(frequencies), draws, seed, device
        chances = -np.expm1(draws * np.log1p(-frequencies))
        self._log_chances = torch.from_numpy(np.log(chances).astype(np.float32)).to(device)

    def of_step(self, step: int) -> PieceSample:
        """The sample of a step."""
        drawn = generator(self._seed, "sampled pieces", step).random(self._draws) * self._ends[-1]
        pieces = np.unique(np.minimum(np.searchsorted(self._ends, drawn, side="right"), len(self._ends) - 1))
        return PieceSample(torch.from_numpy(pieces).to(self._device), self._log_chances)


def sampled_logits(hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, sample: PieceSample) -> Tensor:
    """Logits [M, 1 + S]: first of each target, then of the sample; a target's second one is -infinity."""
    levels = bias - sample.log_chances.to(bias.dtype)  # [V]
    gold = (hidden * F.embedding(targets, weight).to(hidden.dtype)).sum(dim=1) + levels[targets].to(hidden.dtype)
    others = F.linear(hidden, weight[sample.pieces].to(hidden.dtype), levels[sample.pieces].to(hidden.dtype))  # [M, S]
    others = others.masked_fill(sample.pieces == targets.unsqueeze(1), float("-inf"))
    return torch.cat([gold.unsqueeze(1), others], dim=1)
