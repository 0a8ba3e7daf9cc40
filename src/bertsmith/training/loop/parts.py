"""Tensors in one file, or in one file for each process that held some of their rows.

A process writes the rows that it holds, so no process ever holds a whole model. The rows of a tensor in all files, in
the order of the files, are the tensor: any number of processes can read them, each the rows that it needs.

::

    model-00001-of-00004.safetensors    the rows of process 0 of 4, and what is not divided
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.sharding import first_row, is_part, own_rows, whole
from bertsmith.base.storage.tensor_file import order_of, require_fit, write_tensors


def part_name(file: str, rank: Rank) -> str:
    """The name of the part of a file that a process writes.

    >>> part_name("model.safetensors", Rank(index=0, count=4))
    'model-00001-of-00004.safetensors'
    """
    stem, _, ending = file.rpartition(".")
    return f"{stem}-{rank.index + 1:05d}-of-{rank.count:05d}.{ending}"


def save_tensors(tensors: Mapping[str, Tensor], path: Path, rank: Rank | None = None) -> None:
    """Writes whole tensors, or with a rank the part of this process: its rows, for rank 0 also what is not divided."""
    parts = {}
    for name, tensor in tensors.items():
        rows = own_rows(tensor)
        if len(rows) if is_part(tensor) else rank is None or rank.index == 0:
            parts[name] = rows
    with open(path, "wb") as file:
        write_tensors(file, parts)


def whole_tensors(tensors: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """The whole tensors in the order of a file, one after another; all processes that hold rows ask for all of them."""
    for name in order_of(tensors):
        yield whole(own_rows(tensors[name]), tensors[name])


class Parts:
    """The tensors in some files, to be copied into others.

    Args:
        paths: one file with whole tensors, or the parts in the order of the processes that wrote them.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[Any] = [safetensors.safe_open(path, "pt") for path in paths]
        self._keys = [set(file.keys()) for file in self._files]
        self.shapes: dict[str, tuple[int, ...]] = {}
        for file, keys in zip(self._files, self._keys, strict=True):
            for name in keys:
                rows, *rest = file.get_slice(name).get_shape() or [None]
                if rows is None:
                    self.shapes[name] = ()
                else:
                    before = self.shapes.get(name, (0,))[0]
                    self.shapes[name] = (before + rows, *rest)

    def require_fit(self, targets: Mapping[str, Tensor], owner: str) -> None:
        """Checks that the targets have the same names and whole shapes."""
        require_fit(self.shapes, targets, owner)

    @torch.no_grad()
    def copy_to(self, targets: Mapping[str, Tensor]) -> None:
        """Copies the rows that this process holds of each target."""
        for name, target in targets.items():
            held = own_rows(target)
            if not target.shape:
                held.copy_(
                    next(f for f, keys in zip(self._files, self._keys, strict=True) if name in keys).get_tensor(name)
                )
                continue
            begin, end, offset = first_row(target), first_row(target) + len(held), 0
            for file, keys in zip(self._files, self._keys, strict=True):
                if name not in keys:
                    continue
                rows = file.get_slice(name)
                count = rows.get_shape()[0]
                first, last = max(begin, offset), min(end, offset + count)
                if first < last:
                    held[first - begin : last - begin].copy_(rows[first - offset : last - offset])
                offset += count
