"""Scaled dot-product attention over flat batches: each sequence sees itself and nothing else.

Letters: T tokens (keys), R queries, n sequences of one run, A heads, d head width, s length, r queries per sequence,
P positions.

Each run of equal lengths is one call on views. In training on the CPU in bf16 or with dropout, where the operations of
a run cost as much as the attention of several short sequences, runs of similar lengths are joined, with room left empty
(`Runs.joined`). On CUDA, in fp16 or bf16, the whole batch is one call to PyTorch's
variable-length flash attention, in a window or not: the operation below `torch.nn.attention.varlen.varlen_attn`, which
has no dropout. The plain version, `dense_attention`, is used where the probabilities themselves are
needed (for dropout on the CPU, and for the attention view), and where its two batched products take less time than
PyTorch's fused kernel. Where the fused kernel is slow at the end of a sequence, `attend_by_sequence` takes its place.

Source: Vaswani et al. (2017), section 3.2; `attention_layer` in the original modeling.py.
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.base.machine.processor import torch_uses_avx512
from bertsmith.base.machine.runtime import fast_precisions
from bertsmith.base.machine.thresholds import attention_thresholds
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.runs import JoinedRun, Run, Runs
from bertsmith.models.parts.scored_attention import attention_weights, scaled_dot

# Numbers added to the scores before the softmax: [A, 2P - 1], by the position of the key minus the query's, plus P - 1;
# or a function of the queries [n, A, r, d] and keys [n, A, s, d] of a run, of these distances [n or 1, r, s] and of the
# run, which returns numbers that broadcast to [n, A, r, s].
Bias = Tensor | Callable[[Tensor, Tensor, Tensor, Run], Tensor]
_LEAST_WEIGHTS = 2**16  # below, the calls cost more than the arithmetic
_CACHED_WEIGHTS = 2**19  # 1 MiB in bf16


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Runs,
    *,
    heads: int,
    causal: bool = False,
    window: int | None = None,
    bias: Bias | None = None,
    unseen: Tensor | None = None,
    query_positions: Tensor | None = None,
    dropout: float = 0.0,
    noise: Noise | None = None,
    probabilities: list[Tensor] | None = None,
) -> Tensor:
    """The context vectors of the queries, with the heads concatenated: [R, A*d].

    Args:
        query: [R, A*d].
        key: [T, A*d].
        value: [T, A*d].
        causal: a query sees only keys at or before its own position.
        window: a query sees only keys at most that many positions away.
        bias: added to the scores; see `Bias`.
        unseen: int64 [N], how many keys at the end of each sequence no query sees; None for none.
        query_positions: int64 [R], the position of each query in its sequence; needed with fewer queries than keys
            if what a query sees depends on its position.
        dropout: probability with which an attention weight is dropped; needs `noise`.
        probabilities: if given, the weights [A, r, s] of each sequence are appended to it, in order.
    """
    drops = noise is not None and dropout > 0
    blocked = window if unseen is None else None  # blocks of neighbors know no keys that are not seen
    assert window is None or (not causal and bias is None), "a window of an encoder that reads in both directions"
    # The kernel takes the last queries of a sequence for its queries, wherever in the sequence they are.
    is_plain = bias is None and unseen is None and (query.shape[0] == key.shape[0] or (not causal and window is None))
    if probabilities is None and is_plain and _has_flash(query, heads):
        return _flash_attention(query, key, value, runs, heads, causal, window, dropout if drops else 0.0)
    if drops:
        assert noise is not None
        sizes = [heads * _weights(run, blocked, probabilities) for run in runs for _ in range(run.rows)]
        kept = noise.keep(dropout, sizes, query.dtype)
    if is_plain and window is None and probabilities is None and _has_slow_calls(query, drops=drops):
        fewer = runs.joined(heads)
        if len(fewer) < len(runs):
            scale_kept = 1 / (1 - dropout) if drops else 1.0
            return _joined_attention(
                query, key, value, fewer, heads, causal=causal, kept=kept if drops else None, scale_kept=scale_kept
            )
    # Split once: the gradient of a split is one concatenation, that of a slice is a full tensor of zeros.
    queries = torch.split_with_sizes(query, [run.rows * run.queries for run in runs])
    keys = torch.split_with_sizes(key, [run.rows * run.length for run in runs])
    values = torch.split_with_sizes(value, [run.rows * run.length for run in runs])
    contexts: list[Tensor] = []
    # Without gradients, each run is written into the result; concatenating them later would copy all of them again.
    joined = None if len(runs) == 1 or torch.is_grad_enabled() else torch.empty_like(query)
    taken = 0
    for run, run_query, run_key, run_value in zip(runs, queries, keys, values, strict=True):
        q = _heads_apart(run_query, run.rows, heads)  # [n, A, r, d]
        k = _heads_apart(run_key, run.rows, heads)  # [n, A, s, d]
        v = _heads_apart(run_value, run.rows, heads)
        keep = None
        if drops:
            count = run.rows * heads * _weights(run, blocked, probabilities)
            keep = kept[taken : taken + count].view(run.rows, heads, -1)
            taken += count
        if blocked is not None and probabilities is None and _is_blocked(run, blocked):
            from bertsmith.models.parts.local_attention import local_attention

            positions = _positions(run, query_positions, query.device) if run.queries < run.length else None
            context = local_attention(q, k, v, blocked, positions=positions, keep=keep, scale_kept=1 / (1 - dropout))
        else:
            mask = _mask(run, q, k, query_positions, causal=causal, window=window, bias=bias, unseen=unseen)
            if drops or probabilities is not None:
                keep = None if keep is None else keep.view(run.rows, heads, run.queries, run.length)
                context, weights = dense_attention(q, k, v, mask=mask, keep=keep, scale_kept=1 / (1 - dropout))
                if probabilities is not None:
                    probabilities.extend(weights.detach().unbind(0))
            elif products_are_faster(run_query, heads * run.rows * run.queries * run.length):
                context = attention_in_parts(q, k, v, mask)
            elif mask is None and run.queries == run.length and is_faster_by_sequence(run_query, run.length):
                context = attend_by_sequence(q, k, v)
            else:
                context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        flat = context.transpose(1, 2)  # [n, r, A, d]
        if joined is None:
            contexts.append(flat.reshape(run.rows * run.queries, -1))
        else:
            target = joined[run.query : run.query + run.rows * run.queries]
            target.view(flat.shape).copy_(flat)
    if joined is not None:
        return joined
    return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


def dense_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    keep: Tensor | None = None,
    scale_kept: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """The context vectors [n, A, r, d] and the probabilities [n, A, r, s], computed as in the formula.

    Args:
        mask: True where a key may be seen, or numbers that are added to the scores; it broadcasts to [n, A, r, s].
        keep: 1 or 0 for each probability [n, A, r, s]; the kept ones are multiplied by `scale_kept`.
    """
    weights = attention_weights(scaled_dot(query, key), mask)  # [n, A, r, s]
    if keep is None:
        return weights @ value, weights
    # The factor of the kept weights is applied to the much smaller result.
    return (weights * keep) @ value * scale_kept, weights


def _joined_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Sequence[JoinedRun],
    heads: int,
    *,
    causal: bool,
    kept: Tensor | None,
    scale_kept: float,
) -> Tensor:
    """`attention` with joined runs; an empty slot is a key that no query sees, or a query whose result is not read.

    Args:
        kept: 1 or 0 for each weight of the runs, in order and without empty slots; None if all are kept.
    """
    queries = torch.split_with_sizes(query, [len(run.query_slots) for run in runs])
    keys = torch.split_with_sizes(key, [len(run.key_slots) for run in runs])
    values = torch.split_with_sizes(value, [len(run.key_slots) for run in runs])
    contexts: list[Tensor] = []
    taken = 0
    for run, run_query, run_key, run_value in zip(runs, queries, keys, values, strict=True):
        q = _heads_apart(_in_slots(run_query, run.query_slots, run.rows * run.queries), run.rows, heads)
        k, v = (
            _heads_apart(_in_slots(flat, run.key_slots, run.rows * run.length), run.rows, heads)
            for flat in (run_key, run_value)
        )
        seen = run.is_key
        if causal:
            seen = seen & torch.ones(run.length, run.length, dtype=torch.bool).tril()  # [n, 1, s, s]
        keep = None
        if kept is not None:
            is_weight = (run.is_key & run.is_query).expand(run.rows, heads, run.queries, run.length)
            count = heads * run.weights
            keep = kept.new_zeros(is_weight.shape).masked_scatter_(is_weight, kept[taken : taken + count])
            taken += count
        context = dense_attention(q, k, v, mask=seen, keep=keep, scale_kept=scale_kept)[0]
        flat = context.transpose(1, 2).reshape(run.rows * run.queries, -1)
        contexts.append(flat.index_select(0, run.query_slots))
    return contexts[0] if len(contexts) == 1 else torch.cat(contexts)


def _in_slots(flat: Tensor, slots: Tensor, size: int) -> Tensor:
    """The rows [T, A*d] in their slots [size, A*d], zeros in the others."""
    return flat if len(slots) == size else flat.new_zeros(size, flat.shape[1]).index_copy(0, slots, flat)


def _heads_apart(flat: Tensor, rows: int, heads: int) -> Tensor:
    """The view [n, A, s, d] of flat rows [n*s, A*d]."""
    return flat.view(rows, flat.shape[0] // rows, heads, -1).transpose(1, 2)


def _weights(run: Run, window: int | None, probabilities: list[Tensor] | None) -> int:
    """The attention weights of one head that are computed for a sequence."""
    if window is not None and probabilities is None and _is_blocked(run, window):
        from bertsmith.models.parts.local_attention import local_weights

        return local_weights(run.length, window)
    return run.queries * run.length


def _is_blocked(run: Run, window: int) -> bool:
    from bertsmith.models.parts.local_attention import is_blocked

    return is_blocked(run.queries, run.length, window)


def _mask(
    run: Run,
    query: Tensor,
    key: Tensor,
    query_positions: Tensor | None,
    *,
    causal: bool,
    window: int | None,
    bias: Bias | None,
    unseen: Tensor | None,
) -> Tensor | None:
    """The keys that a query sees, [n or 1, A or 1, r, s]: True for these, or numbers to add; None if it sees all."""
    hidden: Tensor | None = None
    if unseen is not None:
        lengths = run.length - unseen[run.row : run.row + run.rows]
        hidden = (torch.arange(run.length, device=query.device) >= lengths.unsqueeze(1)).unsqueeze(1)  # [n, 1, s]
    if bias is None and not causal and (window is None or run.length <= window + 1):
        return None if hidden is None else ~hidden.unsqueeze(1)
    positions = _positions(run, query_positions, query.device)
    distances = torch.arange(run.length, device=query.device) - positions.unsqueeze(2)  # [n or 1, r, s]
    seen: Tensor | None = distances.abs() <= window if window is not None else None
    if causal:
        seen = distances <= 0
    if hidden is not None:
        seen = ~hidden if seen is None else seen & ~hidden
    if bias is None:
        assert seen is not None
        return seen.unsqueeze(1)
    if isinstance(bias, Tensor):
        added = bias[:, distances + bias.shape[1] // 2].transpose(0, 1)  # [n or 1, A, r, s]
    else:
        added = bias(query, key, distances, run)
    return added if seen is None else added.masked_fill(~seen.unsqueeze(1), -math.inf)


def _positions(run: Run, query_positions: Tensor | None, device: torch.device) -> Tensor:
    """The position of each query in its sequence, [n, r], or [1, s] if every token is a query."""
    if query_positions is None:
        assert run.queries == run.length, "fewer queries than keys need positions"
        return torch.arange(run.length, device=device).unsqueeze(0)
    return query_positions[run.query : run.query + run.rows * run.queries].view(run.rows, run.queries)


def products_are_faster(query: Tensor, weights: int) -> bool:
    """Whether two batched products take less time than the fused kernel; `benchmarks/attention_products.py` times both.

    In bf16 on a processor with instructions for it, unless there is little to compute and no gradient.
    """
    if query.dtype != torch.bfloat16 or query.device.type != "cpu" or "bf16" not in fast_precisions("cpu"):
        return False
    return weights >= _LEAST_WEIGHTS or _needs_gradients(query)


def attention_in_parts(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """`dense_attention`; without gradients for some sequences or heads at a time, whose weights stay in the cache."""
    rows, heads, queries, _ = query.shape
    size = queries * key.shape[2]
    if _needs_gradients(query) or rows * heads * size <= _CACHED_WEIGHTS:
        return dense_attention(query, key, value, mask=mask)[0]
    most = max(1, _CACHED_WEIGHTS // size)  # sequences times heads
    some_rows, some_heads = max(1, most // heads), min(heads, most)
    context = query.new_empty(rows, queries, heads, query.shape[3]).transpose(1, 2)
    for row in range(0, rows, some_rows):
        of_rows = slice(row, row + some_rows)
        for head in range(0, heads, some_heads):
            part = of_rows, slice(head, head + some_heads)
            seen = mask
            if mask is not None and mask.dim() == 4:  # an axis of size 1 is the same for all
                seen = mask[
                    tuple(some if size > 1 else slice(None) for some, size in zip(part, mask.shape, strict=False))
                ]
            context[part] = dense_attention(query[part], key[part], value[part], mask=seen)[0]
    return context


def _has_slow_calls(query: Tensor, *, drops: bool) -> bool:
    """Whether each run is several operations with gradients: in bf16, or with dropout."""
    return _needs_gradients(query) and query.device.type == "cpu" and (drops or products_are_faster(query, 0))


def _needs_gradients(x: Tensor) -> bool:
    """Whether the operations on `x` are recorded for its gradient."""
    return torch.is_grad_enabled() and x.requires_grad


def _has_flash(query: Tensor, heads: int) -> bool:
    """Whether the variable-length kernel accepts these queries: fp16 or bf16 on an Ampere GPU or later.

    The width of a head must be a multiple of 8, at most 256.
    """
    if not query.is_cuda or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    width = query.shape[1] // heads
    return width % 8 == 0 and width <= 256 and torch.cuda.get_device_capability(query.device) >= (8, 0)


def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    runs: Runs,
    heads: int,
    causal: bool,
    window: int | None,
    dropout: float,
) -> Tensor:
    """`attention` on CUDA in one call for the whole batch; the dtype is fp16 or bf16."""
    query_ends, key_ends = runs.ends(query.device)
    context = torch.ops.aten._flash_attention_forward(
        query.view(query.shape[0], heads, -1),
        key.view(key.shape[0], heads, -1),
        value.view(value.shape[0], heads, -1),
        query_ends,
        key_ends,
        max(runs.queries),
        max(runs.lengths),
        dropout,
        causal,
        False,
        window_size_left=window,
        window_size_right=window,
    )[0]
    assert isinstance(context, Tensor)
    return context.reshape(query.shape[0], -1)


_LANES = 16  # numbers of fp32 in a register of AVX-512
_LEAST_LEFT = 6  # keys at the end; with fewer, the fused kernel is at least as fast


def is_faster_by_sequence(query: Tensor, keys: int) -> bool:
    """Whether two products per sequence take less time than the fused kernel, for this many queries and keys each.

    In fp32 with AVX-512, without gradients, with one thread or two: the fused kernel takes the exponential of 16 scores
    at once, but what is left at the end of a row of scores one by one, which for 47 keys and heads of width 32 costs
    more than everything else; `benchmarks/attention_products.py --precision fp32` times both.
    """
    if query.dtype != torch.float32 or query.device.type != "cpu" or not torch_uses_avx512():
        return False
    if torch.is_grad_enabled() and query.requires_grad:
        return False
    measured = attention_thresholds()
    most = measured.most_keys_by_sequence
    shortest = measured.keys_by_sequence.get(torch.get_num_threads(), most + 1)
    return shortest <= keys <= most and keys % _LANES >= _LEAST_LEFT


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
