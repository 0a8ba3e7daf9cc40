"""ELMo: a forward and a backward LSTM language model over character-based vectors.

Letters: T tokens in the flat batch, N sequences, R positions that are read, D width of the hidden states, H = D / 2 of
one direction, C cells, L layers, V vocabulary.

The vector of a piece comes from its spelling (`character_cnn.py`), and both directions share it. Each direction has a
stack of LSTM layers, with a projection from C to H; from the second layer on, the input of a layer is added to its
output. The hidden state of a token is the concatenation of both directions at that token; hidden state 0 is the vector
of the piece, twice.

As an encoder it is bidirectional. The state that represents a row is [forward half at its last token; backward half at
its first], each of which has read the whole row.

Source: Peters et al. (2018), "Deep contextualized word representations", sections 3.1 and 3.2; `training.py` of the
released code (allenai/bilm-tf), for dropout and clipping.
"""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from bertsmith.base.core.settings import help_field, require, require_number
from bertsmith.models.encoders.character_cnn import (
    CHARACTER_WIDTH,
    CONVOLUTIONS,
    MOST_HIGHWAYS,
    NUM_CHARACTERS,
    CharacterCnn,
    filters_of,
)
from bertsmith.models.encoders.without_attention import ConfigWithoutAttention, EncoderWithoutAttention
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.config import EncoderConfig
from bertsmith.models.parts.lstm_layer import LstmLayer, State
from bertsmith.models.parts.memory import Memory
from bertsmith.models.parts.noise import Noise, dropped
from bertsmith.models.parts.parameter_names import ParameterNames, Row, dense, output
from bertsmith.text.tokenizers.vocabulary import Vocabulary

