"""Attention with any score: against loops over single numbers, masks, gradients, and self-attention as a case of it."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.head_inputs import SCORES
from bertsmith.models.parts.layers import initialize
from bertsmith.models.parts.runs import runs_of
from bertsmith.models.parts.scored_attention import (
    AttentionalState,
    ConcatScore,
    DotScore,
    GeneralScore,
    Score,
    attend,
    dot,
    new_score,
    scaled_dot,
)

Numbers = list[float]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    source = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=source, dtype=torch.float64)


def filled(module: torch.nn.Module) -> torch.nn.Module:
    module.double()
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(drawn(*parameter.shape, seed=number))
    return module


def product(matrix: Tensor, vector: Numbers) -> Numbers:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix.tolist()]


def by_hand(score: Score) -> Callable[[Numbers, Numbers], float]:
    """The score of one query and one key, as the paper writes it."""
    if isinstance(score, GeneralScore):
        return lambda h, s: sum(a * b for a, b in zip(h, product(score.weight, s), strict=True))
    if isinstance(score, ConcatScore):
        both = torch.cat([score.query_weight, score.key_weight], dim=1)  # W [H, Q + K]
        v = score.weight.tolist()
        return lambda h, s: sum(a * math.tanh(b) for a, b in zip(v, product(both, [*h, *s]), strict=True))
    return lambda h, s: sum(a * b for a, b in zip(h, s, strict=True))


@pytest.mark.parametrize("name", SCORES)
def test_contexts_and_weights_equal_those_of_a_loop_over_single_numbers(name):
    score = filled(new_score(name, 3, 3))
    query, keys, values = drawn(2, 4, 3), drawn(2, 5, 3, seed=1), drawn(2, 5, 6, seed=2)
    mask = torch.tensor([[[True, True, False, True, True]], [[True, False, False, False, False]]])
    with torch.no_grad():
        contexts, weights = attend(query, keys, values, score, mask)
        slow_score = by_hand(score)
        for row in range(2):
            seen = [number for number in range(5) if mask[row, 0, number]]
            for r in range(4):
                raised = {s: math.exp(slow_score(query[row, r].tolist(), keys[row, s].tolist())) for s in seen}
                shares = [raised.get(s, 0.0) / sum(raised.values()) for s in range(5)]
                assert weights[row, r].tolist() == pytest.approx(shares, abs=1e-12)
                expected = [sum(shares[s] * float(values[row, s, e]) for s in range(5)) for e in range(6)]
                assert contexts[row, r].tolist() == pytest.approx(expected, abs=1e-12)


def test_weights_of_a_worked_case():
    """Scores of 0, ln 2 and ln 3 have the shares 1/6, 2/6 and 3/6."""
    query, keys = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0], [math.log(2), 1.0], [math.log(3), -2.0]])
    contexts, weights = attend(query, keys, torch.tensor([[6.0], [12.0], [60.0]]), dot)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 2.0, 3.0]]) / 6)
    torch.testing.assert_close(contexts, torch.tensor([[35.0]]))


@pytest.mark.parametrize("name", SCORES)
def test_masked_keys_have_no_weight_and_no_influence(name):
    score, query, values = filled(new_score(name, 4, 4)), drawn(3, 4), drawn(5, 2)
    keys = drawn(5, 4).requires_grad_()
    seen = torch.tensor([True, False, True, True, False])
    contexts, weights = attend(query, keys, values, score, seen)
    assert weights[:, ~seen].eq(0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3).double())
    alone, _ = attend(query, keys[seen], values[seen], score)
    torch.testing.assert_close(contexts, alone)
    contexts.square().sum().backward()
    assert keys.grad[~seen].eq(0).all()
    assert keys.grad[seen].abs().min() > 0
    with pytest.raises(AssertionError, match="each query sees a key"):
        attend(query, keys, values, score, torch.zeros(5, dtype=torch.bool))


@pytest.mark.parametrize("name", SCORES)
def test_gradients_are_those_of_finite_differences(name):
    score = filled(new_score(name, 3, 3))
    inputs = [tensor.requires_grad_() for tensor in (drawn(2, 3), drawn(4, 3, seed=1), drawn(4, 2, seed=2))]
    mask = torch.tensor([True, True, False, True])
    assert torch.autograd.gradcheck(lambda *three: attend(*three, score, mask), inputs)
    attend(*inputs, score)[0].square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in score.parameters())


def test_general_with_the_identity_is_dot_and_a_width_of_one_needs_no_scale():
    score, query, keys = GeneralScore(4, 4).double(), drawn(3, 4), drawn(5, 4)
    with torch.no_grad():
        score.weight.copy_(torch.eye(4))
        torch.testing.assert_close(score(query, keys), DotScore()(query, keys))
    torch.testing.assert_close(scaled_dot(query[:, :1], keys[:, :1]), dot(query[:, :1], keys[:, :1]))
    torch.testing.assert_close(scaled_dot(query, keys) * 2, dot(query, keys))


def test_queries_and_keys_may_have_different_widths_but_for_dot():
    for name in ("general", "concat"):
        assert filled(new_score(name, 3, 5))(drawn(2, 3), drawn(4, 5)).shape == (2, 4)
    with pytest.raises(ConfigError, match="one width for the score 'dot'; found 3 and 5"):
        new_score("dot", 3, 5)
    with pytest.raises(ConfigError, match="unknown score 'genral'"):
        new_score("genral", 3, 3)


def test_self_attention_of_one_row_is_attention_with_the_scaled_dot_product():
    query, key, value = drawn(6, 4), drawn(6, 4, seed=1), drawn(6, 4, seed=2)
    seen: list[Tensor] = []
    expected = attention(query, key, value, runs_of((6,), (6,)), heads=1, probabilities=seen)
    contexts, weights = attend(query, key, value, scaled_dot)
    torch.testing.assert_close(contexts, expected)
    torch.testing.assert_close(weights, seen[0][0])
    causal = attention(query, key, value, runs_of((6,), (6,)), heads=1, causal=True)
    left = torch.ones(6, 6, dtype=torch.bool).tril()
    torch.testing.assert_close(attend(query, key, value, scaled_dot, left)[0], causal)


def test_the_attentional_vector_is_a_tanh_of_both_vectors():
    layer, context, query = filled(AttentionalState(2, 3)), drawn(5, 2), drawn(5, 3)
    with torch.no_grad():
        result = layer(context, query)
    for number in range(5):
        inner = product(layer.weight, [*context[number].tolist(), *query[number].tolist()])
        assert result[number].tolist() == pytest.approx([math.tanh(value) for value in inner])


def test_initial_scores_of_states_of_unit_scale_do_not_saturate():
    for name in ("general", "concat"):
        score = new_score(name, 64, 64)
        initialize(score, 0.02, seed=0)
        with torch.no_grad():
            scores = score(drawn(50, 64).float() / 8, drawn(50, 64, seed=1).float())
        assert 0.1 < scores.std() < 2
