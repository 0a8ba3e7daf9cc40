"""The heads: the two of pre-training, and the one output layer of fine-tuning; the models that carry them.

Letters: T tokens in the flat batch, N sequences, M masked positions, R positions that are read, D width, V vocabulary.

Source: Devlin et al. (2018), section 3.1; `get_masked_lm_output` and `get_next_sentence_output` in the original
run_pretraining.py; `create_model` in the original run_classifier.py and run_squad.py.
"""

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.model.batch import Batch, Read
from bertsmith.model.bert import BertModel, activation, initialize, linear, norm
from bertsmith.model.config import BertConfig
from bertsmith.model.noise import Noise


class MaskedLMHead(nn.Module):
    """Logits over the vocabulary for single hidden states; the decoder is the word table."""

    def __init__(self, config: BertConfig) -> None:
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
    """Logits of the two heads; None where a head was not asked.

    Attributes:
        mlm_logits: [M, V].
        nsp_logits: [N, 2]; column 0: B follows A, column 1: B is random.
    """

    mlm_logits: Tensor | None
    nsp_logits: Tensor | None


class BertForPreTraining(nn.Module):
    """The encoder with the masked-LM and the next-sentence head.

    Args:
        seed: what the first parameters are drawn from; None leaves them to whoever fills them in.
    """

    def __init__(self, config: BertConfig, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config, seed=None)
        self.mlm = MaskedLMHead(config)
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
    ) -> PreTrainingOutput:
        """The logits that are asked for, and no others.

        Args:
            read: the positions that the last layer computes; all of them if not given.
            masked: int64 [M], rows of the last hidden states for the masked-LM head.
            first: int64 [N], rows of the last hidden states that are [CLS], for the next-sentence head.
        """
        hidden = self.bert(batch, read=read, noise=noise, dtype=dtype)
        mlm_logits = None if masked is None else self.mlm(hidden[masked], self.bert.embeddings.word.weight)
        nsp_logits = None if first is None else linear(self.bert.pool(hidden[first]), self.nsp)
        return PreTrainingOutput(mlm_logits, nsp_logits)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Head:
    """What a fine-tuned model has on top of the encoder: one linear layer.

    Attributes:
        part: its name, "classifier" or "span".
        outputs: K, its rows.
        pooled: it reads the pooled [CLS]; otherwise the hidden states themselves.
        dropped: its input is dropped out, as that of every head but the span's.
    """

    part: str
    outputs: int
    pooled: bool
    dropped: bool


class BertForTask(nn.Module):
    """The encoder with one additional output layer.

    Args:
        seed: what the first parameters are drawn from; None leaves them to whoever fills them in.
    """

    def __init__(self, config: BertConfig, head: Head, *, seed: int | None = 0) -> None:
        super().__init__()
        self.config, self.head = config, head
        self.bert = BertModel(config, seed=None)
        self.add_module(head.part, nn.Linear(config.hidden_size, head.outputs))
        if seed is not None:
            initialize(self, config.initializer_range, seed)

    @property
    def output_layer(self) -> nn.Linear:
        """The layer on top."""
        layer = self.get_submodule(self.head.part)
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(
        self,
        batch: Batch,
        *,
        read: Read | None = None,
        noise: Noise | None = None,
        dtype: torch.dtype | None = None,
        frozen: bool = False,
    ) -> Tensor:
        """Logits [R, K] at the positions that are read; at all T where none are named.

        Args:
            frozen: the encoder (without its pooler) neither drops nor learns.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            hidden = self.bert(batch, read=read, noise=None if frozen else noise, dtype=dtype)
        if self.head.pooled:
            hidden = self.bert.pool(hidden)
        if self.head.dropped and noise is not None and self.config.hidden_dropout_prob:
            counts = batch.lengths if read is None else read.counts
            probability = self.config.hidden_dropout_prob
            keep = noise.keep(probability, [count * hidden.shape[1] for count in counts], hidden.dtype)
            hidden = hidden * keep.view_as(hidden) * (1 / (1 - probability))
        return linear(hidden, self.output_layer)
