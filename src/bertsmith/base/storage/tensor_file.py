"""Writes a file of safetensors one tensor after another, so that no more than one of them is needed in memory.

::

    8 bytes                     n, the length of the header, unsigned, little-endian
    n bytes                     JSON: the type, shape and place of each tensor; spaces up to a multiple of 8 bytes
    the rest                    the numbers of one tensor after another

The library `safetensors` writes the same bytes. Source: its README, section "Format".
"""

import json
import struct
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING

from bertsmith.base.core.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

# By the name of the type in torch.
_TYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip


def order_of(tensors: "Mapping[str, Tensor]") -> list[str]:
    """The names of tensors in the order of a file: the widest types first, equal ones by name."""
    return sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))


def write_tensors(
    file: IO[bytes],
    tensors: "Mapping[str, Tensor]",
    values: "Iterable[Tensor] | None" = None,
    *,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes tensors to a file.

    Args:
        tensors: their types and shapes, by name.
        values: the tensors themselves in the order of `order_of`, each asked for when it is written; by default those
            of `tensors`.
    """
    import torch

    names = order_of(tensors)
    header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    for name in names:
        tensor = tensors[name]
        end = begin + tensor.numel() * tensor.element_size()
        kind = _TYPES[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(struct.pack("<Q", len(text)) + text)
    for name, tensor in zip(names, (tensors[name] for name in names) if values is None else values, strict=True):
        assert (tensor.dtype, tensor.shape) == (tensors[name].dtype, tensors[name].shape), name
        numbers = tensor.detach().cpu().contiguous().reshape(-1)
        if len(numbers):
            file.write(numbers.view(torch.uint8).numpy().data)


def require_fit(shapes: Mapping[str, tuple[int, ...]], target: "Mapping[str, Tensor]", owner: str) -> None:
    """Checks that tensors have the names and shapes of the tensors of `target`."""
    if shapes.keys() != target.keys():
        wrong = sorted(shapes.keys() ^ target.keys())
        raise CheckpointError(
            expected=f"the {len(target)} tensors of {owner}",
            found=f"{len(wrong)} missing or unknown, the first {wrong[0]!r}",
            fix="use the checkpoint of this model",
        )
    for name, tensor in target.items():
        if tuple(tensor.shape) != shapes[name]:
            raise CheckpointError(
                expected=f"{name!r} of {owner} with shape {tuple(tensor.shape)}",
                found=str(shapes[name]),
                fix="use the checkpoint of this model",
            )
