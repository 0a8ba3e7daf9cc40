"""Word counts of files, for learning a vocabulary and reporting on it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bertsmith.base.core.progress import Progress, warn
from bertsmith.text.documents.parsing import TextBlock, parse_lines
from bertsmith.text.documents.readers import FileRead, ReadingSettings, ReadReport, read_blocks
from bertsmith.text.documents.sources import total_bytes
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts

# Each file has a line of its own in the report, up to this many files or distinct words in memory. Of the words of
# further files, at most as many are kept at a time; a vocabulary is learned from far fewer.
MOST_FILES = 100
MOST_WORDS = 2_000_000
FURTHER_FILES = "further files"


class FileCounts(NamedTuple):
    """The word counts of files."""

    total: WordCounts
    files: dict[str, WordCounts]
    notes: list[str]


class CountedFiles:
    """The files of a report on words, of which those after the first ones are counted together."""

    def __init__(self) -> None:
        self.files: dict[str, WordCounts] = {}
        self.is_full = False
        self._words = 0

    def add(self, name: str, counts: WordCounts) -> None:
        """Adds a file that is counted by itself."""
        self.files[name] = counts
        self._words += len(counts)
        self.is_full = len(self.files) >= MOST_FILES or self._words >= MOST_WORDS


def count_files(paths: Sequence[Path], rules: TextRules, reading: ReadingSettings | None = None) -> FileCounts:
    """The word counts of files, together and one by one."""
    settings = by_lines(reading)
    total = total_bytes(paths)
    read, counter, by_file = ReadReport(), WordCounter(rules, most_words=MOST_WORDS), CountedFiles()
    with Progress("counting words", total or None, "bytes") as progress:
        for item in read_blocks(paths, settings):
            if isinstance(item, TextBlock):
                count_block(item, counter, read, progress)
                continue
            read.add_file(item)
            if not isinstance(item, FileRead):
                continue
            if by_file.is_full:
                counter.end_source()
            else:
                by_file.add(item.name, counter.part())
    if by_file.is_full and len(further := counter.part()):
        by_file.files[FURTHER_FILES] = further
    counts = counter.counts
    if counter.dropped:
        share = counter.dropped / (counter.dropped + counts.total)
        warn(
            f"the text has more than {MOST_WORDS:,} distinct words; rare ones were dropped, {share:.2%} of all words "
            "of the text"
        )
    return FileCounts(counts, by_file.files, read.notes)


def by_lines(reading: ReadingSettings | None) -> ReadingSettings:
    """The settings with which words are counted: a word never spans two lines, so sentences need not be split."""
    return dataclasses.replace(reading or ReadingSettings(), form="lines")


def count_block(block: TextBlock, counter: WordCounter, read: ReadReport, progress: Progress) -> None:
    """Adds the words of a block to the counter, and what is left out of it to the report."""
    lines, left_out = parse_lines(block)
    read.add_counts(left_out, block.source)
    counter.add(lines)
    progress.advance(block.read_bytes)
