"""The memory of a training in bytes, counted without allocating it.

Parameters, gradients and optimizer state follow from the shapes. The activations are of one micro-batch: its
forward and backward pass runs on fake tensors, which have a shape and no storage, and every storage that an operation
would allocate is counted from its creation to its end. What operations allocate inside is not seen.
"""

import dataclasses
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bertsmith.base.processes.sharding import blocks_of
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.heads.encoder_with_head import EncoderForPreTraining
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.training.loop.trainer import OPTIMIZERS
from bertsmith.training.pretraining.losses import freeze_unused, negative_log_likelihood
from bertsmith.training.pretraining.objectives import Objective

# A process that trained on the CPU peaked at 1.1 to 1.7 times what it takes with the C library's own way
# (docs/decisions/0028).
KEPT_ON_A_CPU = 1.7


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProcessMemory:
    """The bytes in the memory of a process, at the peak of a step.

    Attributes:
        parameters: of the model, heads included; of a divided one, in the process that holds the most.
        gradients: of the trained parameters, once for each lane that computes a micro-batch, and once for their sum.
        activations: of the micro-batches that are computed side by side, with the casts of the weights to the
            precision of the products and what the backward pass adds at its peak.
        gathered: of a divided model, whole parameters and their gradients while they are used.
    """

    parameters: int
    gradients: int
    moments: int
    activations: int
    checkpoint: int
    gathered: int = 0

    @property
    def total(self) -> int:
        """All that is in memory at once; a checkpoint is not."""
        return self.parameters + self.gradients + self.moments + self.activations + self.gathered

    def peak(self, kind: str) -> int:
        """About the most that a process of a kind, "cpu" or "cuda", may take besides Python and torch."""
        return round(self.total * (KEPT_ON_A_CPU if kind == "cpu" else 1.0))


def bare_model(config: EncoderConfig) -> EncoderForPreTraining:
    """A model without storage, on the meta device."""
    with torch.device("meta"):
        return EncoderForPreTraining(new_encoder(config, seed=None), seed=None)


def memory_of(
    config: EncoderConfig,
    objective: Objective,
    optimizer: str,
    *,
    dtype: torch.dtype,
    rows: int,
    length: int,
    predictions: int,
    lanes: int = 1,
    recomputes: bool = False,
    processes: int = 1,
) -> ProcessMemory:
    """The memory of a process that trains a model."""
    model = bare_model(config)
    if recomputes:
        model.encoder.recompute_layers()
    freeze_unused(model, objective)
    trained = [tensor for tensor in model.parameters() if tensor.requires_grad]
    state = OPTIMIZERS[optimizer](model).state_tensors()
    parameters, gradients, moments = (
        sum(most_of(tensor, processes) for tensor in tensors)
        for tensors in (model.parameters(), trained, state.values())
    )
    checkpoint = sum(most_of(tensor, 1) for tensor in (*model.parameters(), *state.values()))
    gathered = _gathered(model) if processes > 1 else 0
    activations = 0
    if counts_activations(config):
        activations = activation_bytes(model, objective, dtype=dtype, rows=rows, length=length, predictions=predictions)
    return ProcessMemory(
        parameters=parameters,
        gradients=gradients * (lanes + 1 if lanes > 1 else 1),
        moments=moments,
        activations=activations * lanes,
        checkpoint=checkpoint,
        gathered=gathered,
    )


