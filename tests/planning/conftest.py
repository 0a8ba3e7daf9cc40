"""A small corpus to plan for."""

from pathlib import Path

import numpy as np
import pytest

from bertsmith.corpus.build import CorpusSettings, build_corpus
from bertsmith.text.normalize import TextRules
from bertsmith.text.vocabulary import Vocabulary
from bertsmith.text.wordpiece import WordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a b c d e f g h .".split()]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    rng = np.random.default_rng(0)
    documents = ["\n".join(" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(5)) for _ in range(60)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    build_corpus(
        [folder / "text.txt"],
        WordPieceTokenizer(Vocabulary(PIECES), TextRules()),
        folder / "corpus",
        settings=CorpusSettings(held_out=0.2),
        workers=1,
    )
    return folder / "corpus"
