"""The heads that score the pieces of the vocabulary: the masked-LM head of BERT, the word table alone, and others.

GPT's has no parameters of its own.

Letters: M positions, D width, E width of the embeddings, V vocabulary.

Source: `get_masked_lm_output` in the original run_pretraining.py.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bertsmith.models.heads.sampled_softmax import PieceSample, sampled_logits
from bertsmith.models.parts.layers import activation, linear, norm

if TYPE_CHECKING:
    from bertsmith.models.parts.config import EncoderConfig


class PieceHead(nn.Module):
    """The logits over the vocabulary are products of states with a table: the word table, unless there is another."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()

    def states(self, hidden: Tensor) -> Tensor:
        """The states [M, E] of hidden states [M, D] that are multiplied with the table."""
        return hidden

    def table(self, word_table: Tensor) -> tuple[Tensor, Tensor | None]:
        """The table [V, E] and the bias [V], if there is one."""
        return word_table, None

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D] and the word table [V, E]."""
        states, (table, bias) = self.states(hidden), self.table(word_table)
        return F.linear(states, table.to(states.dtype), None if bias is None else bias.to(states.dtype))


class TiedHead(PieceHead):
    """The logits over the vocabulary are the products with the word table, and nothing else."""


class TableHead(PieceHead):
    """The logits over the vocabulary are the products with the word table, plus a bias for each piece."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def table(self, word_table: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `PieceHead`."""
        return word_table, self.bias


class MaskedLMHead(PieceHead):
    """The head of BERT: maps hidden states to states of the width of the word table."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__(config)
        self.config = config
        width = config.embedding_width
        self.transform = nn.Linear(config.hidden_size, width, bias=config.has_biases)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_biases)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def states(self, hidden: Tensor) -> Tensor:
        """See `PieceHead`."""
        return norm(activation(linear(hidden, self.transform), self.config.head_act), self.norm)

    def table(self, word_table: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `PieceHead`."""
        return word_table, self.bias


class UntiedHead(PieceHead):
    """The logits over the vocabulary come from an output layer of its own, without a bias."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__(config)
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def table(self, word_table: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `PieceHead`."""
        return self.output.weight, None

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D]."""
        return linear(hidden, self.output)


class DirectionsHead(nn.Module):
    """The head of two language models: one softmax over the vocabulary, which both directions share.

    The forward half of a hidden state predicts the next piece, the backward half the previous one.
    """

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        half = config.hidden_size // 2
        self.weight = nn.Parameter(torch.zeros(config.vocab_size, half))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.initial_deviations = {"weight": half**-0.5}

    def forward(
        self,
        hidden: Tensor,
        word_table: Tensor | None = None,
        *,
        backward: bool = False,
        targets: Tensor | None = None,
        sample: PieceSample | None = None,
    ) -> Tensor:
        """Logits [M, V] of the next piece for hidden states [M, D], or of the previous one; there is no word table.

        With a sample, the logits [M, 1 + S] of the targets, int64 [M], and of the sample.
        """
        half = hidden.chunk(2, dim=1)[int(backward)]
        if sample is not None:
            assert targets is not None
            return sampled_logits(half, self.weight, self.bias, targets, sample)
        return F.linear(half, self.weight.to(half.dtype), self.bias.to(half.dtype))
