"""Linear layers prepared for inference: weights cast or quantized and packed once, with what follows fused if possible.

Letters: T tokens, K inputs, O outputs of a layer.

`prepare` replaces the linear layers of an encoder of `transformer.py` in place, by the layers of
`packed_linear.py` and, in int8, of `int8_linear.py`. Whole sequences of one length take the way of `fast_path.py`.
"""

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError, ConfigError, nearest
from bertsmith.base.machine.allocator import keep_freed_memory
from bertsmith.base.machine.runtime import Runtime
from bertsmith.models.parts.config import LINEAR_LAYERS, EncoderConfig
from bertsmith.models.parts.layers import PreparedLinear, bias_of
from bertsmith.models.parts.transformer import Layer, Products, TransformerEncoder
from bertsmith.models.products.fast_path import fast_path_of
from bertsmith.models.products.int8_linear import FixedInt8Linear, InputScale, Int8Linear
from bertsmith.models.products.packed_linear import CastLinear, PackedLinear

# The inputs of an encoder layer's products, by the name of the first layer that reads them, and all that read them.
INPUTS = {
    "query": ("query", "key", "value"),
    "attention_output": ("attention_output",),
    "intermediate": ("intermediate", "multiplier"),
    "output": ("output",),
}


def require_transformer(model: nn.Module) -> None:
    """Checks that a model contains a Transformer encoder, the only one whose layers have a form in int8."""
    if not any(isinstance(module, TransformerEncoder) for module in model.modules()):
        raise ConfigError(
            expected="a Transformer encoder for int8",
            found="a model without one",
            fix="use --precision fp32 or bf16",
        )


def linear_layers(config: EncoderConfig) -> tuple[str, ...]:
    """The names of the linear layers of each layer of an encoder."""
    return tuple(name for name in LINEAR_LAYERS if name != "multiplier" or config.gates_apart)


def prepare(
    model: nn.Module,
    runtime: Runtime,
    kept: Collection[str] = (),
    scales: Mapping[str, InputScale] | None = None,
    adapters: Sequence[Products] = (),
) -> nn.Module:
    """The model with the linear layers of its encoder replaced, in place; it can no longer be trained or saved.

    In fp32 and fp64 nothing is replaced if torch computes the products. The weights are finite: every checkpoint
    reader has checked them.

    Args:
        kept: with int8, the linear layers that stay in the dtype of the activations: "output" for all layers,
            "11.output" for one.
        scales: with int8, the scales that calibration fixed, from `observed_scales`; None for one scale per token.
        adapters: several, whose rows a pass may mix; see `adapted.py`.
    """
    model.eval().requires_grad_(False)
    if runtime.device == "cpu":
        keep_freed_memory()
    if runtime.precision == "int8":
        require_transformer(model)
    is_plain = runtime.precision in ("fp32", "fp64") and not runtime.is_packed
    for module in list(model.modules()):
        if isinstance(module, TransformerEncoder):
            if adapters or not is_plain:
                module.fix_positions(runtime.dtype, adapters or ({},))
            if is_plain:
                continue
            layers = linear_layers(module.config)
            known = {*layers, *(f"{n}.{name}" for n in range(len(module.layers)) for name in layers)}
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
            module.fast_path = fast_path_of(module, runtime.dtype)
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
                return PackedLinear(weight, bias, runtime.dtype)
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
            if name == "intermediate" and not (layer.config.is_gated or stays("output"))
            else None,
        )

    plain = {name: layer.get_submodule(name) for name in linear_layers(layer.config)}
    parameters = {name: (part.weight, bias_of(part)) for name, part in plain.items() if isinstance(part, nn.Linear)}
    assert len(parameters) == len(plain), "a model is prepared once"
    triple = LINEAR_LAYERS[:3]
    # The last layer may compute fewer queries than keys, so there they stay separate.
    if not is_last and len({stays(name) for name in triple}) == 1:
        weights, biases = zip(*(parameters.pop(name) for name in triple), strict=True)
        layer.together = swapped(triple[0], torch.cat(weights), torch.cat(biases))
        for name in triple:
            delattr(layer, name)
    for name, (weight, bias) in parameters.items():
        setattr(layer, name, swapped(name, weight, bias))
