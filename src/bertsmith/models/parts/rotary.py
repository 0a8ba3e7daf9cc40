"""Rotary positions: queries and keys are rotated by angles proportional to the position.

Letters: T tokens, A heads, d head width.

Source: Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2; the two halves
of a head are turned against each other, as in GPT-NeoX.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Turn(NamedTuple):
    """The cosines and sines of the angles of each token, float32 [T, d / 2]."""

    cosines: Tensor
    sines: Tensor

    def at(self, positions: Tensor) -> "Turn":
        """Those of some of the tokens, int64 [R]."""
        return Turn(self.cosines[positions], self.sines[positions])


def turn_of(positions: Tensor, base: float, width: int) -> Turn:
    """The turn of tokens at these positions, int64 [T], for heads of width d."""
    # In fp32 and in this order, as in the models that were trained so: at position 8,000 the last digits are visible.
    rates = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width))
    angles = positions.float().unsqueeze(1) * rates
    return Turn(angles.cos(), angles.sin())


def turned(x: Tensor, turn: Turn) -> Tensor:
    """Queries or keys [T, A*d], each head turned; computed at least in fp32."""
    cosines, sines = turn.cosines.unsqueeze(1), turn.sines.unsqueeze(1)  # [T, 1, d / 2]
    width = 2 * cosines.shape[2]
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    first, second = exact.view(len(x), -1, width).chunk(2, dim=2)  # [T, A, d / 2]
    both = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=2)
    return both.view(x.shape).to(x.dtype)
