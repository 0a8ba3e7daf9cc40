"""Attention with any score: weighted sums of values, with weights from comparing queries with keys.

Letters: R queries, S keys, Q width of a query, K of a key, E of a value, H inner width of a score; an ellipsis: the
axes of a batch.

The three scores come from recurrent translation models. Self-attention is the case in which queries, keys and values
come from the same sequence and the score is the scaled dot product; `attention.py` computes it fast, with heads and
over flat batches.

Source: Bahdanau et al. (2015), "Neural Machine Translation by Jointly Learning to Align and Translate", section 3.1;
Luong et al. (2015), "Effective Approaches to Attention-based Neural Machine Translation", section 3.1; Vaswani et al.
(2017), section 3.2.1, for the scaled dot product.
"""

import abc
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.models.parts.head_inputs import require_score


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    score: Callable[[Tensor, Tensor], Tensor],
    mask: Tensor | None = None,
    *,
    linear: bool = False,
) -> tuple[Tensor, Tensor]:
    """The context vectors [..., R, E] and the weights [..., R, S], which sum to 1 over the keys.

    Args:
        query: [..., R, Q].
        keys: [..., S, K].
        values: [..., S, E].
        score: compares all queries with all keys: [..., R, S].
        mask: True where a key may be seen, bool, broadcasts to [..., R, S]; the other keys have weight 0. Each query
            sees at least one key.
        linear: the weights are the scores themselves, without the softmax.
    """
    assert mask is None or bool(mask.any(-1).all()), "each query sees a key"
    scores = score(query, keys)
    if linear:
        weights = scores if mask is None else scores.masked_fill(~mask, 0.0)
    else:
        weights = attention_weights(scores, mask)
    return weights @ values, weights


def attention_weights(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """The softmax of scores [..., R, S] over the keys.

    Args:
        mask: True where a key may be seen, or numbers that are added to the scores; it broadcasts to [..., R, S].
    """
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1)


def dot(query: Tensor, keys: Tensor) -> Tensor:
    """The dot product of each query with each key, which have the same width: [..., R, S]."""
    return query @ keys.transpose(-1, -2)


def scaled_dot(query: Tensor, keys: Tensor) -> Tensor:
    """The dot products, divided by the square root of the width: [..., R, S]."""
    return dot(query / math.sqrt(query.shape[-1]), keys)


class Score(nn.Module, abc.ABC):
    """A score with parameters.

    What it computes from the keys alone is a step of its own, so that a decoder does it once for all its queries.
    """

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """The scores [..., R, S] of queries [..., R, Q] and keys [..., S, K]."""
        return self.compare(query, self.prepare(keys))

    def prepare(self, keys: Tensor) -> Tensor:
        """The part of `compare` that depends on the keys alone, with one vector for each."""
        return keys

    @abc.abstractmethod
    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """The scores [..., R, S] of queries and prepared keys."""


class DotScore(Score):
    """h . s, of a query h and a key s of the same width; it has no parameters."""

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """See `Score.compare`."""
        return dot(query, prepared)


class GeneralScore(Score):
    """h^T W s, of a query h and a key s; `weight` is W [Q, K]."""

    def __init__(self, query_width: int, key_width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(query_width, key_width))
        self.initial_deviations = {"weight": 1 / math.sqrt(key_width)}

    def prepare(self, keys: Tensor) -> Tensor:
        """W s of each key: [..., S, Q]."""
        return keys @ self.weight.to(keys.dtype).T

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """See `Score.compare`."""
        return dot(query, prepared)


class ConcatScore(Score):
    """v^T tanh(W [h; s]), of a query h and a key s: the additive score.

    W [h; s] is the sum of two products, one with the query and one with the key.

    Attributes:
        query_weight: the columns of W for the query [H, Q].
        key_weight: those for the key [H, K].
        weight: v [H].
    """

    def __init__(self, query_width: int, key_width: int, inner_width: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.zeros(inner_width, query_width))
        self.key_weight = nn.Parameter(torch.zeros(inner_width, key_width))
        self.weight = nn.Parameter(torch.zeros(inner_width))
        of_inputs = 1 / math.sqrt(query_width + key_width)
        self.initial_deviations = {
            "query_weight": of_inputs,
            "key_weight": of_inputs,
            "weight": 1 / math.sqrt(inner_width),
        }

    def prepare(self, keys: Tensor) -> Tensor:
        """The product of W with each key: [..., S, H]."""
        return keys @ self.key_weight.to(keys.dtype).T

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        """See `Score.compare`."""
        asked = query @ self.query_weight.to(query.dtype).T  # [..., R, H]
        inner = (asked.unsqueeze(-2) + prepared.unsqueeze(-3)).tanh()  # [..., R, S, H]
        return inner @ self.weight.to(query.dtype)


class AttentionalState(nn.Module):
    """tanh(W [c; h]), of a context vector c and the query h that found it; `weight` is W [Q, E + Q].

    Source: Luong et al. (2015), equation 5.
    """

    def __init__(self, context_width: int, query_width: int) -> None:
        super().__init__()
        inputs = context_width + query_width
        self.weight = nn.Parameter(torch.zeros(query_width, inputs))
        self.initial_deviations = {"weight": 1 / math.sqrt(inputs)}

    def forward(self, context: Tensor, query: Tensor) -> Tensor:
        """The attentional vectors [..., Q] of context vectors [..., E] and queries [..., Q]."""
        return torch.tanh(torch.cat([context, query], dim=-1) @ self.weight.to(query.dtype).T)


def new_score(name: str, query_width: int, key_width: int) -> Score:
    """A score by its name, without initial values; the inner width of "concat" is the queries'."""
    require_score(name)
    if name == "general":
        return GeneralScore(query_width, key_width)
    if name == "concat":
        return ConcatScore(query_width, key_width, query_width)
    if query_width != key_width:
        raise ConfigError(
            expected="queries and keys of one width for the score 'dot'",
            found=f"{query_width} and {key_width}",
            fix="use the score 'general' or 'concat'",
        )
    return DotScore()
