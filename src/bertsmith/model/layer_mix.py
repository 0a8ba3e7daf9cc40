"""A learned weighted average of the hidden states of a frozen encoder, and the choice of these states.

The choice itself, `layer_choice.py`, needs no torch; its names are here as well, for those that learn the mix.

Letters: T tokens, L layers, n chosen layers, D width of the encoder. Nothing here knows what the states are of: the mix
receives those that were picked, and its scores and its scale are trained with the layer on top.

Source: Peters et al. (2018), "Deep contextualized word
representations", section 3.2.
"""

import torch
from torch import Tensor, nn

from bertsmith.model.layer_choice import CHOICES, LayerChoice, layer_choice

__all__ = ["CHOICES", "LayerChoice", "WeightedMix", "layer_choice"]


class WeightedMix(nn.Module):
    """A learned weighted average of hidden states: gamma * sum over j of softmax(scores)_j h_j, initially the mean.

    Args:
        count: n, the number of hidden states.

    Source: Peters et al. (2018), equation 1.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    def shares(self) -> Tensor:
        """The weight of each hidden state, [n]; the weights sum to 1."""
        return self.scores.softmax(dim=0)

    def forward(self, picked: Tensor) -> Tensor:
        """The vectors [T, D] from hidden states [T, n, D]."""
        return self.gamma * torch.einsum("tnd,n->td", picked, self.shares())
