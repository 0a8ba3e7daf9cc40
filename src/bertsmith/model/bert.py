"""The whole encoder: embeddings, layers, pooler.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width, I inner width, A heads,
V vocabulary, L layers.

Layers are post-norm: a norm follows each residual sum, none follows the last layer. All matrix products run in
the type of the activations; parameters are cast on the way in, so training keeps them in fp32.

Source: Devlin et al. (2018), section 3 and appendix A; `BertModel` in the original modeling.py.
"""

import abc
import dataclasses
import math
from collections.abc import Collection

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.attention import attention
from bertsmith.model.batch import Batch, Read
from bertsmith.model.config import BertConfig
from bertsmith.model.noise import Noise
from bertsmith.randomness import generator


@dataclasses.dataclass
class Trace:
    """What a forward pass leaves behind for those who look inside.

    Attributes:
        hidden_states: L+1 tensors [T, D]: the embeddings after norm and dropout, then each layer. With a
            reading the last one is [R, D].
        attentions: for each layer a list of N tensors [A, s, s] (in the last layer, with a reading, [A, r, s]),
            if asked for.
    """

    with_attentions: bool = False
    hidden_states: list[Tensor] = dataclasses.field(default_factory=list)
    attentions: list[list[Tensor]] = dataclasses.field(default_factory=list)


class BertModel(nn.Module):
    """A stack of bidirectional Transformer encoder layers with a pooler.

    Args:
        seed: what the first parameters are drawn from; None leaves them to whoever builds a larger model.
    """

    def __init__(self, config: BertConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
    ) -> Tensor:
        """The last hidden states: [T, D], or [R, D] where only some positions are read.

        With a reading the last layer computes queries, attention output and feed-forward for those positions
        alone; what it returns for them is what it would return without.

        Args:
            read: the positions wanted; all of them if not given.
            noise: what dropout draws from; without it nothing is dropped.
            dtype: the type of the activations; that of the parameters if not given.
            trace: filled with the hidden states, and the attentions if it asks for them.
        """
        hidden = self.embeddings(batch, noise, dtype or self.pooler.weight.dtype)
        if trace is not None:
            trace.hidden_states.append(hidden)
        for number, layer in enumerate(self.layers, start=1):
            hidden = layer(hidden, batch, read if number == len(self.layers) else None, noise, trace)
            if trace is not None:
                trace.hidden_states.append(hidden)
        assert isinstance(hidden, Tensor)
        return hidden

    def pool(self, first: Tensor) -> Tensor:
        """The pooled output [N, D] for the hidden states [N, D] of the [CLS] tokens."""
        return torch.tanh(linear(first, self.pooler))


class Embedding(nn.Embedding):
    """A table of vectors; on the meta device nothing is drawn for it, which would load the compiler of torch."""

    def reset_parameters(self) -> None:
        """Draws the vectors."""
        if not self.weight.is_meta:
            super().reset_parameters()


