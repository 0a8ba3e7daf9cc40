"""Linear layers prepared for inference: weights cast or quantised and packed once, with what follows them fused.

Letters: T tokens, K inputs, O outputs of a layer.

The encoder is still that of `transformer.py`; `prepare` replaces its linear layers in place. The products of a token do
not depend on the tokens around it: int8 activations have one scale per token.

int8: weights have one scale per output (symmetric), activations one per token; oneDNN multiplies unsigned activations
by signed weights and accumulates in int32. Processors without VNNI add pairs of products in 16 bits, which only 7-bit
weights cannot overflow (255 * 63 * 2 < 2^15), so weights have 7 bits there.

Source: Zafrir et al. (2019), "Q8BERT", for symmetric 8-bit products of BERT.
"""

from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.errors import CheckpointError, nearest
from bertsmith.model.layers import PreparedLinear, finished
from bertsmith.model.transformer import Layer, TransformerEncoder
from bertsmith.runtime import Runtime

LINEAR_LAYERS = ("query", "key", "value", "attention_output", "intermediate", "output")  # of an encoder layer
_FUSED = {  # oneDNN's names of the activations
    "gelu": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "relu": ("relu", ""),
}
_LIFT = 128  # added to signed activations, since oneDNN expects unsigned ones
_TINY = 1e-12  # minimum scale, for tokens that are all zeros


class CastLinear(PreparedLinear):
    """A linear layer whose weights are cast once, computed by torch: the plain version of `PackedLinear`."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.bias = weight.detach().to(dtype), bias.detach().to(dtype)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of the weights; see `PreparedLinear`."""
        return finished(F.linear(x.to(self.bias.dtype), self.weight, self.bias), then, plus)


class PackedLinear(PreparedLinear):
    """A linear layer with weights packed by oneDNN, which fuses the activation or the residual sum that follows.

    Args:
        weight: [O, K].
        bias: [O].
        dtype: of the products, fp32 or bf16; they are accumulated in fp32.
        tokens: the number of tokens that the layout of the weights suits best; it is good for fewer as well.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype, tokens: int) -> None:
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype).contiguous(), tokens)
        self.bias = bias.detach().to(dtype)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of the weights; see `PreparedLinear`."""
        x = x.to(self.bias.dtype)
        if plus is not None and plus.dtype == x.dtype:
            mapped = torch.ops.mkldnn._linear_pointwise.binary(x, plus, self.weight, self.bias, "add")
        else:
            name, algorithm = ("none", "") if then is None else _FUSED[then]
            mapped = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], algorithm)
            mapped = finished(mapped, None, plus)
        assert isinstance(mapped, Tensor)
        return mapped


