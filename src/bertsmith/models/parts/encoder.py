"""The interface of an encoder for the rest of the package.

Tasks, loading, the library, export and the server use only `Encoder` and its configuration, never a specific model.

Letters: T tokens in the flat batch, N sequences, R positions that are read, V vocabulary, D width, L layers, A heads.
"""

import abc
import copy
import dataclasses
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError, ConfigError
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.layers import activation, linear, new_norm, norm
from bertsmith.models.parts.noise import Noise
from bertsmith.text.tokenizers.vocabulary import Vocabulary

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig
    from bertsmith.models.parts.memory import Memory


@dataclasses.dataclass
class Trace:
    """Intermediate results of a forward pass.

    Attributes:
        hidden_states: L+1 tensors [T, D]: the embeddings after norm and dropout, then each layer. If only some
            positions are read, the last one is [R, D].
        attentions: for each layer a list of N tensors [A, s, s] (in the last layer [A, r, s] if only some positions are
            read).
        queries: the queries and keys of each layer, [T, D] each, with their gradients.
    """

    with_attentions: bool = False
    with_queries: bool = False
    hidden_states: list[Tensor] = dataclasses.field(default_factory=list)
    attentions: list[list[Tensor]] = dataclasses.field(default_factory=list)
    queries: list[tuple[Tensor, Tensor]] = dataclasses.field(default_factory=list)

    @property
    def is_filled_by_layers(self) -> bool:
        """Whether it records what happens inside the layers."""
        return self.with_attentions or self.with_queries


class NormedPooler(nn.Linear):
    """The layer of a pooler, and the norm that follows its activation."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__(config.hidden_size, config.hidden_size, bias=config.has_biases)
        self.norm = new_norm(config)


def new_pooler(config: "EncoderConfig") -> nn.Linear:
    """The layer of the pooler of an encoder."""
    if config.norms_pooler:
        return NormedPooler(config)
    return nn.Linear(config.hidden_size, config.hidden_size, bias=config.has_biases)


class Encoder(nn.Module, abc.ABC):
    """A model that turns a flat batch of tokens into hidden states: `embeddings`, then layers, a pooler on top.

    Attributes:
        layers: L layers, from the bottom to the top.
        pooler: the pooler's layer; absent if the architecture has none (`EncoderConfig.can_pool`).
    """

    config: "EncoderConfig"
    layers: nn.ModuleList
    pooler: nn.Linear

    @property
    def width(self) -> int:
        """D, the width of the hidden states."""
        return self.config.hidden_size

    @property
    def num_layers(self) -> int:
        """L; a trace contains L+1 hidden states."""
        return self.config.num_hidden_layers

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens in a row, special tokens included."""
        return self.config.max_tokens

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each hidden state of a trace, L+1 of them; by default D for all."""
        return (self.width,) * (self.num_layers + 1)

    def read_of_rows(self, batch: Batch) -> Read:
        """The position in each row whose hidden state represents the row: [CLS], or the last token of a causal encoder.

        In a left-to-right encoder [CLS] sees only itself; the last token sees the whole row. Tasks that read a row as a
        whole, and vectors from one position, read here.
        """
        return Read.last(batch) if self.config.is_causal else Read.first(batch)

    @property
    @abc.abstractmethod
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D], which the masked-LM head shares."""

    @property
    @abc.abstractmethod
    def can_prune(self) -> bool:
        """Whether the last layer can skip the positions that are not read."""

    def read_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Receives the vocabulary before the first forward pass; by default does nothing.

        This is for encoders whose input is how a piece is spelled.
        """

    @abc.abstractmethod
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
        """The last hidden states: [T, D], or [R, D] if only some positions are read.

        With `read`, the last layer computes queries, attention output and feed-forward only for those positions; their
        values are the same as without it.

        Args:
            read: the positions to compute; all of them if not given.
            noise: the source of dropout; without it nothing is dropped.
            dtype: dtype of the activations; as the parameters if not given.
            trace: receives the hidden states, and the attentions if it asks for them.
            memory: what was read of the same sequences before; the batch continues them, and afterwards the memory
                includes it. A causal encoder has one, and so has the half of another that reads from left to right.
        """

    def pool(self, first: Tensor) -> Tensor:
        """The pooled output [N, D] for the hidden states [N, D] of the positions that represent the rows.

        Without a pooler, these states themselves.
        """
        if not self.config.can_pool:
            return first
        pooled = activation(linear(first, self.pooler), self.config.pooler_act)
        return norm(pooled, self.pooler.norm) if isinstance(self.pooler, NormedPooler) else pooled

    def require_unseen(self) -> None:
        """Checks that it computes batches with tokens that no token attends to; see `Batch.unseen`."""
        raise CheckpointError(
            expected="an encoder that can leave tokens out of the attention, to expand queries",
            found=self.config.display_name,
            fix="use a model that attends to the expansion of queries, or has none",
        )

    def recompute_layers(self) -> None:
        """From now on computes what is inside a layer again in the backward pass, instead of keeping it."""
        raise ConfigError(
            expected="an encoder with Transformer layers, to compute them again in the backward pass",
            found=self.config.display_name,
            fix="leave --activation-checkpointing out",
        )

    def lower(self, depth: int) -> Self:
        """The same encoder without the layers above `depth`; it shares all parameters."""
        if depth == len(self.layers):
            return self
        lower = copy.copy(self)
        lower._modules = {**self._modules, "layers": self.layers[:depth], "final_norm": None}
        return lower

    def height(self, name: str) -> int:
        """The level of a parameter above the input: 0 for the embeddings, 1 to L for the layers, L+1 for the pooler.

        A norm after the last layer belongs to it.
        """
        part, _, rest = name.partition(".")
        if part == "embeddings":
            return 0
        if part == "final_norm":
            return self.num_layers
        return int(rest.split(".", 1)[0]) + 1 if part == "layers" else self.num_layers + 1
