"""The two pre-training heads, the head of a task, and the models that put them on an encoder.

Letters: T tokens in the flat batch, N sequences, M masked positions, R positions that are read, D width, V vocabulary,
K outputs of a head.

Source: Devlin et al. (2018), section 3.1; `get_masked_lm_output` and `get_next_sentence_output` in the original
run_pretraining.py; `create_model` in the original run_classifier.py and run_squad.py.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.registry import Registry
from bertsmith.models.heads.head_spec import Head
from bertsmith.models.heads.own_head import OwnHead, new_own_head
from bertsmith.models.heads.piece_weights import QueryTable, queries_of, weights_of_rows
from bertsmith.models.heads.row_vectors import apart_of_rows, pair_of_rows, pool_rows, pooler_of_rows
from bertsmith.models.parts.batch import Batch, Read
from bertsmith.models.parts.encoder import Encoder, Trace
from bertsmith.models.parts.head_inputs import ATTENTION, MAX, READER_UNITS
from bertsmith.models.parts.layer_choice import LayerChoice, choice_of_widths
from bertsmith.models.parts.layers import initialize, linear
from bertsmith.models.parts.noise import Noise, NoiseOfSome, NoiseOfTexts, dropped
from bertsmith.models.parts.part_names import BLOCKS, PREFIX, QUERY_TABLE, READER, TOKEN_PROJECTION, part_of

if TYPE_CHECKING:
    from bertsmith.models.heads.piece_heads import PieceHead
    from bertsmith.models.heads.sampled_softmax import PieceSample
    from bertsmith.models.parts.layer_mix import WeightedMix
    from bertsmith.models.parts.memory import Memory
    from bertsmith.models.parts.source import SourceStates

# What turns hidden states [M, D] and the word table [V, D] into logits [M, V], by `EncoderConfig.piece_head`.
PIECE_HEADS = Registry[Callable[..., nn.Module]](
    {
        "transform": "models.heads.piece_heads:MaskedLMHead",
        "table": "models.heads.piece_heads:TableHead",
        "directions": "models.heads.piece_heads:DirectionsHead",
        "tied": "models.heads.piece_heads:TiedHead",
        "untied": "models.heads.piece_heads:UntiedHead",
    }
)
_READERS = Registry[Callable[..., nn.Module]](
    {
        "tokens": "models.heads.sentence_reader:TokenReader",
        "texts": "models.heads.sentence_reader:SentenceReader",
        "windows": "models.heads.window_reader:WindowReader",
        "sentences": "models.heads.window_reader:SentenceLayers",
        "spans": "models.heads.span_layers:span_layers",
    }
)
_ENCODER = PREFIX.removesuffix(".")  # the name of the encoder in every run folder and optimizer state


@dataclasses.dataclass(frozen=True)
class PreTrainingOutput:
    """Logits of the pre-training heads; None for a head that was not requested.

    Attributes:
        mlm_logits: [M, V].
        nsp_logits: [N, 2]; column 0: B follows A, column 1: B is random.
        backward_logits: [M', V], of the piece before, from an encoder of two directions.
        hidden: the last hidden states that both heads read, [T, D], or [R, D] if only some positions are read.
    """

    mlm_logits: Tensor | None
    nsp_logits: Tensor | None
    hidden: Tensor
    backward_logits: Tensor | None = None


class _OnEncoder(nn.Module):
    """An encoder with one or more heads on top."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.config = encoder.config
        self.add_module(_ENCODER, encoder)

    @property
    def encoder(self) -> Encoder:
        """The encoder below the heads."""
        encoder = self.get_submodule(_ENCODER)
        assert isinstance(encoder, Encoder)
        return encoder

    def put_encoder(self, encoder: Encoder) -> None:
        """Puts the heads on another encoder of the same shape."""
        self.add_module(_ENCODER, encoder)

    @property
    def hooked(self) -> tuple[nn.Module, ...]:
        """What is called for each forward pass or, of a decoder, for each piece of a text."""
        return (self.encoder,)


class EncoderForPreTraining(_OnEncoder):
    """An encoder with the masked-LM head and, if its architecture has one, the next-sentence head."""

    def __init__(self, encoder: Encoder, *, seed: int | None = 0) -> None:
        super().__init__(encoder)
        config = encoder.config
        self.mlm = PIECE_HEADS[config.piece_head](config)
        if config.has_next_sentence:
            self.nsp = nn.Linear(config.hidden_size, 2)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        masked: Tensor | None = None,
        first: Tensor | None = None,
        backward: Tensor | None = None,
        targets: tuple[Tensor | None, Tensor | None] = (None, None),
        sample: "PieceSample | None" = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: "Memory | None" = None,
    ) -> PreTrainingOutput:
        """The requested logits, and no others.

        Args:
            read: the positions that the last layer computes; all of them if not given.
            masked: int64 [M], indices into the last hidden states for the masked-LM head.
            first: int64 [N], indices of [CLS] in the last hidden states, for the next-sentence head.
            backward: int64 [M'], indices into the last hidden states whose backward half predicts the piece before.
            targets: the pieces at `masked` and at `backward`, int64 [M] and [M']; only a sample needs them.
            sample: the logits are the target's and of these pieces, [M, 1 + S]; only with two directions.
            trace, memory: see `Encoder.forward`.
        """
        hidden = self.encoder(batch, read=read, noise=noise, dtype=dtype, trace=trace, memory=memory)
        if self.config.two_directions:
            both = [
                None if index is None else self.mlm(hidden[index], backward=left, targets=gold, sample=sample)
                for left, (index, gold) in enumerate(zip((masked, backward), targets, strict=True))
            ]
            return PreTrainingOutput(both[0], None, hidden, both[1])
        assert sample is None, "only a head of two directions compares with a sample"
        mlm_logits = None if masked is None else self.mlm(hidden[masked], self.encoder.word_table)
        nsp_logits = None if first is None else linear(self.encoder.pool(hidden[first]), self.nsp)
        return PreTrainingOutput(mlm_logits, nsp_logits, hidden)


