"""Losses of the scores of lists: each list has a query and several candidates, whose order or distances are learned.

Letters: U lists, K candidates of the longest one.

============  ========================================================================================
objective     learns, of each list
============  ========================================================================================
lambda        the order of each two candidates, weighed by what a wrong one costs in nDCG
ranknet       the order of each two candidates
listnet       the distribution over all candidates that the softmax of their gold scores is
margin        the distance of each candidate to the first one, as a teacher scores both
pointwise     the gold score of each candidate by itself, from 0 to 1
============  ========================================================================================

A loss is the mean over what it compares in the lists of a step: two candidates, a list, or a candidate. The values are
those of `LambdaLoss` (NDCG-Loss2++), `RankNetLoss`, `ListNetLoss`, `MarginMSELoss` and `BinaryCrossEntropyLoss` of
sentence-transformers, each with its defaults.

Sources: Wang et al. (2018), "The LambdaLoss Framework for Ranking Metric Optimization", section 4; Burges et al.
(2005), "Learning to Rank using Gradient Descent", section 3; Cao et al. (2007), "Learning to Rank: From Pairwise
Approach to Listwise Approach", section 4; Hofstätter et al. (2020), "Improving Efficient Neural Ranking Models with
Cross-Architecture Knowledge Distillation", section 3.2.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.models.heads.head_spec import LAMBDA, LISTNET, MARGIN, POINTWISE, RANKNET

_MU = 10.0  # share of the bound on nDCG next to the weights of LambdaRank, as in the paper
_LEAST = 1e-10  # of the best possible DCG


def list_losses(objective: str, scores: Tensor, gold: Tensor, exists: Tensor) -> Tensor:
    """The losses of all lists, summed.

    Args:
        scores: fp32 or fp64 [U, K]; finite, also where a list has no candidate.
        gold: of the same shape and type.
        exists: whether a list has a candidate, bool [U, K].
    """
    if objective == LISTNET:
        logs = scores.masked_fill(~exists, -torch.inf).log_softmax(dim=1).masked_fill(~exists, 0.0)
        return -(gold.masked_fill(~exists, -torch.inf).softmax(dim=1) * logs).sum()
    if objective == MARGIN:
        away = (scores[:, :1] - scores) - (gold[:, :1] - gold)
        return away.square()[exists].sum()
    if objective == POINTWISE:
        return F.binary_cross_entropy_with_logits(scores[exists], gold[exists], reduction="sum")
    assert objective in (RANKNET, LAMBDA), objective
    is_above = (gold[:, :, None] > gold[:, None, :]) & exists[:, :, None] & exists[:, None, :]  # [U, K, K]
    losses = -F.logsigmoid(scores[:, :, None] - scores[:, None, :]) / math.log(2)
    return (losses if objective == RANKNET else losses * _weights(scores.detach(), gold, exists))[is_above].sum()


def compared(objective: str, gold: list[float]) -> int:
    """The number of losses of a list: of two candidates with different scores, of a list, or of a candidate."""
    if objective in (RANKNET, LAMBDA):
        return sum(first > second for first in gold for second in gold)
    return {LISTNET: 1, MARGIN: len(gold) - 1, POINTWISE: len(gold)}[objective]


def _weights(scores: Tensor, gold: Tensor, exists: Tensor) -> Tensor:
    """How much the order of each two candidates counts, [U, K, K]: equation 16 of Wang et al."""
    order = scores.masked_fill(~exists, -torch.inf).argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(dim=1) + 1  # [U, K], from 1
    gains = torch.exp2(gold.masked_fill(~exists, 0.0).clamp_min(0)) - 1
    discounts = torch.log2(1.0 + torch.arange(1, gold.shape[1] + 1, device=gold.device, dtype=gold.dtype))  # [K]
    best = (gains.sort(dim=1, descending=True).values / discounts).sum(dim=1, keepdim=True).clamp_min(_LEAST)
    gains = gains / best
    inverse = 1 / discounts
    distance = (ranks[:, :, None] - ranks[:, None, :]).abs()  # [U, K, K]
    steps = F.pad((inverse[:-1] - inverse[1:]).abs(), (1, 0))  # of ranks that are 0, 1, 2 ... apart
    placed = inverse[ranks - 1]
    bound = (placed[:, :, None] - placed[:, None, :]).abs()
    return (_MU * steps[distance] + bound) * (gains[:, :, None] - gains[:, None, :]).abs()
