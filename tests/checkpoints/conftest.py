"""Tiny models of every kind: two layers, 32 wide, with a vocabulary."""

import pytest
from torch import Tensor

from bertsmith.models.parts.config import BertConfig
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from checkpoints.tiny import PIECES, tiny_tensors
from model.examples import small_config


@pytest.fixture
def config() -> BertConfig:
    return small_config(vocab_size=len(PIECES))


@pytest.fixture
def tensors(config: BertConfig) -> dict[str, Tensor]:
    """The parameters of a model with both pre-training heads."""
    return tiny_tensors(config, "pooler", "mlm", "nsp")


@pytest.fixture
def tokenizer() -> Tokenizer:
    return WordPieceTokenizer(Vocabulary(PIECES), TextRules(lowercase=False))
