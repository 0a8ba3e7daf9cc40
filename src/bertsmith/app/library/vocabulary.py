"""Learn a vocabulary from text files and report its quality."""

import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.progress import short_repr
from bertsmith.base.core.requests import path_or_none, takes
from bertsmith.base.core.settings import require, require_number, require_other
from bertsmith.base.processes.engines import is_cluster
from bertsmith.base.storage.files import write_json
from bertsmith.base.storage.locks import locked_file
from bertsmith.base.storage.outputs import TOKENIZER_FILE, VOCABULARY, VOCABULARY_REPORT, require_output
from bertsmith.base.storage.uploads import staged
from bertsmith.models.model_files.bpe_json import learned_json
from bertsmith.text.documents.encodings import EncodingSettings
from bertsmith.text.documents.languages import LanguageSettings, count_languages
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.documents.request import VocabularyRequest
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

    __repr__ = short_repr

    def save(self, path: str | Path) -> None:
        """Writes the file that `build_corpus` reads: a vocab.txt, or a tokenizer.json for byte pairs."""
        if isinstance(self.tokenizer, PipelineTokenizer):
            write_json(Path(path), self.tokenizer.description)
        else:
            self.tokenizer.vocabulary.save(path)


@takes(VocabularyRequest)
def learn_vocabulary(request: VocabularyRequest) -> LearnedVocabulary:
    """A tokenizer with a vocabulary of exactly `size` pieces, special ones included, and a quality report.

    With `languages`, words are counted as if each language had its smoothed share of the text. On a cluster, each
    worker counts a file; the vocabulary is the same.

    Raises:
        ConfigError: there are no rules, no method or no encoding of that name, `size` is more than a model could use,
            or the exponent or the coverage is not between 0 and 1.
        InputError: a file is missing, empty, binary or damaged, a language has no text, or an output exists and
            `replace` is False.
        VocabularyError: the texts do not yield that many pieces, or they have too many characters for this size; or
            the package `tokenizers` is missing.
    """
    on_cluster, report = is_cluster(request.engine), path_or_none(request.report)
    require_other(on_cluster or not request.resume, "--resume", "--engine ray")
    require_other(request.out is not None or not request.resume, "--resume", "--out")
    outputs: Any = {"inputs": request.texts, "replace": request.replace}
    if request.out is None:
        if report is not None:
            require_output(report, VOCABULARY_REPORT, **outputs)
        learned = _learned(request)
    else:
        with staged(Path(request.out), replace=request.replace) as path:
            kind = TOKENIZER_FILE if request.method == "bpe" else VOCABULARY
            require_output(path, kind, **outputs)
            if report is not None:
                require_output(report, VOCABULARY_REPORT, others=[Path(request.out)], **outputs)
            with locked_file(path):
                kept = None
                if on_cluster:
                    from bertsmith.inference.cluster.kept import Kept

                    state = path.with_name(f"{path.name}.partial")
                    kept = Kept(state, "vocabulary", replace=request.replace, resume=request.resume)
                learned = _learned(request, kept)
                learned.save(path)
                if kept is not None:
                    kept.remove()
    if report is not None:
        write_json(report, dataclasses.asdict(learned.report))
    return learned


def _learned(request: VocabularyRequest, kept: "Kept | None" = None) -> LearnedVocabulary:
    """The vocabulary and its report.

    Args:
        kept: with a cluster, where the counts of files are kept until the caller removes them.
    """
    size, rules, method = request.size, request.rules or "huggingface", request.method
    coverage = request.character_coverage
    require_number("size", size, least=1, most=MOST_PIECES)
    require(method in METHODS, expected=f"a method among {', '.join(METHODS)}", found=method, fix="use wordpiece")
    require(
        method == "wordpiece" or rules != "google",
        expected="the text rules huggingface or unspaced for byte pairs, whose tokenizer.json names them",
        found=rules,
        fix="leave the rules out",
    )
    require_number("character coverage", coverage, above=0, most=1)
    text_rules = TextRules.named(rules, lowercase=not request.cased)
    if method == "bpe":
        text_rules = dataclasses.replace(text_rules, keep_letter_marks=not request.cased)
    languages, reading = request.part(LanguageSettings), request.part(EncodingSettings)
    reading = ReadingSettings(column=request.column, encoding=reading.encoding, bad_bytes=reading.bad_bytes)
    paths = [Path(text) for text in request.texts]
    files_of, languages_of = count_files, count_languages
    if is_cluster(request.engine):
        from bertsmith.inference.cluster.words import count_files_on, count_languages_on

        files_of = functools.partial(count_files_on, request.engine, kept=kept)
        languages_of = functools.partial(count_languages_on, request.engine, kept=kept)
    if languages.languages:
        by_name, notes = languages_of(paths, text_rules, reading)
        counts, sampled, notes = _of_languages(by_name, notes, languages.language_exponent)
    else:
        counts = files_of(paths, text_rules, reading)
        sampled, notes = counts.total, counts.notes
    notes = list(notes)
    longest = text_rules.max_word_characters
    if method == "bpe":
        learned = learn_byte_pairs(sampled, size, max_word_characters=longest, character_coverage=coverage, notes=notes)
        description = learned_json(learned.ids, learned.merges, text_rules)
        tokenizer = PipelineTokenizer(description, SPECIAL_PIECES, source="the learned vocabulary")
        report = vocabulary_report(
            tokenizer.vocabulary, counts.files, total=counts.total, tokenizer=tokenizer, end_of_word=END_OF_WORD
        )
        merged = f"{len(learned.merges):,} merges"
        return LearnedVocabulary(tokenizer=tokenizer, report=report, notes=(*notes, merged))
    vocabulary = learn.learn_vocabulary(
        sampled, size, max_word_characters=longest, character_coverage=coverage, notes=notes
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
