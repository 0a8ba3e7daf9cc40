"""Learn a vocabulary from text files and report its quality."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.base.core.settings import require, require_number
from bertsmith.base.processes.engines import LOCAL, is_cluster
from bertsmith.base.storage.files import write_json
from bertsmith.models.model_files.bpe_json import learned_json
from bertsmith.text.documents.encodings import UTF_8
from bertsmith.text.documents.languages import LanguageSettings, count_languages
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.documents.words import FileCounts, count_files
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import END_OF_WORD, SPECIAL_PIECES
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from bertsmith.text.vocabularies import learn
from bertsmith.text.vocabularies.bpe import learn_byte_pairs
from bertsmith.text.vocabularies.languages import num_characters, smoothed_shares, weighted_counts
from bertsmith.text.vocabularies.report import VocabularyReport, vocabulary_report
from bertsmith.text.vocabularies.word_counts import WordCounts

if TYPE_CHECKING:
    from bertsmith.inference.cluster.kept import Kept

METHODS = ("wordpiece", "bpe")
MOST_PIECES = 5_000_000  # ten times the largest vocabularies in use


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnedVocabulary:
    """A vocabulary that was learned from files.

    Attributes:
        tokenizer: has the vocabulary as `tokenizer.vocabulary`.
        report: the quality of the vocabulary on each file, or on each language.
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
    languages: bool = False,
    language_exponent: float = 0.7,
    encoding: str = UTF_8,
    bad_bytes: str = "refuse",
    character_coverage: float = learn.CHARACTER_COVERAGE,
    engine: str = LOCAL,
    kept: "Kept | None" = None,
) -> LearnedVocabulary:
    """A tokenizer with a vocabulary of exactly `size` pieces, special ones included, and a quality report.

    Args:
        texts: files (.txt, .jsonl, .parquet, also .gz and .zst) and folders.
        size: number of pieces.
        cased: keep upper case and accents.
        rules: "huggingface"; "google" for the rules of the original code, WordPieces only; "unspaced" for those of
            Hugging Face with scripts without spaces split into short parts and, in lower case, with the marks kept that
            are letters, such as the vowels and tones of Thai. Byte pairs keep them with all rules.
        column: the text column of .jsonl and .parquet files, if it has no common name.
        method: "wordpiece", or "bpe" for the byte pairs of GPT, which need the package `tokenizers`.
        languages: whether `texts` are folders with a folder or file for each language, such as `TEXT/en.txt`; words are
            then counted as if each language had its smoothed share of the text.
        language_exponent: with languages, the power of its fraction of the text that is the share of a language.
        encoding: of text files without a byte order mark, such as "cp1252".
        bad_bytes: "refuse" refuses a file with bytes that are not valid UTF-8; "drop" drops and counts them.
        character_coverage: the fraction of the text's characters that are pieces however much room they take; 1: all.
            A word with a character that is no piece is [UNK].
        engine: "local", or "ray" or "ray://ADDRESS" for the workers of a cluster, which count a file each; the
            vocabulary is the same.
        kept: with a cluster, where the counts of files are kept until the caller removes them.

    Raises:
        ConfigError: there are no rules, no method or no encoding of that name, `size` is more than a model could use,
            or the exponent or the coverage is not between 0 and 1.
        InputError: a file is missing, empty, binary or damaged, or a language has no text.
        VocabularyError: the texts do not yield that many pieces, or they have too many characters for this size; or
            the package `tokenizers` is missing.
    """
    require_number("size", size, least=1, most=MOST_PIECES)
    require(method in METHODS, expected=f"a method among {', '.join(METHODS)}", found=method, fix="use wordpiece")
    require(
        method == "wordpiece" or rules != "google",
        expected="the text rules huggingface or unspaced for byte pairs, whose tokenizer.json names them",
        found=rules,
        fix="leave the rules out",
    )
    require_number("character coverage", character_coverage, above=0, most=1)
    text_rules = TextRules.named(rules, lowercase=not cased)
    if method == "bpe":
        text_rules = dataclasses.replace(text_rules, keep_letter_marks=not cased)
    settings = LanguageSettings(languages=languages, language_exponent=language_exponent)
    reading = ReadingSettings(column=column, encoding=encoding, bad_bytes=bad_bytes)
    paths = [Path(text) for text in texts]
    files_of, languages_of = count_files, count_languages
    if is_cluster(engine):
        from bertsmith.inference.cluster.words import count_files_on, count_languages_on

        files_of = functools.partial(count_files_on, engine, kept=kept)
        languages_of = functools.partial(count_languages_on, engine, kept=kept)
    if settings.languages:
        by_name, notes = languages_of(paths, text_rules, reading)
        counts, sampled, notes = _of_languages(by_name, notes, settings.language_exponent)
    else:
        counts = files_of(paths, text_rules, reading)
        sampled, notes = counts.total, counts.notes
    notes = list(notes)
    longest = text_rules.max_word_characters
    if method == "bpe":
        learned = learn_byte_pairs(
            sampled, size, max_word_characters=longest, character_coverage=character_coverage, notes=notes
        )
        description = learned_json(learned.ids, learned.merges, text_rules)
        tokenizer = PipelineTokenizer(description, SPECIAL_PIECES, source="the learned vocabulary")
        report = vocabulary_report(
            tokenizer.vocabulary, counts.files, total=counts.total, tokenizer=tokenizer, end_of_word=END_OF_WORD
        )
        merged = f"{len(learned.merges):,} merges"
        return LearnedVocabulary(tokenizer=tokenizer, report=report, notes=(*notes, merged))
    vocabulary = learn.learn_vocabulary(
        sampled, size, max_word_characters=longest, character_coverage=character_coverage, notes=notes
    )
    report = vocabulary_report(vocabulary, counts.files, total=counts.total, max_word_characters=longest)
    return LearnedVocabulary(tokenizer=WordPieceTokenizer(vocabulary, text_rules), report=report, notes=tuple(notes))


def _of_languages(
    by_name: dict[str, WordCounts], notes: list[str], exponent: float
) -> tuple[FileCounts, WordCounts, list[str]]:
    """The counts of each language, the counts weighted by the shares of the languages, and notes on these."""
    counts = FileCounts(WordCounts.merged(by_name.values()), by_name, notes)
    sizes = [num_characters(words) for words in by_name.values()]
    shares = dict(zip(by_name, smoothed_shares(sizes, exponent), strict=True))
    changes = ", ".join(
        f"{name} {100 * size / sum(sizes):.2f} to {100 * share:.2f} %"
        for (name, share), size in zip(shares.items(), sizes, strict=True)
    )
    note = f"languages, from their percentage of the text to their share with the exponent {exponent:g}: {changes}"
    return counts, weighted_counts(by_name, shares), [*notes, note]
