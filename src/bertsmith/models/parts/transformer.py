"""A stack of bidirectional Transformer encoder layers with embeddings below and a pooler above.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width, E width of the embeddings, I inner
width, C width of keys and values, A heads, V vocabulary, L layers.

Layers are post-norm: a norm follows each residual sum, and none is added after the last layer; or pre-norm
(`PreNormLayer`). Most architectures differ only by their configuration: segments or none, where positions start, the
width of the embeddings, the activation of the pooler, rotary positions, gates, which norms and biases there are. One
with other layers has a subclass of `Layer`; one with a bias by position adds it to the `Pass` that all layers share.

In training, the residual stream stays in fp32 where products run in bf16, which halves the error of the gradient; see
docs/decisions/0019-residuals-in-fp32.md.

Source: Devlin et al. (2018), section 3 and appendix A; `BertModel` in the original modeling.py.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast

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
    activation,
    initialize,
    linear,
    new_norm,
    norm,
    sinusoidal_positions,
    turn_of,
    turned,
)
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.runs import runs_of

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig
    from bertsmith.models.parts.earlier import Earlier
    from bertsmith.models.parts.layers import Turn
    from bertsmith.models.parts.memory import Memory
    from bertsmith.models.parts.source import SourceStates


# What is added to the weights of an encoder, by their names in a model: A [r, K], and B [O, r] with the scale.
Products = Mapping[str, tuple[Tensor, Tensor]]


class Mixed(NamedTuple):
    """The adapters of the rows of a pass: their numbers, and which of these each row has, int64 [N]; None for one."""

    adapters: Sequence[int]
    of_row: Tensor | None = None


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

    position_layers: tuple[str, ...] = ()  # linear layers that read positions alone, in `fix_positions`
    mixed: "Mixed | None" = None  # the adapters of the rows of the next pass; None if all rows have the first one
    recomputes = False  # whether the states inside a layer are computed again in the backward pass
    fast_path: "FastPath | None" = None  # once prepared

    def __init__(self, config: "EncoderConfig", *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(self.new_layer(number) for number in range(config.num_distinct_layers))
        self.final_norm: nn.LayerNorm | nn.RMSNorm | None = None
        if config.norms_last:
            self.final_norm = new_norm(config)
        if config.can_pool:
            self.pooler = new_pooler(config)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def require_unseen(self) -> None:
        """See `Encoder.require_unseen`."""

    def recompute_layers(self) -> None:
        """See `Encoder.recompute_layers`; a pass that records what happens inside the layers keeps it."""
        self.recomputes = True

    def new_layer(self, number: int) -> "Layer":
        """A layer, without initial values; `number` counts from 0."""
        return (PreNormLayer if self.config.norms_first else Layer)(self.config, number)

    def new_decoder_layer(self, number: int) -> "Layer":
        """A layer like the one of that number in the stack, for a decoder, without initial values."""
        return (PreNormDecoderLayer if self.config.norms_first else DecoderLayer)(self.config, number)

    def fix_positions(self, dtype: torch.dtype, adapters: Sequence[Products] = ({},)) -> None:
        """Computes what layers make of positions alone once for all passes, before their products are replaced.

        Args:
            adapters: what is added to the weights, for each of several adapters, whose rows a pass may mix.
        """

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
        config = self.config
        bases = {config.rotary_base_of(number) for number in range(config.num_hidden_layers)} - {None}
        if not bases:
            return basis
        positions = basis.batch.positions if basis.earlier is None else basis.earlier.positions
        turns = {base: turn_of(positions, base, config.head_size, config.rotary_factor) for base in bases if base}
        return dataclasses.replace(basis, turns=turns)

    def stream_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype of the residual stream where products run in `dtype`: at least fp32 in training."""
        return torch.promote_types(dtype, torch.float32) if self.training else dtype


