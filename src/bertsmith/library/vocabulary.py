"""Learn a vocabulary from text files and report its quality."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from bertsmith.checkpoints.bpe_json import END_OF_WORD, learned_json
from bertsmith.corpus.words import count_files
from bertsmith.files import write_json
from bertsmith.settings import require, require_number
from bertsmith.text.normalize import TextRules
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import SPECIAL_PIECES
from bertsmith.text.wordpiece import WordPieceTokenizer
from bertsmith.vocabularies import learn
from bertsmith.vocabularies.bpe import learn_byte_pairs
from bertsmith.vocabularies.report import VocabularyReport, vocabulary_report

METHODS = ("wordpiece", "bpe")
MOST_PIECES = 5_000_000  # ten times the largest vocabularies in use


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedVocabulary:
    """A vocabulary that was learned from files.

    Attributes:
        tokenizer: has the vocabulary as `tokenizer.vocabulary`.
        report: the quality of the vocabulary on each file.
        notes: what was left out of the files, one sentence each.
    """

    tokenizer: Tokenizer
    report: VocabularyReport
    notes: tuple[str, ...]

    def save(self, path: str | Path) -> None:
        """Writes the file that `build_corpus` reads: a vocab.txt, or a tokenizer.json for byte pairs."""
        if isinstance(self.tokenizer, PipelineTokenizer):
            write_json(Path(path), self.tokenizer.description)
        else:
            self.tokenizer.vocabulary.save(path)


def learn_vocabulary(
    texts: Sequence[str | Path],
    size: int = 30522,
    *,
    cased: bool = False,
    rules: str = "huggingface",
    column: str = "",
    method: str = "wordpiece",
) -> LearnedVocabulary:
    """A tokenizer with a vocabulary of exactly `size` pieces, special ones included, and a quality report.

    Args:
        texts: files (.txt, .jsonl, .parquet, also .gz and .zst) and folders.
        size: number of pieces.
        cased: keep upper case and accents.
        rules: "huggingface", or "google" for the rules of the original code.
        column: the text column of .jsonl and .parquet files, if it has no common name.
        method: "wordpiece", or "bpe" for the byte pairs of GPT, which need the package `tokenizers`.

    Raises:
        ConfigError: there are no rules or no method of that name, or `size` is more than a model could use.
        InputError: a file is missing, empty, binary or damaged.
        VocabularyError: the texts do not yield that many pieces, or they have too many characters for this size; or
            the package `tokenizers` is missing.
    """
    require_number("size", size, least=1, most=MOST_PIECES)
    require(method in METHODS, expected=f"a method among {', '.join(METHODS)}", found=method, fix="use wordpiece")
    require(
        method == "wordpiece" or rules == "huggingface",
        expected="the text rules huggingface for byte pairs, whose tokenizer.json names them",
        found=rules,
        fix="leave the rules out",
    )
    text_rules = TextRules.named(rules, lowercase=not cased)
    counts = count_files([Path(text) for text in texts], text_rules, column)
    longest = text_rules.max_word_characters
    if method == "bpe":
        found = learn_byte_pairs(counts.total, size, max_word_characters=longest)
        description = learned_json(found.ids, found.merges, lowercase=not cased)
        tokenizer = PipelineTokenizer(description, SPECIAL_PIECES, source="the learned vocabulary")
        report = vocabulary_report(
            tokenizer.vocabulary, counts.files, total=counts.total, tokenizer=tokenizer, end_of_word=END_OF_WORD
        )
        merged = f"{len(found.merges):,} merges"
        return LearnedVocabulary(tokenizer=tokenizer, report=report, notes=(*counts.notes, merged))
    vocabulary = learn.learn_vocabulary(counts.total, size, max_word_characters=longest)
    report = vocabulary_report(vocabulary, counts.files, total=counts.total, max_word_characters=longest)
    return LearnedVocabulary(
        tokenizer=WordPieceTokenizer(vocabulary, text_rules), report=report, notes=tuple(counts.notes)
    )
