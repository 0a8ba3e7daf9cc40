"""The common parts of encoders without attention: configuration, word table, reading a batch, parameter names.

They have no segments, no heads and no pooler of their own, and their layout on disk is our own: other libraries have no
such architecture. Unless its table of positions says otherwise, a row may have any length.

Letters: T tokens in the flat batch, R positions that are read, V vocabulary, D width, L layers; in an LSTM C cells and
G gates of all of them.
"""

import abc
import dataclasses
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field, require
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.encoder import Encoder, Trace, new_pooler
from bertsmith.models.parts.layers import Embedding, initialize
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.parameter_names import Row, dense, output

_OF_ATTENTION = frozenset(
    {
        "num_attention_heads",
        "hidden_act",
        "attention_probs_dropout_prob",
        "type_vocab_size",
        "layer_norm_eps",
        "position_embedding_type",
    }
)
# The pooler and the heads where the word table scores the pieces.
TABLE_PARTS = {
    "pooler": dense("bert.pooler", "pooler", "DD"),
    "mlm": (Row("mlm.bias", "pieces.bias", "V"),),
    "classifier": output("classifier", "classifier", "KD"),
    "span": output("span", "span", "2D"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfigWithoutAttention(EncoderConfig):
    """The shape of an encoder without attention; an architecture adds to `omitted` what it does not have either."""

    has_pooler: ClassVar[bool] = False
    has_attention: ClassVar[bool] = False
    in_transformers: ClassVar[bool] = False
    has_graph: ClassVar[bool] = False
    omitted: ClassVar[frozenset[str]] = _OF_ATTENTION

    num_attention_heads: int = help_field(1, "attention heads; there are none")
    type_vocab_size: int = help_field(0, "segments; there are none")

    def require_two_halves(self) -> None:
        """Checks that the width can be divided between two directions."""
        require(
            self.hidden_size % 2 == 0,
            expected="an even hidden_size, half of it for each direction",
            found=self.hidden_size,
            fix="change it",
        )


class EncoderWithoutAttention(Encoder):
    """Vectors of pieces, layers, and a pooler if the architecture has one."""

    embeddings: nn.Module

    def __init__(self, config: EncoderConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.embeddings = self.new_embeddings()
        self.layers = nn.ModuleList(self.new_layer(number) for number in range(config.num_hidden_layers))
        if config.can_pool:
            self.pooler = new_pooler(config)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def new_embeddings(self) -> nn.Module:
        """The module that gives a piece its vector, without initial values: by default a table."""
        return nn.ModuleDict({"word": Embedding(self.config.vocab_size, self.config.hidden_size)})

    @abc.abstractmethod
    def new_layer(self, number: int) -> nn.Module:
        """A layer, without initial values; `number` counts from 0."""

    @property
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D]."""
        return self.embeddings.get_submodule("word").get_parameter("weight")

    @property
    def can_prune(self) -> bool:
        """False: every position is computed."""
        return False

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
        states, last = self.states(batch, read, noise, dtype, memory)
        if trace is not None:
            trace.hidden_states += states
        return last

    @abc.abstractmethod
    def states(
        self, batch: Batch, read: Read | None, noise: Noise | None, dtype: torch.dtype | None, memory: Memory | None
    ) -> tuple[list[Tensor], Tensor]:
        """The L+1 hidden states, the last one at the positions that are read, and the output there; see `forward`."""


def lstm_rows(ours: str, stored: str, inputs: str) -> tuple[Row, ...]:
    """The parameters of one direction of a layer of LSTM."""
    return (
        Row(f"{ours}.weight_ih_l0", f"{stored}.input.weight", f"G{inputs}"),
        Row(f"{ours}.weight_hh_l0", f"{stored}.hidden.weight", "GC"),
        Row(f"{ours}.bias_ih_l0", f"{stored}.input.bias", "G"),
        Row(f"{ours}.bias_hh_l0", f"{stored}.hidden.bias", "G"),
    )