class EncoderForTask(_OnEncoder):
    """An encoder with the head of a task, such as a classifier.

    Args:
        predicts: whether it also has the head that scores pieces, for an auxiliary loss.
    """

    def __init__(self, encoder: Encoder, head: Head, *, seed: int | None = 0, predicts: bool = False) -> None:
        super().__init__(encoder)
        self.head = head
        config, outputs = encoder.config, head.outputs
        if predicts or head.pieces is not None:
            self.mlm = PIECE_HEADS[config.piece_head](config)
        width = head.width(config.hidden_size)
        if head.has_blocks:
            from bertsmith.models.heads.head_blocks import HeadBlocks

            self.add_module(BLOCKS, HeadBlocks(width))
            width = HeadBlocks.units
        if head.has_reader:
            self.add_module(READER, self._new_reader())
            width = READER_UNITS if head.pooled else 2 * head.cells
        if head.windows:
            dropout = config.head_dropout(head.part, pooled=True)
            self.add_module(READER, _READERS["windows"](head.windows, width, dropout, is_pair=head.is_pair))
            width = READER_UNITS
        if head.sentence_layers:
            dropout = config.head_dropout(head.part, pooled=False)
            self.add_module(READER, _READERS["sentences"](head.sentence_layers, width, dropout))
        if head.spans is not None:
            self.add_module(head.saved_part, _READERS["spans"](config.hidden_size, head.spans))
        elif head.is_decoder:
            from bertsmith.models.heads.decoder import Decoder

            pieces = PIECE_HEADS[config.piece_head](config)
            options = {"copies": head.copies, "shares_layers": head.shares_layers}
            self.add_module(head.saved_part, Decoder(encoder, head.layers_of_decoder, pieces, **options))
        elif outputs or not head.is_vector:
            layer = nn.Linear(width, outputs) if head.own is None else new_own_head(head.own, config, outputs)
            self.add_module(head.saved_part, layer)
        if head.pieces is not None and head.pieces.has_query_table:
            self.add_module(QUERY_TABLE, QueryTable(config.vocab_size))
        if head.token_width:
            self.add_module(TOKEN_PROJECTION, nn.Linear(config.hidden_size, head.token_width, bias=False))
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    @property
    def output_layer(self) -> nn.Module:
        """The linear layer on top, the decoder, or the user's head; a head whose result is a vector may have none."""
        return self.get_submodule(self.head.saved_part)

    @property
    def hooked(self) -> tuple[nn.Module, ...]:
        """See `_OnEncoder`."""
        return (self.encoder, self.output_layer) if self.head.is_decoder else (self.encoder,)

    @property
    def num_head_parameters(self) -> int:
        """The number of parameters of the output layer; 0 without one."""
        part = self.head.saved_part
        return sum(parameter.numel() for name, parameter in self.named_parameters() if part_of(name) == part)

    @property
    def outputs(self) -> int:
        """K, the numbers per position that a forward pass returns."""
        if self.head.is_decoder:
            return self.config.vocab_size
        if self.head.pieces is not None:
            return self.config.vocab_size
        if self.head.spans is not None:
            return self.head.spans.outputs
        if self.head.is_vector:
            return self.head.token_width or self.encoder.width
        return self.head.outputs

    @property
    def mix(self) -> "WeightedMix | None":
        """The learned weights of the hidden states that a BiLSTM reads; None without them."""
        if not self.head.has_reader:
            return None
        from bertsmith.models.parts.layer_mix import WeightedMix

        mix = self.get_submodule(f"{READER}.mix")
        return mix if isinstance(mix, WeightedMix) else None

    @property
    def _choice(self) -> LayerChoice:
        """The hidden states that a BiLSTM reads."""
        return choice_of_widths(self.head.layers, self.encoder.widths)

    def _new_reader(self) -> nn.Module:
        head, width = self.head, self.config.hidden_size
        if not head.pooled:
            return _READERS["tokens"](self._choice, width, head.cells, normalized=head.normalized)
        attends = head.reads == ATTENTION
        return _READERS["texts"](
            self._choice, width, head.cells, is_pair=head.is_pair, attends=attends, normalized=head.normalized
        )

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        frozen: bool = False,
        trace: Trace | None = None,
        all_positions: bool = False,
        target: Batch | None = None,
    ) -> Tensor:
        """Logits [R, K] at the positions that are read, or [T, K] at all positions if `read` is not given.

        A pooled head gives one row of logits per row of the batch, [N, K]; one whose result is a vector gives one
        vector per row, [N, D] in the width of the encoder, or [N, V] with a number for each piece. Vectors of tokens
        are at the positions that are read.

        Args:
            read: the positions; not used by a pooled head, because the encoder says which position represents a row.
            frozen: run the encoder (except its pooler) without dropout and without gradients.
            trace: see `Encoder.forward`; of a head that reads texts apart, of their sequences.
            all_positions: compute the last layer for all tokens, so that the trace has all of its hidden states.
            target: for a head that writes, the texts that it has written so far, each without its last token; the
                logits [T, V] are of the pieces that follow each of their tokens.
        """
        head = self.head
        if head.pieces is not None and head.pieces.has_query_table:
            queries, others = queries_of(batch)
            if queries:
                return self._with_queries(batch, queries, others, noise=noise, dtype=dtype)
        if head.is_decoder:
            assert target is not None, "a decoder has a target"
            source = self.encode(batch, noise=None if frozen else noise, dtype=dtype, frozen=frozen)
            return self.decode(target, source, noise=noise, dtype=dtype)
        pools_mean = head.on_pooler and self.config.pools_mean
        if head.pooled:
            read = None if head.reads_all or pools_mean else self.encoder.read_of_rows(batch)
        sequences, below = batch, None if frozen else noise
        if head.reads_apart:
            sequences = batch.texts_apart.batch  # 2N of them
            below = None if below is None else NoiseOfTexts(below, batch.texts_apart.places)
        if head.has_reader and trace is None:
            trace = Trace()
        all_positions = all_positions or head.has_reader or head.of_sentences
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden = self.encoder(
                sequences, read=None if all_positions else read, noise=below, dtype=dtype, trace=trace
            )
        if head.of_sentences:
            assert read is not None, "the positions of sentences are read"
            hidden = pool_rows(hidden, read.lengths(batch))  # [R, D]
        elif all_positions and read is not None:
            hidden = hidden[read.positions]
        if head.uses_pooler(self.config):
            if pools_mean:
                hidden = pooler_of_rows(self.encoder, hidden, batch.lengths)
            else:
                counts = (1,) * batch.num_rows if read is None else read.counts
                hidden = self.encoder.pool(dropped(hidden, noise, self.config.pooled_dropout, counts))
        elif head.has_reader:
            assert trace is not None
            hidden = self._read_states(trace, batch, read, noise)  # [N, 512] or [R, 2C]
        elif head.reads_apart:
            hidden = apart_of_rows(hidden, batch)  # [N, 4D]
        elif head.reads_pairs:
            hidden = pair_of_rows(hidden, batch)  # [N, 4D]
        elif head.has_blocks:
            from bertsmith.models.heads.head_blocks import concat_of_rows

            hidden = concat_of_rows(hidden, batch, self.encoder.read_of_rows(batch))  # [N, 3D]
        elif head.pieces is not None:
            hidden = weights_of_rows(
                head.pieces, hidden, batch.lengths, cast("PieceHead", self.mlm), self.encoder.word_table
            )  # [N, V]
        elif head.reads == MAX:
            hidden = pool_rows(hidden, batch.lengths, "max")  # [N, D]
        elif head.reads_all:
            hidden = pool_rows(hidden, batch.lengths)  # [N, D]
        if head.is_vector:
            assert isinstance(hidden, Tensor)
            if head.token_width:
                hidden = self._project(hidden)  # [R, K]
            return hidden.to(torch.promote_types(hidden.dtype, torch.float32))  # [N, D]
        probability = self.config.head_dropout(head.part, pooled=head.pooled)
        if head.has_blocks:
            blocks = self.get_submodule(BLOCKS)
            hidden = blocks(hidden, noise, probability)
        elif not head.has_reader:  # which has dropout of its own
            counts = batch.lengths if read is None else read.counts
            hidden = dropped(hidden, noise, probability, (1,) * len(counts) if head.pooled else counts)
        if head.windows:
            hidden = self._read_windows(hidden, batch, noise)  # [N, 512]
        if head.sentence_layers:
            assert read is not None, "the positions of sentences are read"
            hidden = self._read_sentences(hidden, batch, read, noise)  # [R, D]
        layer = self.output_layer
        if head.spans is not None:
            assert read is not None, "labels and words are read"
            scored = layer(hidden, batch.token_ids[read.positions], read.counts)  # [R, 2H]
            assert isinstance(scored, Tensor)
            return scored
        if isinstance(layer, OwnHead):
            logits = layer(hidden.to(next(layer.parameters()).dtype))
            if not isinstance(logits, Tensor) or logits.shape != (hidden.shape[0], head.outputs):
                raise ConfigError(
                    expected=f"logits of shape {[hidden.shape[0], head.outputs]} from {type(layer).__name__}",
                    found=str(list(logits.shape)) if isinstance(logits, Tensor) else type(logits).__name__,
                    fix="return one row for each row of `hidden`, with `outputs` columns",
                )
            return logits
        assert isinstance(layer, nn.Linear)
        return linear(hidden, layer)

    def _with_queries(
        self,
        batch: Batch,
        queries: list[int],
        others: list[int],
        *,
        noise: Noise | None,
        dtype: torch.dtype | None,
    ) -> Tensor:
        """The weights of pieces [N, V] of rows that are queries, by their table, and of the others."""
        weights: Tensor = self.get_submodule(QUERY_TABLE)(batch.select(queries))  # [n, V]
        if not others:
            return weights
        below = None if noise is None else NoiseOfSome(noise, others, batch.num_rows)
        rest: Tensor = self(batch.select(others), noise=below, dtype=dtype)
        return torch.cat([weights.to(rest.dtype), rest])[np.argsort([*queries, *others])]

    def _project(self, hidden: Tensor) -> Tensor:
        """The vectors of tokens [R, K] of length 1, at least in fp32, from hidden states [R, D]."""
        layer = self.get_submodule(TOKEN_PROJECTION)
        assert isinstance(layer, nn.Linear)
        projected = linear(hidden, layer)
        return F.normalize(projected.to(torch.promote_types(projected.dtype, torch.float32)), dim=1)

    def encode(
        self, batch: Batch, *, noise: Noise | None = None, dtype: torch.dtype | None = None, frozen: bool = False
    ) -> "SourceStates":
        """The encoder's states of source texts, for a head that writes; see `forward` for `frozen`."""
        from bertsmith.models.parts.source import SourceStates

        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            states = self.encoder(batch, noise=noise, dtype=dtype)
            return SourceStates(states, batch.lengths, pieces=batch.token_ids)

    def decode(
        self,
        batch: Batch,
        source: "SourceStates",
        *,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        memory: "Memory | None" = None,
    ) -> Tensor:
        """The logits [T, V] of the piece that follows each target token; see `EncoderDecoder.decode`."""
        logits = self.output_layer(batch, source, self.encoder, noise=noise, dtype=dtype, memory=memory)
        assert isinstance(logits, Tensor)
        return logits

    def _read_windows(self, vectors: Tensor, batch: Batch, noise: Noise | None) -> Tensor:
        """The vector of the whole text for each of its rows, [N, 512], from the rows' vectors, [N, D]."""
        windows = batch.windows
        assert windows is not None, "the windows of a text are computed together"
        dtype = self.output_layer.get_parameter("weight").dtype
        units = self.get_submodule(READER)(vectors.to(dtype), windows, noise)
        assert isinstance(units, Tensor)
        return units[list(windows.unit_of_row)]

    def _read_sentences(self, vectors: Tensor, batch: Batch, read: Read, noise: Noise | None) -> Tensor:
        """The vectors [R, D] of the sentences at the positions that are read, after all sentences of their text."""
        windows = batch.windows
        assert windows is not None, "the windows of a text are computed together"
        dtype = self.output_layer.get_parameter("weight").dtype
        states = self.get_submodule(READER)(vectors.to(dtype), windows, read.counts, noise)
        assert isinstance(states, Tensor)
        return states

    def _read_states(self, trace: Trace, batch: Batch, read: Read | None, noise: Noise | None) -> Tensor:
        """The vectors of the BiLSTM for the texts of each row, [N, 512], or of the tokens that are read, [R, 2C]."""
        dtype = self.output_layer.get_parameter("weight").dtype
        picked = self._choice.pick(trace.hidden_states).to(dtype)  # [T, n, D]
        if not self.head.pooled:
            states = self.get_submodule(READER)(picked, batch.lengths, noise)
            assert isinstance(states, Tensor)
            return states if read is None else states[read.positions]
        lengths, places, of_texts = batch.lengths, tuple(range(batch.num_rows)), noise
        if self.head.is_pair:
            apart = batch.texts_apart
            lengths, places = apart.batch.lengths, apart.places
            of_texts = None if noise is None else NoiseOfTexts(noise, places)
        vectors = self.get_submodule(READER)(picked, lengths, places, of_texts, noise)
        assert isinstance(vectors, Tensor)
        return vectors
