"""A stack of bidirectional Transformer encoder layers with embeddings below and a pooler above.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width, I inner width, A heads,
V vocabulary, L layers.

Layers are post-norm: a norm follows each residual sum, and none is added after the last layer. BERT, DistilBERT and
RoBERTa differ only by their configuration: segments or none, where positions start, the activation of the pooler.

In training, the residual stream stays in fp32 where products run in bf16, which halves the error of the gradient; see
docs/decisions/0019-residuals-in-fp32.md.

Source: Devlin et al. (2018), section 3 and appendix A; `BertModel` in the original modeling.py.
"""

from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.attention import attention
from bertsmith.model.batch import Batch, Read
from bertsmith.model.earlier import Earlier
from bertsmith.model.encoder import Encoder, Trace
from bertsmith.model.layers import (
    Embedding,
    PreparedLinear,
    initialize,
    linear,
    norm,
    sinusoidal_positions,
)
from bertsmith.model.memory import Memory
from bertsmith.model.noise import Noise, dropped

if TYPE_CHECKING:
    from bertsmith.model.config import EncoderConfig


class TransformerEncoder(Encoder):
    """Embeddings, layers and a pooler.

    Args:
        seed: seed for initialization; None leaves that to the caller, which may build a larger model.
    """

    def __init__(self, config: "EncoderConfig", *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        if config.can_pool:
            self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    @property
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D]."""
        return self.embeddings.word.weight

    @property
    def can_prune(self) -> bool:
        """False if a prepared last layer computes query, key and value in one product, or there is no layer."""
        return len(self.layers) > 0 and cast("Layer", self.layers[-1]).together is None

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """The last hidden states: [T, D], or [R, D] if only some positions are read; see `Encoder.forward`."""
        assert memory is None or self.config.is_causal, "a bidirectional encoder reads whole sequences"
        earlier = None if memory is None else Earlier(memory, batch)
        dtype = dtype or self.word_table.dtype
        hidden = self.embeddings(batch, noise, self.stream_dtype(dtype), earlier)
        if trace is not None:
            trace.hidden_states.append(hidden)
        for number, layer in enumerate(self.layers, start=1):
            read_here = read if number == len(self.layers) else None
            hidden = layer(hidden, batch, read_here, noise, trace, dtype, earlier, str(number))
            if trace is not None:
                trace.hidden_states.append(hidden)
        if earlier is not None:
            earlier.save()
        assert isinstance(hidden, Tensor)
        return hidden.to(dtype)

    def stream_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the residual stream where products run in `dtype`: at least fp32 in training."""
        return torch.promote_types(dtype, torch.float32) if self.training else dtype


class Embeddings(nn.Module):
    """The sum of word vectors and, if the encoder has them, segment and position vectors; a norm, if any; dropout."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.config = config
        self.word = Embedding(config.vocab_size, config.hidden_size)
        if config.type_vocab_size:
            self.segment = Embedding(config.type_vocab_size, config.hidden_size)
        if config.position_embedding_type == "absolute":
            self.position = Embedding(config.max_position_embeddings, config.hidden_size)
        if config.norms_embeddings:
            self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, batch: Batch, noise: Noise | None, dtype: torch.dtype, earlier: Earlier | None = None) -> Tensor:
        """The input representation [T, D]; positions follow those of the tokens that were read earlier."""
        config = self.config
        longest = max(batch.lengths) if earlier is None else earlier.longest
        own_positions = batch.positions if earlier is None else earlier.positions
        assert longest <= config.max_tokens, f"a sequence of {longest} tokens"
        total = F.embedding(batch.token_ids, self.word.weight)
        if config.type_vocab_size:
            total = total + F.embedding(batch.segment_ids, self.segment.weight)
        if config.position_embedding_type == "absolute":
            positions = own_positions + config.first_position if config.first_position else own_positions
            total = total + F.embedding(positions, self.position.weight)
        elif config.position_embedding_type == "sinusoidal":
            table = sinusoidal_positions(longest, config.hidden_size).to(total)
            total = total + table[own_positions]
        hidden = (norm(total, self.norm) if config.norms_embeddings else total).to(dtype)
        return dropped(hidden, noise, config.embedding_dropout, batch.lengths)


class Layer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual and a norm."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.config = config
        width, inner = config.hidden_size, config.intermediate_size
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.attention_output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(width, inner)
        self.output = nn.Linear(inner, width)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.together: PreparedLinear | None = None  # query, key and value as one layer, once prepared

    def forward(
        self,
        hidden: Tensor,
        batch: Batch,
        read: Read | None,
        noise: Noise | None,
        trace: Trace | None,
        dtype: torch.dtype,
        earlier: Earlier | None = None,
        name: str = "",
    ) -> Tensor:
        """The next hidden states: [T, D], or [R, D] where only some positions are read, in the dtype of `hidden`.

        Args:
            dtype: of the matrix products and of attention.
            earlier: keys and values of the tokens before the batch.
            name: of the layer, for `earlier`.
        """
        config = self.config
        residual = hidden if read is None else hidden[read.positions]  # [R, D]
        hidden, asking = hidden.to(dtype), residual.to(dtype)
        probabilities: list[Tensor] | None = [] if trace is not None and trace.with_attentions else None
        if self.together is None:
            query, key, value = linear(asking, self.query), linear(hidden, self.key), linear(hidden, self.value)
        else:
            query, key, value = linear(hidden, self.together).chunk(3, dim=1)
        if trace is not None and trace.with_queries:
            trace.queries.append((query, key))
        runs, positions = batch.runs if read is None else read.runs, None if read is None else batch.positions
        if earlier is not None:
            key, value = earlier.continued(f"{name}.key", key), earlier.continued(f"{name}.value", value)
            runs, positions = earlier.runs(read), earlier.positions
        if positions is not None and read is not None:
            positions = positions[read.positions]
        context = attention(
            query,
            key,
            value,
            runs,
            heads=config.num_attention_heads,
            causal=config.is_causal,
            query_positions=positions,
            dropout=config.attention_probs_dropout_prob,
            noise=noise,
            probabilities=probabilities,
        )
        if trace is not None and probabilities is not None:
            trace.attentions.append(probabilities)
        counts = batch.lengths if read is None else read.counts
        attended = norm(self._add(residual, context, self.attention_output, counts, noise), self.attention_norm)
        inner = linear(attended.to(dtype), self.intermediate, then=config.hidden_act)  # [R, I]
        return norm(self._add(attended, inner, self.output, counts, noise), self.output_norm)

    def _add(
        self,
        residual: Tensor,
        x: Tensor,
        layer: nn.Linear | PreparedLinear,
        counts: tuple[int, ...],
        noise: Noise | None,
    ) -> Tensor:
        """The sum of the residual and of what `layer` makes of `x`, after dropout, [R, D]."""
        probability = self.config.hidden_dropout_prob
        if noise is None or not probability:
            return linear(x, layer, plus=residual)
        branch = linear(x, layer)
        keep = noise.keep(probability, [count * branch.shape[1] for count in counts], branch.dtype)
        return torch.addcmul(residual, branch, keep.view_as(branch), value=1 / (1 - probability))
