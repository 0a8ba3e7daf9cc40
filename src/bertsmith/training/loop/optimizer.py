"""BERT's Adam, LAMB and Muon, with their state as plain named tensors.

Parameters are fp32 (or fp64) master weights; computation in bf16 casts them on the fly. The learning rate is an
argument of every step, because a schedule is a pure function of the step. Sources: `AdamWeightDecayOptimizer` in the
original `optimization.py`; You et al. 2019, "Large Batch Optimization for Deep Learning" (LAMB); Jordan et al. 2024,
"Muon: An optimizer for hidden layers in neural networks".
"""

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from bertsmith.base.machine.runtime import fast_precisions
from bertsmith.base.processes.sharding import norms, own_rows, rows_of, whole
from bertsmith.base.storage.tensor_file import require_fit

# Bias correction divides by 1 - beta**updates. With this many updates the power is 0 and the divisor is 1: this
# disables the correction in the fused kernel.
_NO_CORRECTION = 1e9
_MOMENTUM = 0.95  # of Muon


@dataclass(frozen=True)
class ParameterGroup:
    """Named parameters with the same weight decay, per unit of learning rate, and the same learning-rate factor.

    Attributes:
        exempt: they are norms and biases, which are neither decayed nor scaled by LAMB.
        hidden: they are the matrices between the hidden states, which Muon updates in its own way.
    """

    names: tuple[str, ...]
    parameters: tuple[nn.Parameter, ...]
    decay: float
    factor: float = 1.0
    exempt: bool = False
    hidden: bool = False


class WithGradients(NamedTuple):
    """Those parameters of a group that have a gradient, with their gradients and moments in the same order."""

    group: ParameterGroup
    parameters: list[Tensor]
    gradients: list[Tensor]
    moments: list[tuple[Tensor, ...]]


def no_matrix(name: str, parameter: nn.Parameter) -> bool:
    """Returns False: all parameters are updated in the same way."""
    return False


def every_rate(name: str) -> float:
    """Returns 1: every parameter is trained with the full learning rate."""
    return 1.0


def parameter_groups(
    module: nn.Module,
    weight_decay: float,
    rate_factor: Callable[[str], float] = every_rate,
    is_hidden: Callable[[str, nn.Parameter], bool] = no_matrix,
) -> tuple[ParameterGroup, ...]:
    """The trainable parameters of `module`, each in exactly one group: decayed groups first, then the others.

    Parameters with "norm" or "bias" in their name are not decayed. Embedding tables are. A tied parameter, used under
    two names, counts once, under its first name. Each learning-rate factor has groups of its own, and so have the
    hidden matrices.
    """
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}
    exempt = {name for name in trained if "norm" in name.lower() or "bias" in name.lower()}
    kinds: dict[tuple[bool, float, bool], list[str]] = {(False, 1.0, False): [], (True, 1.0, False): []}
    for name, parameter in trained.items():
        kinds.setdefault((name in exempt, rate_factor(name), is_hidden(name, parameter)), []).append(name)
    groups = tuple(
        ParameterGroup(
            names=tuple(names),
            parameters=tuple(trained[name] for name in names),
            decay=0.0 if exempted else weight_decay,
            factor=factor,
            exempt=exempted,
            hidden=hidden,
        )
        for (exempted, factor, hidden), names in kinds.items()
    )
    members = [id(p) for group in groups for p in group.parameters]
    assert len(members) == len(set(members)), "a parameter is in two groups"
    assert set(members) == {id(p) for p in module.parameters() if p.requires_grad}, "a parameter is in no group"
    return groups


def global_norm(tensors: list[Tensor]) -> Tensor:
    """The joint Euclidean norm of all tensors, as a scalar tensor on their device; 0 for an empty list."""
    if not tensors:
        return torch.zeros(())
    norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
    return norm


def clip(gradients: list[Tensor], norm: float, limit: float) -> None:
    """Scales `gradients`, whose global norm is `norm`, in place to a global norm of at most `limit`.

    The scale is limit / max(norm, limit), as in `tf.clip_by_global_norm`.
    """
    if norm > limit and gradients:
        torch._foreach_mul_(gradients, limit / norm)


