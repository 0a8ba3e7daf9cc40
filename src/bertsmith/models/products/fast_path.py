"""The prepared layers of an encoder without detours, for sequences of one length that are all read.

A single short text takes a few milliseconds, of which the arithmetic is only a part: the rest are calls. So a layer is
one function here that makes as few as it can: no modules, no casts of norms, no cases. It computes what `Layer.forward`
computes, with the same products; `Layer` remains the only one for everything else (training, dropout,
attention weights, sequences of several lengths, some positions only, left-to-right models).

The functions are plain Python on tensors. After the first calls `torch.jit` runs them, where torch has it: the same
operations with the same results, called from C++ instead of Python, for all layers in one call.

Letters: n sequences, s tokens of each, T = n s, A heads, d head width, D = A d.
"""

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.attention import attend_by_sequence, is_faster_by_sequence, products_are_faster
from bertsmith.models.parts.layers import ONEDNN_ACTIVATIONS
from bertsmith.models.parts.transformer import Layer, TransformerEncoder
from bertsmith.models.products.int8_linear import FixedInt8Linear, quantize_fixed
from bertsmith.models.products.packed_linear import PackedLinear, prefers_plain, rows_for_packed

_OFTEN = 4  # calls before `torch.jit` takes over, which itself takes a tenth of a second


