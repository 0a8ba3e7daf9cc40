"""The nodes and constants of an ONNX graph under construction; values are referred to by name.

Parameters keep our names; matrices are stored as [in, out], so that products need no transpose.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.layers import QUICK_GELU_RATE


class Nodes:
    """A graph under construction."""

    def __init__(self, onnx: Any, config: EncoderConfig, tensors: Mapping[str, Tensor]) -> None:
        self.onnx, self.config, self.tensors = onnx, config, tensors
        self.nodes: list[Any] = []
        self.arrays: dict[str, npt.NDArray[np.generic]] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The name of the value of a new node."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def halves(self, x: str) -> tuple[str, str]:
        """The two halves of the last axis."""
        name = f"Split_{len(self.nodes)}"
        both = f"{name}_first", f"{name}_second"
        self.nodes.append(self.onnx.helper.make_node("Split", [x], both, name=name, axis=-1, num_outputs=2))
        return both

    def first(self, x: str, *, axis: int) -> str:
        """The first entry along an axis, which is kept with size 1."""
        return self.node("Slice", x, self.integers(0), self.integers(1), self.integers(axis))

    def places(self, ids: str) -> str:
        """0, 1, 2 ... for the tokens of the longest sequence, [S]."""
        length = self.node("Squeeze", self.node("Shape", ids, start=1, end=2))
        return self.node("Range", self.scalar(0), length, self.scalar(1))

    def activation(self, x: str, name: str) -> str:
        """The values of the activation of this name, one of `config.ACTIVATIONS`, at `x`."""
        if name == "linear":
            return x
        if name in ("relu", "tanh"):
            return self.node(name.capitalize(), x)
        if name in ("silu", "quick_gelu"):
            inner = x if name == "silu" else self.node("Mul", x, self.real("rate of quick_gelu", QUICK_GELU_RATE))
            return self.node("Mul", x, self.node("Sigmoid", inner))
        return self.node("Gelu", x, approximate="none" if name == "gelu" else "tanh")

    def dense(self, x: str, name: str) -> str:
        """The affine map of a layer, which may have no bias."""
        product = self.node("MatMul", x, self.array(f"{name}.weight", plain(self.tensors[f"{name}.weight"]).T))
        return self.node("Add", product, self.parameter(f"{name}.bias")) if self.has(f"{name}.bias") else product

    def norm(self, x: str, name: str, epsilon: float | None = None) -> str:
        """Layer norm over the last axis; it may have no bias. `epsilon` comes from the configuration by default."""
        epsilon = self.config.layer_norm_eps if epsilon is None else epsilon
        parameters = [
            self.parameter(parameter) for parameter in (f"{name}.weight", f"{name}.bias") if self.has(parameter)
        ]
        return self.node("LayerNormalization", x, *parameters, axis=-1, epsilon=epsilon)

    def has(self, name: str) -> bool:
        """Whether the model has one of our parameters."""
        return name in self.tensors

    def parameter(self, name: str) -> str:
        """One of our parameters, unchanged."""
        return self.array(name, plain(self.tensors[name]))

    def integers(self, *values: int) -> str:
        """A list of integers."""
        return self.array(f"integers {' '.join(map(str, values))}", np.array(values, dtype=np.int64))

    def scalar(self, value: int) -> str:
        """A single integer."""
        return self.array(f"integer {value}", np.array(value, dtype=np.int64))

    def real(self, name: str, value: float) -> str:
        """A single number in fp32."""
        return self.array(name, np.array(value, dtype=np.float32))

    def array(self, name: str, values: npt.NDArray[np.generic]) -> str:
        """A constant; equal names refer to the same constant."""
        # Not ascontiguousarray, which would add an axis to a single number.
        self.arrays.setdefault(name, np.asarray(values, order="C"))
        return name


def plain(tensor: Tensor) -> npt.NDArray[np.float32]:
    """The numbers of a tensor in fp32."""
    result: npt.NDArray[np.float32] = tensor.detach().float().cpu().numpy()
    return result
