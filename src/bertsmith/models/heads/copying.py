"""Copying from the source: the next piece is drawn from the vocabulary, or it is a piece of the source.

A gate g says how probable the vocabulary is, and an attention of its own over the source's tokens which of these is
copied: p(v) = g softmax(L)[v] + (1 - g) a(v), of logits L and the attention a(v) to all tokens whose piece is v. Words
that no training has shown can so be written.

What comes out are logits again: those whose softmax is p, and which are L wherever the source does not have the piece.
So nothing but T x S numbers change, and losses, searches and temperatures read them as any other logits.

Letters: T target tokens, N sequences, S tokens of the longest source, D width, V vocabulary; of the sequences of a run,
n with r target tokens and s source tokens each.

Source: See, Liu and Manning (2017), "Get To The Point: Summarization with Pointer-Generator Networks", section 2.2.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.parts.layers import linear
from bertsmith.models.parts.runs import runs_of
from bertsmith.models.parts.scored_attention import attention_weights, scaled_dot
from bertsmith.models.parts.source import SourceStates

_EXACT = 40.0  # above, softplus(x) is x in fp64 too


class _FromIdentity(nn.Linear):
    """A linear layer that starts as the identity."""

    starts_as_identity = True  # see `initial_values`


class Copying(nn.Module):
    """The gate and the attention.

    A decoder that starts as an encoder has states near those of the pieces it expects, so the attention starts as their
    dot product with those of the source.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = _FromIdentity(width, width)
        self.key = _FromIdentity(width, width)
        self.gate = nn.Linear(width, 1)

    def forward(self, logits: Tensor, hidden: Tensor, source: SourceStates, counts: tuple[int, ...]) -> Tensor:
        """The logits [T, V] of the next piece, at least in fp32, where it may be copied.

        Args:
            logits: of the vocabulary alone, [T, V].
            hidden: the decoder's last states [T, D].
            counts: the target tokens of each sequence.
        """
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        query, gate = linear(hidden, self.query), linear(hidden, self.gate).to(exact.dtype)  # [T, D], [T, 1]
        key = source.projected("copy.key", lambda states: linear(states.to(hidden.dtype), self.key))
        pieces, shares = _shares(query, key, source, counts, exact.dtype)
        of_vocabulary = exact.logsumexp(1, keepdim=True)  # [T, 1]
        copied = of_vocabulary - gate + shares.clamp_min(torch.finfo(shares.dtype).tiny).log()  # [T, S]
        more = F.softplus(copied - exact.gather(1, pieces), threshold=_EXACT).masked_fill(shares == 0, 0.0)
        # Without gradients nothing else reads these logits.
        return exact.scatter_add(1, pieces, more) if torch.is_grad_enabled() else exact.scatter_add_(1, pieces, more)


def _shares(
    query: Tensor, key: Tensor, source: SourceStates, counts: tuple[int, ...], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The pieces of the source of each target token, int64 [T, S], and the share of each in the attention, [T, S].

    The share of a piece that occurs several times is at its first place, and 0 at the others.
    """
    assert source.pieces is not None, "a source whose pieces are known"
    firsts = source.projected("copy.first", lambda _: _first_places(source))
    runs, longest = runs_of(source.lengths, counts), max(source.lengths)
    # Split once: the gradient of a split is one concatenation.
    queries = query.split_with_sizes([run.rows * run.queries for run in runs])
    of_source = [run.rows * run.length for run in runs]
    each = zip(runs, queries, *(part.split_with_sizes(of_source) for part in (key, source.pieces, firsts)), strict=True)
    pieces, shares = [], []
    for run, asking, keys, ids, first in each:
        q, k = asking.view(run.rows, run.queries, -1), keys.view(run.rows, run.length, -1)
        weights = attention_weights(scaled_dot(q, k).to(dtype))  # [n, r, s]
        by_token = [part.view(run.rows, 1, -1).expand(weights.shape) for part in (ids, first)]
        share = torch.zeros_like(weights).scatter_add(2, by_token[1], weights)
        padding = (0, longest - run.length)
        pieces.append(F.pad(by_token[0].flatten(0, 1), padding))
        shares.append(F.pad(share.flatten(0, 1), padding))
    return torch.cat(pieces), torch.cat(shares)


def _first_places(source: SourceStates) -> Tensor:
    """For each token of a source, where in its text its piece occurs first, int64, flat."""
    assert source.pieces is not None
    runs = runs_of(source.lengths, source.lengths)
    texts = source.pieces.split_with_sizes([run.rows * run.length for run in runs])
    places = []
    for run, ids in zip(runs, texts, strict=True):
        rows = ids.view(run.rows, -1)
        places.append((rows.unsqueeze(2) == rows.unsqueeze(1)).byte().argmax(2).flatten())
    return torch.cat(places)
