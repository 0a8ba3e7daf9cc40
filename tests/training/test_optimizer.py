"""The optimizers against the formulas of the paper."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from bertsmith.base.core.errors import CheckpointError
from bertsmith.training.loop.optimizer import (
    BertAdam,
    Lamb,
    Muon,
    clip,
    global_norm,
    orthogonal,
    parameter_groups,
)
from bertsmith.training.loop.settings import OPTIMIZER_NAMES
from bertsmith.training.loop.trainer import OPTIMIZERS
from oracles import adam_oracle


class TwoLayers(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(1)
        self.word = nn.Embedding(5, 3, dtype=dtype)
        self.norm = nn.LayerNorm(3, dtype=dtype)
        self.output = nn.Linear(3, 5, dtype=dtype)
        self.output.weight = self.word.weight
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=draws, dtype=dtype))


class OneVector(nn.Module):
    def __init__(self, values: list[float], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.tensor(values, dtype=dtype))


def test_tables_and_matrices_decay_but_norms_and_biases_do_not():
    decayed, rest = parameter_groups(TwoLayers(), 0.01)
    assert (decayed.names, decayed.decay) == (("word.weight",), 0.01)
    assert (rest.names, rest.decay) == (("norm.weight", "norm.bias", "output.bias"), 0.0)


def test_a_frozen_parameter_is_in_no_group():
    module = TwoLayers()
    module.norm.requires_grad_(False)
    assert [group.names for group in parameter_groups(module, 0.1)] == [("word.weight",), ("output.bias",)]


@pytest.mark.parametrize("weight_decay", [0.01, 0.0])
@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("kind", [BertAdam, Lamb])
def test_the_first_updates_equal_the_formulas(kind, bias_correction, weight_decay):
    """Five updates, with different decay per tensor, within 1e-7 of a manual computation.

    LAMB scales the update of a tensor by its name alone: with a decay of 0 as well.
    """
    module = TwoLayers()
    optimizer = kind(module, weight_decay=weight_decay, bias_correction=bias_correction)
    before = {name: p.detach().numpy().copy() for name, p in module.named_parameters()}
    draws = np.random.Generator(np.random.PCG64(2))
    gradients = {name: [draws.standard_normal(p.shape) for _ in range(5)] for name, p in before.items()}
    rates = [0.0, 0.1, 0.2, 0.15, 0.1]
    for step, rate in enumerate(rates):
        for name, p in module.named_parameters():
            p.grad = torch.from_numpy(gradients[name][step].copy())
        optimizer.step(rate)
    for name, p in module.named_parameters():
        is_table = name == "word.weight"
        values = {"decay": weight_decay if is_table else 0.0, "bias_correction": bias_correction}
        expected = (
            adam_oracle.bert_adam(before[name], gradients[name], rates, **values)
            if kind is BertAdam
            else adam_oracle.lamb(before[name], gradients[name], rates, adapted=is_table, **values)
        )
        np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-7)
        assert not np.allclose(p.detach().numpy(), before[name])


def test_without_bias_correction_the_first_update_is_more_than_three_times_the_rate():
    """0.1 / sqrt(0.001) = 3.16 times the sign of the gradient; with bias correction the factor is 1."""
    for bias_correction, factor in ((False, 0.1 / math.sqrt(0.001)), (True, 1.0)):
        module = OneVector([1.0, -2.0], torch.float64)
        module.x.grad = torch.tensor([5.0, -7.0], dtype=torch.float64)
        BertAdam(module, weight_decay=0.0, bias_correction=bias_correction).step(0.01)
        moved = (torch.tensor([1.0, -2.0], dtype=torch.float64) - module.x.detach()) / 0.01
        torch.testing.assert_close(moved, torch.tensor([factor, -factor], dtype=torch.float64), rtol=1e-5, atol=0)


def test_a_problem_of_three_numbers_is_solved():
    """The published test of the original optimizer: 100 steps with a learning rate of 0.2."""
    module, target = OneVector([0.1, -0.2, -0.1]), torch.tensor([0.4, 0.2, -0.5])
    optimizer = BertAdam(module, weight_decay=0.0)
    for _ in range(100):
        module.zero_grad()
        ((module.x - target) ** 2).mean().backward()
        optimizer.step(0.2)
    torch.testing.assert_close(module.x.detach(), target, rtol=0, atol=1e-2)


@pytest.mark.parametrize("weight_decay", [0.01, 0.0])
def test_the_trust_ratio_makes_an_update_as_long_as_the_rate_times_the_tensor(weight_decay):
    module = OneVector([3.0, 4.0], torch.float64)
    module.x.grad = torch.tensor([1e-3, 2e-3], dtype=torch.float64)
    Lamb(module, weight_decay=weight_decay).step(0.1)
    moved = torch.tensor([3.0, 4.0], dtype=torch.float64) - module.x.detach()
    assert float(moved.norm()) == pytest.approx(0.1 * 5.0)


def test_a_tensor_of_zeros_can_leave_zero_under_lamb():
    module = OneVector([0.0, 0.0])
    module.x.grad = torch.tensor([1.0, -1.0])
    Lamb(module).step(0.1)
    assert module.x[0] < 0 < module.x[1]


def test_a_rate_of_zero_moves_nothing_but_the_moments():
    module = TwoLayers()
    before = [p.detach().clone() for p in module.parameters()]
    optimizer = BertAdam(module)
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step(0.0)
    assert all(torch.equal(p, q) for p, q in zip(module.parameters(), before, strict=True))
    assert all(bool(tensor.all()) for tensor in optimizer.state_tensors().values())


def test_a_parameter_without_a_gradient_stays_as_it_is():
    module = TwoLayers()
    before = module.norm.weight.detach().clone()
    module.word.weight.grad = torch.ones_like(module.word.weight)
    BertAdam(module).step(1.0)
    assert torch.equal(module.norm.weight, before)


def test_a_long_gradient_is_cut_to_the_limit_and_a_short_one_is_left():
    for limit, expected in ((1.0, [[0.6], [0.8]]), (5.0, [[3.0], [4.0]]), (6.0, [[3.0], [4.0]])):
        gradients = [torch.tensor([3.0]), torch.tensor([4.0])]
        norm = float(global_norm(gradients))
        assert norm == 5.0
        clip(gradients, norm, limit)
        torch.testing.assert_close(torch.stack(gradients), torch.tensor(expected))


def test_the_norm_of_no_gradient_is_zero():
    assert float(global_norm([])) == 0.0


def test_the_state_comes_back_under_its_names():
    module = TwoLayers()
    optimizer = BertAdam(module)
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step(0.1)
    other = BertAdam(TwoLayers())
    other.load_state_tensors(optimizer.state_tensors(), optimizer.updates)
    assert other.updates == 1
    assert "m.word.weight" in other.state_tensors()
    assert "v.norm.bias" in other.state_tensors()
    for name, tensor in other.state_tensors().items():
        assert torch.equal(tensor, optimizer.state_tensors()[name])


def test_the_state_of_another_model_is_refused_by_name():
    optimizer = BertAdam(TwoLayers())
    wrong_shape = optimizer.state_tensors() | {"m.norm.bias": torch.zeros(4)}
    with pytest.raises(CheckpointError, match=r"'m\.norm\.bias' .* with shape \(3,\); found \(4,\)"):
        optimizer.load_state_tensors(wrong_shape, 1)
    with pytest.raises(CheckpointError, match="found 10 missing or unknown"):
        optimizer.load_state_tensors(BertAdam(OneVector([1.0])).state_tensors(), 1)
    assert optimizer.updates == 0


def test_the_settings_know_the_optimizers_that_there_are() -> None:
    """The names are written twice, because the settings may not load torch."""
    assert tuple(OPTIMIZERS) == OPTIMIZER_NAMES


class Stack(nn.Module):
    """A table, a hidden matrix, its bias, and the matrix of the masked-LM head, with the names that models use."""

    def __init__(self) -> None:
        super().__init__()
        draws = torch.Generator().manual_seed(4)
        self.word = nn.Embedding(6, 8)
        self.layers = nn.ModuleList([nn.Linear(8, 16)])
        self.mlm = nn.ModuleDict({"transform": nn.Linear(8, 8)})
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.randn(p.shape, generator=draws))


@pytest.mark.parametrize("shape", [(8, 8), (16, 8), (8, 32), (1, 5)])
def test_orthogonal_keeps_the_directions_and_levels_the_singular_values(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    nearest = orthogonal(matrix)
    assert nearest.dtype == matrix.dtype
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    inside = left.T @ nearest @ right.T  # diagonal, if the singular vectors are kept
    assert (inside - torch.diag(inside.diagonal())).abs().max() < 0.05
    assert (inside.diagonal() > 0.6).all()
    assert (inside.diagonal() < 1.3).all()


def test_muon_moves_hidden_matrices_along_orthogonal_directions_and_the_rest_as_adam_does():
    module, plain = Stack(), Stack()
    settings = {"weight_decay": 0.1, "betas": (0.9, 0.98), "bias_correction": True}
    muon, adam = Muon(module, matrix_rate=5.0, **settings), BertAdam(plain, **settings)
    draws = torch.Generator().manual_seed(2)
    momentum = {}
    expected = {name: p.detach().clone() for name, p in module.named_parameters()}
    for rate in (0.1, 0.05):
        for (name, p), other in zip(module.named_parameters(), plain.parameters(), strict=True):
            p.grad = torch.randn(p.shape, generator=draws)
            other.grad = p.grad.clone()
            if p.dim() == 2 and name != "word.weight":
                momentum[name] = 0.95 * momentum.get(name, 0.0) + p.grad
                tall = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                step = tall * orthogonal(p.grad + 0.95 * momentum[name])
                expected[name] = expected[name] * (1 - rate * 5 * 0.1) - rate * 5 * step
        muon.step(rate)
        adam.step(rate)
    for (name, p), other in zip(module.named_parameters(), plain.named_parameters(), strict=True):
        wanted = expected[name] if name in momentum else other[1]
        torch.testing.assert_close(p, wanted, rtol=1e-5, atol=1e-6, msg=name)
    assert sorted(momentum) == ["layers.0.weight", "mlm.transform.weight"]


def test_the_state_of_muon_has_no_second_moment_for_hidden_matrices():
    names = Muon(Stack()).state_tensors()
    assert "m.layers.0.weight" in names
    assert "v.layers.0.weight" not in names
    assert {"m.word.weight", "v.word.weight", "m.layers.0.bias", "v.layers.0.bias"} <= names.keys()


def test_muon_resumes_with_the_same_bits():
    straight, stopped = Stack(), Stack()
    optimizers = {id(network): Muon(network, bias_correction=True) for network in (straight, stopped)}

    def train(module, steps):
        for step in steps:
            for number, p in enumerate(module.parameters()):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(100 * step + number))
            optimizers[id(module)].step(0.01)

    train(straight, range(6))
    train(stopped, range(3))
    saved = {name: tensor.clone() for name, tensor in optimizers[id(stopped)].state_tensors().items()}
    resumed = Muon(stopped, bias_correction=True)
    resumed.load_state_tensors(saved, updates=3)
    optimizers[id(stopped)] = resumed
    train(stopped, range(3, 6))
    for parameter, other in zip(straight.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(parameter, other)
