"""Linear layers with weights cast or packed once, for inference.

Letters: T tokens, K inputs, O outputs of a layer.
"""

import functools
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.base.machine.processor import mkl_has_avx512
from bertsmith.base.machine.thresholds import AVX2, INTEL_AVX512, thresholds_here
from bertsmith.models.parts.layers import PreparedLinear, finished, joined_activation


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

    Where MKL multiplies some numbers of tokens faster, these are multiplied by plain weights. Weights are then packed
    when another batch first needs it.

    Args:
        dtype: of the products, fp32 or bf16; they are accumulated in fp32.

    Attributes:
        has_plain: whether some numbers of tokens are multiplied by plain weights.
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self._given: Tensor | None = weight.detach().to(dtype)  # None once they are packed
        self.bias = bias.detach().to(dtype)
        self._choose()

    def _choose(self) -> None:
        self.has_plain = _is_faster_plain(self._dense())
        if not self.has_plain:
            self.weight  # noqa: B018 - packed now

    @functools.cached_property
    def weight(self) -> Tensor:
        """The packed weights."""
        # Without a number of tokens: the layout is as good for a thousand, and better for the few of a single text.
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(self._dense().contiguous())
        self.__dict__["weight"] = packed  # first, since another thread may look for either
        self._given = None
        return packed

    @functools.cached_property
    def plain(self) -> Tensor:
        """The plain weights, [K, O]."""
        plain = self._dense().T.contiguous()
        if self._given is not None:
            self._given = plain.T  # no second copy
        return plain

    def _dense(self) -> Tensor:
        """The weights as they were given, [O, K]."""
        dense = self._given
        return self.weight.to_dense() if dense is None else dense

    def __getstate__(self) -> dict[str, Any]:
        """The layer with the weights as they were given: packed ones can be neither copied nor pickled."""
        state = {name: value for name, value in self.__dict__.copy().items() if name not in ("weight", "plain")}
        return {**state, "_given": self._dense().contiguous()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._choose()  # this may be another processor

    def forward(self, x: Tensor, then: str | None = None, plus: Tensor | None = None) -> Tensor:
        """The affine map [T, O] of [T, K], in the dtype of the weights; see `PreparedLinear`."""
        x = x.to(self.bias.dtype)
        if self.has_plain and prefers_plain(x):
            if plus is not None and plus.dtype == x.dtype:
                return torch.add(plus, self.bias).addmm_(x, self.plain)
            return finished(torch.addmm(self.bias, x, self.plain), then, plus)
        tokens, more = len(x), (0, 0, 0, rows_for_packed(len(x)) - len(x))
        padded = F.pad(x, more) if more[-1] else x
        if plus is not None and plus.dtype == x.dtype:
            summand = F.pad(plus, more) if more[-1] else plus
            mapped = torch.ops.mkldnn._linear_pointwise.binary(padded, summand, self.weight, self.bias, "add")
            return cast("Tensor", mapped[:tokens])
        (name, algorithm), left = joined_activation(then)
        mapped = torch.ops.mkldnn._linear_pointwise.default(padded, self.weight, self.bias, name, [], algorithm)
        return finished(mapped[:tokens], left, plus)


def rows_for_packed(tokens: int) -> int:
    """The rows that packed products compute for this number of tokens, of which the last ones have no meaning.

    oneDNN compiles a primitive for each number of rows, in about a millisecond. Rounded up by 3 rows of 64 at most, few
    numbers are left up to 512, so that a small cache suffices for most texts; see
    `base.machine.processor.limit_primitives`.
    """
    if tokens > 512:
        return tokens
    step = 4 if tokens <= 64 else 8 if tokens <= 256 else 16
    return (tokens + step - 1) // step * step


def prefers_plain(x: Tensor) -> bool:
    """Whether this many tokens [T, K] are multiplied by plain weights where a layer has them.

    On Intel processors with AVX-512 up to 128, where one thread computes; with AVX2 alone more than 512.
    """
    if mkl_has_avx512():
        return x.shape[0] <= INTEL_AVX512.few_plain and torch.get_num_threads() == 1
    return x.shape[0] > AVX2.many_plain


def _is_faster_plain(weight: Tensor) -> bool:
    """Whether MKL multiplies some numbers of tokens by these weights [O, K] faster than oneDNN by packed ones.

    In fp32, for narrow layers on an Intel processor with AVX-512, and for all with AVX2 alone; see
    docs/decisions/0014-inference-engine.md.
    """
    if weight.dtype != torch.float32 or not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return False
    return min(weight.shape) <= thresholds_here().widest_plain
