"""A bidirectional LSTM over word vectors: a small student that is not a Transformer.

Letters: T tokens in the flat batch, R positions that are read, D width, V vocabulary, L layers.

Each layer reads a row in both directions, with D / 2 cells each, and its concatenated states are the hidden states. So
every head reads it as it reads a Transformer; the student of DocBERT takes the maximum over time, which is part of
`reads` "concat". There are no positions and no segments, and a row may have any length.

The layout on disk is our own; other libraries have no such architecture.

Source: Graves and Schmidhuber (2005), "Framewise phoneme classification with bidirectional LSTM"; Adhikari et al.
(2019), "Rethinking Complex Neural Network Architectures for Document Classification", for the regularized LSTM, and
"DocBERT: BERT for Document Classification", section 3.2, for it as a student.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field
from bertsmith.models.encoders.without_attention import (
    TABLE_PARTS,
    ConfigWithoutAttention,
    EncoderWithoutAttention,
    lstm_rows,
)
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.lstm_layer import BiLstm
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.parameter_names import ParameterNames, Row


@dataclasses.dataclass(frozen=True, kw_only=True)
class BiLstmConfig(ConfigWithoutAttention):
    """The shape of a bidirectional LSTM.

    >>> BiLstmConfig(vocab_size=10, hidden_size=4).num_parameters(pooler=False)
    168
    """

    model_type: ClassVar[str] = "bilstm"
    display_name: ClassVar[str] = "BiLSTM"
    names: ClassVar[str] = "models.encoders.bilstm:NAMES"
    piece_head: ClassVar[str] = "table"
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {
        "intermediate_size",
        "max_position_embeddings",
        "is_causal",
    }
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (1, 128, 1, 128),
        "mini": (1, 256, 1, 256),
        "small": (1, 512, 1, 512),
        "medium": (2, 512, 1, 512),
        "base": (2, 1024, 1, 1024),
    }

    hidden_size: int = help_field(512, "width of the word vectors and of the hidden states, both directions together")
    num_hidden_layers: int = help_field(1, "layers of each direction")
    hidden_dropout_prob: float = help_field(0.2, "dropout on the word vectors and on the output of every layer")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_two_halves()

    @classmethod
    def dropout_changes(cls, probability: float) -> dict[str, float | None]:
        """The field that sets the dropout."""
        return {"hidden_dropout_prob": probability}

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; C the cells of one direction, G the gates of all of them."""
        cells = self.hidden_size // 2
        return super().axes | {"C": cells, "G": 4 * cells}


class BiLstmModel(EncoderWithoutAttention):
    """Word vectors, layers of LSTM in both directions, and a pooler."""

    config: BiLstmConfig

    def new_layer(self, number: int) -> nn.Module:
        """A layer; all of them are alike."""
        return BiLstm(self.width, self.width // 2)

    def read_of_rows(self, batch: Batch) -> Read:
        """The ends of both directions, where each has read the whole row."""
        return Read.ends(batch)

    def states(
        self, batch: Batch, read: Read | None, noise: Noise | None, dtype: torch.dtype | None, memory: Memory | None
    ) -> tuple[list[Tensor], Tensor]:
        """The hidden states after dropout, of which the last one is the output."""
        assert memory is None, "it reads whole sequences, from both ends"
        rate = self.config.hidden_dropout_prob
        hidden = F.embedding(batch.token_ids, self.word_table).to(dtype or self.word_table.dtype)
        states = [dropped(hidden, noise, rate, batch.lengths)]
        for layer in self.layers:
            states.append(dropped(layer(states[-1], batch.lengths), noise, rate, batch.lengths))
        if read is not None:
            states[-1] = read.pick(states[-1])
        return states, states[-1]


_L, _M = "bert.layers.{i}", "bilstm.layers.{i}"

NAMES = ParameterNames(
    prefix="bilstm.",
    class_prefix="BiLstm",
    embeddings=(Row("bert.embeddings.word.weight", "bilstm.embeddings.weight", "VD"),),
    layer=(*lstm_rows(f"{_L}.right", f"{_M}.right", "D"), *lstm_rows(f"{_L}.left", f"{_M}.left", "D")),
    parts=TABLE_PARTS,
    copies={},
    buffers=(),
)
