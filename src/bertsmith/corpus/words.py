"""Word counts of files, from which a vocabulary is learned and reported."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.corpus.parsing import TextBlock, parse
from bertsmith.corpus.readers import FileRead, ReadingSettings, ReadReport, read_blocks
from bertsmith.corpus.sources import Source, find_sources
from bertsmith.progress import Progress
from bertsmith.text.normalize import TextRules
from bertsmith.vocabularies.word_counts import WordCounter, WordCounts

# Files have a line of their own in the report until so many of them, or so many different words, are in memory.
MOST_FILES = 100
MOST_WORDS = 2_000_000
FURTHER_FILES = "further files"


def count_files(paths: Sequence[Path], rules: TextRules, column: str = "") -> tuple[dict[str, WordCounts], list[str]]:
    """The word counts of each file by its name, and notes on what was left out.

    Where there are very many files or words, the later files are counted together as "further files".

    Raises:
        InputError: a file is missing, empty, binary or damaged.
    """
    # A word never goes over the end of a line, so there is no need to look for sentences.
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
        notes.append(f"files of other kinds in the folders, left out: {read.skipped_files}")
    if read.encoding_errors:
        notes.append(f"bytes that are not UTF-8, left out: {read.encoding_errors}")
    if read.cut_lines:
        notes.append(f"lines that are too long, cut: {read.cut_lines}")
    return counts, notes
