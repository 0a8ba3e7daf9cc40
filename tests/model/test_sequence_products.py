"""Attention as two products per sequence, against the formula."""

import numpy as np
import pytest
import torch

from bertsmith.base.machine import thresholds
from bertsmith.models.parts import attention as attention_module
from bertsmith.models.parts.attention import attend_by_sequence, attention, dense_attention, is_faster_by_sequence
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.products.fast_path import scripted

HEADS, WIDTH = 3, 4


def heads_of(rows: int, length: int, seed: int) -> torch.Tensor:
    """Vectors [n, A, s, d] as the encoder has them: a view of flat rows."""
    source = torch.Generator().manual_seed(seed)
    return (
        torch.randn((rows * length, HEADS * WIDTH), generator=source).view(rows, length, HEADS, WIDTH).transpose(1, 2)
    )


@pytest.mark.parametrize(("rows", "queries", "keys"), [(1, 1, 1), (1, 30, 30), (4, 47, 47), (3, 2, 23)])
def test_the_context_vectors_are_those_of_the_formula(rows: int, queries: int, keys: int) -> None:
    query, key, value = heads_of(rows, queries, 1), heads_of(rows, keys, 2), heads_of(rows, keys, 3)
    exact, _ = dense_attention(query.double(), key.double(), value.double())
    for function in (attend_by_sequence, scripted(attend_by_sequence)):
        context = function(query, key, value)
        assert (context.double() - exact).abs().max() < 1e-6
        assert context.transpose(1, 2).is_contiguous()
    scores_of_nothing = attend_by_sequence(query[:0], key[:0], value[:0])
    assert scores_of_nothing.shape == (0, HEADS, queries, WIDTH)


def test_a_sequence_gets_the_same_numbers_in_any_batch() -> None:
    query, key, value = heads_of(5, 30, 1), heads_of(5, 30, 2), heads_of(5, 30, 3)
    together = attend_by_sequence(query, key, value)
    for row in range(5):
        alone = attend_by_sequence(*(tensor[row : row + 1].contiguous() for tensor in (query, key, value)))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("is_intel", "longest"), [(False, 143), (True, 255)])
def test_it_is_faster_at_lengths_that_leave_many_keys_at_the_end(
    monkeypatch: pytest.MonkeyPatch, is_intel: bool, longest: int
) -> None:
    query = torch.zeros(1)
    monkeypatch.setattr(thresholds, "is_intel", lambda: is_intel)
    monkeypatch.setattr(attention_module, "torch_uses_avx512", lambda: True)
    for threads, shortest in ((1, 22), (2, 28)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        lengths = [length for length in range(1, 300) if is_faster_by_sequence(query, length)]
        assert lengths[0] == shortest
        assert lengths[-1] == longest
        assert {length % 16 for length in lengths} == set(range(6, 16))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert not any(is_faster_by_sequence(query, length) for length in range(1, 300))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert not is_faster_by_sequence(query.double(), 31)
    assert not is_faster_by_sequence(query.requires_grad_(), 31)
    with torch.no_grad():
        assert is_faster_by_sequence(query, 31)
    monkeypatch.setattr(attention_module, "torch_uses_avx512", lambda: False)
    assert not is_faster_by_sequence(torch.zeros(1), 31)


def test_attention_takes_it_where_it_is_faster_and_nothing_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = [31, 31, 32, 47, 5]
    batch = Batch.from_flat(np.zeros(sum(lengths), dtype=np.int64), np.zeros(sum(lengths), dtype=np.int64), lengths)
    source = torch.Generator().manual_seed(1)
    query, key, value = torch.randn((3, sum(lengths), HEADS * WIDTH), generator=source)
    taken: list[int] = []

    def counted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        taken.append(k.shape[2])
        return attend_by_sequence(q, k, v)

    monkeypatch.setattr(attention_module, "attend_by_sequence", counted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    contexts = {}
    for has_avx512 in (False, True):
        monkeypatch.setattr(attention_module, "torch_uses_avx512", lambda has_avx512=has_avx512: has_avx512)
        contexts[has_avx512] = attention(query, key, value, batch.runs, heads=HEADS)
        assert taken == ([31, 47] if has_avx512 else [])
    torch.testing.assert_close(contexts[True], contexts[False], rtol=0, atol=1e-6)
    with torch.no_grad():  # the runs are written into one result
        torch.testing.assert_close(
            attention(query, key, value, batch.runs, heads=HEADS), contexts[True], rtol=0, atol=1e-6
        )
    taken.clear()
    attention(query, key, value, batch.runs, heads=HEADS, causal=True)
    attention(query.requires_grad_(), key, value, batch.runs, heads=HEADS)
    assert not taken
    read = Read.at(batch, np.array([0, 31, 32, 62, 94, 141]))
    with torch.no_grad():
        some = attention(query[read.positions], key, value, read.runs, heads=HEADS)
    torch.testing.assert_close(some, contexts[True][read.positions], rtol=0, atol=1e-6)
    assert not taken, "with fewer queries than keys, the calls cost more"