class Int8Linear(PreparedLinear):
    """A linear layer with int8 weights and products; its output has the dtype of the activations.

    Args:
        weight: [O, K].
        bias: [O].
        bits: bits per weight: 8, or 7 if sums of two products must fit into 16 bits.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, bits: int) -> None:
        super().__init__()
        quantised, scale = quantise_weight(weight.detach().float(), bits)
        self.out_features = weight.shape[0]
        self.bias = bias.detach().float()
        self.scale = scale
        self.zero_points = torch.zeros(len(scale), dtype=torch.int64)
        self.packed = torch.ops.onednn.qlinear_prepack(quantised, None)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of `x`; see `PreparedLinear`."""
        lifted, scale = quantise_tokens(x)
        product = torch.ops.onednn.qlinear_pointwise(
            lifted, 1.0, _LIFT, self.packed, self.scale, self.zero_points, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return finished(torch.addcmul(self.bias, product, scale).to(x.dtype), then, plus)


def quantise_weight(weight: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The weights as integers of `bits` bits, int8 [O, K], and the scale of each row, float32 [O].

    >>> numbers, scale = quantise_weight(torch.tensor([[0.5, -1.0], [0.0, 0.0]]), bits=8)
    >>> numbers.tolist(), [round(float(value), 4) for value in scale]
    ([[64, -127], [0, 0]], [0.0079, 0.0])
    """
    most = 2 ** (bits - 1) - 1
    scale = weight.abs().amax(dim=1).clamp_min(_TINY) / most
    return (weight / scale[:, None]).round().to(torch.int8), scale


def quantise_tokens(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each token as integers from -127 to 127 with 128 added, uint8 [T, K], and its scale, float32 [T, 1].

    >>> numbers, scale = quantise_tokens(torch.tensor([[1.0, -2.0], [0.0, 0.0]]))
    >>> numbers.tolist(), round(float(scale[0, 0]), 4)
    ([[192, 1], [128, 128]], 0.0157)
    """
    scale = x.abs().amax(dim=-1, keepdim=True).float().clamp_min_(_TINY).mul_(1 / 127)
    # The values are positive, so adding a half and truncating rounds them.
    return (x.float() * scale.reciprocal()).add_(_LIFT + 0.5).to(torch.uint8), scale


def prepare(model: nn.Module, runtime: Runtime, kept: Collection[str] = ()) -> nn.Module:
    """The model with the linear layers of its encoder replaced, in place; it can no longer be trained or saved.

    In fp32 and fp64 nothing is replaced if the products stay those of torch. The weights are finite: every checkpoint
    reader has checked them.

    Args:
        model: a `TransformerEncoder`, or a model that contains one.
        runtime: precision of the products and of the activations.
        kept: with int8, the linear layers that stay in the dtype of the activations: "output" for all layers,
            "11.output" for one.

    Raises:
        CheckpointError: `kept` names a layer that does not exist.
    """
    model.eval().requires_grad_(False)
    if runtime.precision in ("fp32", "fp64") and not runtime.is_packed:
        return model
    for module in list(model.modules()):
        if isinstance(module, TransformerEncoder):
            known = {*LINEAR_LAYERS, *(f"{n}.{name}" for n in range(len(module.layers)) for name in LINEAR_LAYERS)}
            if unknown := sorted(set(kept) - known):
                raise CheckpointError(
                    expected=f"linear layers of {len(module.layers)} encoder layers",
                    found=", ".join(unknown),
                    fix=nearest(unknown[0], known),
                )
            for number, layer in enumerate(module.layers):
                assert isinstance(layer, Layer)
                _prepare_layer(layer, number, runtime, kept, is_last=number == len(module.layers) - 1)
    return model


def _prepare_layer(layer: Layer, number: int, runtime: Runtime, kept: Collection[str], *, is_last: bool) -> None:
    def stays(name: str) -> bool:
        return runtime.precision != "int8" or name in kept or f"{number}.{name}" in kept

    def swapped(name: str, weight: Tensor, bias: Tensor) -> PreparedLinear:
        if stays(name):
            if runtime.is_packed:
                return PackedLinear(weight, bias, runtime.dtype, runtime.inference_tokens)
            return CastLinear(weight, bias, runtime.dtype)
        return Int8Linear(weight, bias, bits=runtime.int8_bits)

    plain = {name: layer.get_submodule(name) for name in LINEAR_LAYERS}
    parameters = {name: (part.weight, part.bias) for name, part in plain.items() if isinstance(part, nn.Linear)}
    assert len(parameters) == len(LINEAR_LAYERS), "a model is prepared once"
    triple = LINEAR_LAYERS[:3]
    # The last layer may compute fewer queries than keys, so there they stay separate.
    if not is_last and len({stays(name) for name in triple}) == 1:
        weights, biases = zip(*(parameters.pop(name) for name in triple), strict=True)
        layer.together = swapped(triple[0], torch.cat(weights), torch.cat(biases))
        for name in triple:
            delattr(layer, name)
    for name, (weight, bias) in parameters.items():
        setattr(layer, name, swapped(name, weight, bias))
