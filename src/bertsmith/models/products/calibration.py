"""The scales of int8 inputs, measured on texts that a model reads.

Letters: T tokens, K inputs, O outputs of a linear layer.

Every linear layer of the encoder is replaced by one that records the smallest and the largest value of each of its
inputs. Where the inputs come from a norm or from attention, they are balanced against the weights: each input is
divided by the root of its largest value over its largest weight, so that no single input widens the range of all. Those
that come out of the activation have one scale and no balance: they are rounded inside the product.

The extremes count, not quantiles: the few largest activations of BERT carry meaning, and cutting off one value in
10,000 moves the vectors much further from fp32 than the coarser steps do.

Source: Xiao et al. (2023), "SmoothQuant", equation 4 with alpha = 0.5.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.layers import PreparedLinear, bias_of, finished
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.models.products.int8_linear import InputScale
from bertsmith.models.products.prepared import INPUTS, linear_layers

_TINY = 1e-5
_MOST_BALANCE = 32.0  # an input is divided by at most this, and by at least its inverse
_DIGITS = 5  # significant digits that are kept


class ObservedLinear(PreparedLinear):
    """A linear layer that records the range of each input.

    Attributes:
        low, high: the smallest and largest value of each input so far, float32 [K].
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight.detach(), bias_of(layer).detach()
        self.low = torch.full((layer.in_features,), torch.inf)
        self.high = -self.low

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K]; see `PreparedLinear`."""
        if len(x):
            self.low = torch.minimum(self.low, x.amin(0).float())
            self.high = torch.maximum(self.high, x.amax(0).float())
        return finished(F.linear(x, self.weight, self.bias), then, plus)


def observe(model: nn.Module) -> None:
    """Replaces the linear layers of the encoders in `model`, in place, by layers that record their inputs."""
    for module in list(model.modules()):
        if isinstance(module, TransformerEncoder):
            module.fix_positions(torch.float32)
            for layer in module.layers:
                for name in linear_layers(module.config):
                    plain = layer.get_submodule(name)
                    assert isinstance(plain, nn.Linear), "only plain layers are observed"
                    setattr(layer, name, ObservedLinear(plain))


def observed_scales(model: nn.Module) -> dict[str, InputScale]:
    """The scales of the inputs of every layer, by number and name, such as "0.query" (which key and value share)."""
    encoder = next(module for module in model.modules() if isinstance(module, TransformerEncoder))
    scales = {}
    for number, layer in enumerate(encoder.layers):
        for name, readers in INPUTS.items():
            observed = [layer.get_submodule(reader) for reader in readers if reader in linear_layers(encoder.config)]
            scales[f"{number}.{name}"] = _scale([part for part in observed if isinstance(part, ObservedLinear)], name)
    return scales


def _scale(readers: list[ObservedLinear], name: str) -> InputScale:
    low = torch.stack([reader.low for reader in readers]).amin(0)
    high = torch.stack([reader.high for reader in readers]).amax(0)
    assert bool(torch.isfinite(low).all()), "the encoder has read something"
    balance: tuple[float, ...] = ()
    if name != "output":
        weights = torch.stack([reader.weight.abs().amax(0) for reader in readers]).amax(0)
        largest = torch.maximum(low.abs(), high.abs())
        root = (largest.clamp_min(_TINY) / weights.clamp_min(_TINY)).sqrt()
        root = (root / root.mean()).clamp(1 / _MOST_BALANCE, _MOST_BALANCE)
        balance = tuple(_rounded(value) for value in root.tolist())
        divisor = torch.tensor(balance)
        low, high = low / divisor, high / divisor
    return InputScale(_rounded(min(0.0, float(low.min()))), _rounded(max(_TINY, float(high.max()))), balance)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
