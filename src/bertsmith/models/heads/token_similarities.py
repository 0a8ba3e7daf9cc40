"""Similarities of texts whose tokens have a vector each: the mean over the tokens of the first of the largest product.

Letters: T tokens of queries, S tokens of documents, Q queries, P documents, K width.

Source: Khattab and Zaharia (2020), "ColBERT", section 3.3, here divided by the number of tokens of the query, so that a
scale and margins mean the same as for cosines; `colbert_scores` of sentence-transformers with `length_normalize`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bertsmith.models.parts.batch import cut_by_tokens

_MOST_PRODUCTS = 2**24  # in memory at a time


def token_similarities(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]
) -> Tensor:
    """The similarity of every query and every document, [Q, P], from vectors [T, K] and [S, K].

    Where products of all tokens are too many, some queries are compared at a time, and once more in the backward pass.
    """
    of_documents = torch.tensor(document_lengths, device=documents.device)

    def compared(part: Tensor, texts: Tensor, *lengths: int) -> Tensor:
        largest = torch.segment_reduce(texts @ part.T, "max", lengths=of_documents, unsafe=True)  # [P, t]
        of_queries = torch.tensor(lengths, device=part.device)
        return torch.segment_reduce(largest.T.contiguous(), "mean", lengths=of_queries, unsafe=True)  # [q, P]

    most = max(1, _MOST_PRODUCTS // max(1, len(documents)))
    lengths = np.array(query_lengths)
    groups = [lengths[group].tolist() for group in cut_by_tokens(np.arange(len(lengths)), lengths, most)]
    parts = torch.split(queries, [sum(group) for group in groups])
    if len(groups) == 1 or not torch.is_grad_enabled():
        return torch.cat([compared(part, documents, *group) for part, group in zip(parts, groups, strict=True)])
    return torch.cat(
        [
            checkpoint(compared, part, documents, *group, use_reentrant=False, preserve_rng_state=False)
            for part, group in zip(parts, groups, strict=True)
        ]
    )


def similarities_of_pairs(
    queries: Tensor, query_lengths: Sequence[int], documents: Tensor, document_lengths: Sequence[int]
) -> Tensor:
    """The similarity of each query and the document at the same place, [Q]."""
    pairs = zip(torch.split(queries, list(query_lengths)), torch.split(documents, list(document_lengths)), strict=True)
    return torch.stack([(query @ document.T).amax(dim=1).mean() for query, document in pairs])
