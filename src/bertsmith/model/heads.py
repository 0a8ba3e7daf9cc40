"""The heads: the two of pre-training, and the one of a task; the models that carry them on an encoder.

Letters: T tokens in the flat batch, N sequences, M masked positions, R positions that are read, D width, V vocabulary,
K outputs of a head.

Source: Devlin et al. (2018), section 3.1; `get_masked_lm_output` and `get_next_sentence_output` in the original
run_pretraining.py; `create_model` in the original run_classifier.py and run_squad.py.
"""

import abc
import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.batch import Batch, Read
from bertsmith.model.config import EncoderConfig
from bertsmith.model.encoder import Encoder, Trace
from bertsmith.model.layers import activation, initialize, linear, norm
from bertsmith.model.noise import Noise
from bertsmith.model.parameter_names import OWN_HEAD, PREFIX

_ENCODER = PREFIX.removesuffix(".")  # the name of the encoder's part in every run folder and optimizer state


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary for single hidden states; the decoder is the word table."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D] and the word table [V, D]."""
        changed = norm(activation(linear(hidden, self.transform), self.config.hidden_act), self.norm)
        return F.linear(changed, word_table.to(changed.dtype), self.bias.to(changed.dtype))


@dataclasses.dataclass(frozen=True)
class PreTrainingOutput:
    """Logits of the pre-training heads; None where a head was not asked.

    Attributes:
        mlm_logits: [M, V].
        nsp_logits: [N, 2]; column 0: B follows A, column 1: B is random.
    """

    mlm_logits: Tensor | None
    nsp_logits: Tensor | None


class _OnEncoder(nn.Module):
    """An encoder with something on top."""

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
    """An encoder with the masked-LM head and, where its architecture has one, the next-sentence head.

    Args:
        encoder: the encoder.
        seed: what the first parameters of encoder and heads are drawn from; None leaves them to the caller.
    """

    def __init__(self, encoder: Encoder, *, seed: int | None = 0) -> None:
        super().__init__(encoder)
        config = encoder.config
        self.mlm = MaskedLMHead(config)
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
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        trace: Trace | None = None,
    ) -> PreTrainingOutput:
        """The logits that are asked for, and no others.

        Args:
            read: the positions that the last layer computes; all of them if not given.
            masked: int64 [M], rows of the last hidden states for the masked-LM head.
            first: int64 [N], rows of the last hidden states that are [CLS], for the next-sentence head.
            trace: as of `Encoder.forward`.
        """
        hidden = self.encoder(batch, read=read, noise=noise, dtype=dtype, trace=trace)
        mlm_logits = None if masked is None else self.mlm(hidden[masked], self.encoder.word_table)
        nsp_logits = None if first is None else linear(self.encoder.pool(hidden[first]), self.nsp)
        return PreTrainingOutput(mlm_logits, nsp_logits)


class OwnHead(nn.Module, abc.ABC):
    """A head that you write: subclass it, build your layers in `__init__`, return logits from `forward`.

    Its parameters are saved under `own_head.` next to those of the encoder, and drawn like all others: matrices from a
    truncated normal, biases 0, parameters with "norm" in their name 1. It takes the place of the linear layer of any
    kind of task; what the rows and columns of its logits mean, the task says.

    Args:
        config: of the encoder; `config.hidden_size` is the width D of what the head is given.
        outputs: K, the logits of one position.
    """

    def __init__(self, config: EncoderConfig, outputs: int) -> None:
        super().__init__()
        self.config, self.outputs = config, outputs

    @abc.abstractmethod
    def forward(self, hidden: Tensor) -> Tensor:
        """Logits [R, K] for the hidden states [R, D] of the positions that the task reads, pooled or not as it says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """What a fine-tuned model has on top of the encoder: one linear layer, or a head that the user wrote.

    Attributes:
        part: its name, "classifier" or "span".
        outputs: K, its rows.
        pooled: it reads the pooled [CLS]; otherwise the hidden states themselves.
        own: the class of the user's head.
    """

    part: str
    outputs: int
    pooled: bool
    own: type[OwnHead] | None = None

    @property
    def saved_part(self) -> str:
        """The part of a checkpoint that holds its parameters."""
        return self.part if self.own is None else OWN_HEAD


class EncoderForTask(_OnEncoder):
    """An encoder with the head of a task.

    Args:
        encoder: the encoder.
        head: what is on top.
        seed: what the first parameters of encoder and head are drawn from; None leaves them to the caller.
    """

    def __init__(self, encoder: Encoder, head: Head, *, seed: int | None = 0) -> None:
        super().__init__(encoder)
        self.head = head
        width = encoder.config.hidden_size
        layer = nn.Linear(width, head.outputs) if head.own is None else head.own(encoder.config, head.outputs)
        self.add_module(head.saved_part, layer)
        if seed is not None:
            initialize(self, encoder.config.initializer_range, seed)

    @property
    def output_layer(self) -> nn.Module:
        """The linear layer on top, or the user's head."""
        return self.get_submodule(self.head.saved_part)

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
        """Logits [R, K] at the positions that are read; at all T where none are named.

        Args:
            frozen: the encoder (without its pooler) neither drops nor learns.
            trace: as of `Encoder.forward`.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden = self.encoder(batch, read=read, noise=None if frozen else noise, dtype=dtype, trace=trace)
        head = self.head
        if head.pooled:
            hidden = self.encoder.pool(hidden)
        probability = self.config.head_dropout(head.part, pooled=head.pooled)
        if noise is not None and probability:
            counts = batch.lengths if read is None else read.counts
            keep = noise.keep(probability, [count * hidden.shape[1] for count in counts], hidden.dtype)
            hidden = hidden * keep.view_as(hidden) * (1 / (1 - probability))
        layer = self.output_layer
        if isinstance(layer, OwnHead):
            logits = layer(hidden.to(next(layer.parameters()).dtype))
            assert isinstance(logits, Tensor)
            assert logits.shape == (hidden.shape[0], head.outputs), f"logits of {list(logits.shape)}"
            return logits
        assert isinstance(layer, nn.Linear)
        return linear(hidden, layer)