class PreparedFastPath:
    """The lowest layers of a prepared encoder, for whole sequences of one length; see `fast_path_of`.

    Args:
        layers_plain: is faster for the numbers of tokens of `prefers_plain`; None if nothing is.
    """

    def __init__(
        self,
        layers: "_Layers",
        layers_plain: "_Layers | None",
        heads: int,
        then: str,
        epsilon: float,
        dtype: torch.dtype,
    ) -> None:
        self._layers, self._layers_plain = layers, layers_plain
        self._heads, self._dtype = heads, dtype
        self._end = (*ONEDNN_ACTIVATIONS[then], epsilon)
        self.depth = layers.depth

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        """None: packed weights can be neither copied nor pickled, and a copy of the encoder works without this."""
        return type(None), ()

    def suits(self, hidden: Tensor, rows: int) -> bool:
        """Whether this is the fastest way for the hidden states [T, D] of this number of sequences, if it is one."""
        if hidden.dtype != self._dtype:  # the layers were prepared for another precision
            return False
        return not products_are_faster(hidden, self._heads * hidden.shape[0] ** 2 // rows)

    def __call__(self, hidden: Tensor, rows: int, most: int) -> list[Tensor]:
        """The hidden states [T, D] after each of the lowest layers, at most `most`, in the same dtype."""
        layers = self._layers
        if self._layers_plain is not None and prefers_plain(hidden):
            layers = self._layers_plain
        by_sequence = is_faster_by_sequence(hidden, hidden.shape[0] // rows)
        return layers(hidden, most, rows, self._heads, by_sequence, *self._end)


class _Layers:
    """A function that computes layers, with the parameters of these layers.

    Args:
        function: `float_layers` or `integer_layers`.
        arguments: for each layer, what returns the arguments of the function for one layer between the hidden states
            and `rows`; called before anything is computed.
    """

    def __init__(
        self, function: Callable[..., list[Tensor]], arguments: Sequence[Callable[[], tuple[Any, ...]]]
    ) -> None:
        self._function, self._arguments = function, arguments
        self.depth = len(arguments)
        self._calls = 0

    @functools.cached_property
    def _of_all(self) -> list[list[Any]]:
        return [list(values) for values in zip(*(arguments() for arguments in self._arguments), strict=True)]

    def __call__(self, hidden: Tensor, most: int, *rest: Any) -> list[Tensor]:
        if self._calls < _OFTEN:
            self._calls += 1
            if self._calls == _OFTEN:
                self._function = scripted(self._function)
        return self._function(hidden, min(most, self.depth), *self._of_all, *rest)


def fast_path_of(encoder: TransformerEncoder, dtype: torch.dtype) -> PreparedFastPath | None:
    """The fast path of the lowest layers of a prepared encoder; None if the first layer has none.

    A layer has one if it is BERT's own layer, reads in both directions, and all its products are packed, or all are in
    int8 with fixed scales. It ends in front of the first layer that has none, or another one than the first.
    """
    config = encoder.config
    of_layers = [_arguments(layer, dtype) for layer in encoder.stack]
    alike = list(itertools.takewhile(lambda of_layer: of_layer[0] is of_layers[0][0], of_layers))
    if not alike or alike[0][0] is None:
        return None
    function = alike[0][0]
    all_layers, plain_layers = _Layers(function, [arguments for _, arguments in alike]), None
    stack = encoder.stack[: all_layers.depth]
    if function is float_layers and all(part.has_plain for layer in stack for part in _packed(layer)):
        plain_layers = _Layers(function, [functools.partial(_of_products, layer, dtype, plain=True) for layer in stack])
    end = (config.num_attention_heads, config.hidden_act, config.layer_norm_eps)
    return PreparedFastPath(all_layers, plain_layers, *end, dtype)


def _arguments(
    layer: Layer, dtype: torch.dtype
) -> tuple[Callable[..., list[Tensor]] | None, Callable[[], tuple[Any, ...]]]:
    """The function that computes a layer, and what returns its arguments between the hidden states and `rows`."""
    config = layer.config
    if (
        type(layer) is not Layer
        or config.is_causal
        or config.is_gated
        or layer.base is not None
        or not config.has_biases
        or config.hidden_act not in ONEDNN_ACTIVATIONS
    ):
        return None, tuple
    parts = _products(layer)
    integer = [part for part in parts if isinstance(part, FixedInt8Linear)]
    if len(_packed(layer)) == len(parts):
        return float_layers, functools.partial(_of_products, layer, dtype)
    if len(integer) == len(parts) and integer[1].next_scale is not None:
        return integer_layers, functools.partial(_of_integers, _norms(layer, dtype), integer)
    return None, tuple


def _of_products(layer: Layer, dtype: torch.dtype, *, plain: bool = False) -> tuple[list[Tensor]]:
    """The arguments of `float_layer`, with packed weights or plain ones."""
    pairs = ((part.plain if plain else part.weight, part.bias) for part in _packed(layer))
    return ([*_norms(layer, dtype), *itertools.chain(*pairs)],)


def _of_integers(tensors: list[Tensor], integer: list[FixedInt8Linear]) -> tuple[list[Tensor], list[float], list[int]]:
    """The arguments of `integer_layer`, from the tensors of the norms and the products of a layer."""
    # The inputs of the queries, of the attention output and of the inner layer.
    readers = [tensor for reader in (integer[3], integer[0], integer[1]) for tensor in (reader.per_step, reader.lift)]
    weights = [tensor for part in integer for tensor in (*part.weights, part.bias)]
    scales = [part.input_scale for part in integer]
    return [*tensors, *readers, *weights], [scale.step for scale in scales], [scale.zero for scale in scales]


def _products(layer: Layer) -> list[nn.Module]:
    """Attention output, inner layer, output, then query, key and value, or the three as one."""
    first = (layer.query, layer.key, layer.value) if layer.together is None else (layer.together,)
    return cast("list[nn.Module]", [layer.attention_output, layer.intermediate, layer.output, *first])


def _packed(layer: Layer) -> list[PackedLinear]:
    return [part for part in _products(layer) if isinstance(part, PackedLinear)]


def _norms(layer: Layer, dtype: torch.dtype) -> list[Tensor]:
    norms = (layer.attention_norm, layer.output_norm)
    return [norm.get_parameter(name).to(dtype) for norm in norms for name in ("weight", "bias")]


def float_layers(
    hidden: Tensor,
    depth: int,
    tensors: list[list[Tensor]],
    rows: int,
    heads: int,
    by_sequence: bool,
    name: str,
    algorithm: str,
    epsilon: float,
) -> list[Tensor]:
    """The hidden states [T, D] after each of the lowest `depth` layers; see `float_layer`."""
    states: list[Tensor] = []
    tokens = hidden.shape[0]
    more = rows_for_packed(tokens) - tokens if tensors[0][6].is_mkldnn else 0
    if more > 0:
        hidden = F.pad(hidden, [0, 0, 0, more])
    for number in range(depth):
        hidden = float_layer(hidden, tokens, tensors[number], rows, heads, by_sequence, name, algorithm, epsilon)
        states.append(hidden.narrow(0, 0, tokens))
    return states


def integer_layers(
    hidden: Tensor,
    depth: int,
    tensors: list[list[Tensor]],
    steps: list[list[float]],
    zeros: list[list[int]],
    rows: int,
    heads: int,
    by_sequence: bool,
    name: str,
    algorithm: str,
    epsilon: float,
) -> list[Tensor]:
    """The hidden states [T, D] after each of the lowest `depth` layers; see `integer_layer`."""
    states: list[Tensor] = []
    for number in range(depth):
        hidden = integer_layer(
            hidden, tensors[number], steps[number], zeros[number], rows, heads, by_sequence, name, algorithm, epsilon
        )
        states.append(hidden)
    return states


def float_layer(
    hidden: Tensor,
    tokens: int,
    tensors: list[Tensor],
    rows: int,
    heads: int,
    by_sequence: bool,
    name: str,
    algorithm: str,
    epsilon: float,
) -> Tensor:
    """The next hidden states [T, D], with packed weights or plain ones [K, O].

    Args:
        hidden: [T, D], or with rows of no meaning after T; see `rows_for_packed`.
        tokens: T.
        tensors: weight and bias of both norms, and of the products: attention output, inner layer, output, then query,
            key and value, or the three as one.
    """
    width = hidden.shape[1]
    parts: list[Tensor] = []
    for n in range(10, len(tensors), 2):
        parts.append(product(hidden, tensors[n], tensors[n + 1], "none", "").narrow(0, 0, tokens))
    context = attended_by(parts, rows, heads, by_sequence)
    if hidden.shape[0] > tokens:
        context = F.pad(context, [0, 0, 0, hidden.shape[0] - tokens])
    summed = product_plus(context, tensors[4], tensors[5], hidden)
    attended = torch.layer_norm(summed, [width], tensors[0], tensors[1], epsilon)
    inner = product(attended, tensors[6], tensors[7], name, algorithm)
    summed = product_plus(inner, tensors[8], tensors[9], attended)
    return torch.layer_norm(summed, [width], tensors[2], tensors[3], epsilon)


def product(x: Tensor, weight: Tensor, bias: Tensor, name: str, algorithm: str) -> Tensor:
    """The result of `PackedLinear.forward`, followed by the activation of this name, or "none"."""
    if weight.is_mkldnn:
        mapped: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, name, [], algorithm)
        return mapped
    mapped = torch.addmm(bias, x, weight)
    if name == "gelu":
        return F.gelu(mapped, approximate=algorithm)
    return torch.relu_(mapped) if name == "relu" else mapped


def product_plus(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """The same with the residual added."""
    if weight.is_mkldnn:
        # A script cannot name an overload. From Python, one is found at once by arguments that no other has; otherwise
        # the first one is tried, and its error lists all numbers of the bias, which is slow.
        summed: Tensor = torch.ops.mkldnn._linear_pointwise(x, other=residual, W=weight, B=bias, attr="add")
        return summed
    return torch.add(residual, bias).addmm_(x, weight)


def integer_layer(
    hidden: Tensor,
    tensors: list[Tensor],
    steps: list[float],
    zeros: list[int],
    rows: int,
    heads: int,
    by_sequence: bool,
    name: str,
    algorithm: str,
    epsilon: float,
) -> Tensor:
    """The next hidden states [T, D], with int8 products and scales that calibration fixed.

    Args:
        tensors: weight and bias of both norms, `per_step` and `lift` of the inputs of query, attention output and inner
            layer, and four tensors of each product, in the order of `float_layer`: the weights as integers, their
            scales, their zero points, the bias.
    """
    width, dtype = hidden.shape[1], hidden.dtype
    numbers = quantize_fixed(hidden, tensors[4], tensors[5])
    parts: list[Tensor] = []
    for n in range(3, len(steps)):
        w = tensors[10 + 4 * n : 14 + 4 * n]
        parts.append(
            torch.ops.onednn.qlinear_pointwise(
                numbers, steps[n], zeros[n], w[0], w[1], w[2], w[3], 1.0, 0, dtype, "none", [], ""
            )
        )
    context = attended_by(parts, rows, heads, by_sequence)
    numbers = quantize_fixed(context, tensors[6], tensors[7])
    w = tensors[10:14]
    summed = torch.ops.onednn.qlinear_pointwise(
        numbers, steps[0], zeros[0], w[0], w[1], w[2], hidden, w[3], 1.0, 0, dtype, 1.0, 0, "add", 1.0, "none", [], ""
    )
    attended = torch.layer_norm(summed, [width], tensors[0], tensors[1], epsilon)
    numbers = quantize_fixed(attended, tensors[8], tensors[9])
    w = tensors[14:18]
    inner = torch.ops.onednn.qlinear_pointwise(
        numbers, steps[1], zeros[1], w[0], w[1], w[2], w[3], steps[2], zeros[2], torch.uint8, name, [], algorithm
    )
    w = tensors[18:22]
    summed = torch.ops.onednn.qlinear_pointwise(
        inner, steps[2], zeros[2], w[0], w[1], w[2], attended, w[3], 1.0, 0, dtype, 1.0, 0, "add", 1.0, "none", [], ""
    )
    return torch.layer_norm(summed, [width], tensors[2], tensors[3], epsilon)


def attended_by(projected: list[Tensor], rows: int, heads: int, by_sequence: bool) -> Tensor:
    """The context vectors [T, D].

    Args:
        projected: queries, keys and values: one tensor [T, 3D], or three [T, D].
        by_sequence: see `is_faster_by_sequence`.
    """
    width = projected[0].shape[1] * len(projected) // 3
    parts: list[Tensor] = []
    for part in projected:
        apart = part.view(rows, -1, part.shape[1] * heads // width, width // heads).transpose(
            1, 2
        )  # [n, A or 3A, s, d]
        parts.extend(apart.chunk(3 // len(projected), 1))
    if by_sequence:
        context = attend_by_sequence(parts[0], parts[1], parts[2])
    else:
        context = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
    return context.transpose(1, 2).reshape(-1, width)


@functools.cache
def scripted(function: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """A function of this module as `torch.jit` runs it, or the function itself where torch no longer scripts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            script: Callable[..., list[Tensor]] = torch.jit.script(function)
        except Exception:  # noqa: BLE001 - torch.jit may be absent, or reads a source file that has changed since its import
            return function
    return script
