"""A small corpus to plan for."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from corpus.samples import write_corpus

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a b c d e f g h .".split()]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    rng = np.random.default_rng(0)
    documents = ["\n".join(" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(5)) for _ in range(60)]
    return write_corpus(folder, documents, WordPieceTokenizer(Vocabulary(PIECES), TextRules()), held_out=0.2)
