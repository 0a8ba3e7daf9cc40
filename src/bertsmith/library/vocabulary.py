"""From texts to a tokenizer: a vocabulary that is learned from files, with a report on its quality."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.corpus.words import count_files
from bertsmith.text.normalize import TextRules
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies import learn
from bertsmith.vocabularies.report import VocabularyReport, vocabulary_report
from bertsmith.vocabularies.word_counts import WordCounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedVocabulary:
    """A vocabulary that was learned from files.

    Attributes:
        tokenizer: with the vocabulary, `tokenizer.vocabulary`, whose `save` writes vocab.txt.
        report: what it makes of each file.
        notes: what of the files was left out, a sentence each.
    """

    tokenizer: Tokenizer
    report: VocabularyReport
    notes: tuple[str, ...]


def learn_vocabulary(
    texts: Sequence[str | Path], size: int = 30522, *, cased: bool = False, column: str = ""
) -> LearnedVocabulary:
    """A WordPiece vocabulary of exactly `size` pieces, special ones included, as a tokenizer; and its quality.

    Args:
        texts: files (.txt, .jsonl, .parquet, also .gz and .zst) and folders.
        size: in pieces.
        cased: keep capitals and accents.
        column: of .jsonl and .parquet files, where the text has no usual name.

    Raises:
        InputError: a file is missing, empty, binary or damaged.
        VocabularyError: the texts do not have that many pieces, or their characters do not fit.
    """
    rules = TextRules(lowercase=not cased)
    counts, notes = count_files([Path(text) for text in texts], rules, column)
    vocabulary = learn.learn_vocabulary(
        WordCounts.merged(counts.values()), size, max_word_characters=rules.max_word_characters
    )
    report = vocabulary_report(vocabulary, counts, max_word_characters=rules.max_word_characters)
    return LearnedVocabulary(tokenizer=WordPieceTokenizer(vocabulary, rules), report=report, notes=tuple(notes))
