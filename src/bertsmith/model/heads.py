"""The two pre-training heads, the head of a task, and the models that put them on an encoder.

Letters: T tokens in the flat batch, N sequences, M masked positions, R positions that are read, D width, V vocabulary,
K outputs of a head.

Source: Devlin et al. (2018), section 3.1; `get_masked_lm_output` and `get_next_sentence_output` in the original
run_pretraining.py; `create_model` in the original run_classifier.py and run_squad.py.
"""

import abc
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bertsmith.errors import ConfigError
from bertsmith.model.batch import Batch, Read
from bertsmith.model.encoder import Encoder, Trace
from bertsmith.model.head_blocks import HeadBlocks, concat_of_rows
from bertsmith.model.layers import initialize, linear
from bertsmith.model.memory import Memory
from bertsmith.model.noise import Noise, NoiseOfTexts
from bertsmith.model.our_names import (
    APART,
    ATTENTION,
    BLOCKS,
    CONCAT,
    OF_TWO_TEXTS,
    OWN_HEAD,
    PREFIX,
    READER,
    READER_CELLS,
    READER_UNITS,
    READERS,
    READS,
    VECTORS_OF_ROW,
)
from bertsmith.model.own_head_checks import new_own_head
from bertsmith.model.piece_heads import PIECE_HEADS
from bertsmith.model.row_vectors import apart_of_rows, mean_of_rows, pair_of_rows
from bertsmith.model.sentence_reader import SentenceReader

if TYPE_CHECKING:
    from bertsmith.model.config import EncoderConfig

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


class EncoderForPreTraining(_OnEncoder):
    """An encoder with the masked-LM head and, if its architecture has one, the next-sentence head.

    Args:
        encoder: the encoder.
        seed: seed for initializing encoder and heads; None leaves that to the caller.
    """

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
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
        memory: Memory | None = None,
    ) -> PreTrainingOutput:
        """The requested logits, and no others.

        Args:
            read: the positions that the last layer computes; all of them if not given.
            masked: int64 [M], indices into the last hidden states for the masked-LM head.
            first: int64 [N], indices of [CLS] in the last hidden states, for the next-sentence head.
            backward: int64 [M'], indices into the last hidden states whose backward half predicts the piece before.
            trace, memory: see `Encoder.forward`.
        """
        hidden = self.encoder(batch, read=read, noise=noise, dtype=dtype, trace=trace, memory=memory)
        if self.config.two_directions:
            mlm_logits = None if masked is None else self.mlm(hidden[masked])
            backward_logits = None if backward is None else self.mlm(hidden[backward], backward=True)
            return PreTrainingOutput(mlm_logits, None, hidden, backward_logits)
        mlm_logits = None if masked is None else self.mlm(hidden[masked], self.encoder.word_table)
        nsp_logits = None if first is None else linear(self.encoder.pool(hidden[first]), self.nsp)
        return PreTrainingOutput(mlm_logits, nsp_logits, hidden)


