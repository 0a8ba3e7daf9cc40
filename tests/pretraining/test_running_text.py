"""Corpora without running text: said where a run relies on it, and nowhere else."""

from pathlib import Path

import pytest

from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.shards import Corpus
from bertsmith.text.documents.readers import Document
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.training.pretraining.fit import warn_without_running_text
from bertsmith.training.pretraining.settings import PretrainingDataSettings

TOKENIZER = WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "it", "rained", "."]))


def corpus_of(tmp_path: Path, *counts: int) -> Corpus:
    documents = [Document(str(number), ["it rained ."] * count) for number, count in enumerate(counts)]
    build_corpus(documents, TOKENIZER, tmp_path / "corpus", held_out=0.0, workers=1)
    return Corpus.open(tmp_path / "corpus")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"objective": "language-model"}, "the state that is carried from one to the next"),
        ({"objective": "left-to-right", "contiguous": True, "max_length": 64}, "rows of up to 64 tokens hold one"),
    ],
)
def test_most_documents_of_one_sentence_are_counted_where_text_is_read_in_order(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    result = warn_without_running_text(corpus_of(tmp_path, 1, 1, 1, 4), PretrainingDataSettings(**settings))
    assert result.startswith("3 of 4 documents are a single sentence, with a median of 3 tokens, so " + words)


def test_running_text_and_rows_of_their_own_are_no_problem(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path, 1, 1, 4, 4)
    assert warn_without_running_text(corpus, PretrainingDataSettings(objective="language-model")) == ""
    assert warn_without_running_text(corpus_of(tmp_path / "b", 1, 1), PretrainingDataSettings(objective="mlm")) == ""
