"""A learned weighted average of the hidden states of an encoder, or their concatenation.

Letters: T tokens, n chosen layers, D width of the encoder.

Nothing here knows what the states are of: the mix receives what `layer_choice.py` picked, and its scores and its
scale are trained with the layer on top. Without training it is the mean of the chosen layers.

Source: Peters et al. (2018), "Deep contextualized word representations", section 3.2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.layer_choice import LayerChoice


class WeightedMix(nn.Module):
    """A learned weighted average of hidden states: gamma * sum over j of softmax(scores)_j h_j, initially the mean.

    With `normalized`, each hidden state is first brought to mean 0 and variance 1.

    Source: Peters et al. (2018), equation 1.
    """

    def __init__(self, count: int, *, normalized: bool = False) -> None:
        super().__init__()
        self.normalized = normalized
        self.scores = nn.Parameter(torch.zeros(count))
        self.gamma = nn.Parameter(torch.ones(()))

    def shares(self) -> Tensor:
        """The weight of each hidden state, [n]; the weights sum to 1."""
        return self.scores.softmax(dim=0)

    def penalty(self) -> Tensor:
        """The sum of the squared scores, which pulls the weights towards each other: the term that lambda scales."""
        return self.scores.square().sum()

    def forward(self, picked: Tensor) -> Tensor:
        """The vectors [T, D] from hidden states [T, n, D]."""
        return self.gamma * torch.einsum("tnd,n->td", _normalized(picked, self.normalized), self.shares())


class Concatenated(nn.Module):
    """The concatenation of hidden states, without parameters."""

    def __init__(self, *, normalized: bool = False) -> None:
        super().__init__()
        self.normalized = normalized

    def forward(self, picked: Tensor) -> Tensor:
        """The vectors [T, n * D] from hidden states [T, n, D]."""
        return _normalized(picked, self.normalized).flatten(1)


def joined_states(choice: LayerChoice, *, normalized: bool = False) -> WeightedMix | Concatenated:
    """The module that joins the chosen hidden states: a sum with learned weights, or their concatenation."""
    if choice.is_sum:
        return WeightedMix(len(choice.layers), normalized=normalized)
    return Concatenated(normalized=normalized)


def _normalized(picked: Tensor, wanted: bool) -> Tensor:
    return F.layer_norm(picked, picked.shape[-1:]) if wanted else picked