def most_of(tensor: Tensor, processes: int) -> int:
    """The bytes of a tensor in the first of some processes that it is divided among, which has the most rows."""
    rows, rest = (tensor.shape[0], tensor[:1].numel()) if tensor.dim() else (1, 1)
    return -(-rows // processes) * rest * tensor.element_size()


def _gathered(model: nn.Module) -> int:
    """The bytes of what a process gathers of a divided model, at most.

    That is all that is outside of blocks, with its gradients; and of the largest block five times the parameters: the
    block in use, the next one and the buffer in which it arrives, gradients and the buffer from which they are sent.
    """
    blocks = blocks_of(model)
    inside = {id(parameter) for block in blocks for parameter in block.parameters()}
    outside = sum(4 * parameter.numel() for parameter in model.parameters() if id(parameter) not in inside)
    largest = max((sum(4 * parameter.numel() for parameter in block.parameters()) for block in blocks), default=0)
    return 2 * outside + 5 * largest


def counts_activations(config: EncoderConfig) -> bool:
    """Whether the activations of an architecture are counted: of one that reads rows of pieces in one pass."""
    return not (config.is_recurrent or config.two_directions or config.spells_pieces)


def activation_bytes(
    model: EncoderForPreTraining,
    objective: Objective,
    *,
    dtype: torch.dtype,
    rows: int,
    length: int,
    predictions: int,
) -> int:
    """The bytes that a micro-batch adds to model and gradients at the peak of its forward and backward pass."""
    ids = np.zeros(rows * length, dtype=np.int64)
    batch = Batch.from_flat(ids, ids, np.full(rows, length))
    starts = np.arange(rows) * length
    chosen = (starts[:, None] + np.arange(1, predictions + 1)).ravel()
    # [CLS] is read for the label of a pair.
    positions = np.union1d(chosen, starts) if objective.scores_pairs else chosen
    is_first = np.isin(positions, starts) & objective.scores_pairs
    read, first = Read.at(batch, positions), torch.from_numpy(np.flatnonzero(is_first))
    masked = torch.from_numpy(np.flatnonzero(~is_first))
    with FakeTensorMode(allow_non_fake_inputs=True):
        _fill(model)
        allocations = Allocations(list(model.parameters()))
        with allocations:
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        allocations.leave_out_gradient
                    )
            asked = first if objective.scores_pairs else None
            output = model(batch, read=read, masked=masked, first=asked, noise=AnyNoise(), dtype=dtype)
            loss = torch.zeros(())
            for logits in (output.mlm_logits, output.nsp_logits):
                if logits is not None:
                    targets = torch.zeros(logits.shape[0], dtype=torch.int64)
                    loss = loss + negative_log_likelihood(logits, targets, "any", {})
            del output, logits
            loss.backward()  # type: ignore[no-untyped-call]
        return allocations.peak


def _fill(model: nn.Module) -> None:
    """Gives the parameters of a model on the meta device the storage of the mode that is active."""
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                made = torch.empty(parameter.shape, dtype=parameter.dtype)
                module._parameters[name] = nn.Parameter(made, requires_grad=parameter.requires_grad)


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of the storages that operations create inside the block, as long as they are used."""

    def __init__(self, before: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak, self._now = 0, 0
        self._sizes = {tensor.untyped_storage()._cdata: 0 for tensor in before}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Runs the operation and counts the storages of its results."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in self._sizes:
                    self._sizes[storage._cdata] = storage.nbytes()
                    self._now += storage.nbytes()
                    self.peak = max(self.peak, self._now)
                    weakref.finalize(storage, self._forget, storage._cdata)
        return result

    def leave_out_gradient(self, parameter: Tensor) -> None:
        """Counts the gradient of a parameter no longer."""
        assert parameter.grad is not None
        key = parameter.grad.untyped_storage()._cdata
        self._now -= self._sizes.get(key, 0)
        self._sizes[key] = 0

    def _forget(self, key: int) -> None:
        self._now -= self._sizes.pop(key, 0)


class AnyNoise:
    """Noise that has a shape and no values; see `models.parts.noise.Noise`."""

    def keep(self, probability: float, sizes: Sequence[int], dtype: torch.dtype) -> Tensor:
        """As many elements as there would be."""
        return torch.empty(sum(sizes), dtype=dtype)

    def keep_in_step(self, probability: float, name: str, size: int, dtype: torch.dtype) -> Tensor:
        """As many elements as there would be."""
        return torch.empty(size, dtype=dtype)
