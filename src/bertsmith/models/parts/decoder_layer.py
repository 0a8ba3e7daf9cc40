"""A layer of a decoder: a layer of an encoder that reads from left to right, with a second attention to a source text.

Letters: T target tokens, D width.

The second attention is between the first one and the feed-forward network. Its queries are the decoder's states, its
keys and values the encoder's; it is the same function, with other lengths for queries than for keys.

Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3.
"""

import dataclasses
from typing import TYPE_CHECKING

from torch import Tensor, nn

from bertsmith.models.parts.attention import attention
from bertsmith.models.parts.layers import linear, norm
from bertsmith.models.parts.runs import runs_of
from bertsmith.models.parts.transformer import Layer, Pass, joined

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig

SOURCE = "source_"  # what the names of the second attention begin with


class SourceAttention(Layer):
    """The second attention, for any layer that consults a source before its feed-forward network."""

    def add_source_attention(self) -> None:
        """Adds the parameters, without initial values."""
        config, width = self.config, self.config.hidden_size
        self.source_query = nn.Linear(width, width)
        self.source_key = nn.Linear(width, width)
        self.source_value = nn.Linear(width, width)
        self.source_output = nn.Linear(width, width)
        self.source_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def consult(self, attended: Tensor, shared: Pass, counts: tuple[int, ...], name: str) -> Tensor:
        """The states [T, D] with what they read in the source: added and normed, or normed first and added."""
        source, config = shared.source, self.config
        assert source is not None, "a decoder has a source"
        asking = (norm(attended, self.source_norm) if config.norms_last else attended).to(shared.dtype)
        context = attention(
            linear(asking, self.source_query),
            source.projected(f"{name}.key", lambda states: linear(states.to(shared.dtype), self.source_key)),
            source.projected(f"{name}.value", lambda states: linear(states.to(shared.dtype), self.source_value)),
            runs_of(source.lengths, counts),
            heads=config.num_attention_heads,
            dropout=config.attention_probs_dropout_prob,
            noise=shared.noise,
        )
        probability = config.hidden_dropout_prob
        keep = self.kept(attended, counts, shared, probability)
        result = joined(attended, context, self.source_output, keep, probability)
        return result if config.norms_last else norm(result, self.source_norm)


class DecoderLayer(SourceAttention):
    """A layer that reads from left to right, and attends to the source text."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__(dataclasses.replace(config, is_causal=True))
        self.add_source_attention()
