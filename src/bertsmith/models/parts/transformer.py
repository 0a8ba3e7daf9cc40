"""A stack of bidirectional Transformer encoder layers with embeddings below and a pooler above.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width, E width of the embeddings, I inner
width, A heads, V vocabulary, L layers.

Layers are post-norm: a norm follows each residual sum, and none is added after the last layer. BERT, DistilBERT,
RoBERTa and ELECTRA differ only by their configuration: segments or none, where positions start, the width of the
embeddings, the activation of the pooler. An architecture with other layers has a subclass of `Layer`, and one with
positions inside attention adds them to the `Pass` that all layers share.

In training, the residual stream stays in fp32 where products run in bf16, which halves the error of the gradient; see
docs/decisions/0019-residuals-in-fp32.md.

Source: Devlin et al. (2018), section 3 and appendix A; `BertModel` in the original modeling.py.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.models.parts.attention import Bias, attention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Encoder, Trace, new_pooler
from bertsmith.models.parts.layers import (
    Embedding,
    PreparedLinear,
    initialize,
    linear,
    norm,
    sinusoidal_positions,
)
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.runs import runs_of

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig
    from bertsmith.models.parts.earlier import Earlier
    from bertsmith.models.parts.layers import Turn
    from bertsmith.models.parts.memory import Memory
    from bertsmith.models.parts.source import SourceStates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """The state that all layers share in one forward pass.

    Attributes:
        earlier: keys and values of the tokens before the batch.
        bias: added to the scores of attention before the softmax, [A, 2P - 1]: by the position of the key minus that of
            the query, plus P - 1; P tokens of the longest sequence.
        turns: of rotary positions, for all tokens, by the base of their angles.
    """

    batch: Batch
    noise: Noise | None
    trace: Trace | None
    dtype: torch.dtype
    earlier: "Earlier | None" = None
    bias: Tensor | None = None
    turns: "Mapping[float, Turn]" = dataclasses.field(default_factory=dict)
    source: "SourceStates | None" = None


class TransformerEncoder(Encoder):
    """Embeddings, layers and a pooler; without a `seed` the caller sets the initial values."""

    recomputes = False  # whether the states inside a layer are computed again in the backward pass
    fast_path: "FastPath | None" = None  # once prepared

    def __init__(self, config: "EncoderConfig", *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(self.new_layer(number) for number in range(config.num_distinct_layers))
        self.final_norm: nn.LayerNorm | None = None
        if config.norms_last:
            self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.has_biases)
        if config.can_pool:
            self.pooler = new_pooler(config)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def recompute_layers(self) -> None:
        """See `Encoder.recompute_layers`; a pass that records what happens inside the layers keeps it."""
        self.recomputes = True

    def new_layer(self, number: int) -> "Layer":
        """A layer, without initial values; `number` counts from 0."""
        return Layer(self.config)

    def new_decoder_layer(self, number: int) -> "Layer":
        """A layer like the one of that number in the stack, for a decoder, without initial values."""
        return DecoderLayer(self.config)

    def fix_positions(self, dtype: torch.dtype) -> None:
        """Computes what layers make of positions alone once for all passes, before their products are replaced."""

    @property
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D]."""
        return self.embeddings.word.weight

    @property
    def stack(self) -> "Sequence[Layer]":
        """The layers in the order in which they are computed; one that shares its parameters occurs several times."""
        return cast("Sequence[Layer]", self.layers)

    @property
    def can_prune(self) -> bool:
        """False if a prepared last layer computes query, key and value in one product, or there is no layer."""
        return len(self.stack) > 0 and self.stack[-1].together is None

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: "Memory | None" = None,
    ) -> Tensor:
        """The last hidden states: [T, D], or [R, D] if only some positions are read; see `Encoder.forward`."""
        assert memory is None or self.config.is_causal, "a bidirectional encoder reads whole sequences"
        earlier = None
        if memory is not None:
            from bertsmith.models.parts.earlier import Earlier

            earlier = Earlier(memory, batch)
        dtype = dtype or self.word_table.dtype
        hidden = self.embeddings(batch, noise, self.stream_dtype(dtype), earlier)
        if trace is not None:
            trace.hidden_states.append(hidden)
        shared = self.shared(Pass(batch=batch, noise=noise, trace=trace, dtype=dtype, earlier=earlier))
        stack, fast = self.stack, self.fast_path
        depth = len(stack)
        computed: list[Tensor] = []  # the states after the lowest layers
        if fast is not None and allows_fast_path(shared, hidden) and fast.suits(hidden, batch.num_rows):
            computed = fast(hidden, batch.num_rows, depth - (read is not None))
        for number, layer in enumerate(stack, start=1):
            read_here = read if number == depth else None
            if number <= len(computed):
                hidden = computed[number - 1]
            elif self.recomputes and torch.is_grad_enabled() and (trace is None or not trace.is_filled_by_layers):
                hidden = _computed_twice(layer, hidden, shared, read_here, str(number))
            else:
                hidden = layer(hidden, shared, read_here, str(number))
            if number == depth and self.final_norm is not None:
                hidden = norm(hidden, self.final_norm)
            if trace is not None:
                trace.hidden_states.append(hidden)
        if earlier is not None:
            earlier.save()
        assert isinstance(hidden, Tensor)
        return hidden.to(dtype)

    def shared(self, basis: Pass) -> Pass:
        """The state that the layers share in a forward pass; an architecture adds what it computes once for all."""
        return basis

    def stream_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the residual stream where products run in `dtype`: at least fp32 in training."""
        return torch.promote_types(dtype, torch.float32) if self.training else dtype


def allows_fast_path(shared: Pass, hidden: Tensor) -> bool:
    """Whether a pass is one that a fast path computes: of whole sequences of one length, and no more."""
    return (
        len(shared.batch.runs) == 1
        and shared.noise is None
        and shared.earlier is None
        and shared.bias is None
        and not shared.turns
        and shared.source is None
        and (shared.trace is None or not shared.trace.is_filled_by_layers)
        and hidden.dtype == shared.dtype
    )


def _computed_twice(layer: "Layer", hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
    """The result of `layer`; in the backward pass it is computed again, with the same dropout.

    Source: Chen et al. (2016), "Training Deep Nets with Sublinear Memory Cost", section 4.
    """
    # The first pass draws from the noise itself, and the next layers continue from there; the second draws the same.
    noises = iter((shared.noise, copy.deepcopy(shared.noise)))

    def compute(hidden: Tensor) -> Tensor:
        result: Tensor = layer(hidden, dataclasses.replace(shared, noise=next(noises)), read, name)
        return result

    result: Tensor = checkpoint(compute, hidden, use_reentrant=False)
    return result


class Embeddings(nn.Module):
    """The sum of word vectors and, if the encoder has them, segment and position vectors; a norm, if any; dropout.

    Embeddings that are narrower than the hidden states are mapped to their width at the end.
    """

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.word = Embedding(config.vocab_size, width)
        if config.type_vocab_size:
            self.segment = Embedding(config.type_vocab_size, width)
        if config.position_embedding_type == "absolute":
            self.position = Embedding(config.max_position_embeddings, width)
        if config.norms_embeddings:
            self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_biases)
        if config.projects_embeddings:
            self.projection = nn.Linear(width, config.hidden_size)

    def forward(
        self, batch: Batch, noise: Noise | None, dtype: torch.dtype, earlier: "Earlier | None" = None
    ) -> Tensor:
        """The input representation [T, D]; positions follow the tokens that were read earlier."""
        config = self.config
        longest = max(batch.lengths) if earlier is None else earlier.longest
        own_positions = batch.positions if earlier is None else earlier.positions
        assert longest <= config.max_tokens, f"a sequence of {longest} tokens"
        total = F.embedding(batch.token_ids, self.word.weight)  # a new tensor, to which the others are added
        if config.scales_embeddings:
            total = total * config.embedding_width**0.5
        if config.type_vocab_size:
            total += F.embedding(batch.segment_ids, self.segment.weight)
        if config.position_embedding_type == "absolute":
            positions = own_positions + config.first_position if config.first_position else own_positions
            total += F.embedding(positions, self.position.weight)
        elif config.position_embedding_type == "sinusoidal":
            table = sinusoidal_positions(longest, config.embedding_width).to(total)
            total += table[own_positions]
        hidden = (norm(total, self.norm) if config.norms_embeddings else total).to(dtype)
        hidden = dropped(hidden, noise, config.embedding_dropout, batch.lengths)  # [T, E]
        return linear(hidden, self.projection) if config.projects_embeddings else hidden


class FastPath(Protocol):
    """A fast path through the lowest layers, for whole sequences of one length; see `fast_path.py`."""

    def suits(self, hidden: Tensor, rows: int) -> bool:
        """Whether this is the fastest way for the hidden states [T, D] of this number of sequences."""

    def __call__(self, hidden: Tensor, rows: int, most: int) -> list[Tensor]:
        """The hidden states [T, D] after each of the lowest layers, at most `most`."""


class Layer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual and a norm.

    Attributes:
        window: how far a query sees, in tokens on each side; None if it sees the whole sequence.
    """

    window: int | None = None

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.config = config
        width, inner, bias = config.hidden_size, config.intermediate_size, config.has_biases
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, width, bias=bias)
        self.value = nn.Linear(width, width, bias=bias)
        self.attention_output = nn.Linear(width, width, bias=bias)
        self.attention_norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=bias)
        self.intermediate = nn.Linear(width, 2 * inner if config.is_gated else inner, bias=bias)
        self.output = nn.Linear(inner, width, bias=bias)
        self.output_norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=bias)
        self.together: PreparedLinear | None = None  # query, key and value as one layer, once prepared

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """The next hidden states: [T, D], or [R, D] where only some positions are read, in the dtype of `hidden`."""
        residual = hidden if read is None else hidden[read.positions]  # [R, D]
        context = self.attend(hidden, residual, shared, read, name)
        counts = shared.batch.lengths if read is None else read.counts
        probability = self.config.hidden_dropout_prob
        attended = self.add_attention(residual, context, self.kept(residual, counts, shared, probability))
        attended = self.consult(attended, shared, counts, name)
        return self.feed_forward(attended, self.kept(residual, counts, shared, probability), shared.dtype)

    def project(self, hidden: Tensor, asking: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, D] of the `asking` states, keys and values [T, D] of the states of all tokens.

        Without noise of its own and without sequences, like the two methods below: `compiled.py` compiles the three.
        """
        return linear(asking, self.query), linear(hidden, self.key), linear(hidden, self.value)

    def add_attention(self, residual: Tensor, context: Tensor, keep: Tensor | None) -> Tensor:
        """The states [R, D] after attention, from the context vectors [R, D]."""
        probability = self.config.hidden_dropout_prob
        return norm(joined(residual, context, self.attention_output, keep, probability), self.attention_norm)

    def feed_forward(self, attended: Tensor, keep: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The next hidden states [R, D], from the states after attention."""
        inner = linear(attended.to(dtype), self.intermediate, then=self.config.hidden_act)  # [R, I]
        probability = self.config.hidden_dropout_prob
        return norm(joined(attended, inner, self.output, keep, probability), self.output_norm)

    def attend(self, hidden: Tensor, asking: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """The context vectors [R, D] of the `asking` states [R, D], which attend to the states [T, D] of all tokens."""
        config, batch, earlier = self.config, shared.batch, shared.earlier
        hidden, asking = hidden.to(shared.dtype), asking.to(shared.dtype)
        probabilities: list[Tensor] | None = [] if shared.trace is not None and shared.trace.with_attentions else None
        if self.together is None:
            query, key, value = self.project(hidden, asking)
        else:
            query, key, value = linear(hidden, self.together).chunk(3, dim=1)
        query, key = self.placed(query, key, shared, read)
        if shared.trace is not None and shared.trace.with_queries:
            shared.trace.queries.append((query, key))
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
            window=self.window,
            bias=self.score_bias(shared, name),
            query_positions=positions,
            dropout=config.attention_probs_dropout_prob,
            noise=shared.noise,
            probabilities=probabilities,
        )
        if shared.trace is not None and probabilities is not None:
            shared.trace.attentions.append(probabilities)
        return context

    def consult(self, attended: Tensor, shared: Pass, counts: tuple[int, ...], name: str) -> Tensor:
        """The states [R, D] before the feed-forward network; a decoder adds what it reads in the source."""
        return attended

    def placed(self, query: Tensor, key: Tensor, shared: Pass, read: Read | None) -> tuple[Tensor, Tensor]:
        """Queries [R, D] and keys [T, D] with their positions, where these are not part of the embeddings."""
        return query, key

    def score_bias(self, shared: Pass, name: str) -> Bias | None:
        """What is added to the scores of attention before the softmax; see `attention`."""
        return shared.bias

    def kept(self, residual: Tensor, counts: tuple[int, ...], shared: Pass, probability: float) -> Tensor | None:
        """1 where dropout keeps an element of a branch of the size of `residual` [R, D], 0 elsewhere; None for all."""
        if shared.noise is None or not probability:
            return None
        width = residual.shape[1]
        return shared.noise.keep(probability, [count * width for count in counts], shared.dtype).view_as(residual)


class SourceAttention(Layer):
    """The second attention, for any layer that consults a source before its feed-forward network.

    Its queries are the decoder's states, its keys and values the encoder's; it is the same function, with other lengths
    for queries than for keys.

    Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3.
    """

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


def joined(
    residual: Tensor, x: Tensor, layer: nn.Linear | PreparedLinear, keep: Tensor | None, probability: float
) -> Tensor:
    """The sum of the residual and of what `layer` makes of `x`, after dropout, [R, D]."""
    if keep is None:
        return linear(x, layer, plus=residual)
    return torch.addcmul(residual, linear(x, layer), keep, value=1 / (1 - probability))
