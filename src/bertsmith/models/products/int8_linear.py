"""Linear layers with int8 weights and products, for inference on the CPU.

Letters: T tokens, K inputs, O outputs of a layer.

Weights have one scale per output (symmetric). Activations have either one scale per token, found as they come, or
scales that calibration fixed: then no pass over the inner width is left, since the first product of the feed-forward
network returns the integers that the second one reads. Either way the result of a token does not depend on the tokens
around it.

oneDNN multiplies unsigned activations by signed weights and accumulates in int32. Processors without VNNI add pairs of
products in 16 bits, which only 7-bit weights cannot overflow (255 * 63 * 2 < 2^15), so weights have 7 bits there.

Source: Zafrir et al. (2019), "Q8BERT", for symmetric 8-bit products of BERT; Xiao et al. (2023), "SmoothQuant",
section 4, for the balance between activations and weights.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bertsmith.models.parts.layers import PreparedLinear, finished, joined_activation

_LIFT = 128  # added to signed activations, since oneDNN expects unsigned ones
_TINY = 1e-12  # minimum scale, for tokens that are all zeros
_LEVELS = 255  # the largest unsigned 8-bit integer


class InputScale(NamedTuple):
    """How calibration fixed the integers of a layer's inputs.

    Attributes:
        low: the smallest input, after division by `balance`; at most 0.
        high: the largest; above `low`.
        balance: what each of the K inputs is divided by (and its weights multiplied by); empty for 1.
    """

    low: float
    high: float
    balance: tuple[float, ...] = ()

    @property
    def step(self) -> float:
        """The difference between two neighboring integers."""
        return (self.high - self.low) / _LEVELS

    @property
    def zero(self) -> int:
        """The integer of the input 0."""
        return round(-self.low / self.step)


class Int8Linear(PreparedLinear):
    """A linear layer with int8 weights and one scale per token; its output has the dtype of the activations.

    Args:
        bits: bits per weight: 8, or 7 if sums of two products must fit into 16 bits.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, bits: int) -> None:
        super().__init__()
        quantized, scale = quantize_weight(weight.detach().float(), bits)
        self.out_features = weight.shape[0]
        self.bias = bias.detach().float()
        self.scale = scale
        self.zero_points = torch.zeros(len(scale), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(quantized, None)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of `x`; see `PreparedLinear`."""
        lifted, scale = quantize_tokens(x)
        product = torch.ops.onednn.qlinear_pointwise(
            lifted, 1.0, _LIFT, self.packed, self.scale, self.zero_points, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return finished(torch.addcmul(self.bias, product, scale).to(x.dtype), then, plus)


class FixedInt8Linear(PreparedLinear):
    """A linear layer with int8 weights whose inputs have scales that calibration fixed.

    Args:
        dtype: of the outputs, fp32 or bf16.
        next_scale: if given, the result after an activation is handed out as the uint8 integers of this scale, which
            the next layer reads.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        *,
        bits: int,
        scale: InputScale,
        dtype: torch.dtype,
        next_scale: InputScale | None = None,
    ) -> None:
        super().__init__()
        weight = weight.detach().float()
        balance = torch.tensor(scale.balance or [1.0])
        quantized, weight_scale = quantize_weight(weight * balance, bits)
        self.bias = bias.detach().float()
        self.input_scale, self.next_scale, self.dtype = scale, next_scale, dtype
        self.per_step = (1 / (balance * scale.step)).expand(weight.shape[1]).contiguous()
        # A value plus a half, truncated, is rounded.
        self.lift = torch.full_like(self.per_step, scale.zero + 0.5)
        packed = torch.ops.onednn.qlinear_prepack(quantized, None)
        # The integers, their scales and their zero points.
        self.weights = (packed, weight_scale, torch.zeros(len(weight), dtype=torch.int64))

    def integers(self, x: Tensor) -> Tensor:
        """The inputs [T, K] as integers of this layer's scale, uint8; integers stay as they are."""
        return x if x.dtype == torch.uint8 else quantize_fixed(x, self.per_step, self.lift)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], or of uint8 integers of this layer's scale; see `PreparedLinear`."""
        arguments = (self.integers(x), self.input_scale.step, self.input_scale.zero, *self.weights)
        if plus is not None and plus.dtype == self.dtype:
            mapped = torch.ops.onednn.qlinear_pointwise.binary(
                *arguments, plus, self.bias, 1.0, 0, self.dtype, 1.0, 0, "add", 1.0, "none", [], ""
            )
            assert isinstance(mapped, Tensor)
            return mapped
        (name, algorithm), left = joined_activation(then)
        step, zero, dtype = 1.0, 0, self.dtype
        if then is not None and left is None and self.next_scale is not None:
            step, zero, dtype = self.next_scale.step, self.next_scale.zero, torch.uint8
        mapped = torch.ops.onednn.qlinear_pointwise(*arguments, self.bias, step, zero, dtype, name, [], algorithm)
        return finished(mapped, left, plus)


def quantize_weight(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The weights as integers of `bits` bits, int8 [O, K], and the scale of each row, float32 [O].

    >>> numbers, scale = quantize_weight(torch.tensor([[0.5, -1.0], [0.0, 0.0]]), bits=8)
    >>> numbers.tolist(), [round(float(value), 4) for value in scale]
    ([[64, -127], [0, 0]], [0.0079, 0.0])
    """
    most = 2 ** (bits - 1) - 1
    low, high = weight.aminmax(dim=1)  # no copy of the absolute values
    scale = torch.maximum(-low, high).clamp_min(_TINY) / most
    return weight.div(scale[:, None]).round_().to(torch.int8), scale


def quantize_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each token as integers from -127 to 127 with 128 added, uint8 [T, K], and its scale, float32 [T, 1].

    >>> numbers, scale = quantize_tokens(torch.tensor([[1.0, -2.0], [0.0, 0.0]]))
    >>> numbers.tolist(), round(float(scale[0, 0]), 4)
    ([[192, 1], [128, 128]], 0.0157)
    """
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp_min_(_TINY).mul_(1 / 127)
    # The values are positive, so adding a half and truncating rounds them.
    return _truncated((x.float() * scale.reciprocal()).add_(_LIFT + 0.5)), scale


def quantize_fixed(x: Tensor, per_step: Tensor, lift: Tensor) -> Tensor:
    """The inputs as integers, uint8 [T, K]; those beyond 0 and 255 become 0 and 255.

    Args:
        per_step: integers per unit of each input, float32 [K].
        lift: the integer of 0, and a half, float32 [K].

    >>> lift = torch.full((3,), 3.5)
    >>> quantize_fixed(torch.tensor([[0.5, -0.5, 9.0]]), torch.tensor([10.0, 10.0, 100.0]), lift).tolist()
    [[8, 0, 255]]
    """
    if x.dtype == torch.float32:
        lifted = torch.addcmul(lift, x, per_step)
    else:
        exact = x.float()
        lifted = torch.addcmul(lift, exact, per_step, out=exact)
    return _truncated(lifted.clamp_(0, 255))


def _truncated(lifted: Tensor) -> Tensor:
    """Numbers from 0 to 255, truncated, uint8; torch is three times as fast on the way over 16 bits."""
    return lifted.to(torch.int16).to(torch.uint8)
