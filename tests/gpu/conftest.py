"""Tests that run on a CUDA device where there is one, and on the CPU everywhere, so that they cannot rot."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from corpus.samples import write_corpus

CUDA = pytest.param(
    "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
)
VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(5, 90))])


@pytest.fixture(params=["cpu", CUDA], scope="module")
def device(request) -> str:
    """The device that is compared with the CPU."""
    return request.param


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A corpus of random words."""
    folder = tmp_path_factory.mktemp("gpu")
    rng = np.random.default_rng(0)
    documents = [
        "\n".join(" ".join(f"w{number}" for number in rng.integers(5, 90, rng.integers(3, 12))) for _ in range(6))
        for _ in range(40)
    ]
    return write_corpus(folder, documents, WordPieceTokenizer(VOCABULARY, TextRules()), held_out=0.2)
