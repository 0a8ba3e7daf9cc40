"""Sparse vectors of rows: a weight for each piece of the vocabulary, from the logits of the masked-LM head.

The weight of a piece is log(1 + relu(its logit)), pooled over all tokens of the row, special ones included. The logits
are computed for some rows at a time. With the maximum as pooling, only the logits that are a positive maximum have a
gradient: few of them, which are computed once more, one by one, and all others without a graph.

Letters: T tokens in the flat batch, N rows, D width, E width of the word table, V vocabulary, A active pieces of all
rows.

Source: Formal et al. (2021), "SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval", sections 3.1
and 3.2; `SpladePooling` of sentence-transformers.
"""

import itertools

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.models.heads.head_spec import AROUND_QUERY, LOG_RELU, OF_QUERY, PieceWeights
from bertsmith.models.heads.piece_heads import PieceHead
from bertsmith.models.parts.batch import Batch, cut_by_tokens
from bertsmith.models.parts.head_inputs import MAX

_MOST_LOGITS = 2**24  # computed at a time
_MOST_PRODUCTS = 2**17  # of active pieces that are kept for the backward pass


class QueryTable(nn.Module):
    """A weight for each piece of a query, without any encoder; see `SparseStaticEmbedding` of sentence-transformers.

    Source: Lassance and Clinchant (2022), "An Efficiency Study for SPLADE Models", section 3.3; Geng et al. (2024),
    "Towards Competitive Search Relevance For Inference-Free Learned Sparse Retrievers", section 3.
    """

    starts_as_ones = True

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(pieces))

    def forward(self, queries: Batch) -> Tensor:
        """The weights of the pieces that each query has, [N, V]."""
        counts = torch.tensor(queries.lengths, device=self.weight.device)
        row = torch.repeat_interleave(torch.arange(queries.num_rows, device=self.weight.device), counts)
        counted = queries.segment_ids == OF_QUERY
        present = self.weight.new_zeros(queries.num_rows, len(self.weight))
        present[row[counted], queries.token_ids[counted]] = 1
        return present * self.weight


def queries_of(batch: Batch) -> tuple[list[int], list[int]]:
    """The rows of a batch that are queries, and the others."""
    is_query = (batch.segment_ids[batch.first_positions] >= AROUND_QUERY).tolist()
    return tuple([row for row in range(batch.num_rows) if is_query[row] == wanted] for wanted in (True, False))  # type: ignore[return-value]


def weights_of_rows(
    how: PieceWeights, hidden: Tensor, lengths: tuple[int, ...], head: PieceHead, word_table: Tensor
) -> Tensor:
    """The weights [N, V] of rows with hidden states [T, D], at least in fp32; `word_table` is [V, E]."""
    if torch.is_grad_enabled() and hidden.requires_grad:
        assert how.pooling == MAX, "a pooling with few gradients"
        return _saturated(how, _largest_logits(hidden, lengths, head, word_table))
    keeps_order, parts = how.pooling == MAX, []
    for rows in _groups(hidden, lengths, len(word_table)):
        for logits in _logits_of(rows, head, word_table):
            parts.append(logits.amax(dim=0) if keeps_order else _saturated(how, logits).sum(dim=0))
    weights = torch.stack(parts)
    return _saturated(how, weights) if keeps_order else weights


def _largest_logits(hidden: Tensor, lengths: tuple[int, ...], head: PieceHead, word_table: Tensor) -> Tensor:
    """The largest logit of each piece in each row, 0 if it is not positive, [N, V], with gradients."""
    places: list[Tensor] = []  # of the active pieces of each row: their tokens in the batch and their ids, [2, a]
    start = itertools.accumulate(lengths, initial=0)
    with torch.no_grad():
        for rows in _groups(hidden, lengths, len(word_table)):
            for logits in _logits_of(rows, head, word_table):
                pieces = (~(logits.amax(dim=0) <= 0)).nonzero()[:, 0]  # NaN, too
                places.append(torch.stack([logits[:, pieces].argmax(dim=0) + next(start), pieces]))
    counts = torch.tensor([part.shape[1] for part in places], device=hidden.device)
    row = torch.repeat_interleave(torch.arange(len(lengths), device=hidden.device), counts)
    token, piece = torch.cat(places, dim=1)
    states, (table, bias) = head.states(hidden), head.table(word_table)
    kind = torch.promote_types(states.dtype, torch.float32)

    def products(tokens: Tensor, pieces: Tensor) -> Tensor:
        values = (states[tokens].to(kind) * table[pieces].to(kind)).sum(dim=1)
        return values if bias is None else values + bias[pieces].to(kind)

    parts = [
        checkpoint(products, *part, use_reentrant=False, preserve_rng_state=False)
        for part in zip(token.split(_MOST_PRODUCTS), piece.split(_MOST_PRODUCTS), strict=True)
    ]
    return torch.zeros(len(lengths), len(word_table), dtype=kind, device=hidden.device).index_put(
        (row, piece), torch.cat(parts)
    )


def _saturated(how: PieceWeights, logits: Tensor) -> Tensor:
    weights = logits.relu().log1p()
    return weights.log1p() if how.activation == LOG_RELU else weights


def _logits_of(rows: tuple[Tensor, ...], head: PieceHead, word_table: Tensor) -> tuple[Tensor, ...]:
    """The logits [t, V] of each row from its hidden states, at least in fp32."""
    logits = head(torch.cat(rows), word_table)
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.split(exact, [len(row) for row in rows])


def _groups(hidden: Tensor, lengths: tuple[int, ...], pieces: int) -> list[tuple[Tensor, ...]]:
    """The hidden states of consecutive rows, in groups of at most `_MOST_LOGITS`, or of a row."""
    rows = torch.split(hidden, list(lengths))
    groups = cut_by_tokens(np.arange(len(rows)), np.array(lengths), max(1, _MOST_LOGITS // pieces))
    return [tuple(rows[row] for row in group) for group in groups]