def allows_fast_path(shared: Pass, hidden: Tensor) -> bool:
    """Whether a pass is one that a fast path computes: of whole sequences of one length, and no more."""
    return (
        len(shared.batch.runs) == 1
        and shared.batch.unseen is None
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
            self.norm = new_norm(config, width)
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
        base: of the angles of rotary positions; None without them.
    """

    def __init__(self, config: "EncoderConfig", number: int = 0) -> None:
        super().__init__()
        self.config = config
        self.window, self.base = config.window_of(number), config.rotary_base_of(number)
        width, inner, both = config.hidden_size, config.intermediate_size, config.is_gated and not config.gates_apart
        self.query = self._new_linear("query", width, width)
        self.key = self._new_linear("key", width, config.key_width)
        self.value = self._new_linear("value", width, config.key_width)
        self.attention_output = self._new_linear("attention_output", width, width)
        self.attention_norm = new_norm(config)
        self.intermediate = self._new_linear("intermediate", width, 2 * inner if both else inner)
        if config.gates_apart:
            self.multiplier = self._new_linear("multiplier", width, inner)
        self.output = self._new_linear("output", inner, width)
        self.output_norm = new_norm(config)
        self.together: PreparedLinear | None = None  # query, key and value as one layer, once prepared

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """The next hidden states: [T, D], or [R, D] where only some positions are read, in the dtype of `hidden`."""
        residual = hidden if read is None else hidden[read.positions]  # [R, D]
        context = self.attend(hidden, residual, shared, read, name)
        counts = shared.batch.lengths if read is None else read.counts
        probability = self.config.hidden_dropout_prob
        width = residual.shape[1]
        attended = self.add_attention(residual, context, self.kept(width, counts, shared, probability))
        attended = self.consult(attended, shared, counts, name)
        keep_inner = self.kept_inner(counts, shared)
        keep = self.kept(width, counts, shared, probability)
        return self.feed_forward(attended, keep, shared.dtype, keep_inner)

    def _new_linear(self, name: str, inputs: int, outputs: int) -> nn.Linear:
        return nn.Linear(inputs, outputs, bias=self.config.has_biases and name not in self.config.without_bias)

    def project(self, hidden: Tensor, asking: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [R, D] of the `asking` states, keys and values [T, C] of the states of all tokens.

        Without noise of its own and without sequences, like the two methods below: `compiled.py` compiles the three.
        """
        return linear(asking, self.query), linear(hidden, self.key), linear(hidden, self.value)

    def add_attention(self, residual: Tensor, context: Tensor, keep: Tensor | None) -> Tensor:
        """The states [R, D] after attention, from the context vectors [R, D]."""
        probability = self.config.hidden_dropout_prob
        return norm(joined(residual, context, self.attention_output, keep, probability), self.attention_norm)

    def feed_forward(
        self, attended: Tensor, keep: Tensor | None, dtype: torch.dtype, keep_inner: Tensor | None = None
    ) -> Tensor:
        """The next hidden states [R, D], from the states after attention."""
        inner = self.inner(attended.to(dtype), keep_inner)
        probability = self.config.hidden_dropout_prob
        return norm(joined(attended, inner, self.output, keep, probability), self.output_norm)

    def inner(self, states: Tensor, keep: Tensor | None) -> Tensor:
        """The inner states [R, I] of the feed-forward network, from its input [R, D].

        Source: Shazeer (2020), "GLU Variants Improve Transformer", section 2, of those that are gated.
        """
        config = self.config
        if not config.is_gated:
            inner = linear(states, self.intermediate, then=config.hidden_act)
        elif config.gates_apart:
            inner = linear(states, self.intermediate, then=config.hidden_act) * linear(states, self.multiplier)
        else:
            opened, gate = linear(states, self.intermediate).chunk(2, dim=1)
            inner = activation(opened, config.hidden_act) * gate
        return inner if keep is None else inner * keep * (1 / (1 - config.hidden_dropout_prob))

    def attend(self, hidden: Tensor, asking: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """The context vectors [R, D] of the `asking` states [R, D], which attend to the states [T, D] of all tokens."""
        config, batch, earlier = self.config, shared.batch, shared.earlier
        hidden, asking = hidden.to(shared.dtype), asking.to(shared.dtype)
        probabilities: list[Tensor] | None = [] if shared.trace is not None and shared.trace.with_attentions else None
        if self.together is None:
            query, key, value = self.project(hidden, asking)
        else:
            widths = (config.hidden_size, config.key_width, config.key_width)
            query, key, value = torch.split_with_sizes(linear(hidden, self.together), widths, dim=1)
        query, key = self.placed(query, key, shared, read)
        if config.key_width < config.hidden_size:
            key, value = (for_all_heads(x, config.head_size, config.hidden_size) for x in (key, value))
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
            unseen=batch.unseen,
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
        """Queries [R, D] and keys [T, C] with their positions, where these are not part of the embeddings."""
        if self.base is None:
            return query, key
        turn = shared.turns[self.base]
        return turned(query, turn if read is None else turn.at(read.positions)), turned(key, turn)

    def score_bias(self, shared: Pass, name: str) -> Bias | None:
        """What is added to the scores of attention before the softmax; see `attention`."""
        return shared.bias

    def kept(self, width: int, counts: tuple[int, ...], shared: Pass, probability: float) -> Tensor | None:
        """1 where dropout keeps an element of a branch, 0 elsewhere, [R, width]; None for all."""
        if shared.noise is None or not probability:
            return None
        return shared.noise.keep(probability, [count * width for count in counts], shared.dtype).view(-1, width)

    def kept_inner(self, counts: tuple[int, ...], shared: Pass) -> Tensor | None:
        """The same of the inner states, [R, I]; None where they have no dropout."""
        config = self.config
        probability = config.hidden_dropout_prob if config.drops_inner else 0.0
        return self.kept(config.intermediate_size, counts, shared, probability)


class PreNormLayer(Layer):
    """Attention and a feed-forward network, each of a norm of the residual stream, to which it is added.

    The first layer has no norm in front of its attention where one follows the embeddings.
    """

    def __init__(self, config: "EncoderConfig", number: int = 0) -> None:
        super().__init__(config, number)
        self.norms_attention = number > 0 or not config.norms_embeddings
        if not self.norms_attention:
            del self.attention_norm

    def forward(self, hidden: Tensor, shared: Pass, read: Read | None, name: str) -> Tensor:
        """See `Layer.forward`."""
        normed = norm(hidden, self.attention_norm) if self.norms_attention else hidden
        asking = normed if read is None else normed[read.positions]
        residual = hidden if read is None else hidden[read.positions]  # [R, D]
        context = self.attend(normed, asking, shared, read, name)
        counts = shared.batch.lengths if read is None else read.counts
        probability = self.config.attended_dropout
        keep = self.kept(residual.shape[1], counts, shared, probability)
        attended = joined(residual, context, self.attention_output, keep, probability)
        attended = self.consult(attended, shared, counts, name)
        inner = self.inner(norm(attended, self.output_norm).to(shared.dtype), self.kept_inner(counts, shared))
        return joined(attended, inner, self.output, None, 0.0)


class SourceAttention(Layer):
    """The second attention, for any layer that consults a source before its feed-forward network.

    Its queries are the decoder's states, its keys and values the encoder's; it is the same function, with other lengths
    for queries than for keys.

    Source: Vaswani et al. (2017), "Attention Is All You Need", section 3.2.3.
    """

    def add_source_attention(self) -> None:
        """Adds the parameters, without initial values, and has the layer read all that it wrote, from left to right."""
        self.config, self.window = dataclasses.replace(self.config, is_causal=True), None
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
        keep = self.kept(attended.shape[1], counts, shared, probability)
        result = joined(attended, context, self.source_output, keep, probability)
        return result if config.norms_last else norm(result, self.source_norm)


class DecoderLayer(SourceAttention):
    """A layer that reads from left to right, and attends to the source text."""

    def __init__(self, config: "EncoderConfig", number: int = 0) -> None:
        super().__init__(config, number)
        self.add_source_attention()


class PreNormDecoderLayer(SourceAttention, PreNormLayer):
    """The same with norms first."""

    def __init__(self, config: "EncoderConfig", number: int = 0) -> None:
        super().__init__(config, number)
        self.add_source_attention()


def for_all_heads(x: Tensor, size: int, width: int) -> Tensor:
    """Keys or values [T, D] of all heads, each of which several heads in a row share, from those [T, C].

    Args:
        size: width of a head.
        width: D.

    Source: Ainslie et al. (2023), "GQA: Training Generalized Multi-Query Transformer Models", section 2.2.
    """
    heads = x.view(len(x), -1, 1, size)
    return heads.expand(-1, -1, width // x.shape[1], -1).reshape(len(x), width)


def joined(
    residual: Tensor, x: Tensor, layer: nn.Linear | PreparedLinear, keep: Tensor | None, probability: float
) -> Tensor:
    """The sum of the residual and of what `layer` makes of `x`, after dropout, [R, D]."""
    if keep is None:
        return linear(x, layer, plus=residual)
    return torch.addcmul(residual, linear(x, layer), keep, value=1 / (1 - probability))
