"""Small models and batches for the tests of the model."""

import numpy as np
import torch

from bertsmith.models.parts.batch import Batch
from bertsmith.models.parts.config import BertConfig

VOCABULARY = 67


def small_config(**changes: object) -> BertConfig:
    """Two layers, 32 wide."""
    values = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 48,
        "max_position_embeddings": 40,
        "hidden_dropout_prob": 0.1,
    }
    return BertConfig.from_dict({**values, **changes})


def random_batch(lengths: list[int], seed: int = 0, *, vocabulary: int = VOCABULARY, num_segments: int = 2) -> Batch:
    """A batch of random pieces; the second half of each sequence is in segment 1, if there is one."""
    rng = np.random.default_rng(seed)
    segments = np.concatenate([(np.arange(length) * 2 >= length) & (num_segments > 1) for length in lengths])
    return Batch.from_flat(rng.integers(1, vocabulary, sum(lengths)), segments.astype(np.int64), lengths)


def shake(model: torch.nn.Module, seed: int = 0) -> None:
    """Moves every parameter off its initial value, so that biases and norms matter in comparisons."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=source, dtype=parameter.dtype), alpha=0.05)
