"""A frozen encoder of single letters, and the hidden states of one row alone."""

from collections.abc import Sequence

import numpy as np
import torch

from bertsmith.base.machine.runtime import choose
from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.encoder import Trace
from bertsmith.models.parts.transformer import TransformerEncoder
from bertsmith.tasks.encoding.frozen import FrozenEncoder
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from model.examples import shake, small_config

LETTERS = "abcdefghij"
TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, *LETTERS, *(f"##{letter}" for letter in LETTERS)]))
CONFIG = small_config(
    vocab_size=len(TOKENIZER.vocabulary), num_hidden_layers=4, intermediate_size=64, max_position_embeddings=32
)


def encoder(**arguments: int) -> FrozenEncoder:
    """An encoder with perturbed parameters, in training mode with dropout 0.1."""
    model = TransformerEncoder(CONFIG)
    shake(model)
    return FrozenEncoder(model.train(), TOKENIZER, choose("cpu", "fp32"), **arguments)


def hidden_states(model: TransformerEncoder, ids: Sequence[int]) -> list[torch.Tensor]:
    """The hidden states of one row alone."""
    trace = Trace()
    with torch.no_grad():
        model(Batch.from_flat(np.array(ids), np.zeros(len(ids), np.int64), [len(ids)]), trace=trace)
    return trace.hidden_states


def row(pieces: Sequence[int]) -> list[int]:
    return [TOKENIZER.vocabulary.cls_id, *pieces, TOKENIZER.vocabulary.sep_id]
