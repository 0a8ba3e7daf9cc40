"""Learn a vocabulary from text files and report its quality."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.corpus.words import count_files
from bertsmith.settings import require_number
from bertsmith.text.normalize import TextRules
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies import learn
from bertsmith.vocabularies.report import VocabularyReport, vocabulary_report

MOST_PIECES = 5_000_000  # ten times the largest vocabularies in use


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedVocabulary:
    """A vocabulary that was learned from files.

    Attributes:
        tokenizer: has the vocabulary as `tokenizer.vocabulary`; its `save` writes vocab.txt.
        report: the quality of the vocabulary on each file.
        notes: what was left out of the files, one sentence each.
    """

    tokenizer: Tokenizer
    report: VocabularyReport
    notes: tuple[str, ...]


def learn_vocabulary(
    texts: Sequence[str | Path],
    size: int = 30522,
    *,
    cased: bool = False,
    rules: str = "huggingface",
    column: str = "",
) -> LearnedVocabulary:
    """A tokenizer with a WordPiece vocabulary of exactly `size` pieces, special ones included, and a quality report.

    Args:
        texts: files (.txt, .jsonl, .parquet, also .gz and .zst) and folders.
        size: number of pieces.
        cased: keep upper case and accents.
        rules: "huggingface", or "google" for the rules of the original code.
        column: the text column of .jsonl and .parquet files, if it has no common name.

    Raises:
        ConfigError: there are no rules of that name, or `size` is more than a model could use.
        InputError: a file is missing, empty, binary or damaged.
        VocabularyError: the texts do not yield that many pieces, or they have too many characters for this size.
    """
    require_number("size", size, least=1, most=MOST_PIECES)
    text_rules = TextRules.named(rules, lowercase=not cased)
    counts = count_files([Path(text) for text in texts], text_rules, column)
    longest = text_rules.max_word_characters
    vocabulary = learn.learn_vocabulary(counts.total, size, max_word_characters=longest)
    report = vocabulary_report(vocabulary, counts.files, total=counts.total, max_word_characters=longest)
    return LearnedVocabulary(
        tokenizer=WordPieceTokenizer(vocabulary, text_rules), report=report, notes=tuple(counts.notes)
    )