class Embeddings(nn.Module):
    """Word, segment and position vectors, summed, normed, dropped."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.word = Embedding(config.vocab_size, config.hidden_size)
        self.segment = Embedding(config.type_vocab_size, config.hidden_size)
        if config.position_embedding_type == "absolute":
            self.position = Embedding(config.max_position_embeddings, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, batch: Batch, noise: Noise | None, dtype: torch.dtype) -> Tensor:
        """The input representation [T, D]."""
        config = self.config
        longest = max(batch.lengths)
        assert longest <= config.max_position_embeddings, f"a sequence of {longest} tokens"
        total = F.embedding(batch.token_ids, self.word.weight) + F.embedding(batch.segment_ids, self.segment.weight)
        if config.position_embedding_type == "absolute":
            total = total + F.embedding(batch.positions, self.position.weight)
        elif config.position_embedding_type == "sinusoidal":
            table = sinusoidal_positions(longest, config.hidden_size).to(total)
            total = total + table[batch.positions]
        hidden = norm(total, self.norm).to(dtype)
        if noise is None or not config.hidden_dropout_prob:
            return hidden
        sizes = [length * config.hidden_size for length in batch.lengths]
        keep = noise.keep(config.hidden_dropout_prob, sizes, dtype).view_as(hidden)
        return hidden * keep * (1 / (1 - config.hidden_dropout_prob))


class Layer(nn.Module):
    """Self-attention, then a feed-forward network, each with a residual and a norm."""

    def __init__(self, config: BertConfig) -> None:
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
        self.together: PreparedLinear | None = None  # query, key and value side by side, where inference prepared them

    def forward(
        self, hidden: Tensor, batch: Batch, read: Read | None, noise: Noise | None, trace: Trace | None
    ) -> Tensor:
        """The next hidden states: [T, D], or [R, D] where only some positions are read."""
        config = self.config
        asking = hidden if read is None else hidden[read.positions]  # [R, D]
        probabilities: list[Tensor] | None = [] if trace is not None and trace.with_attentions else None
        if self.together is None:
            query, key, value = linear(asking, self.query), linear(hidden, self.key), linear(hidden, self.value)
        else:
            query, key, value = linear(hidden, self.together).chunk(3, dim=1)
        context = attention(
            query,
            key,
            value,
            batch.runs if read is None else read.runs,
            heads=config.num_attention_heads,
            causal=config.is_causal,
            query_positions=None if read is None else batch.positions[read.positions],
            dropout=config.attention_probs_dropout_prob,
            noise=noise,
            probabilities=probabilities,
        )
        if trace is not None and probabilities is not None:
            trace.attentions.append(probabilities)
        counts = batch.lengths if read is None else read.counts
        attended = self._add(asking, linear(context, self.attention_output), counts, noise)
        attended = norm(attended, self.attention_norm)
        inner = linear(attended, self.intermediate, then=config.hidden_act)  # [R, I]
        return norm(self._add(attended, linear(inner, self.output), counts, noise), self.output_norm)

    def _add(self, residual: Tensor, branch: Tensor, counts: tuple[int, ...], noise: Noise | None) -> Tensor:
        """The sum of the residual and the dropped branch, [R, D]."""
        probability = self.config.hidden_dropout_prob
        if noise is None or not probability:
            return residual + branch
        keep = noise.keep(probability, [count * branch.shape[1] for count in counts], branch.dtype)
        return torch.addcmul(residual, branch, keep.view_as(branch), value=1 / (1 - probability))


class PreparedLinear(nn.Module, abc.ABC):
    """A linear layer as inference wants it, in place of the one that was trained; see `prepared.py`."""

    @abc.abstractmethod
    def forward(self, x: Tensor, then: str | None = None) -> Tensor:
        """The affine map [T, O] of [T, K]; `then` names the activation that follows."""


def linear(x: Tensor, layer: nn.Linear | PreparedLinear, then: str | None = None) -> Tensor:
    """The affine map of `layer`, computed in the type of `x`; `then` names the activation that follows."""
    if isinstance(layer, PreparedLinear):
        mapped = layer(x, then)
        assert isinstance(mapped, Tensor)
        return mapped
    mapped = F.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
    return mapped if then is None else activation(mapped, then)


def norm(x: Tensor, layer: nn.LayerNorm) -> Tensor:
    """Layer norm over the last axis with biased variance, statistics in fp32; the type of `x` comes back."""
    return F.layer_norm(x, layer.normalized_shape, layer.weight.to(x.dtype), layer.bias.to(x.dtype), layer.eps)


def activation(x: Tensor, name: str) -> Tensor:
    """GELU in its exact (erf) form or in the tanh approximation, or ReLU.

    Source: Hendrycks and Gimpel (2016); the two forms differ by at most 4.73e-4.
    """
    if name == "relu":
        return F.relu(x)
    return F.gelu(x, approximate="none" if name == "gelu" else "tanh")


def sinusoidal_positions(length: int, width: int) -> Tensor:
    """The fixed position table [length, width] of sines (even columns) and cosines (odd).

    Source: Vaswani et al. (2017), section 3.5.
    """
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-math.log(10000.0) / width))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates  # [length, ceil(width / 2)]
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
    return table.to(torch.float32)


@torch.no_grad()
def initialize(module: nn.Module, deviation: float, seed: int, names: Collection[str] | None = None) -> None:
    """Draws every matrix and table from a normal cut at two deviations; biases 0, norms 1 and 0.

    Each parameter is a function of (seed, its name), so that an encoder starts alike alone and in a larger model.

    Args:
        names: the parameters to set; None: all.

    Source: `create_initializer` in the original modeling.py.
    """
    for name, parameter in module.named_parameters():
        if names is not None and name not in names:
            continue
        if name.endswith("bias"):
            parameter.zero_()
        elif "norm" in name:
            parameter.fill_(1.0)
        else:
            source = generator(seed, f"initialize {name.removeprefix('bert.')}")
            drawn = source.standard_normal(parameter.numel(), dtype=np.float32)
            while len(beyond := np.flatnonzero(np.abs(drawn) > 2)):
                drawn[beyond] = source.standard_normal(len(beyond), dtype=np.float32)
            parameter.copy_(torch.from_numpy(drawn).mul_(deviation).view_as(parameter))
