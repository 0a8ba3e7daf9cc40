"""The building blocks of every encoder: linear layers, norms, activations, embedding tables, initialization.

Letters: T tokens, K inputs and O outputs of a layer, A heads, d head width.

All matrix products run in the dtype of the activations; parameters are cast on use, so training keeps them in fp32.
"""

import abc
import functools
import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.randomness import generator
from bertsmith.models.parts.config import QUICK_GELU_RATE, EncoderConfig
from bertsmith.models.parts.part_names import plain

ONEDNN_ACTIVATIONS = {  # those of the activations that oneDNN joins to a product: its name and algorithm
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "linear": ("none", ""),
}


class Embedding(nn.Embedding):
    """An embedding table that skips initialization on the meta device, which would load the compiler of torch."""

    def reset_parameters(self) -> None:
        """Initializes the vectors."""
        if not self.weight.is_meta:
            super().reset_parameters()


class PreparedLinear(nn.Module, abc.ABC):
    """A linear layer prepared for inference, in place of the trained one; see `prepared.py`."""

    @abc.abstractmethod
    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K]; `then` names the activation that follows, `plus` [T, O] is added at the end.

        One of the two may be given.
        """


class ScaledLinear(nn.Linear):
    """A linear layer with initial values of its own."""

    def __init__(self, inputs: int, outputs: int, initial_bias: float = 0.0) -> None:
        super().__init__(inputs, outputs)
        self.initial_deviations = {"weight": 1 / math.sqrt(inputs)}
        self.initial_bias = (initial_bias,)

    def forward(self, x: Tensor) -> Tensor:
        """See `linear`; a call gathers the parameters where they are divided among processes."""
        return linear(x, self)


class AdaptedLinear(nn.Linear):
    """A linear layer W [O, K] whose map is that of W + scale * B A, with A [r, K] and B [O, r]; see `low_rank.py`.

    It shares the parameters of the layer that it is made of, and starts with the same map, as B is zero.
    """

    def __init__(self, layer: nn.Linear, first: nn.Parameter, scale: float) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.weight, self.bias, self.scale = layer.weight, layer.bias, scale
        self.lora_A, self.lora_B = first, nn.Parameter(torch.zeros(layer.out_features, len(first)))

    def forward(self, x: Tensor) -> Tensor:
        """See `linear`."""
        return linear(x, self)


def linear(x: Tensor, layer: nn.Linear | PreparedLinear, then: str | None = None, plus: Tensor | None = None) -> Tensor:
    """The affine map of `layer`, computed in the dtype of `x`.

    Args:
        plus: a residual, added to the result; not together with `then`.
    """
    assert then is None or plus is None
    if isinstance(layer, PreparedLinear):
        mapped = layer(x, then, plus)
        assert isinstance(mapped, Tensor)
        return mapped
    mapped = F.linear(x, layer.weight.to(x.dtype), _bias(layer, x.dtype))
    if isinstance(layer, AdaptedLinear):
        mapped = mapped + layer.scale * F.linear(F.linear(x, layer.lora_A.to(x.dtype)), layer.lora_B.to(x.dtype))
    return finished(mapped, then, plus)


def joined_activation(then: str | None) -> tuple[tuple[str, str], str | None]:
    """The activation that oneDNN joins to a product, as its name and algorithm, and the one that is left for later."""
    if then is None or then in ONEDNN_ACTIVATIONS:
        return ONEDNN_ACTIVATIONS[then or "linear"], None
    return ONEDNN_ACTIVATIONS["linear"], then


def bias_of(layer: nn.Linear) -> Tensor:
    """The bias of a layer [O]; zeros if it has none."""
    bias: Tensor | None = layer.bias
    return layer.weight.new_zeros(layer.out_features) if bias is None else bias


def finished(mapped: Tensor, then: str | None, plus: Tensor | None) -> Tensor:
    """The result of a linear layer after the activation or the residual sum that follows it."""
    if plus is not None:
        return plus + mapped
    return mapped if then is None else activation(mapped, then)


def new_norm(config: EncoderConfig, width: int | None = None) -> nn.LayerNorm | nn.RMSNorm:
    """A norm of an encoder, over vectors of its width by default."""
    width = config.hidden_size if width is None else width
    if not config.centers_norms:
        return nn.RMSNorm(width, eps=config.layer_norm_eps)
    return nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_biases)


def norm(x: Tensor, layer: nn.LayerNorm | nn.RMSNorm) -> Tensor:
    """`x` after a norm over the last axis, in the dtype of `x`; biased variance, statistics in fp32.

    Source: Ba et al. (2016), "Layer Normalization"; Zhang and Sennrich (2019), "Root Mean Square Layer Normalization".
    """
    if isinstance(layer, nn.RMSNorm):
        return F.rms_norm(x, layer.normalized_shape, layer.weight.to(x.dtype), layer.eps)
    return F.layer_norm(x, layer.normalized_shape, layer.weight.to(x.dtype), _bias(layer, x.dtype), layer.eps)


def _bias(layer: nn.Linear | nn.LayerNorm, dtype: torch.dtype) -> Tensor | None:
    bias: Tensor | None = layer.bias
    return None if bias is None else bias.to(dtype)


def activation(x: Tensor, name: str) -> Tensor:
    """`x` after the activation of this name, one of `config.ACTIVATIONS`.

    Source: Hendrycks and Gimpel (2016), of GELU in its exact form, in its tanh approximation, which differs by at most
    4.73e-4, and in its logistic one (quick_gelu).
    """
    return _ACTIVATIONS[name](x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": functools.partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "quick_gelu": lambda x: x * torch.sigmoid(QUICK_GELU_RATE * x),
    "tanh": torch.tanh,
    "linear": lambda x: x,
}


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """The fixed position table [length, width] of sines (even columns) and cosines (odd).

    Source: Vaswani et al. (2017), section 3.5.
    """
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates  # [length, ceil(width / 2)]
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    return table.to(torch.float32)


@torch.no_grad()
def initialize(module: nn.Module, deviation: float, seed: int, names: Collection[str] | None = None) -> None:
    """Initializes parameters: matrices and tables from a normal truncated at two deviations, biases 0, norms 1 and 0.

    A norm is a layer norm of torch, or a parameter with "norm" in its name. A module with an attribute
    `initial_deviations` gives the standard deviations of some of its parameters, by their names in it; one with an
    `initial_bias` gives one number for each of as many equal parts of its biases; one with `starts_as_identity` starts
    with the identity for its matrix.

    Each parameter is a function of (seed, its name), so an encoder starts with the same values alone and inside a
    larger model.

    Source: `create_initializer` in the original modeling.py.
    """
    for name, parameter in module.named_parameters():
        if names is None or name in names:
            parameter.copy_(initial_values(module, name, deviation, seed))


def initial_values(module: nn.Module, name: str, deviation: float, seed: int) -> Tensor:
    """The initial values of one parameter of a module, which may be on the meta device; see `initialize`."""
    shape, (path, _, last) = module.get_parameter(name).shape, name.rpartition(".")
    owner = module.get_submodule(path)
    if name.endswith("bias") or last.startswith("bias"):
        values = torch.tensor(getattr(owner, "initial_bias", (0.0,)))
        return values.repeat_interleave(shape.numel() // len(values)).view(shape)
    if "norm" in name or isinstance(owner, nn.LayerNorm | nn.RMSNorm) or getattr(owner, "starts_as_ones", False):
        return torch.ones(shape)
    if getattr(owner, "starts_as_identity", False):
        return torch.eye(*shape)
    source = generator(seed, f"initialize {plain(name)}")
    drawn = source.standard_normal(shape.numel(), dtype=np.float32)
    while len(beyond := np.flatnonzero(np.abs(drawn) > 2)):
        drawn[beyond] = source.standard_normal(len(beyond), dtype=np.float32)
    scale = float(getattr(owner, "initial_deviations", {}).get(last, deviation))
    return torch.from_numpy(drawn).mul_(scale).view(shape)


class Turn(NamedTuple):
    """The cosines and sines of the angles of each token in rotary positions, float32 [T, d / 2]."""

    cosines: Tensor
    sines: Tensor

    def at(self, positions: Tensor) -> "Turn":
        """Those of some of the tokens, int64 [R]."""
        return Turn(self.cosines[positions], self.sines[positions])


def turn_of(positions: Tensor, base: float, width: int, factor: float = 1.0) -> Turn:
    """The turn of rotary positions for tokens at these positions, int64 [T], and heads of width d.

    Args:
        factor: what the positions are divided by.

    Source: Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding", section 3.2.2; the two
    halves of a head are turned against each other, as in GPT-NeoX.
    """
    # In fp32 and in this order, as in the models that were trained so: at position 8,000 the last digits are visible.
    rates = 1.0 / (base ** (torch.arange(0, width, 2, dtype=torch.float32, device=positions.device) / width))
    angles = positions.float().unsqueeze(1) * (rates if factor == 1 else rates / factor)
    return Turn(angles.cos(), angles.sin())


def turned(x: Tensor, turn: Turn) -> Tensor:
    """Queries or keys [T, A*d], each head turned; computed at least in fp32."""
    cosines, sines = turn.cosines.unsqueeze(1), turn.sines.unsqueeze(1)  # [T, 1, d / 2]
    width = 2 * cosines.shape[2]
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    first, second = exact.view(len(x), -1, width).chunk(2, dim=2)  # [T, A, d / 2]
    both = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=2)
    return both.view(x.shape).to(x.dtype)
