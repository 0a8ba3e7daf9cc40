"""The head of ULMFiT: three concatenated vectors of a row, and a hidden layer before the output layer.

Letters: T tokens in the flat batch, N rows, D width of the encoder.

The published head has batch norms. Here they are layer norms: statistics of a batch would make a prediction depend on
the other texts in its batch, and a gradient on how a step is split, and running means would be state that no step may
change.

Source: Howard and Ruder (2018), "Universal Language Model Fine-tuning for Text Classification", section 3.3.
"""

import torch
from torch import Tensor, nn

from bertsmith.models.heads.row_vectors import pool_rows
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.head_inputs import BLOCKS_EPSILON, HIDDEN_UNITS
from bertsmith.models.parts.layers import activation, linear, norm
from bertsmith.models.parts.noise import Noise, dropped

_INNER_DROPOUT = 0.1  # of the hidden units, where there is dropout at all


def concat_of_rows(hidden: Tensor, batch: Batch, read: Read) -> Tensor:
    """[h, max, mean] of each row, [N, 3D], at least in fp32: concat pooling of the hidden states [T, D]."""
    exact = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    pooled = (pool_rows(exact, batch.lengths, "max"), pool_rows(exact, batch.lengths))
    return torch.cat([read.pick(exact), *pooled], dim=1)


class HeadBlocks(nn.Module):
    """A norm, a linear layer with ReLU and another norm, in front of the output layer; dropout after both norms."""

    units = HIDDEN_UNITS

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=BLOCKS_EPSILON)
        self.hidden = nn.Linear(width, HIDDEN_UNITS)
        self.hidden_norm = nn.LayerNorm(HIDDEN_UNITS, eps=BLOCKS_EPSILON)

    def forward(self, vectors: Tensor, noise: Noise | None, dropout: float) -> Tensor:
        """The hidden units [N, 50] of the vectors [N, width]."""
        ones = (1,) * len(vectors)
        x = dropped(norm(vectors, self.norm), noise, dropout, ones)
        x = norm(activation(linear(x, self.hidden), "relu"), self.hidden_norm)
        return dropped(x, noise, min(dropout, _INNER_DROPOUT), ones)
