"""Linear layers prepared for inference: weights cast or quantised and packed once, with what follows them fused.

Letters: T tokens, K inputs, O outputs of a layer.

The encoder is still that of `transformer.py`; `prepare` replaces its linear layers in place. The int8 layers are those
of `int8_linear.py`.
"""

from collections.abc import Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.errors import CheckpointError, ConfigError, nearest
from bertsmith.model.layers import ONEDNN_ACTIVATIONS, PreparedLinear, bias_of, finished
from bertsmith.model.transformer import Layer, TransformerEncoder
from bertsmith.products.int8_linear import FixedInt8Linear, InputScale, Int8Linear
from bertsmith.runtime import Runtime

LINEAR_LAYERS = ("query", "key", "value", "attention_output", "intermediate", "output")  # of an encoder layer
# The inputs of an encoder layer's products, by the name of the first layer that reads them, and all that read them.
INPUTS = {
    "query": ("query", "key", "value"),
    "attention_output": ("attention_output",),
    "intermediate": ("intermediate",),
    "output": ("output",),
}


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
        self.tokens = tokens
        self.weight = self._packed(weight.detach().to(dtype).contiguous())
        self.bias = bias.detach().to(dtype)

    def _packed(self, weight: Tensor) -> Tensor:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, self.tokens)
        return packed

    def __getstate__(self) -> dict[str, Any]:
        """The layer with plain weights: packed ones can be neither copied nor pickled."""
        return {**self.__dict__, "weight": self.weight.to_dense()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.weight = self._packed(self.weight)

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of the weights; see `PreparedLinear`."""
        x = x.to(self.bias.dtype)
        if plus is not None and plus.dtype == x.dtype:
            mapped = torch.ops.mkldnn._linear_pointwise.binary(x, plus, self.weight, self.bias, "add")
        else:
            name, algorithm = ("none", "") if then is None else ONEDNN_ACTIVATIONS[then]
            mapped = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], algorithm)
            mapped = finished(mapped, None, plus)
        assert isinstance(mapped, Tensor)
        return mapped


def require_transformer(model: nn.Module) -> None:
    """Returns if a model contains a Transformer encoder, the only one whose layers have a form in int8.

    Raises:
        ConfigError: it does not.
    """
    if not any(isinstance(module, TransformerEncoder) for module in model.modules()):
        raise ConfigError(
            expected="a Transformer encoder for int8",
            found="a model without one",
            fix="use --precision fp32 or bf16",
        )


def prepare(
    model: nn.Module,
    runtime: Runtime,
    kept: Collection[str] = (),
    scales: Mapping[str, InputScale] | None = None,
) -> nn.Module:
    """The model with the linear layers of its encoder replaced, in place; it can no longer be trained or saved.

    In fp32 and fp64 nothing is replaced if the products stay those of torch. The weights are finite: every checkpoint
    reader has checked them.

    Args:
        model: a `TransformerEncoder`, or a model that contains one.
        runtime: precision of the products and of the activations.
        kept: with int8, the linear layers that stay in the dtype of the activations: "output" for all layers,
            "11.output" for one.
        scales: with int8, the scales that calibration fixed, from `observed_scales`; None for one scale per token.

    Raises:
        CheckpointError: `kept` names a layer that does not exist.
        ConfigError: int8 of a model that is not a Transformer.
    """
    model.eval().requires_grad_(False)
    if runtime.precision == "int8":
        require_transformer(model)
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
                is_last = number == len(module.layers) - 1
                _prepare_layer(layer, number, runtime, kept, scales or {}, is_last=is_last)
    return model


def _prepare_layer(
    layer: Layer,
    number: int,
    runtime: Runtime,
    kept: Collection[str],
    scales: Mapping[str, InputScale],
    *,
    is_last: bool,
) -> None:
    def stays(name: str) -> bool:
        return runtime.precision != "int8" or name in kept or f"{number}.{name}" in kept

    def swapped(name: str, weight: Tensor, bias: Tensor) -> PreparedLinear:
        if stays(name):
            if runtime.is_packed:
                return PackedLinear(weight, bias, runtime.dtype, runtime.inference_tokens)
            return CastLinear(weight, bias, runtime.dtype)
        read = next(first for first, readers in INPUTS.items() if name in readers)
        scale = scales.get(f"{number}.{read}")
        if scale is None:
            return Int8Linear(weight, bias, bits=runtime.int8_bits)
        return FixedInt8Linear(
            weight,
            bias,
            bits=runtime.int8_bits,
            scale=scale,
            dtype=runtime.dtype,
            next_scale=scales.get(f"{number}.output")
            if name == "intermediate" and not (layer.is_gated or stays("output"))
            else None,
        )

    plain = {name: layer.get_submodule(name) for name in LINEAR_LAYERS}
    parameters = {name: (part.weight, bias_of(part)) for name, part in plain.items() if isinstance(part, nn.Linear)}
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
