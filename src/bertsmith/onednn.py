"""What this build of torch has of oneDNN: the operators of prepared linear layers, tried once on a few numbers.

These operators are not part of torch's documented interface. A version that has moved them, or a build without oneDNN,
raises an error or computes something else here, in milliseconds, and the caller uses plain products instead.

Letters: T tokens, K inputs, O outputs of a layer.
"""

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_T, _K, _O = 3, 16, 8
_MOST_DIFFERENCE = 1e-3  # of results near 1; a wrong operator is off by more
_STEP = 0.125  # between the small numbers that are multiplied, which are exact in every precision
_ZERO = 128  # the unsigned integer of 0


@functools.cache
def has_packed_products() -> bool:
    """Whether linear layers with packed weights work, with an activation and with a sum fused to them."""
    import torch

    x, weight, bias = _numbers()
    exact = x @ weight.T + bias
    try:
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, _T)
        activated = torch.ops.mkldnn._linear_pointwise.default(x, packed, bias, "relu", [], "")
        summed = torch.ops.mkldnn._linear_pointwise.binary(x, exact, packed, bias, "add")
    except (AttributeError, RuntimeError):
        return False
    return _is_near(activated, exact.relu()) and _is_near(summed, 2 * exact)


@functools.cache
def packs_bf16() -> bool:
    """Whether oneDNN multiplies bf16 on this processor."""
    import torch

    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


@functools.cache
def has_int8_products() -> bool:
    """Whether linear layers in int8 work: results in fp32, integers after an activation, and a sum."""
    import torch

    x, weight, bias = _numbers()
    exact = x @ weight.T + bias
    numbers, integers = (x / _STEP + _ZERO).to(torch.uint8), (weight / _STEP).to(torch.int8)
    scale, zeros = (
        torch.full((_O,), _STEP, dtype=torch.float32, device="cpu"),
        torch.zeros(_O, dtype=torch.int64, device="cpu"),
    )
    product = torch.ops.onednn
    try:
        given = (numbers, _STEP, _ZERO, product.qlinear_prepack(integers, None), scale, zeros)
        plain = product.qlinear_pointwise(*given, bias, 1.0, 0, torch.float32, "none", [], "")
        activated = product.qlinear_pointwise(*given, bias, 1.0, 0, torch.uint8, "relu", [], "")
        summed = product.qlinear_pointwise.binary(
            *given, exact, bias, 1.0, 0, torch.float32, 1.0, 0, "add", 1.0, "none", [], ""
        )
    except (AttributeError, RuntimeError):
        return False
    near = _is_near(plain, exact) and _is_near(summed, 2 * exact)
    return near and activated.dtype == torch.uint8 and float((activated.float() - exact.relu()).abs().max()) <= 0.5


def _numbers() -> "tuple[Tensor, Tensor, Tensor]":
    """Inputs [T, K], weights [O, K] and bias [O], float32 on the CPU: multiples of `_STEP` from -1 to 1."""
    import torch

    def cycle(rows: int, columns: int) -> "Tensor":
        # Neither torch's default device nor its default dtype may decide what is cached for the process.
        numbers = torch.arange(rows * columns, device="cpu") * 7 % 17 - 8
        return numbers.to(torch.float32).mul(_STEP).reshape(rows, columns)

    return cycle(_T, _K), cycle(_O, _K), cycle(1, _O)[0]


def _is_near(found: "Tensor", exact: "Tensor") -> bool:
    return found.shape == exact.shape and float((found - exact).abs().max()) <= _MOST_DIFFERENCE
