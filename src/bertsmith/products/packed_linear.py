"""Linear layers with weights cast or packed once, for inference.

Letters: T tokens, K inputs, O outputs of a layer.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.model.layers import ONEDNN_ACTIVATIONS, PreparedLinear, finished


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
    """

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = self._packed(weight.detach().to(dtype).contiguous())
        self.bias = bias.detach().to(dtype)

    def _packed(self, weight: Tensor) -> Tensor:
        # Without a number of tokens: the layout is as good for a thousand, and better for the few of a single text.
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
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
            mapped = torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, name, [], algorithm)
            mapped = finished(mapped, None, plus)
        assert isinstance(mapped, Tensor)
        return mapped