_WIDTHS = "abcdefg"  # the letters of the convolutions in shapes
_SMALLEST_PART = max(part for _, part in CONVOLUTIONS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElmoConfig(ConfigWithoutAttention):
    """The shape of an ELMo; `base` is the released model."""

    model_type: ClassVar[str] = "elmo"
    display_name: ClassVar[str] = "ELMo"
    names: ClassVar[str] = "models.encoders.elmo:NAMES"
    spells_pieces: ClassVar[bool] = True
    two_directions: ClassVar[bool] = True
    piece_head: ClassVar[str] = "directions"
    omitted: ClassVar[frozenset[str]] = ConfigWithoutAttention.omitted | {"is_causal"}
    sizes: ClassVar[Mapping[str, tuple[int, int, int, int]]] = {
        "tiny": (2, 128, 1, 256),
        "mini": (2, 256, 1, 1024),
        "small": (2, 512, 1, 2048),
        "medium": (2, 768, 1, 3072),
        "base": (2, 1024, 1, 4096),
    }

    hidden_size: int = help_field(1024, "width of the hidden states, both directions together")
    num_hidden_layers: int = help_field(2, "LSTM layers of each direction")
    intermediate_size: int = help_field(4096, "cells of an LSTM layer, which are projected to half of hidden_size")
    max_position_embeddings: int = help_field(512, "longest row, in tokens; an LSTM could read on")
    num_filters: int | None = help_field(None, "filters of the character convolutions [twice hidden_size]")
    num_highways: int = help_field(MOST_HIGHWAYS, "highway layers above the convolutions, 1 or 2")
    cell_clip: float = help_field(3.0, "the largest magnitude of a cell; 0 for no limit")
    projection_clip: float = help_field(3.0, "the largest magnitude of a projected output; 0 for no limit")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_two_halves()
        require(
            self.filters > 0 and self.filters % _SMALLEST_PART == 0,
            expected=f"num_filters divisible by {_SMALLEST_PART}",
            found=self.filters,
            fix="change num_filters, or hidden_size",
        )
        require(
            self.num_highways in range(1, MOST_HIGHWAYS + 1),
            expected=f"num_highways from 1 to {MOST_HIGHWAYS}",
            found=self.num_highways,
            fix="correct it",
        )
        for name in ("cell_clip", "projection_clip"):
            require_number(name, getattr(self, name), least=0)

    @property
    def filters(self) -> int:
        """The filters of all character convolutions together."""
        return 2 * self.hidden_size if self.num_filters is None else self.num_filters

    @property
    def axes(self) -> dict[str, int]:
        """See `EncoderConfig`; H of one direction, C cells, G gates of all cells, F filters, a to g of each width."""
        cells = self.intermediate_size
        axes = {
            "H": self.hidden_size // 2,
            "C": cells,
            "G": 4 * cells,
            "F": self.filters,
            "X": NUM_CHARACTERS,
            "E": CHARACTER_WIDTH,
        }
        return (
            super().axes
            | axes
            | {letter: count for letter, (_, count) in zip(_WIDTHS, filters_of(self.filters), strict=True)}
        )

    @property
    def shape_in_words(self) -> str:
        """See `EncoderConfig`."""
        return (
            f"characters, then {self.num_hidden_layers} layers of LSTM in each direction, width {self.hidden_size}, "
            f"{self.intermediate_size} cells"
        )

    def head_dropout(self, part: str, *, pooled: bool) -> float:
        """The dropout before a head: none unless given, because the encoder's own output is dropped already."""
        return self.classifier_dropout or 0.0


class ElmoModel(EncoderWithoutAttention):
    """Character convolutions, LSTM layers in both directions, a pooler."""

    config: ElmoConfig
    embeddings: CharacterCnn

    def new_embeddings(self) -> nn.Module:
        """The convolutions over the characters of a piece."""
        return CharacterCnn(self.config.filters, self.width // 2, self.config.num_highways)

    def new_layer(self, number: int) -> nn.Module:
        """A layer, the first of which has no residual connection."""
        return ElmoLayer(self.config, is_first=number == 0)

    @property
    def word_table(self) -> Tensor:
        """The vectors of the pieces [V, D]: hidden state 0, computed from their spelling."""
        table = self.embeddings.table()
        return torch.cat([table, table], dim=1)

    def read_vocabulary(self, vocabulary: Vocabulary) -> None:
        """See `Encoder`."""
        self.embeddings.read_vocabulary(vocabulary)

    def read_of_rows(self, batch: Batch) -> Read:
        """The forward half at the last token of each row, the backward half at the first."""
        return Read.ends(batch)

    def states(
        self, batch: Batch, read: Read | None, noise: Noise | None, dtype: torch.dtype | None, memory: Memory | None
    ) -> tuple[list[Tensor], Tensor]:
        """The hidden states [T, D] before the last dropout, and the output after it.

        With a memory, only the half that it belongs to is read: the forward one, which continues what it has read to
        the left, or the backward one, which continues what it has read to the right. The other half is 0.
        """
        config = self.config
        longest = max(batch.lengths)
        assert longest <= config.max_tokens, f"a sequence of {longest} tokens"
        dtype = dtype or self.pooler.weight.dtype
        # Cells add up over a row: the sums lose too much in bf16, and the products of a time step are small.
        vectors = self.embeddings(batch.token_ids, dtype).to(torch.promote_types(dtype, torch.float32))  # [T, H]
        halves = dict.fromkeys((False, True) if memory is None else (memory.backward,), vectors)
        result = [_side_by_side(halves)]
        known, after = {} if memory is None else memory.tensors, dict[str, Tensor]()
        for number, layer in enumerate(self.layers):
            names = f"hidden.{number}", f"cells.{number}"
            state = (known[names[0]], known[names[1]]) if names[0] in known else None
            # The noise is drawn for one direction after the other.
            for backward, half in halves.items():
                x = dropped(half, noise, config.hidden_dropout_prob, batch.lengths)
                halves[backward], (after[names[0]], after[names[1]]) = layer(x, batch.lengths, state, backward=backward)
            result.append(_side_by_side(halves))  # [T, D]
        if read is not None:
            result[-1] = read.pick(result[-1])
        if memory is not None:
            memory.replace(after, batch.lengths)
        counts = batch.lengths if read is None else read.counts
        return result, dropped(result[-1], noise, config.hidden_dropout_prob, counts).to(dtype)


class ElmoLayer(nn.Module):
    """A layer of LSTM in each direction; from the second layer on, each adds its input to its output."""

    def __init__(self, config: ElmoConfig, *, is_first: bool) -> None:
        super().__init__()
        half, self.is_first = config.hidden_size // 2, is_first
        for name in ("forward_lstm", "backward_lstm"):
            lstm = _Lstm(
                half,
                config.intermediate_size,
                projection=half,
                cell_clip=config.cell_clip or None,
                projection_clip=config.projection_clip or None,
            )
            self.add_module(name, lstm)

    def forward(
        self, x: Tensor, lengths: tuple[int, ...], state: State | None, *, backward: bool
    ) -> tuple[Tensor, State]:
        """The outputs of one direction [T, H], and its state after the last token that was read."""
        lstm = self.get_submodule("backward_lstm" if backward else "forward_lstm")
        outputs, after = lstm(x, lengths, state, backward=backward)
        return outputs if self.is_first else outputs + x, after


def _side_by_side(halves: Mapping[bool, Tensor]) -> Tensor:
    """The forward and the backward half [T, D]; one that was not read is 0."""
    (some, *_) = halves.values()
    missing = torch.zeros_like(some) if len(halves) < 2 else some
    return torch.cat([halves.get(False, missing), halves.get(True, missing)], dim=1)


class _Lstm(LstmLayer):
    """An LSTM that forgets little at first: TensorFlow's adds 1 to the forget gate, here half of it in each bias."""

    initial_bias = (0.0, 0.5, 0.0, 0.0)


def _lstm(ours: str, theirs: str) -> tuple[Row, ...]:
    return (
        Row(f"{ours}.weight_ih_l0", f"{theirs}.weight_ih_l0", "GH"),
        Row(f"{ours}.weight_hh_l0", f"{theirs}.weight_hh_l0", "GH"),
        Row(f"{ours}.bias_ih_l0", f"{theirs}.bias_ih_l0", "G"),
        Row(f"{ours}.bias_hh_l0", f"{theirs}.bias_hh_l0", "G"),
        Row(f"{ours}.weight_hr_l0", f"{theirs}.weight_hr_l0", "HC"),
    )


def _convolution(width: int, letter: str) -> tuple[Row, Row]:
    ours, theirs = f"bert.embeddings.convolution{width}", f"elmo.embeddings.convolution{width}"
    return Row(f"{ours}.weight", f"{theirs}.weight", f"{letter}E{width}"), Row(f"{ours}.bias", f"{theirs}.bias", letter)


_E, _H = "bert.embeddings", "elmo.embeddings"
_L, _M = "bert.layers.{i}", "elmo.layers.{i}"


def _is_absent(config: EncoderConfig, ours: str) -> bool:
    """Whether a parameter belongs to a highway layer that a model of this shape does not have."""
    assert isinstance(config, ElmoConfig)
    return any(f".highway{number}." in ours for number in range(config.num_highways, MOST_HIGHWAYS))


# No library has this layout: theirs are our names with another prefix. `models/checkpoints/allennlp.py` reads that of
# the released models.
NAMES = ParameterNames(
    prefix="elmo.",
    class_prefix="Elmo",
    embeddings=(
        Row(f"{_E}.character.weight", f"{_H}.character.weight", "XE"),
        *(row for letter, (width, _) in zip(_WIDTHS, CONVOLUTIONS, strict=True) for row in _convolution(width, letter)),
        *(
            row
            for number in range(MOST_HIGHWAYS)
            for part in ("transform", "gate")
            for row in dense(f"{_E}.highway{number}.{part}", f"{_H}.highway{number}.{part}", "FF")
        ),
        *dense(f"{_E}.projection", f"{_H}.projection", "HF"),
    ),
    layer=(
        *_lstm(f"{_L}.forward_lstm", f"{_M}.forward_lstm"),
        *_lstm(f"{_L}.backward_lstm", f"{_M}.backward_lstm"),
    ),
    parts={
        "pooler": dense("bert.pooler", "elmo.pooler", "DD"),
        "mlm": (Row("mlm.weight", "softmax.weight", "VH"), Row("mlm.bias", "softmax.bias", "V")),
        "classifier": output("classifier", "classifier", "KD"),
        "span": output("span", "qa_outputs", "2D"),
    },
    copies={},
    absent=_is_absent,
)
