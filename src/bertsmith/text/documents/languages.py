"""Text of several languages: its files, its words, and how well a vocabulary covers each language.

Each entry of a folder is a language: `TEXT/en/`, with any files in it, or `TEXT/en.txt` is text of `en`. How much of
each language a corpus gets is in `language_sampling.py`.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress
from bertsmith.base.core.settings import help_field, require_limits, require_other
from bertsmith.text.documents.parsing import TextBlock
from bertsmith.text.documents.readers import FileRead, ReadingSettings, ReadReport, read_blocks, source_blocks
from bertsmith.text.documents.sources import (
    READABLE,
    STDIN,
    Skipped,
    Source,
    find_sources,
    has_text_ending,
    shown,
    total_bytes,
)
from bertsmith.text.documents.words import by_lines, count_block
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.vocabularies.languages import require_exponent
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts

# A script puts spaces between words if there are at most this many characters between two spaces on average: about 8 in
# Finnish, 30 in Thai.
LONGEST_MEAN_WORD = 12
MOST_PASSES = 20  # more repetitions of a language are worth a warning
MOST_UNKNOWN = 0.01  # a larger fraction of unknown pieces is worth a warning


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageSettings:
    """Whether text is read by language, and how languages are weighted."""

    languages: bool = help_field(
        False,
        "read TEXT as folders with a folder or file for each language (TEXT/en/, TEXT/de.txt), and "
        "sample small languages more often",
    )
    language_exponent: float = help_field(
        0.7,
        "with languages: languages are sampled in proportion to their fraction of the text raised to "
        "this power; 1 keeps the proportions, 0 makes all languages equal",
    )

    def __post_init__(self) -> None:
        require_limits(self)
        require_exponent(self.language_exponent)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            require_other(self.languages or value == field.default, f"--{field.name.replace('_', '-')}", "--languages")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingSettings(LanguageSettings):
    """How the documents of each language are sampled."""

    language_seed: int = help_field(12345, "with languages: seed for sampling documents", most=2**63)


class LanguageCounts(NamedTuple):
    """The word counts of each language, and what was skipped, one sentence each."""

    languages: dict[str, WordCounts]
    notes: list[str]


def find_languages(folders: Sequence[Path | str]) -> tuple[dict[str, list[Path]], list[Skipped]]:
    """(the files and folders of each language, by its name in sorted order; the entries that are not text)."""
    paths: dict[str, list[Path]] = {}
    skipped = []
    for folder in folders:
        if str(folder) == STDIN or not Path(folder).is_dir():
            raise InputError(
                expected="folders with a folder or file for each language (with --languages)",
                found=f"'{folder}'",
                fix="put the text of each language into one folder: TEXT/en.txt, TEXT/de/",
            )
        for entry in sorted(Path(folder).iterdir()):
            if entry.name.startswith("."):
                skipped.append(Skipped(shown(str(entry)), "hidden"))
            elif entry.is_dir() or has_text_ending(entry):
                name = entry.name if entry.is_dir() else entry.name.split(".")[0]
                paths.setdefault(name, []).append(entry)
            else:
                skipped.append(Skipped(shown(str(entry)), "unknown extension"))
    if not paths:
        raise InputError(
            expected=f"a folder or file for each language in {', '.join(f'{str(folder)!r}' for folder in folders)}",
            found="none",
            fix=f"put the text of each language there; files are {READABLE}",
        )
    return dict(sorted(paths.items())), skipped


def read_languages(
    folders: Sequence[Path | str], settings: ReadingSettings, *, url_column: str | None = None
) -> Iterator[TextBlock | FileRead | Skipped]:
    """The blocks and records of `read_blocks`, one language after the other; each block names its language."""
    for source, language in language_sources(folders):
        for item in source_blocks(source, settings, url_column=url_column):
            yield dataclasses.replace(item, language=language) if isinstance(item, TextBlock) else item


def language_sources(folders: Sequence[Path | str]) -> Iterator[tuple[Source | Skipped, str]]:
    """The files of each language, one language after the other, each with the name of its language."""
    languages, skipped = find_languages(folders)
    yield from ((entry, "") for entry in skipped)
    for language, paths in languages.items():
        yield from ((source, language) for source in find_sources(paths))


def count_languages(
    folders: Sequence[Path], rules: TextRules, reading: ReadingSettings | None = None
) -> LanguageCounts:
    """The word counts of each language."""
    languages, skipped = find_languages(folders)
    settings = by_lines(reading)
    read, counter = ReadReport(), WordCounter(rules)
    for entry in skipped:
        read.add_file(entry)
    result = {}
    with Progress("counting words", total_bytes(folders) or None, "bytes") as progress:
        for language, paths in languages.items():
            for item in read_blocks(paths, settings):
                if isinstance(item, TextBlock):
                    count_block(item, counter, read, progress)
                else:
                    read.add_file(item)
                    counter.end_source()
            result[language] = counter.part()
            if not len(result[language]):
                raise no_text(language, paths)
    return LanguageCounts(result, read.notes)


def language_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The languages of a corpus, from its manifest, as lines of its report; none if it was not read by language."""
    if not record:
        return
    yield f"languages, sampled with the exponent {record['exponent']:g}; pieces are counted in the text that was read:"
    header = ("", "tokens", "of the text", "sampled", "times", "per word", "per char.", "unknown")
    yield _row(header)
    for name, counts in record["by_name"].items():
        cells = (
            name,
            f"{counts['sampled_tokens']:,}",
            f"{100 * counts['share_of_text']:.2f} %",
            f"{100 * counts['share']:.2f} %",
            f"{_passes(counts):.2f}",
            f"{counts['tokens'] / counts['words']:.3f}" if has_spaces(counts) else "-",
            f"{counts['tokens'] / max(counts['characters'], 1):.3f}",
            f"{100 * unknown_rate(counts):.2f} %",
        )
        yield _row(cells)


def _row(cells: Sequence[str]) -> str:
    return f"    {cells[0]:12}" + "".join(f"{cell:>12}" for cell in cells[1:])


def language_advice(record: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """(whether something is wrong, what to do about it) for the languages of a corpus, from its manifest."""
    for name, counts in record.get("by_name", {}).items():
        yield (
            unknown_rate(counts) > MOST_UNKNOWN,
            f"the vocabulary does not cover the text of '{name}': {100 * unknown_rate(counts):.1f} % of its pieces are"
            " [UNK]; learn one with that text and --languages"
            + ("" if has_spaces(counts) else ", and with --rules unspaced if the script has no spaces"),
        )
        yield (
            _passes(counts) > MOST_PASSES,
            f"the text of '{name}' is repeated {_passes(counts):.0f} times, so a model memorizes it; add text, or raise"
            " --language-exponent",
        )


def has_spaces(counts: Mapping[str, Any]) -> bool:
    """Whether a language puts spaces between words, from its entry in the manifest."""
    return bool(counts["characters"] <= LONGEST_MEAN_WORD * counts["words"])


def unknown_rate(counts: Mapping[str, Any]) -> float:
    """The fraction of the pieces of a language that are [UNK], from its entry in the manifest."""
    return float(counts["unknown"] / max(counts["tokens"], 1))


def _passes(counts: Mapping[str, Any]) -> float:
    """How many times the training text of a language is in the corpus."""
    return float(counts["sampled_tokens"] / max(counts["training_tokens"], 1))


def no_text(language: str, paths: Sequence[Path]) -> InputError:
    """The error for a language without text."""
    return InputError(
        expected=f"text of the language '{language}'",
        found=f"none in {', '.join(f'{str(path)!r}' for path in paths)}",
        fix="add text, or move the folder or file elsewhere",
    )