class OwnHead(nn.Module, abc.ABC):
    """A head that you write: subclass it, build your layers in `__init__`, return logits from `forward`.

    It replaces the linear layer of any kind of task; the task defines what the rows and columns of its logits mean. Its
    parameters are saved under `own_head.` next to those of the encoder, learn at the full learning rate, and are
    initialized like all others: matrices from a truncated normal, biases to 0, layer norms to 1. Weight decay skips
    parameters with "norm" or "bias" in their names.

    The model applies dropout to the hidden states before the head receives them, with noise that is a function of seed,
    step and example. A head has no dropout of its own and no state besides its parameters, and treats each row by
    itself: then a resumed training gives the same bytes as an uninterrupted one, and a prediction does not depend on
    the other texts in its batch.

    Args:
        config: of the encoder; `config.hidden_size` is the width D of the input.
        outputs: K, the number of logits per position.
    """

    def __init__(self, config: "EncoderConfig", outputs: int) -> None:
        super().__init__()
        self.config, self.outputs = config, outputs

    @abc.abstractmethod
    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [R, K] for the hidden states [R, D] at the positions that the task reads, pooled or not.

        Both have the type of the head's parameters, fp32.
        """


def require_own_head(found: Any) -> type[OwnHead]:
    """The class, if a model can have it as its head.

    Raises:
        ConfigError: it is not a class, not a subclass of `OwnHead`, or has no `forward`.
    """
    if not (isinstance(found, type) and issubclass(found, OwnHead)):
        raise ConfigError(
            expected="a subclass of bertsmith.OwnHead as head",
            found=f"the class {found.__name__}" if isinstance(found, type) else f"an object, {found!r}"[:80],
            fix="derive the class from bertsmith.OwnHead, and pass the class itself",
        )
    if inspect.isabstract(found):
        raise ConfigError(
            expected="a head with a method `forward`",
            found=f"{found.__name__} without one",
            fix="return logits [R, K] from forward(self, hidden)",
        )
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """The head of a fine-tuned model: one linear layer, or a head that the user wrote.

    Attributes:
        part: its name, "classifier" or "span".
        outputs: K, the number of logits per position.
        pooled: whether it reads one vector per row instead of the hidden states at chosen positions.
        reads: what that vector is, one of `our_names.READS`; ignored unless `pooled`.
        own: the class of the user's head.
        is_pair: whether a row has two texts; asked only by a head with a BiLSTM.
        cells: of that BiLSTM, in each direction.

    Raises:
        ConfigError: `own` is not such a class, or it would read pairs.
    """

    part: str
    outputs: int
    pooled: bool
    reads: str = "pooler"
    own: type[OwnHead] | None = None
    is_pair: bool = False
    cells: int = READER_CELLS

    def __post_init__(self) -> None:
        assert self.reads in READS, self.reads
        if self.own is not None:
            require_own_head(self.own)
            if self.has_reader:
                raise ConfigError(
                    expected="a head of your own that reads vectors of the encoder (pooler, cls or mean)",
                    found=f"{self.reads!r}, which is a head itself",
                    fix="use --reads mean, or leave your head out",
                )
            if self.pooled and self.reads in VECTORS_OF_ROW:
                raise ConfigError(
                    expected="a head of your own that reads vectors of the encoder's width (pooler, cls or mean)",
                    found=f"{self.reads!r}, {VECTORS_OF_ROW[self.reads]} times as wide",
                    fix="use --reads mean, or leave your head out",
                )

    @property
    def on_pooler(self) -> bool:
        """Whether it reads the output of the encoder's pooler."""
        return self.pooled and self.reads == "pooler"

    @property
    def reads_all(self) -> bool:
        """Whether it reads every token of a row, so that the last layer computes all of them."""
        return self.pooled and self.reads in ("mean", CONCAT, *OF_TWO_TEXTS, *READERS)

    @property
    def reads_pairs(self) -> bool:
        """Whether it compares the two texts of a row."""
        return self.pooled and self.reads in OF_TWO_TEXTS

    @property
    def reads_apart(self) -> bool:
        """Whether it compares two texts that the encoder reads as sequences of their own."""
        return self.pooled and (self.reads == APART or (self.has_reader and self.is_pair))

    @property
    def has_blocks(self) -> bool:
        """Whether a hidden layer is in front of the output layer."""
        return self.pooled and self.reads == CONCAT

    @property
    def has_reader(self) -> bool:
        """Whether a BiLSTM reads all hidden states in front of the output layer."""
        return self.pooled and self.reads in READERS

    def width(self, hidden_size: int) -> int:
        """The width of what it reads, for an encoder of width `hidden_size`."""
        return hidden_size * (VECTORS_OF_ROW.get(self.reads, 1) if self.pooled else 1)

    @property
    def saved_part(self) -> str:
        """The part of a checkpoint that contains its parameters."""
        return self.part if self.own is None else OWN_HEAD


