"""Runs of equal shape in a flat batch, runs of similar shape joined, and copying arrays to a device.

Letters: N sequences; of a joined run n sequences, s keys and r queries of the largest of them.
"""

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Weights that take as long as the calls for one more run, forward and backward, on one core; see
# `benchmarks/joined_attention.py`.
_WEIGHTS_OF_A_CALL = 2**14


class Run(NamedTuple):
    """Consecutive sequences of one shape: the same length and the same number of queries."""

    row: int  # first sequence
    rows: int  # number of sequences
    token: int  # first token (keys)
    length: int  # tokens per sequence
    query: int  # first query
    queries: int  # queries per sequence


class JoinedRun(NamedTuple):
    """Consecutive sequences of similar shapes, each of which has room for the keys and queries of the largest."""

    rows: int  # number of sequences
    length: int  # room for keys
    queries: int  # room for queries
    key_slots: "Tensor"  # int64: the slots of the keys, among n*s
    query_slots: "Tensor"  # int64: the slots of the queries, among n*r
    is_key: "Tensor"  # bool [n, 1, 1, s]: the slots that have a key
    is_query: "Tensor"  # bool [n, 1, r, 1]: the slots that have a query
    weights: int  # of one head, without those of empty slots


class Runs(tuple[Run, ...]):
    """The runs of a batch, in order, as the loop over them and the variable-length kernel of a GPU need them."""

    @functools.cached_property
    def lengths(self) -> tuple[int, ...]:
        """The tokens of each sequence, [N]."""
        return tuple(run.length for run in self for _ in range(run.rows))

    @functools.cached_property
    def queries(self) -> tuple[int, ...]:
        """The queries of each sequence, [N]."""
        return tuple(run.queries for run in self for _ in range(run.rows))

    def ends(self, device: "torch.device") -> "tuple[Tensor, Tensor]":
        """Where the queries and the keys of each sequence end, from 0 on: int32 [N + 1] each, copied once."""
        known: dict[str, tuple[Tensor, Tensor]] = self.__dict__.setdefault("_ends", {})
        if str(device) not in known:
            queries, keys = (np.cumsum((0, *counts), dtype=np.int32) for counts in (self.queries, self.lengths))
            known[str(device)] = copied(queries, device), copied(keys, device)
        return known[str(device)]

    def joined(self, heads: int) -> tuple[JoinedRun, ...]:
        """The batch in fewer runs: neighbors are joined where the room left empty costs less than another call."""
        known: dict[int, tuple[JoinedRun, ...]] = self.__dict__.setdefault("_joined", {})
        if heads not in known:
            groups: list[list[Run]] = []
            for run in self:
                apart = (_weights(groups[-1]) if groups else 0) + _weights([run])
                if groups and heads * (_weights([*groups[-1], run]) - apart) <= _WEIGHTS_OF_A_CALL:
                    groups[-1].append(run)
                else:
                    groups.append([run])
            known[heads] = tuple(_joined(group) for group in groups)
        return known[heads]


def _weights(runs: list[Run]) -> int:
    """The attention weights of one head if these runs are joined."""
    return sum(run.rows for run in runs) * max(run.length for run in runs) * max(run.queries for run in runs)


def _joined(runs: list[Run]) -> JoinedRun:
    import torch

    rows = [run.rows for run in runs]
    lengths, queries = (
        np.repeat(np.array(sizes), rows) for sizes in ([run.length for run in runs], [run.queries for run in runs])
    )
    is_key = np.arange(lengths.max()) < lengths[:, None]
    is_query = np.arange(queries.max()) < queries[:, None]
    return JoinedRun(
        rows=len(lengths),
        length=is_key.shape[1],
        queries=is_query.shape[1],
        key_slots=torch.from_numpy(np.flatnonzero(is_key)),
        query_slots=torch.from_numpy(np.flatnonzero(is_query)),
        is_key=torch.from_numpy(is_key)[:, None, None, :],
        is_query=torch.from_numpy(is_query)[:, None, :, None],
        weights=int(lengths @ queries),
    )


def runs_of(lengths: tuple[int, ...], queries: tuple[int, ...]) -> Runs:
    """The runs of sequences with these lengths and numbers of queries."""
    runs: list[Run] = []
    token = query = 0
    for row, (length, count) in enumerate(zip(lengths, queries, strict=True)):
        last = runs[-1] if runs else None
        if last is not None and (last.length, last.queries) == (length, count):
            runs[-1] = last._replace(rows=last.rows + 1)
        else:
            runs.append(Run(row=row, rows=1, token=token, length=length, query=query, queries=count))
        token += length
        query += count
    return Runs(runs)


def copied(array: npt.NDArray[Any], device: "torch.device | str") -> "Tensor":
    """An array as a tensor on a device.

    The copy to a GPU is from memory that cannot be paged out, and the host does not wait for it: the thread that
    prepares the next step would otherwise stop until the GPU has finished the current one.
    """
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if torch.device(device).type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
