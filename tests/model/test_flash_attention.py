"""What the variable-length kernel of a GPU is given; a dense stand-in takes its place.

The kernel itself runs in tests/gpu/.
"""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.models.checkpoints.architectures import new_encoder, require_architecture
from bertsmith.models.parts import attention as attention_module
from bertsmith.models.parts.attention import _flash_attention, attention
from bertsmith.models.parts.batch import Batch, Read

HEADS, WIDTH = 3, 8


def stand_in(
    query, key, value, query_ends, key_ends, most_queries, most_keys, dropout, causal, debug, *,
    window_size_left=None, window_size_right=None,
) -> tuple[Tensor]:  # fmt: skip
    """The operation as it is documented: sequences by their ends, a window and causality at their last key."""
    assert (query_ends.dtype, key_ends.dtype) == (torch.int32, torch.int32)
    assert (dropout, debug) == (0.0, False)
    sizes = [ends.diff() for ends in (query_ends, key_ends)]
    assert (most_queries, most_keys) == (int(sizes[0].max()), int(sizes[1].max()))
    context = torch.empty_like(query)
    for row in range(len(query_ends) - 1):
        of_queries = slice(int(query_ends[row]), int(query_ends[row + 1]))
        of_keys = slice(int(key_ends[row]), int(key_ends[row + 1]))
        q, k, v = query[of_queries].transpose(0, 1), key[of_keys].transpose(0, 1), value[of_keys].transpose(0, 1)
        scores = q @ k.transpose(1, 2) / q.shape[2] ** 0.5
        places = torch.arange(scores.shape[1])[:, None] + scores.shape[2] - scores.shape[1]
        distances = torch.arange(scores.shape[2]) - places
        hidden = torch.zeros_like(distances, dtype=torch.bool)
        if causal:
            hidden |= distances > 0
        if window_size_left is not None:
            hidden |= (distances < -window_size_left) | (distances > window_size_right)
        context[of_queries] = (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).transpose(0, 1)
    return (context,)


@pytest.fixture
def flash(monkeypatch) -> list[int]:
    """Has the stand-in take the place of the kernel, and counts its calls."""
    calls: list[int] = []

    def called(*arguments, **settings):
        calls.append(1)
        return stand_in(*arguments, **settings)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", called)
    monkeypatch.setattr(attention_module, "_has_flash", lambda query, heads: True)
    return calls


def flat(lengths: list[int]) -> tuple[Batch, Tensor, Tensor, Tensor]:
    count = sum(lengths)
    batch = Batch.from_flat(np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64), lengths)
    q, k, v = torch.randn((3, count, HEADS * WIDTH), generator=torch.Generator().manual_seed(count))
    return batch, q, k, v


@pytest.mark.parametrize("lengths", [[5], [3, 3, 7], [1, 9, 2, 2]])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 2)])
def test_the_kernel_gets_what_the_loop_over_runs_computes(monkeypatch, flash, lengths, causal, window):
    batch, q, k, v = flat(lengths)
    result = attention(q, k, v, batch.runs, heads=HEADS, causal=causal, window=window)
    assert len(flash) == 1
    monkeypatch.setattr(attention_module, "_has_flash", lambda query, heads: False)
    expected = attention(q, k, v, batch.runs, heads=HEADS, causal=causal, window=window)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


def test_queries_anywhere_in_a_sequence_go_to_the_kernel_only_where_their_place_does_not_matter(flash):
    batch, q, k, v = flat([4, 6])
    read = Read.at(batch, np.array([0, 2, 5]))
    some = attention(q[read.positions], k, v, read.runs, heads=HEADS)
    torch.testing.assert_close(some, attention(q, k, v, batch.runs, heads=HEADS)[read.positions], atol=1e-5, rtol=1e-5)
    calls = len(flash)
    places = batch.positions[read.positions]
    for how in ({"causal": True}, {"window": 1}):
        attention(q[read.positions], k, v, read.runs, heads=HEADS, query_positions=places, **how)
    assert len(flash) == calls


@pytest.mark.parametrize("architecture", ["bert", "modernbert", "distilbert"])
def test_a_model_computes_the_same_with_the_kernel(monkeypatch, flash, architecture):
    config = require_architecture(architecture).config
    config = config(vocab_size=60, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48)
    if architecture == "modernbert":
        config = dataclasses.replace(config, local_attention=6)
    model = new_encoder(config).eval()
    ids = np.arange(21) % 50 + 5
    batch = Batch.from_flat(ids, 0 * ids, [6, 6, 9])
    with torch.no_grad():
        result = model(batch)
        assert len(flash) == 3
        monkeypatch.setattr(attention_module, "_has_flash", lambda query, heads: False)
        torch.testing.assert_close(result, model(batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 4])
def test_the_operation_of_this_pytorch_takes_these_arguments(window):
    batch, *inputs = flat([5, 3])
    q, k, v = (tensor.to("meta", torch.bfloat16) for tensor in inputs)
    result = _flash_attention(q, k, v, batch.runs, HEADS, False, window, 0.1)
    assert (result.shape, result.dtype, result.device.type) == (q.shape, torch.bfloat16, "meta")


def test_the_ends_of_sequences_are_copied_once_to_each_device():
    batch, *_ = flat([2, 3, 3])
    queries, keys = batch.runs.ends(torch.device("cpu"))
    assert (queries.tolist(), keys.tolist()) == ([0, 2, 5, 8], [0, 2, 5, 8])
    assert batch.runs.ends(torch.device("cpu"))[0] is queries
    read = Read.at(batch, np.array([1, 2, 4, 7]))
    assert [end.tolist() for end in read.runs.ends(torch.device("cpu"))] == [[0, 1, 3, 4], [0, 2, 5, 8]]
    assert batch.runs.ends(torch.device("meta"))[0].is_meta


class Queries(NamedTuple):
    """What the choice of the kernel reads of a tensor."""

    is_cuda: bool
    dtype: torch.dtype
    shape: tuple[int, int]
    device: str = "cuda:0"


@pytest.mark.parametrize(
    ("queries", "capability", "expected"),
    [
        (Queries(True, torch.bfloat16, (9, 24)), (8, 0), True),
        (Queries(True, torch.float16, (9, 24)), (9, 0), True),
        (Queries(True, torch.float16, (9, 24)), (7, 5), False),
        (Queries(True, torch.float32, (9, 24)), (9, 0), False),
        (Queries(True, torch.bfloat16, (9, 12)), (9, 0), False),  # heads of width 4
        (Queries(True, torch.bfloat16, (9, 3 * 264)), (9, 0), False),
        (Queries(False, torch.bfloat16, (9, 24)), (9, 0), False),
    ],
)
def test_the_kernel_is_chosen_by_what_it_supports(monkeypatch, queries, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert attention_module._has_flash(queries, HEADS) == expected
