"""AWD-LSTM: word vectors and LSTM layers with five kinds of dropout; the word table scores the pieces.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width of the word vectors and of the last
layer, C cells of the other layers, V vocabulary, L layers.

Five kinds of dropout, all of them functions of the noise: of word types in a sequence, of features of a sequence on the
input, between the layers and on the output (one mask for all its tokens), and of the weights between hidden states (one
mask for all sequences of a step). The original drops word types for a whole batch; here each sequence has its own, so
that nothing depends on how a step is split.

There are no positions, so a row may have any length. Gradients flow through the last `GRADIENT_TOKENS` tokens that
are read of a row; what comes before is read without them.

The layout on disk is our own; other libraries have no such architecture.

Source: Merity, Keskar and Socher (2018), "Regularizing and Optimizing LSTM Language Models", section 4; Howard and
Ruder (2018), "Universal Language Model Fine-tuning for Text Classification", sections 3 and 4.1, for the rates of
dropout and for long texts.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field, require_known
from bertsmith.models.encoders.without_attention import (
    TABLE_PARTS,
    ConfigWithoutAttention,
    EncoderWithoutAttention,
    lstm_rows,
)
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.lstm_layer import LstmLayer, State
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise
from bertsmith.models.parts.parameter_names import ParameterNames, Row

FORWARD, BACKWARD = "forward", "backward"
GRADIENT_TOKENS = 20 * 70


@dataclasses.dataclass(frozen=True, kw_only=True)
class AwdLstmConfig(ConfigWithoutAttention):
    """The shape of an AWD-LSTM; the rates of dropout are ULMFiT's.

    >>> AwdLstmConfig().num_parameters(pooler=False) - 30522 * 400
    20211600
    """

    model_type: ClassVar[str] = "awd-lstm"
    display_name: ClassVar[str] = "AWD-LSTM"
    names: ClassVar[str] = "models.encoders.awd_lstm:NAMES"
    always_causal: ClassVar[bool] = True
    is_recurrent: ClassVar[bool] = True
    piece_head: ClassVar[str] = "table"
    json_names: ClassVar[Mapping[str, str]] = {"intermediate_size": "cells"}
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {"max_position_embeddings"}
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (3, 128, 1, 256),
        "mini": (3, 200, 1, 512),
        "small": (3, 256, 1, 768),
        "medium": (3, 320, 1, 960),
        "base": (3, 400, 1, 1150),
    }

    hidden_size: int = help_field(400, "width of the word vectors and of the last layer")
    num_hidden_layers: int = help_field(3, "LSTM layers")
    intermediate_size: int = help_field(1150, "cells of every layer but the last")
    initializer_range: float = help_field(0.058, "standard deviation of the initial word vectors")
    is_causal: bool = help_field(True, "each token sees only the tokens that were read before it")
    direction: str = help_field(FORWARD, "forward: reads from left to right; backward: from right to left")
    output_dropout_prob: float = help_field(0.4, "dropout on the output of the last layer")
    hidden_dropout_prob: float = help_field(0.3, "dropout between the layers")
    input_dropout_prob: float = help_field(0.4, "dropout on the word vectors")
    embedding_dropout_prob: float = help_field(0.05, "dropout of word types")
    weight_dropout_prob: float = help_field(0.5, "dropout of the weights between hidden states")

    def __post_init__(self) -> None:
        super().__post_init__()
        directions = (FORWARD, BACKWARD)
        require_known("direction", self.direction, directions)

    @property
    def reads_backward(self) -> bool:
        """Whether rows are read from right to left."""
        return self.direction == BACKWARD

    @classmethod
    def direction_changes(cls, *, backward: bool) -> dict[str, str]:
        """The field that sets the direction of reading."""
        return {"direction": BACKWARD if backward else FORWARD}

    @classmethod
    def dropout_changes(cls, probability: float) -> dict[str, float | None]:
        """The rates of dropout for this one between the layers: all others are scaled with it.

        >>> AwdLstmConfig.dropout_changes(0.15)["weight_dropout_prob"]
        0.25
        """
        defaults = {
            field.name: field.default for field in dataclasses.fields(cls) if field.name.endswith("dropout_prob")
        }
        share = probability / cast("float", defaults["hidden_dropout_prob"])
        return {
            name: round(min(cast("float", default) * share, 0.95), 6)
            for name, default in defaults.items()
            if name not in cls.omitted
        }

    def cells_of(self, layer: int) -> int:
        """The cells of a layer, counted from 0."""
        return self.hidden_size if layer == self.num_hidden_layers - 1 else self.intermediate_size

    def inputs_of(self, layer: int) -> int:
        """The width of the input of a layer."""
        return self.hidden_size if layer == 0 else self.intermediate_size


class AwdLstmDropout:
    """The five masks of one forward pass, which are sampled once and apply to any part of the rows.

    Source: Merity, Keskar and Socher (2018), section 4.
    """

    def __init__(self, config: AwdLstmConfig, batch: Batch, noise: Noise | None, dtype: torch.dtype) -> None:
        self._noise, self._dtype, self._rate = noise, dtype, config.weight_dropout_prob
        self._weights: dict[int, Tensor] = {}
        rows, inner = batch.num_rows, range(1, config.num_hidden_layers)
        self._types = self._mask(config.embedding_dropout_prob, rows, config.vocab_size)
        self._features = [self._mask(config.input_dropout_prob, rows, config.hidden_size)]
        self._features += [self._mask(config.hidden_dropout_prob, rows, config.intermediate_size) for _ in inner]
        self._output = self._mask(config.output_dropout_prob, rows, config.hidden_size)

    def _mask(self, rate: float, rows: int, width: int) -> Tensor | None:
        """0 where an element is dropped, and what makes up for it elsewhere: [rows, width]."""
        if self._noise is None or not rate:
            return None
        return self._noise.keep(rate, [width] * rows, self._dtype).view(rows, width) / (1 - rate)

    def words(self, x: Tensor, batch: Batch) -> Tensor:
        """Word vectors [T, D] without the dropped types."""
        if self._types is None:
            return x
        return x * self._types[_rows_of(batch.lengths, range(batch.num_rows), x), batch.token_ids].unsqueeze(1)

    def features(self, layer: int, x: Tensor, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
        """The input of a layer, for sequences with these numbers in the batch."""
        return _with_mask(x, self._features[layer], lengths, rows)

    def output(self, x: Tensor, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
        """The output of the last layer."""
        return _with_mask(x, self._output, lengths, rows)

    def weight(self, layer: int, weight: Tensor) -> Tensor | None:
        """The matrix between hidden states of a layer, with the mask of the step; None without dropout."""
        if self._noise is None or not self._rate:
            return None
        if layer not in self._weights:
            kept = self._noise.keep_in_step(self._rate, f"weights of layer {layer}", weight.numel(), weight.dtype)
            self._weights[layer] = kept.view_as(weight) / (1 - self._rate)
        return weight * self._weights[layer]


def _with_mask(x: Tensor, mask: Tensor | None, lengths: Sequence[int], rows: Sequence[int]) -> Tensor:
    return x if mask is None else x * mask[_rows_of(lengths, rows, x)]


def _rows_of(lengths: Sequence[int], rows: Sequence[int], x: Tensor) -> Tensor:
    """The number of the sequence of each token, int64 [T]."""
    return torch.from_numpy(np.repeat(np.asarray(rows), lengths)).to(x.device)


class AwdLstmModel(EncoderWithoutAttention):
    """Word vectors, LSTM layers and a pooler.

    Attributes:
        gradient_tokens: the tokens of a row, the last ones that are read, that gradients flow through.
    """

    config: AwdLstmConfig

    def __init__(self, config: AwdLstmConfig, *, seed: int | None = 0) -> None:
        super().__init__(config, seed=seed)
        self.gradient_tokens = GRADIENT_TOKENS

    def new_layer(self, number: int) -> nn.Module:
        """A layer, whose cells and inputs depend on its number."""
        return LstmLayer(self.config.inputs_of(number), self.config.cells_of(number))

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each hidden state: D, then C for all layers but the last."""
        layers = cast("Sequence[LstmLayer]", self.layers)
        return (self.config.hidden_size, *(layer.outputs for layer in layers))

    def read_of_rows(self, batch: Batch) -> Read:
        """The token that is read last, whose hidden state has seen the whole row."""
        return Read.first(batch) if self.config.reads_backward else Read.last(batch)

    def states(
        self, batch: Batch, read: Read | None, noise: Noise | None, dtype: torch.dtype | None, memory: Memory | None
    ) -> tuple[list[Tensor], Tensor]:
        """The hidden states before dropout, of the inner layers [T, C], and the output after it."""
        dtype = dtype or self.word_table.dtype
        drops = AwdLstmDropout(self.config, batch, noise, dtype)
        embedded = drops.words(F.embedding(batch.token_ids, self.word_table).to(dtype), batch)
        before = self._first_states(memory)
        early = self._early_lengths(batch.lengths)
        if early is None:
            inner, states = self._read(embedded, batch.lengths, range(batch.num_rows), before, drops)
        else:
            inner, states = self._read_in_two(embedded, batch.lengths, early, before, drops)
        if memory is not None:
            named = {
                f"{kind}.{layer}": tensor
                for layer, state in enumerate(states)
                for kind, tensor in zip(("hidden", "cells"), state, strict=True)
            }
            memory.replace(named, batch.lengths)
        hidden = [embedded, *inner]
        if read is not None:
            hidden[-1] = read.pick(hidden[-1])
        of_rows = batch.lengths if read is None else read.counts
        return hidden, drops.output(hidden[-1], of_rows, range(batch.num_rows))

    def _first_states(self, memory: Memory | None) -> list[State | None]:
        """The state of each layer before the batch."""
        if memory is None or not memory.lengths:
            return [None] * len(self.layers)
        return [
            (memory.tensors[f"hidden.{layer}"], memory.tensors[f"cells.{layer}"]) for layer in range(len(self.layers))
        ]

    def _early_lengths(self, lengths: tuple[int, ...]) -> tuple[int, ...] | None:
        """The tokens of each row that are read without gradients; None if there are none."""
        if not torch.is_grad_enabled() or max(lengths) <= self.gradient_tokens:
            return None
        return tuple(max(0, length - self.gradient_tokens) for length in lengths)

    def _read(
        self,
        x: Tensor,
        lengths: tuple[int, ...],
        rows: Sequence[int],
        states: Sequence[State | None],
        drops: AwdLstmDropout,
    ) -> tuple[list[Tensor], list[State]]:
        """The hidden states of each layer before dropout, and their last states."""
        outputs, last = list[Tensor](), list[State]()
        for number, (layer, state) in enumerate(zip(cast("Sequence[LstmLayer]", self.layers), states, strict=True)):
            x = drops.features(number, x, lengths, rows)
            weight = drops.weight(number, layer.weight_hh_l0)
            x, after = layer(x, lengths, state, backward=self.config.reads_backward, hidden_weight=weight)
            outputs.append(x)
            last.append(after)
        return outputs, last

    def _read_in_two(
        self,
        x: Tensor,
        lengths: tuple[int, ...],
        early: tuple[int, ...],
        states: Sequence[State | None],
        drops: AwdLstmDropout,
    ) -> tuple[list[Tensor], list[State]]:
        """As `_read`, without gradients for the first `early` tokens that are read of each row."""
        of_row, of_early = np.asarray(lengths), np.asarray(early)
        starts = np.cumsum(of_row) - of_row
        time = np.arange(of_row.sum()) - np.repeat(starts, of_row)
        if self.config.reads_backward:
            time = np.repeat(of_row, of_row) - 1 - time
        is_early = time < np.repeat(of_early, of_row)
        long = np.flatnonzero(of_early).tolist()
        before = torch.from_numpy(np.flatnonzero(is_early)).to(x.device)
        after = torch.from_numpy(np.flatnonzero(~is_early)).to(x.device)
        index = torch.tensor(long, device=x.device)
        with torch.no_grad():
            of_long = [None if state is None else (state[0][index], state[1][index]) for state in states]
            first, carried = self._read(x[before], tuple(of_early[long].tolist()), long, of_long, drops)
            resumed = [_inserted(state, new, index, len(lengths)) for state, new in zip(states, carried, strict=True)]
        rest, last = self._read(x[after], tuple((of_row - of_early).tolist()), range(len(lengths)), resumed, drops)
        order = torch.argsort(torch.cat([before, after]))
        return [torch.cat(both)[order] for both in zip(first, rest, strict=True)], last


def _inserted(state: State | None, new: State, index: Tensor, rows: int) -> State:
    """The states of all rows, of which those at `index` are the new ones."""
    hidden, cells = (part.new_zeros(rows, part.shape[1]) for part in new) if state is None else state
    return hidden.to(new[0].dtype).index_copy(0, index, new[0]), cells.to(new[1].dtype).index_copy(0, index, new[1])


def _sizes(config: EncoderConfig, layer: int) -> dict[str, int]:
    """Gates, inputs and cells of a layer, for the shapes of its parameters."""
    assert isinstance(config, AwdLstmConfig)
    cells = config.cells_of(layer)
    return {"G": 4 * cells, "X": config.inputs_of(layer), "C": cells}


NAMES = ParameterNames(
    prefix="awd_lstm.",
    class_prefix="AwdLstm",
    embeddings=(Row("bert.embeddings.word.weight", "awd_lstm.embeddings.weight", "VD"),),
    layer=lstm_rows("bert.layers.{i}", "awd_lstm.layers.{i}", "X"),
    parts=TABLE_PARTS,
    copies={},
    buffers=(),
    sizes=_sizes,
)
