"""An ONNX graph as nodes and arrays, and as the bytes of its file format; the package onnx is not needed.

Source: onnx.proto of the ONNX project, for the numbers of fields, types and kinds of attributes.
"""

import dataclasses
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.version import __version__
from bertsmith.models.tensorflow_files.wire import BYTES, FIXED32, VARINT, field, varint

# LayerNormalization needs 17, Gelu 20; onnxruntime reads 20 since 1.17. See docs/decisions/0012-onnx-graph.md.
OPSET, _IR_VERSION = 20, 9
FLOAT, INTEGER, BOOL, DOUBLE = 1, 7, 9, 11  # types of numbers
_TYPES = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INTEGER, np.dtype(np.float64): DOUBLE}
# An operator of ONNX Runtime, and where it is defined.
FUSED_PRODUCT, _RUNTIME = "FusedMatMul", "com.microsoft"
_OF_FLOAT, _OF_INTEGER, _OF_TEXT, _OF_INTEGERS = 1, 2, 3, 7  # kinds of attributes
_OUTSIDE = 1  # where the numbers of an array are
_LARGE = 1024  # bytes of an array that may be outside

Array = npt.NDArray[np.generic]


class Node(NamedTuple):
    """An operator, the names of its inputs and outputs, and its attributes."""

    operator: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    attributes: Mapping[str, Any]


class Value(NamedTuple):
    """An input or output of a graph: its name, its type, and its axes, each a size or a name."""

    name: str
    type: int
    axes: Sequence[int | str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """A graph.

    Attributes:
        arrays: the constants by name.
    """

    name: str
    nodes: Sequence[Node]
    inputs: Sequence[Value]
    outputs: Sequence[Value]
    arrays: Mapping[str, Array]

    @property
    def large(self) -> dict[str, Array]:
        """The arrays, in fp32, whose numbers are not in `message`."""
        return {name: array for name, array in self.arrays.items() if _is_large(array)}

    def message(self) -> bytes:
        """The model as bytes, without the numbers of its large arrays."""
        graph = [_bytes(1, _node(node)) for node in self.nodes]
        graph.append(_text(2, self.name))
        graph += [_bytes(5, _array(name, array)) for name, array in self.arrays.items()]
        graph += [_bytes(11, _value(value)) for value in self.inputs]
        graph += [_bytes(12, _value(value)) for value in self.outputs]
        return b"".join(
            (
                _integer(1, _IR_VERSION),
                _text(2, "bertsmith"),
                _text(3, __version__),
                _bytes(7, b"".join(graph)),
                _bytes(8, _text(1, "") + _integer(2, OPSET)),
                _bytes(8, _text(1, _RUNTIME) + _integer(2, 1)) if any(map(_is_fused, self.nodes)) else b"",
            )
        )


def _bytes(number: int, payload: bytes) -> bytes:
    return field(number, BYTES, payload)


def _text(number: int, text: str) -> bytes:
    return _bytes(number, text.encode())


def _integer(number: int, value: int) -> bytes:
    """A field that is written also where it is 0; negative numbers are in 64 bits."""
    return field(number, VARINT, varint(value % 2**64))


def _node(node: Node) -> bytes:
    return b"".join(
        (
            *(_text(1, name) for name in node.inputs),
            *(_text(2, name) for name in node.outputs),
            _text(3, node.outputs[0]),  # the name of the node
            _text(4, node.operator),
            *(_bytes(5, _attribute(name, value)) for name, value in sorted(node.attributes.items())),
            _text(7, _RUNTIME) if _is_fused(node) else b"",
        )
    )


def _is_fused(node: Node) -> bool:
    return node.operator == FUSED_PRODUCT


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, float):
        kind, payload = _OF_FLOAT, field(2, FIXED32, struct.pack("<f", value))
    elif isinstance(value, int):
        kind, payload = _OF_INTEGER, _integer(3, value)
    elif isinstance(value, str):
        kind, payload = _OF_TEXT, _text(4, value)
    else:
        kind, payload = _OF_INTEGERS, b"".join(_integer(8, number) for number in value)
    return _text(1, name) + payload + _integer(20, kind)


def _array(name: str, array: Array) -> bytes:
    start = b"".join(_integer(1, size) for size in array.shape) + _integer(2, _TYPES[array.dtype]) + _text(8, name)
    if not _is_large(array):
        return start + _bytes(9, array.tobytes())
    return start + _bytes(13, _text(1, "location") + _text(2, "outside")) + _integer(14, _OUTSIDE)


def _is_large(array: Array) -> bool:
    return array.dtype == np.float32 and array.nbytes >= _LARGE


def _value(value: Value) -> bytes:
    axes = (_text(2, axis) if isinstance(axis, str) else _integer(1, axis) for axis in value.axes)
    shape = b"".join(_bytes(1, axis) for axis in axes)
    return _text(1, value.name) + _bytes(2, _bytes(1, _integer(1, value.type) + _bytes(2, shape)))
