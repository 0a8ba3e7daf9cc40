"""Sparse vectors of rows: a weight for each piece of the vocabulary, from the logits of the masked-LM head.

The weight of a piece is log(1 + relu(its logit)), pooled over all tokens of the row, special ones included.

Letters: T tokens in the flat batch, N rows, D width, V vocabulary.

Source: Formal et al. (2021), "SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval", sections 3.1
and 3.2; `SpladePooling` of sentence-transformers.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertsmith.models.heads.head_spec import LOG_RELU, PieceWeights
from bertsmith.models.parts.head_inputs import MAX

_MOST_LOGITS = 2**24  # computed at a time


def weights_of_rows(
    how: PieceWeights, hidden: Tensor, lengths: tuple[int, ...], pieces: int, logits_of: Callable[[Tensor], Tensor]
) -> Tensor:
    """The weights [N, V] of rows with hidden states [T, D], at least in fp32.

    The logits are computed for some rows at a time; where there are gradients, once more in the backward pass.

    Args:
        pieces: V.
        logits_of: returns logits [t, V] for hidden states [t, D].
    """
    keeps_order = how.pooling == MAX  # so that only the largest logits go through the logarithm

    def pooled(part: Tensor, *of_rows: int) -> Tensor:
        logits = logits_of(part)
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        values = exact if keeps_order else _saturated(how, exact)
        return torch.stack(
            [row.amax(dim=0) if keeps_order else row.sum(dim=0) for row in torch.split(values, list(of_rows))]
        )

    parts, groups = [], _groups(lengths, pieces)
    for part, group in zip(torch.split(hidden, [sum(group) for group in groups]), groups, strict=True):
        if len(groups) > 1 and torch.is_grad_enabled():
            parts.append(checkpoint(pooled, part, *group, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(pooled(part, *group))
    weights = torch.cat(parts)
    return _saturated(how, weights) if keeps_order else weights


def _saturated(how: PieceWeights, logits: Tensor) -> Tensor:
    weights = logits.relu().log1p()
    return weights.log1p() if how.activation == LOG_RELU else weights


def _groups(lengths: tuple[int, ...], pieces: int) -> list[tuple[int, ...]]:
    """The lengths of consecutive rows, in groups of at most `_MOST_LOGITS`, or of a row."""
    groups: list[tuple[int, ...]] = []
    for length in lengths:
        if groups and (sum(groups[-1]) + length) * pieces <= _MOST_LOGITS:
            groups[-1] = (*groups[-1], length)
        else:
            groups.append((length,))
    return groups
