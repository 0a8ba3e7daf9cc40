"""Word counts of files, for learning a vocabulary and reporting on it."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.corpus.parsing import TextBlock, parse
from bertsmith.corpus.readers import FileRead, ReadingSettings, ReadReport, read_blocks
from bertsmith.corpus.sources import Source, find_sources
from bertsmith.progress import Progress
from bertsmith.text.normalize import TextRules
from bertsmith.vocabularies.word_counts import WordCounter, WordCounts

# Each file has a line of its own in the report, up to this many files or distinct words in memory.
MOST_FILES = 100
MOST_WORDS = 2_000_000
FURTHER_FILES = "further files"


def count_files(paths: Sequence[Path], rules: TextRules, column: str = "") -> tuple[dict[str, WordCounts], list[str]]:
    """The word counts of each file by its name, and notes on what was skipped.

    If there are very many files or words, the later files are counted together as "further files".

    Raises:
        InputError: a file is missing, empty, binary or damaged.
    """
    # A word never spans two lines, so there is no need to split sentences.
    settings = ReadingSettings(form="lines", column=column)
    total = sum(found.size for found in find_sources(paths) if isinstance(found, Source))
    counts: dict[str, WordCounts] = {}
    read, further, words = ReadReport(), WordCounter(rules), 0
    counter = WordCounter(rules)
    with Progress("counting words", total or None, "bytes") as progress:
        for item in read_blocks(paths, settings):
            if isinstance(item, TextBlock):
                parts, left_out = parse(item)
                read.add_counts(left_out)
                for part in parts:
                    counter.add(part.sentences)
                progress.advance(item.read_bytes)
                continue
            read.add_file(item)
            if not isinstance(item, FileRead):
                continue
            if counter is further:
                counter.end_source()
                continue
            counts[item.name] = counter.counts
            words += len(counts[item.name])
            is_full = len(counts) >= MOST_FILES or words >= MOST_WORDS
            counter = further if is_full else WordCounter(rules)
    if counter is further and len(further.counts):
        counts[FURTHER_FILES] = further.counts
    notes = []
    if read.skipped_files:
        notes.append(f"unusable files in the folders, skipped: {read.skipped_files}")
    if read.encoding_errors:
        notes.append(f"bytes that are not UTF-8, dropped: {read.encoding_errors}")
    if read.cut_lines:
        notes.append(f"lines that are too long, cut: {read.cut_lines}")
    return counts, notes
