"""The encoder of ModernBERT: its layers, and the rotary positions they share; its configuration is in `modernbert.py`.

T tokens, D width, I width of each half of the feed-forward network, R positions that are read.
"""

import dataclasses

from torch import Tensor

from bertsmith.models.encoders.modernbert import ModernBertConfig
from bertsmith.models.parts.batch import Read
from bertsmith.models.parts.layers import activation, linear, norm, turn_of, turned
from bertsmith.models.parts.noise import dropped
from bertsmith.models.parts.transformer import Layer, Pass, SourceAttention, TransformerEncoder, joined


class ModernBertLayer(Layer):
    """Attention and a gated feed-forward network, each of a norm of the residual stream, to which it is added."""

    config: ModernBertConfig

    def __init__(self, config: ModernBertConfig, number: int) -> None:
        super().__init__(config)
        self.window, self.base = config.window_of(number), config.rotary_base_of(number)
        self.norms_attention = number > 0
        if not self.norms_attention:
            del self.attention_norm

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """See `Layer.forward`."""
        config, noise = self.config, shared.noise
        normed = norm(hidden, self.attention_norm) if self.norms_attention else hidden
        asking = normed if read is None else normed[read.positions]
        residual = hidden if read is None else hidden[read.positions]  # [R, D]
        context = self.attend(normed, asking, shared, read, name)
        counts = shared.batch.lengths if read is None else read.counts
        probability = config.attention_probs_dropout_prob
        keep = self.kept(residual, counts, shared, probability)
        attended = joined(residual, context, self.attention_output, keep, probability)
        attended = self.consult(attended, shared, counts, name)
        both = linear(norm(attended, self.output_norm).to(shared.dtype), self.intermediate)  # [R, 2I]
        opened, gate = both.chunk(2, dim=1)
        inner = dropped(activation(opened, config.hidden_act) * gate, noise, config.hidden_dropout_prob, counts)
        return joined(attended, inner, self.output, None, 0.0)

    def placed(self, query: Tensor, key: Tensor, shared: Pass, read: Read | None) -> tuple[Tensor, Tensor]:
        """Queries [R, D] and keys [T, D], turned by their positions."""
        turn = shared.turns[self.base]
        return turned(query, turn if read is None else turn.at(read.positions)), turned(key, turn)


class ModernBertDecoderLayer(SourceAttention, ModernBertLayer):
    """The same for a decoder, with global attention: what is written is mostly shorter than a window."""

    def __init__(self, config: ModernBertConfig, number: int) -> None:
        super().__init__(config, number)
        self.config, self.window = dataclasses.replace(config, is_causal=True), None
        self.add_source_attention()


class ModernBertModel(TransformerEncoder):
    """Word embeddings and a norm, pre-norm layers with global or local attention, a norm; a pooler with a norm."""

    config: ModernBertConfig

    def new_layer(self, number: int) -> Layer:
        """See `TransformerEncoder`."""
        return ModernBertLayer(self.config, number)

    def new_decoder_layer(self, number: int) -> Layer:
        """See `TransformerEncoder.new_decoder_layer`."""
        return ModernBertDecoderLayer(self.config, number)

    def shared(self, basis: Pass) -> Pass:
        """The turns of all tokens, once for all layers."""
        config, positions = self.config, basis.batch.positions if basis.earlier is None else basis.earlier.positions
        bases = {config.global_rope_theta, config.local_rope_theta}
        return dataclasses.replace(basis, turns={base: turn_of(positions, base, config.head_size) for base in bases})
