"""A table of vectors whose last rows are not trained.

The frozen rows are not parameters, so no optimizer changes them, decays them, or keeps moments of them.

Letters: V rows, D width.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_TRAINED, _FROZEN, WEIGHT = "trained", "frozen", "weight"


class TableWithFrozenRows(nn.Module):
    """A table in place of an `Embedding`, with the same `weight`.

    Args:
        weight: [V, D].
    """

    frozen: Tensor

    def __init__(self, weight: Tensor, first: int) -> None:
        super().__init__()
        self.trained = nn.Parameter(weight[:first].detach().clone())
        self.register_buffer(_FROZEN, weight[first:].detach().clone())

    @property
    def weight(self) -> Tensor:
        """All rows, [V, D]; gradients reach the trained ones."""
        return torch.cat([self.trained, self.frozen])


def whole_tables(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model with each table as one tensor again, under its usual name.

    >>> table = TableWithFrozenRows(torch.arange(6.0).reshape(3, 2), first=1)
    >>> {name: list(tensor.shape) for name, tensor in whole_tables(table.state_dict()).items()}
    {'weight': [3, 2]}
    """
    whole: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        before, _, last = name.rpartition(".")
        prefix = before and f"{before}."
        if last == _FROZEN and f"{prefix}{_TRAINED}" in tensors:
            whole[f"{prefix}{WEIGHT}"] = torch.cat([tensors[f"{prefix}{_TRAINED}"], tensor])
        elif not (last == _TRAINED and f"{prefix}{_FROZEN}" in tensors):
            whole[name] = tensor
    return whole
