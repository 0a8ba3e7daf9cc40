"""Layers that Hugging Face stores as one tensor, such as the query, key and value of GPT.

Letters: K inputs, O outputs of one layer, F layers that are stored as one.

The matrices are [K, F*O] there (or [F*O, K] unless `ParameterNames.is_transposed`), their biases [F*O]; here each layer
has tensors of its own.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bertsmith.models.parts.parameter_names import ParameterNames


def split_fused(stored: Mapping[str, Tensor], names: ParameterNames) -> dict[str, Tensor]:
    """The tensors of a checkpoint, with a name for each layer of a fused one.

    A tensor that cannot be split into equal parts keeps its name, which is then an unknown one.
    """
    result: dict[str, Tensor] = {}
    axis = -1 if names.is_transposed else 0
    for name, tensor in stored.items():
        layer, _, last = name.rpartition(".")
        parts = next((parts for end, parts in names.fused.items() if layer.endswith(end)), ())
        if parts and tensor.dim() and tensor.shape[axis] % len(parts) == 0:
            pieces = tensor.chunk(len(parts), dim=axis)
            result |= {f"{layer}.{part}.{last}": piece for part, piece in zip(parts, pieces, strict=True)}
        else:
            result[name] = tensor
    return result


def join_fused(named: Mapping[str, Tensor], names: ParameterNames) -> dict[str, Tensor]:
    """The tensors as Hugging Face stores them, from those with a name for each layer."""
    result = dict(named)
    for end, parts in names.fused.items():
        first = f"{end}.{parts[0]}."
        for name in [name for name in named if first in name]:
            pieces = [result.pop(name.replace(first, f"{end}.{part}.")) for part in parts]
            result[name.replace(first, f"{end}.")] = torch.cat(pieces, dim=-1 if names.is_transposed else 0)
    return result