class Optimizer(abc.ABC):
    """Base of all optimizers: groups, the moments of every parameter, and their names on disk.

    The moments of a parameter are `m` and `v`, or `m` alone.

    Args:
        weight_decay: fraction of a decayed parameter that is added to its update.
        epsilon: added to the square root of the second moment, outside the root.
        bias_correction: divide the moments by 1 - beta**updates. The 2018 code does not.
        matrix_rate: for Muon, the learning rate of the hidden matrices as a multiple of that of the others.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-6,
        bias_correction: bool = False,
        rate_factor: Callable[[str], float] = every_rate,
        matrix_rate: float = 1.0,
    ) -> None:
        self.groups = parameter_groups(module, weight_decay, rate_factor, self.is_hidden)
        self.betas, self.epsilon, self.bias_correction = betas, epsilon, bias_correction
        self.matrix_rate = matrix_rate
        self.updates = 0
        self.moments: dict[str, tuple[Tensor, ...]] = {
            name: tuple(torch.zeros_like(p, requires_grad=False) for _ in range(self.num_moments(group)))
            for group in self.groups
            for name, p in zip(group.names, group.parameters, strict=True)
        }

    @staticmethod
    def is_hidden(name: str, parameter: nn.Parameter) -> bool:
        """Whether a parameter belongs to the hidden matrices; none does unless the optimizer treats them apart."""
        return False

    @staticmethod
    def num_moments(group: ParameterGroup) -> int:
        """The number of moments of each parameter in a group."""
        return 2

    def gradients(self) -> list[Tensor]:
        """The gradients of all parameters that have one: their rows that this process holds."""
        return [own_rows(p.grad) for group in self.groups for p in group.parameters if p.grad is not None]

    def clear_gradients(self) -> None:
        """Clears all gradients; `zero_grad` of a model that is divided misses them after an evaluation."""
        for group in self.groups:
            for p in group.parameters:
                p.grad = None

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Updates every parameter that has a gradient; the others are unchanged."""
        self.updates += 1
        for group in self.groups:
            present = [(n, p) for n, p in zip(group.names, group.parameters, strict=True) if p.grad is not None]
            if present:
                tensors = WithGradients(
                    group,
                    [p for _, p in present],
                    [own_rows(p.grad) for _, p in present if p.grad is not None],
                    [tuple(map(own_rows, self.moments[name])) for name, _ in present],
                )
                self._update(tensors, learning_rate * group.factor)

    @abc.abstractmethod
    def _update(self, tensors: WithGradients, learning_rate: float) -> None:
        """Updates the parameters and their moments in place.

        Of parameters that are divided among processes, gradients and moments are the rows that this one holds.
        """

    def reset(self) -> None:
        """Resets all moments, as if no update had been made."""
        self.updates = 0
        torch._foreach_zero_([own_rows(tensor) for pair in self.moments.values() for tensor in pair])

    def state_tensors(self) -> dict[str, Tensor]:
        """The moments as `m.<parameter>` and `v.<parameter>`; the caller stores `updates`."""
        return {
            f"{kind}.{name}": tensor
            for name, tensors in self.moments.items()
            for kind, tensor in zip("mv", tensors, strict=False)
        }

    @torch.no_grad()
    def load_state_tensors(self, tensors: Mapping[str, Tensor], updates: int) -> None:
        """Restores the moments that `state_tensors` returned after `updates` updates."""
        copy_tensors(tensors, self.state_tensors(), "the optimizer state")
        self.updates = updates


class BertAdam(Optimizer):
    """Adam with decoupled decay and, by default, without bias correction.

    Per tensor: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p -= rate (m / (sqrt(v) + eps) + decay p).
    The update is one pass over memory, in the fused kernel that `torch.optim.AdamW(fused=True)` calls.
    """

    def _update(self, tensors: WithGradients, learning_rate: float) -> None:
        group, parameters, gradients, moments = tensors
        parameters = list(map(own_rows, parameters))
        m, v = [pair[0] for pair in moments], [pair[1] for pair in moments]
        updates = float(self.updates) if self.bias_correction else _NO_CORRECTION
        count = torch.full((), updates, dtype=torch.float32, device=parameters[0].device)
        torch._fused_adamw_(
            parameters,
            gradients,
            m,
            v,
            [],
            [count] * len(parameters),
            lr=learning_rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=group.decay,
            eps=self.epsilon,
            amsgrad=False,
            maximize=False,
        )