class EncoderForTask(_OnEncoder):
    """An encoder with the head of a task.

    Args:
        encoder: the encoder.
        head: the head on top.
        seed: seed for initializing encoder and head; None leaves that to the caller.

    Raises:
        ConfigError: the user's head has dropout of its own, or state besides its parameters.
    """

    def __init__(self, encoder: Encoder, head: Head, *, seed: int | None = 0) -> None:
        super().__init__(encoder)
        self.head = head
        config, outputs = encoder.config, head.outputs
        width = head.width(config.hidden_size)
        if head.has_blocks:
            self.add_module(BLOCKS, HeadBlocks(width))
            width = HeadBlocks.units
        if head.has_reader:
            self.add_module(
                READER,
                SentenceReader(
                    states=len(self._states_read),
                    width=config.hidden_size,
                    cells=head.cells,
                    is_pair=head.is_pair,
                    attends=head.reads == ATTENTION,
                ),
            )
            width = READER_UNITS
        layer = nn.Linear(width, outputs) if head.own is None else new_own_head(head.own, config, outputs)
        self.add_module(head.saved_part, layer)
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    @property
    def output_layer(self) -> nn.Module:
        """The linear layer on top, or the user's head."""
        return self.get_submodule(self.head.saved_part)

    @property
    def _states_read(self) -> tuple[int, ...]:
        """The numbers of the hidden states that a BiLSTM reads: all that have the width of the last one."""
        encoder = self.encoder
        return tuple(number for number, width in enumerate(encoder.widths) if width == encoder.width)

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        frozen: bool = False,
        trace: Trace | None = None,
    ) -> Tensor:
        """Logits [R, K] at the positions that are read, or [T, K] at all positions if `read` is not given.

        A pooled head gives one row of logits per row of the batch, [N, K].

        Args:
            read: the positions; not used by a pooled head, because the encoder says which position represents a row.
            frozen: run the encoder (except its pooler) without dropout and without gradients.
            trace: see `Encoder.forward`; of a head that reads texts apart, it is that of their sequences.

        Raises:
            ConfigError: the logits of the user's head have another shape.
        """
        head = self.head
        if head.pooled:
            read = None if head.reads_all else self.encoder.read_of_rows(batch)
        sequences, below = batch, None if frozen else noise
        if head.reads_apart:
            sequences = batch.texts_apart.batch  # 2N of them
            below = None if below is None else NoiseOfTexts(below, batch.texts_apart.places)
        if head.has_reader and trace is None:
            trace = Trace()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden = self.encoder(sequences, read=read, noise=below, dtype=dtype, trace=trace)
        if head.on_pooler:
            hidden = self.encoder.pool(hidden)
        elif head.has_reader:
            assert trace is not None
            hidden = self._read_texts(trace, batch, noise)  # [N, 512]
        elif head.reads_apart:
            hidden = apart_of_rows(hidden, batch)  # [N, 4D]
        elif head.reads_pairs:
            hidden = pair_of_rows(hidden, batch)  # [N, 4D]
        elif head.has_blocks:
            hidden = concat_of_rows(hidden, batch, self.encoder.read_of_rows(batch))  # [N, 3D]
        elif head.reads_all:
            hidden = mean_of_rows(hidden, batch.lengths)  # [N, D]
        probability = self.config.head_dropout(head.part, pooled=head.pooled)
        if head.has_reader:
            pass  # it has dropout of its own
        elif head.has_blocks:
            blocks = self.get_submodule(BLOCKS)
            hidden = blocks(hidden, noise, probability)
        elif noise is not None and probability:
            counts = batch.lengths if read is None else read.counts
            counts = (1,) * len(counts) if head.pooled else counts
            keep = noise.keep(probability, [count * hidden.shape[1] for count in counts], hidden.dtype)
            hidden = hidden * keep.view_as(hidden) * (1 / (1 - probability))
        layer = self.output_layer
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

    def _read_texts(self, trace: Trace, batch: Batch, noise: Noise | None) -> Tensor:
        """What the BiLSTM makes of the texts of each row, [N, 512]."""
        dtype = self.output_layer.get_parameter("weight").dtype
        picked = torch.stack(
            [trace.hidden_states[number].to(dtype) for number in self._states_read], dim=1
        )  # [T, n, D]
        lengths, places, of_texts = batch.lengths, tuple(range(batch.num_rows)), noise
        if self.head.is_pair:
            apart = batch.texts_apart
            lengths, places = apart.batch.lengths, apart.places
            of_texts = None if noise is None else NoiseOfTexts(noise, places)
        vectors = self.get_submodule(READER)(picked, lengths, places, of_texts, noise)
        assert isinstance(vectors, Tensor)
        return vectors
