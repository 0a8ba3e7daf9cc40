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


class MaskedLMHead(nn.Module):
    """Maps hidden states to logits over the vocabulary; the decoder is the word table."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.config = config
        width = config.embedding_width
        self.transform = nn.Linear(config.hidden_size, width, bias=config.has_biases)
        self.norm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.has_biases)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D] and the word table [V, E]."""
        changed = norm(activation(linear(hidden, self.transform), self.config.head_act), self.norm)
        return F.linear(changed, word_table.to(changed.dtype), self.bias.to(changed.dtype))


class TableHead(nn.Module):
    """The logits over the vocabulary are the products with the word table, plus a bias for each piece."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D] and the word table [V, D]."""
        return F.linear(hidden, word_table.to(hidden.dtype), self.bias.to(hidden.dtype))


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


class UntiedHead(nn.Module):
    """The logits over the vocabulary come from an output layer of its own, without a bias."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()
        self.output = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D]."""
        return linear(hidden, self.output)


class TiedHead(nn.Module):
    """The logits over the vocabulary are the products with the word table, and nothing else."""

    def __init__(self, config: "EncoderConfig") -> None:
        super().__init__()

    def forward(self, hidden: Tensor, word_table: Tensor) -> Tensor:
        """Logits [M, V] for hidden states [M, D] and the word table [V, D]."""
        return F.linear(hidden, word_table.to(hidden.dtype))
