"""The checks of a corpus before pre-training starts."""

from pathlib import Path

import pytest

from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import Document
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.fit import FEW_HELD_OUT, tell_of_few_held_out

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "it", "rained", "."]))


@pytest.mark.parametrize(("sentences", "is_told"), [(2, True), (FEW_HELD_OUT, False)])
def test_a_held_out_part_of_a_few_tokens_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, sentences: int, is_told: bool
) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    documents = [Document(str(number), [f"it rained {'. ' * number}"] * sentences) for number in range(1, 4)]
    build_corpus(documents, TOKENIZER, tmp_path / "corpus", held_out=0.01, workers=1)
    capsys.readouterr()
    tell_of_few_held_out(Corpus.open(tmp_path / "corpus").held_out())
    tell_of_few_held_out(None)
    assert ("too few for scores that mean something" in capsys.readouterr().err) == is_told
