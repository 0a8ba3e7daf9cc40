"""Attention against a loop over heads, queries and keys."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.models.parts import attention as attention_module
from bertsmith.models.parts import runs as runs_module
from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.noise import RowNoise
from processors import pretend

HEADS, WIDTH = 3, 4


def looped(query: Tensor, key: Tensor, value: Tensor, lengths: list[int], causal: bool) -> Tensor:
    """softmax(q k / sqrt(d)) v, one number at a time."""
    out = torch.zeros_like(query)
    start = 0
    for length in lengths:
        for head in range(HEADS):
            columns = slice(head * WIDTH, (head + 1) * WIDTH)
            for i in range(start, start + length):
                last = i + 1 if causal else start + length
                scores = [sum(query[i, columns] * key[j, columns]) / math.sqrt(WIDTH) for j in range(start, last)]
                total = sum(math.exp(score) for score in scores)
                for j, score in zip(range(start, last), scores, strict=True):
                    out[i, columns] += math.exp(score) / total * value[j, columns]
        start += length
    return out


def flat(lengths: list[int]) -> tuple[Batch, Tensor, Tensor, Tensor]:
    count = sum(lengths)
    batch = Batch.from_flat(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), lengths)
    source = torch.Generator().manual_seed(count)
    q, k, v = torch.randn((3, count, HEADS * WIDTH), generator=source, dtype=torch.float64)
    return batch, q, k, v


@pytest.mark.parametrize("causal", [False, True])
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_attention_equals_a_loop_over_single_numbers(causal, lengths):
    """Scaled dot products and heads, computed one by one."""
    batch, q, k, v = flat(lengths)
    expected = looped(q, k, v, lengths, causal)
    fused = attention(q, k, v, batch.runs, heads=HEADS, causal=causal)
    assert torch.allclose(fused, expected, atol=1e-12)
    seen: list[Tensor] = []
    dense = attention(q, k, v, batch.runs, heads=HEADS, causal=causal, probabilities=seen)
    assert torch.allclose(dense, expected, atol=1e-12)
    assert [tuple(weights.shape) for weights in seen] == [(HEADS, n, n) for n in lengths]
    for weights in seen:
        assert torch.allclose(weights.sum(-1), torch.ones(()).double())


@pytest.mark.parametrize("causal", [False, True])
def test_fewer_queries_give_the_rows_of_all_queries(causal):
    batch, q, k, v = flat([4, 4, 2, 5])
    positions = np.array([0, 2, 4, 5, 9, 10, 14])
    read = Read.at(batch, positions)
    some = attention(
        q[positions], k, v, read.runs, heads=HEADS, causal=causal, query_positions=batch.positions[positions]
    )
    everything = attention(q, k, v, batch.runs, heads=HEADS, causal=causal)
    assert torch.allclose(some, everything[positions], atol=1e-12)


def test_attention_with_dropout_averages_to_attention_without():
    batch, q, k, v = flat([5, 5, 3])
    total = torch.zeros_like(q)
    for step in range(2000):
        noise = RowNoise(0, step, batch.row_ids)
        total += attention(q, k, v, batch.runs, heads=HEADS, dropout=0.25, noise=noise)
    assert torch.allclose(total / 2000, attention(q, k, v, batch.runs, heads=HEADS), atol=0.08)


@pytest.mark.parametrize("causal", [False, True])
def test_in_bf16_two_products_are_as_exact_as_the_fused_kernel(causal, monkeypatch):
    """The processor decides which one runs; without gradients, few weights take the fused one."""
    batch, *values = flat([9, 9, 4, 1])
    halves = [value.bfloat16() for value in values]
    exact = [half.double().requires_grad_() for half in halves]
    true = attention(*exact, batch.runs, heads=HEADS, causal=causal)
    slopes = torch.autograd.grad(true.square().sum(), exact)
    calls: list[bool] = []
    dense = attention_module.dense_attention
    monkeypatch.setattr(attention_module, "dense_attention", lambda *a, **b: calls.append(True) or dense(*a, **b))
    errors = {}
    for flags in (frozenset(), frozenset({"avx512_bf16"})):
        pretend(monkeypatch, *flags)
        calls.clear()
        inputs = [half.clone().requires_grad_() for half in halves]
        result = attention(*inputs, batch.runs, heads=HEADS, causal=causal)
        assert bool(calls) == bool(flags)
        calls.clear()
        attention(*halves, batch.runs, heads=HEADS, causal=causal)
        assert not calls
        found_slopes = torch.autograd.grad(result.double().square().sum(), inputs)
        pairs = [(result, true), *zip(found_slopes, slopes, strict=True)]
        errors[bool(flags)] = [(exact.double() - other).abs().max().item() for exact, other in pairs]
    for products, fused in zip(errors[True], errors[False], strict=True):
        assert products <= 2 * fused + 2**-8


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("cached", [1, 81, 300])
def test_attention_in_parts_is_that_of_the_whole(cached, causal, monkeypatch):
    """Parts of one head, of a few heads and of a few sequences; all positions and some of them."""
    batch, *values = flat([9, 9, 9, 9, 4, 1])
    query, key, value = (value.bfloat16() for value in values)
    result = {}
    for least in (0, 10**9):
        monkeypatch.setattr(attention_module, "_LEAST_WEIGHTS", least)
        monkeypatch.setattr(attention_module, "_CACHED_WEIGHTS", cached)
        pretend(monkeypatch, "avx512_bf16")
        result[least] = attention(query, key, value, batch.runs, heads=HEADS, causal=causal)
    exact = attention(*(tensor.double() for tensor in (query, key, value)), batch.runs, heads=HEADS, causal=causal)
    errors = [(tensor.double() - exact).abs().max().item() for tensor in result.values()]
    assert errors[0] <= 2 * errors[1] + 2**-8
    read = Read.at(batch, np.array([0, 5, 9, 18, 30, 36, 40]))
    some = query[read.positions]
    monkeypatch.setattr(attention_module, "_LEAST_WEIGHTS", 0)
    part = attention(
        some, key, value, read.runs, heads=HEADS, causal=causal, query_positions=batch.positions[read.positions]
    )
    assert (part.double() - exact[read.positions]).abs().max() <= 2 * errors[1] + 2**-8


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@given(lengths=st.lists(st.integers(1, 9), min_size=2, max_size=8), rest=st.data())
def test_joined_runs_have_the_values_and_gradients_of_runs_of_one_length(dtype, causal, dropout, lengths, rest):
    batch, *inputs = flat(lengths)
    query, key, value = (array.to(dtype).requires_grad_() for array in inputs)
    runs = batch.runs
    if not causal:
        drawn = rest.draw(st.lists(st.booleans(), min_size=sum(lengths), max_size=sum(lengths)))
        firsts = np.isin(np.arange(sum(lengths)), np.cumsum([0, *lengths]))
        read = Read.at(batch, np.flatnonzero(firsts | np.array(drawn)))
        query, runs = query[read.positions], read.runs
    results = []
    for most in (-1, 2**14):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runs_module, "_WEIGHTS_OF_A_CALL", most)
            patch.setattr(attention_module, "_has_slow_calls", lambda query, drops: True)
            noise = RowNoise(1, 0, range(len(lengths)))
            context = attention(
                query, key, value, type(runs)(runs), heads=HEADS, causal=causal, dropout=dropout, noise=noise
            )
        weights = torch.linspace(-1, 1, context.numel(), dtype=dtype).view_as(context)
        results.append([context, *torch.autograd.grad(context, (query, key, value), weights)])
    for apart, joined in zip(*results, strict=True):
        torch.testing.assert_close(joined, apart, atol=2**-5 if dtype == torch.bfloat16 else 1e-5, rtol=2**-6)


def test_neighbors_are_joined_where_that_leaves_little_room_empty():
    batch, *_ = flat([9, 9, 8, 7, 2, 3])
    (joined,) = batch.runs.joined(HEADS)
    assert (joined.rows, joined.length, joined.queries) == (6, 9, 9)
    assert joined.is_key.sum((1, 2, 3)).tolist() == [9, 9, 8, 7, 2, 3]
    long, *_ = flat([400, 400, 398, 5])
    assert [run.rows for run in long.runs.joined(HEADS)] == [3, 1]


@pytest.mark.parametrize(
    ("dtype", "learns", "dropout", "calls"),
    [
        (torch.bfloat16, True, 0.0, 1),
        (torch.bfloat16, True, 0.1, 1),
        (torch.bfloat16, False, 0.0, 3),
        (torch.float32, True, 0.0, 3),
        (torch.float32, True, 0.1, 1),
    ],
)
def test_runs_are_joined_in_training_in_bf16_or_with_dropout(dtype, learns, dropout, calls, monkeypatch):
    pretend(monkeypatch, "avx512_bf16")
    counted = []
    for module, name in ((attention_module, "dense_attention"), (attention_module.F, "scaled_dot_product_attention")):
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, plain=plain, **more: counted.append(1) or plain(*args, **more))
    batch, *inputs = flat([4, 3, 2])
    query, key, value = (array.to(dtype).requires_grad_(learns) for array in inputs)
    attention(query, key, value, batch.runs, heads=HEADS, dropout=dropout, noise=RowNoise(1, 0, range(3)))
    assert len(counted) == calls


def test_runs_join_only_neighbors_of_equal_length():
    batch, *_ = flat([2, 2, 3, 2])
    assert [(run.row, run.rows, run.token, run.length) for run in batch.runs] == [
        (0, 2, 0, 2),
        (2, 1, 4, 3),
        (3, 1, 7, 2),
    ]
