"""Attention as two products per sequence, where PyTorch's fused kernel takes the last keys one by one.

In fp32 with AVX-512, the fused kernel takes the exponential of 16 scores at once, as many as fit into a register. What
is left at the end of a row of scores it takes one by one: for 47 keys and heads of width 32, that costs more than
everything else together. The plain softmax has no such end, and the scores of one sequence stay in the cache between
the products.
`benchmarks/attention_products.py --precision fp32` times both.

Letters: n sequences, A heads, d head width, r queries and s keys of a sequence.
"""

import torch
from torch import Tensor

from bertsmith.base.machine.processor import torch_uses_avx512

_LANES = 16  # numbers of fp32 in a register of AVX-512
_LEAST_LEFT = 6  # keys at the end; with fewer, the fused kernel is at least as fast
_SHORTEST = {1: 22, 2: 28}  # keys, by the number of threads; with fewer keys, the calls cost more
_LONGEST = 255  # keys; with more, the scores leave the cache


def is_faster_by_sequence(query: Tensor, keys: int) -> bool:
    """Whether `attend_by_sequence` takes less time than the fused kernel, for sequences of this many queries and keys.

    On a processor with AVX-512 and in fp32, without gradients, with one thread or two; more were not measured. With
    AVX2, where a register has 8 numbers, it was slower at nearly all lengths.
    """
    if query.dtype != torch.float32 or query.device.type != "cpu" or not torch_uses_avx512():
        return False
    if torch.is_grad_enabled() and query.requires_grad:
        return False
    shortest = _SHORTEST.get(torch.get_num_threads(), _LONGEST + 1)
    return shortest <= keys <= _LONGEST and keys % _LANES >= _LEAST_LEFT


def attend_by_sequence(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The context vectors [n, A, r, d], as the transposed view of [n, r, A, d]; `torch.jit` can script it."""
    context = torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
    transposed = key.transpose(2, 3)
    nothing = query.new_empty([1])  # beta = 0: it is not read
    scale = float(query.shape[3]) ** -0.5
    for row in range(query.shape[0]):
        scores = torch.baddbmm(nothing, query[row], transposed[row], beta=0, alpha=scale)  # [A, r, s]
        context[row].copy_(torch.bmm(torch.softmax(scores, -1), value[row]))
    return context
