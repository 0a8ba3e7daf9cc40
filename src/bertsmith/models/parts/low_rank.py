"""Low-rank adapters: frozen linear layers, to whose weights the product of two small trained matrices is added.

Letters: K inputs and O outputs of a layer, r rank. A group of layers reads the same input and shares A, as other
libraries store the layers as one; a group of one layer is the usual case.

Source: Hu et al. (2021), "LoRA: Low-Rank Adaptation of Large Language Models", section 4.1; the initial values are
those of `peft`.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.models.parts.layers import AdaptedLinear
from bertsmith.models.parts.part_names import plain

Group = tuple[str, ...]  # the names of layers in a model
# A [r, K] and B [O, r] of each group; O counts the outputs of all of its layers.
Factors = Mapping[Group, tuple[Tensor, Tensor]]


def add_adapters(model: nn.Module, groups: Sequence[Group], rank: int, scale: float, seed: int) -> None:
    """Replaces linear layers of a model, in place, by the same ones with an adapter that has no effect yet.

    A is a function of (seed, its name): uniform up to the inverse of the square root of K.
    """
    for group in groups:
        inputs = _linear(model, group[0]).in_features
        drawn = generator(seed, f"low-rank adapter {plain(group[0])}").random((rank, inputs), dtype=np.float32)
        first = nn.Parameter(torch.from_numpy((2 * drawn - 1) / math.sqrt(inputs)))
        for name in group:
            _replace(model, name, AdaptedLinear(_linear(model, name), first, scale))


@torch.no_grad()
def merge_adapters(model: nn.Module, groups: Sequence[Group]) -> Factors:
    """A and B of all adapters of a model, whose layers are plain ones afterwards, with the products in the weights."""
    factors = {}
    for group in groups:
        layers = [_linear(model, name) for name in group]
        assert all(isinstance(layer, AdaptedLinear) for layer in layers), "they have adapters"
        seconds = [layer.lora_B.detach() for layer in layers if isinstance(layer, AdaptedLinear)]
        factors[group] = (layers[0].get_parameter("lora_A").detach().cpu(), torch.cat(seconds).cpu())
        for name, layer in zip(group, layers, strict=True):
            assert isinstance(layer, AdaptedLinear)
            merged = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
            merged.weight = nn.Parameter(layer.weight + product(layer.lora_A, layer.lora_B, layer.scale))
            merged.bias = layer.bias
            _replace(model, name, merged)
    return factors


def product(first: Tensor, second: Tensor, scale: float) -> Tensor:
    """What an adapter adds to the weight of its layer, [O, K]."""
    return scale * (second @ first)


def average_of_factors(every: Sequence[Factors], parts: int) -> Factors:
    """The factors whose products are the sum of those of several adapters, divided by a number of parts.

    Exact, so the rank is the sum of their ranks.
    """
    return {
        group: (
            torch.cat([factors[group][0] for factors in every]),
            torch.cat([factors[group][1] for factors in every], dim=1) / parts,
        )
        for group in every[0]
    }


def _linear(model: nn.Module, name: str) -> nn.Linear:
    layer = model.get_submodule(name)
    assert isinstance(layer, nn.Linear), name
    return layer


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    path, _, last = name.rpartition(".")
    setattr(model.get_submodule(path), last, layer)
