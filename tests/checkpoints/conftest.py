"""Tiny models of every kind: two layers, 32 wide, with a vocabulary."""

import pytest
from torch import Tensor

from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import PIECES, tiny_tensors


@pytest.fixture
def config() -> BertConfig:
    return BertConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
    )


@pytest.fixture
def tensors(config: BertConfig) -> dict[str, Tensor]:
    """The parameters of a model with both pre-training heads."""
    return tiny_tensors(config, "pooler", "mlm", "nsp")


@pytest.fixture
def tokenizer() -> Tokenizer:
    return WordPieceTokenizer(Vocabulary(PIECES), TextRules(lowercase=False))
