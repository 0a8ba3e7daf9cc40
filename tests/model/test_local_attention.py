"""Attention within a window, in blocks, against the products of all queries and keys with a mask."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.local_attention import is_blocked, local_weights
from bertsmith.models.parts.noise import RowNoise

HEADS, WIDTH = 2, 4


def flat(lengths: list[int]) -> tuple[Batch, Tensor, Tensor, Tensor]:
    ids = np.zeros(sum(lengths), dtype=np.int64)
    source = torch.Generator().manual_seed(len(ids))
    q, k, v = torch.randn((3, len(ids), HEADS * WIDTH), generator=source, dtype=torch.float64)
    return Batch.from_flat(ids, ids, lengths), q, k, v


def masked(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], window: int) -> Tensor:
    """The definition: a softmax over the keys at most `window` positions away."""
    result = []
    for query, key, value in zip(q.split(lengths), k.split(lengths), v.split(lengths), strict=True):
        heads = [part.view(len(query), HEADS, WIDTH).transpose(0, 1) for part in (query, key, value)]
        scores = heads[0] @ heads[1].transpose(1, 2) / WIDTH**0.5
        places = torch.arange(len(query))
        scores[:, (places[:, None] - places).abs() > window] = -torch.inf
        result.append((scores.softmax(-1) @ heads[2]).transpose(0, 1).reshape(len(query), -1))
    return torch.cat(result)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4), window=st.integers(1, 20))
def test_every_token_sees_the_tokens_of_its_window(lengths: list[int], window: int) -> None:
    batch, q, k, v = flat(lengths)
    expected = masked(q, k, v, lengths, window)
    torch.testing.assert_close(attention(q, k, v, batch.runs, heads=HEADS, window=window), expected)
    seen: list[Tensor] = []
    shown = attention(q, k, v, batch.runs, heads=HEADS, window=window, probabilities=seen)
    torch.testing.assert_close(shown, expected)
    assert [weights.shape[1] for weights in seen] == lengths


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=4), window=st.integers(1, 9), data=st.data())
def test_positions_that_are_read_have_the_values_of_all(lengths: list[int], window: int, data: st.DataObject) -> None:
    batch, q, k, v = flat(lengths)
    ends = np.cumsum(lengths)
    chosen = [data.draw(st.sets(st.integers(0, length - 1), min_size=1)) for length in lengths]
    places = [
        sorted(int(end) - length + position for position in row)
        for end, length, row in zip(ends, lengths, chosen, strict=True)
    ]
    read = Read.at(batch, np.concatenate([np.array(row) for row in places]))
    result = attention(
        q[read.positions],
        k,
        v,
        read.runs,
        heads=HEADS,
        window=window,
        query_positions=batch.positions[read.positions],
    )
    torch.testing.assert_close(result, masked(q, k, v, lengths, window)[read.positions])


def test_gradients_are_those_of_the_mask_and_finite_at_a_block_that_is_not_full() -> None:
    lengths, window = [70, 33], 3
    batch, *parts = flat(lengths)
    assert is_blocked(70, 70, window)
    result = []
    for attend in (
        lambda q, k, v: attention(q, k, v, batch.runs, heads=HEADS, window=window),
        lambda q, k, v: masked(q, k, v, lengths, window),
    ):
        leaves = [part.clone().requires_grad_() for part in parts]
        attend(*leaves).square().sum().backward()
        result.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*result)


def test_dropped_weights_depend_on_the_row_alone_and_keep_the_mean() -> None:
    batch, q, k, v = flat([80, 80])
    whole = attention(q, k, v, batch.runs, heads=HEADS, window=3, dropout=0.25, noise=RowNoise(1, 2, [5, 6]))
    alone = Batch.from_flat(np.zeros(80, dtype=np.int64), np.zeros(80, dtype=np.int64), [80])
    second = attention(
        q[80:], k[80:], v[80:], alone.runs, heads=HEADS, window=3, dropout=0.25, noise=RowNoise(1, 2, [6])
    )
    torch.testing.assert_close(whole[80:], second)
    plain = attention(q, k, v, batch.runs, heads=HEADS, window=3)
    assert not torch.allclose(whole, plain)
    ones = torch.ones_like(v)
    dropped = attention(q, k, ones, batch.runs, heads=HEADS, window=3, dropout=0.25, noise=RowNoise(1, 2, [5, 6]))
    assert abs(float(dropped.mean()) - 1) < 0.05


@pytest.mark.parametrize(("length", "window"), [(8192, 64), (1024, 64)])
def test_the_cost_of_a_window_grows_with_the_length_only(length: int, window: int) -> None:
    assert local_weights(length, window) == length * 3 * window
    assert is_blocked(length, length, window)
    assert not is_blocked(1, length, window), "one query sees at most the keys of the sequence"
