"""Local attention: each token sees tokens at most w positions away; the cost is linear in the length.

Letters: n sequences of one length, A heads, d head width, s length, r queries per sequence, w window, b queries of a
block, m blocks.

A sequence is cut into blocks of b queries. The keys that one of them sees are among the b + 2w around the block, so the
blocks of all sequences are one call of b queries and b + 2w keys each.

Source: Beltagy, Peters and Cohan (2020), "Longformer: The Long-Document Transformer", section 3.1; Warner et al.
(2024), "Smarter, Better, Faster, Longer" (ModernBERT), section 2.1.2.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_LEAST_BLOCK = 16  # queries; smaller blocks cost more in calls than they save in products


def is_blocked(queries: int, length: int, window: int) -> bool:
    """Whether blocks compute less than the products of all queries and keys of a sequence do."""
    return queries * length > local_weights(length, window)


def local_weights(length: int, window: int) -> int:
    """The number of attention weights of one head that the blocks of a sequence have."""
    block = _block(window)
    return -(-length // block) * block * (block + 2 * window)


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int,
    *,
    positions: Tensor | None = None,
    keep: Tensor | None = None,
    scale_kept: float = 1.0,
) -> Tensor:
    """The context vectors [n, A, r, d].

    Args:
        positions: int64 [n, r], the position of each query in its sequence; None if every token is one, and r is s.
        keep: 1 or 0 for each weight, [n, A, local_weights(s, w)]; the kept ones are multiplied by `scale_kept`.
    """
    if positions is not None:
        index = positions[:, None, :, None].expand(-1, query.shape[1], -1, query.shape[3])
        query = torch.zeros_like(key).scatter(2, index, query)
    rows, heads, length, width = query.shape
    block = _block(window)
    blocks = -(-length // block)
    filled, seen_keys = blocks * block - length, block + 2 * window
    of_blocks = F.pad(query, (0, 0, 0, filled)).view(rows, heads, blocks, block, width)
    q = of_blocks.transpose(1, 2).reshape(rows * blocks, heads, block, width)  # [n m, A, b, d]
    k, v = (_around(x, window, filled, block) for x in (key, value))  # [n m, A, b + 2w, d]
    mask = _seen(length, window, block, query.device).repeat(rows, 1, 1, 1)  # [n m, 1, b, b + 2w]
    if keep is None:
        context = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    else:
        kept = keep.view(rows, heads, blocks, block, seen_keys).transpose(1, 2).reshape(-1, heads, block, seen_keys)
        scores = ((q / math.sqrt(width)) @ k.transpose(-1, -2)).masked_fill(~mask, -math.inf)
        context = (scores.softmax(-1) * kept) @ v * scale_kept
    contexts = context.view(rows, blocks, heads, block, width).transpose(1, 2).reshape(rows, heads, -1, width)
    return contexts[:, :, :length] if positions is None else contexts.gather(2, index)


def _block(window: int) -> int:
    return max(window, _LEAST_BLOCK)


def _around(x: Tensor, window: int, filled: int, block: int) -> Tensor:
    """The keys or values [n m, A, b + 2w, d] around each block, of those [n, A, s, d] of the sequences."""
    parts = F.pad(x, (0, 0, window, window + filled)).unfold(2, block + 2 * window, block)  # [n, A, m, d, b + 2w]
    return parts.permute(0, 2, 1, 4, 3).reshape(-1, x.shape[1], block + 2 * window, x.shape[3])


def _seen(length: int, window: int, block: int, device: torch.device) -> Tensor:
    """Whether a query of a block sees a key around it, bool [m, 1, b, b + 2w].

    Positions after the end of a sequence, whose results are discarded, see every key: no weights would be no number.
    """
    blocks = -(-length // block)
    first = torch.arange(blocks, device=device)[:, None, None] * block
    queries = first + torch.arange(block, device=device)[:, None]  # [m, b, 1]
    keys = first - window + torch.arange(block + 2 * window, device=device)  # [m, 1, b + 2w]
    seen = ((keys - queries).abs() <= window) & (keys >= 0) & (keys < length) | (queries >= length)
    return seen.unsqueeze(1)