class Lamb(Optimizer):
    """LAMB for large batches: Adam's update of a tensor, decay included, scaled to the norm of the tensor.

    The trust ratio is |p| / |update|, and 1 if either norm is 0. Norms and biases have a ratio of 1. As in the code
    that Google published with ALBERT (`lamb_optimizer.py`), names alone decide that, whatever the weight decay.
    """

    def _update(self, tensors: WithGradients, learning_rate: float) -> None:
        group, parameters, gradients, moments = tensors
        (b1, b2), t = self.betas, self.updates
        whole_parameters, parameters = parameters, list(map(own_rows, parameters))
        m, v = [pair[0] for pair in moments], [pair[1] for pair in moments]
        torch._foreach_lerp_(m, gradients, 1 - b1)
        torch._foreach_mul_(v, b2)
        torch._foreach_addcmul_(v, gradients, gradients, 1 - b2)
        update = torch._foreach_sqrt(v)
        if self.bias_correction:
            torch._foreach_div_(update, (1 - b2**t) ** 0.5)
        torch._foreach_add_(update, self.epsilon)
        torch._foreach_reciprocal_(update)
        torch._foreach_mul_(update, m)
        if self.bias_correction:
            torch._foreach_div_(update, 1 - b1**t)
        if group.decay:
            torch._foreach_add_(update, parameters, alpha=group.decay)
        if not group.exempt:
            sizes, lengths = norms(parameters, whole_parameters), norms(list(update), whole_parameters)
            ratios = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, torch.ones_like(sizes))
            torch._foreach_mul_(update, list(ratios.unbind()))
        torch._foreach_add_(parameters, update, alpha=-learning_rate)


class Muon(BertAdam):
    """Adam, but with orthogonalized momentum for the hidden matrices: those of the layers and of the masked-LM head.

    Per hidden matrix [r, c]: m = 0.95 m + g; p -= rate matrix_rate (max(1, r / c)**0.5 orthogonal(g + 0.95 m) +
    decay p). All directions of a matrix so change by the same amount, however small their gradients. Embedding tables,
    norms and biases are updated by Adam.
    """

    @staticmethod
    def is_hidden(name: str, parameter: nn.Parameter) -> bool:
        """Whether a parameter is a matrix between hidden states, which both its axes belong to."""
        return parameter.dim() == 2 and (".layers." in f".{name}" or name == "mlm.transform.weight")

    @staticmethod
    def num_moments(group: ParameterGroup) -> int:
        """One for the hidden matrices, which have no second moment."""
        return 1 if group.hidden else 2

    def _update(self, tensors: WithGradients, learning_rate: float) -> None:
        group, parameters, gradients, moments = tensors
        if not group.hidden:
            super()._update(tensors, learning_rate)
            return
        rate, m = learning_rate * self.matrix_rate, [only for (only,) in moments]
        torch._foreach_mul_(m, _MOMENTUM)
        torch._foreach_add_(m, gradients)
        ahead = torch._foreach_add(gradients, m, alpha=_MOMENTUM)
        if group.decay:
            torch._foreach_mul_(list(map(own_rows, parameters)), 1 - rate * group.decay)
        for parameter, direction in zip(parameters, ahead, strict=True):
            tall = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
            turned = rows_of(orthogonal(whole(direction, parameter)), parameter)
            own_rows(parameter).add_(turned, alpha=-rate * tall)


def orthogonal(matrix: Tensor) -> Tensor:
    """About the nearest matrix with orthonormal rows or columns: singular values between 0.7 and 1.2 become those.

    Five rounds of a quintic Newton-Schulz iteration, in bf16 where the hardware multiplies it.

    Source: `zeropower_via_newtonschulz5` in the code of Jordan et al. (2024); the coefficients are theirs.
    """
    dtype = torch.bfloat16 if "bf16" in fast_precisions(matrix.device.type) else torch.float32
    x = matrix.to(dtype)
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / (torch.linalg.vector_norm(x) + 1e-7)
    first, third, fifth = 3.4445, -4.7750, 2.0315
    for _ in range(5):
        square = x @ x.T
        x = first * x + (third * square + fifth * square @ square) @ x
    nearest: Tensor = (x.T if is_tall else x).to(matrix.dtype)
    return nearest


@torch.no_grad()
def copy_tensors(source: Mapping[str, Tensor], target: Mapping[str, Tensor], owner: str) -> None:
    """Copies `source` into the tensors of `target`, which must have the same names and shapes."""
    require_fit({name: tuple(tensor.shape) for name, tensor in source.items()}, target, owner)
    for name, tensor in target.items():
        tensor.copy_(source[name])
