"""Vectors of rows from the last hidden states of all their tokens: pooled, and comparisons of the means of two texts.

Letters: T tokens in the flat batch, N rows, D width.

Source: Conneau et al. (2017), "Supervised Learning of Universal Sentence Representations from Natural Language
Inference Data", section 3.1, for the vectors of a pair. Reimers and Gurevych (2019), "Sentence-BERT: Sentence
Embeddings using Siamese BERT-Networks", section 3, for two texts that are encoded apart.
"""

import torch
from torch import Tensor

from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Encoder


def pool_rows(hidden: Tensor, lengths: tuple[int, ...], how: str = "mean") -> Tensor:
    """The mean or "max" [N, D] of the hidden states [T, D] of each row, at least in fp32."""
    exact = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    return torch.segment_reduce(exact, how, lengths=torch.tensor(lengths, device=hidden.device))


def pooler_of_rows(encoder: Encoder, hidden: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """The pooled output [N, D] of an encoder whose pooler reads the hidden states [T, D] of all tokens."""
    if encoder.config.pools_first:
        return pool_rows(encoder.pool(hidden), lengths)
    return encoder.pool(pool_rows(hidden, lengths))


def pair_of_rows(hidden: Tensor, batch: Batch) -> Tensor:
    """[a, b, |a - b|, a * b] for each row, [N, 4D], at least in fp32.

    a and b are the means of the hidden states [T, D] of segment 0 and of segment 1, special tokens included. The mean
    of a segment without tokens is 0.

    Source: Conneau et al. (2017), section 3.1 and figure 1, here of two texts that the encoder read together.
    """
    exact = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    second = (batch.segment_ids > 0).to(exact.dtype)
    masks = torch.stack([1 - second, second], dim=1)  # [T, 2]
    lengths = torch.tensor(batch.lengths, device=hidden.device)
    counts = torch.segment_reduce(masks, "sum", lengths=lengths).clamp_min(1)  # [N, 2]
    spread = (exact.unsqueeze(1) * masks.unsqueeze(2)).flatten(1)  # [T, 2D]
    means = torch.segment_reduce(spread, "sum", lengths=lengths).view(len(counts), 2, -1) / counts.unsqueeze(2)
    return compared(means)


def apart_of_rows(hidden: Tensor, batch: Batch) -> Tensor:
    """[a, b, |a - b|, a * b] for each row, [N, 4D], at least in fp32, of texts that do not see each other.

    a and b are the means of the hidden states of the sequences in `batch.texts_apart`, to which `hidden` belongs.

    Source: Reimers and Gurevych (2019), section 3; for the vectors, see `pair_of_rows`.
    """
    apart = batch.texts_apart
    means = pool_rows(hidden, apart.batch.lengths)[list(apart.places)]  # [2N, D]
    return compared(means.view(batch.num_rows, 2, -1))


def compared(means: Tensor) -> Tensor:
    """[a, b, |a - b|, a * b], [N, 4D], of the vectors of both texts, [N, 2, D]."""
    first, other = means.unbind(1)  # [N, D] each
    return torch.cat([first, other, (first - other).abs(), first * other], dim=1)
