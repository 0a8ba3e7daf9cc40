"""Word counts of files, each counted by a worker of a cluster, summed here.

A file is the unit: its words are counted in stretches of a megabyte from its beginning (see `word_counts`), so that the
counts do not depend on who counts which file.
"""

import contextlib
import dataclasses
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.progress import Progress
from bertsmith.inference.cluster.engine import PART, Stage, raise_any, record_of, stream
from bertsmith.inference.cluster.kept import Kept, digest_of_files
from bertsmith.inference.cluster.rows import file_of, file_record
from bertsmith.text.documents.languages import LanguageCounts, language_sources, no_text
from bertsmith.text.documents.parsing import BlockCounts, TextBlock, parse_lines
from bertsmith.text.documents.readers import FileRead, ReadingSettings, ReadReport, source_blocks
from bertsmith.text.documents.sources import Skipped, Source, find_sources
from bertsmith.text.documents.words import FURTHER_FILES, CountedFiles, FileCounts, by_lines
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.vocabularies.word_counts import WordCounter, WordCounts

_MERGED_AT_ONCE = 32  # counts of files; each merge goes through all words so far
_COLUMNS = ("counts", "sources", "spread")
_SCHEMA = pa.schema(
    [
        ("record", pa.string()),
        ("words", pa.large_list(pa.string())),
        *((name, pa.large_list(pa.int64())) for name in _COLUMNS),
    ]
)


def count_files_on(
    engine: str,
    paths: Sequence[Path | str],
    rules: TextRules,
    reading: ReadingSettings | None = None,
    kept: Kept | None = None,
) -> FileCounts:
    """The word counts of files, as `count_files` computes them."""
    listed = [(file, "") for file in find_sources(paths)]
    report, by_file = ReadReport(), CountedFiles()
    total, further = _Sum(), _Sum()
    for name, _, counts in _counted(engine, listed, rules, by_lines(reading), report, kept):
        total.add(counts)
        if by_file.is_full:
            further.add(counts)
        else:
            by_file.add(name, counts)
    if len(rest := further.counts):
        by_file.files[FURTHER_FILES] = rest
    return FileCounts(total.counts, by_file.files, report.notes)


def count_languages_on(
    engine: str,
    folders: Sequence[Path],
    rules: TextRules,
    reading: ReadingSettings | None = None,
    kept: Kept | None = None,
) -> LanguageCounts:
    """The word counts of each language, as `count_languages` computes them."""
    listed = list(language_sources(folders))
    report = ReadReport()
    sums = {language: _Sum() for _, language in listed if language}
    for _, language, counts in _counted(engine, listed, rules, by_lines(reading), report, kept):
        sums[language].add(counts)
    counts_of = {language: total.counts for language, total in sums.items()}
    for language, counts in counts_of.items():
        if not len(counts):
            raise no_text(language, [Path(source.name) for source, name in listed if name == language])
    return LanguageCounts(counts_of, report.notes)


class _Sum:
    """The sum of counts that are added one after the other."""

    def __init__(self) -> None:
        self._parts: list[WordCounts] = []

    def add(self, counts: WordCounts) -> None:
        self._parts.append(counts)
        if len(self._parts) >= _MERGED_AT_ONCE:
            self._parts = [WordCounts.merged(self._parts)]

    @property
    def counts(self) -> WordCounts:
        self._parts = [WordCounts.merged(self._parts)]
        return self._parts[0]


def _counted(
    engine: str,
    listed: Sequence[tuple[Source | Skipped, str]],
    rules: TextRules,
    reading: ReadingSettings,
    report: ReadReport,
    kept: Kept | None,
) -> Iterator[tuple[str, str, WordCounts]]:
    """(the name, the language, the counts) of each file in order; the report gets what was read and left out."""
    total = sum(file.size for file, _ in listed if isinstance(file, Source))
    made_of = {
        "rules": dataclasses.asdict(rules), "reading": dataclasses.asdict(reading), "texts": digest_of_files(listed),
    }  # fmt: skip
    with (
        Progress("counting words", total or None, "bytes") as progress,
        contextlib.closing(_rows(engine, listed, (rules, reading), kept, made_of)) as rows,
    ):
        for row in rows:
            record = json.loads(row["record"])
            read = Skipped(**record["file"]) if record["is_skipped"] else FileRead(**record["file"])
            report.add_counts(BlockCounts(**record["left_out"]), read.name)
            report.add_file(read)
            if isinstance(read, FileRead):
                progress.advance(read.bytes)
                columns = {name: np.array(row[name], dtype=np.int64) for name in _COLUMNS}
                counts = WordCounts(row["words"], num_sources=record["num_sources"], chunks=record["chunks"], **columns)
                yield read.name, record["language"], counts


def _rows(
    engine: str,
    listed: Sequence[tuple[Source | Skipped, str]],
    arguments: tuple[TextRules, ReadingSettings],
    kept: Kept | None,
    made_of: Mapping[str, Any],
) -> Generator[dict[str, Any], None, None]:
    """A row for each file in order: first the rows on disk, then the rows that the cluster still has to make."""
    done = 0
    if kept is not None:
        kept.require_same(made_of)
        kept.begin(made_of)
        for table in kept.tables():
            done += len(table)
            yield from table.to_pylist()
    parts = [{PART: json.dumps([*file_record(file), language])} for file, language in listed[done:]]
    stage = Stage(worker=_Counter, arguments=arguments, resumes=kept is not None)

    def intact(tables: Iterable[pa.Table]) -> Generator[pa.Table]:
        for table in tables:
            for record in table.column("record").to_pylist():
                raise_any(json.loads(record).get("failure"))
            yield table

    with (
        contextlib.closing(stream(engine, parts, stage)) as tables,
        contextlib.closing(intact(tables) if kept is None else kept.adding(intact(tables))) as added,
    ):
        for table in added:
            yield from table.to_pylist()


class _Counter:
    """Counts the words of files."""

    def __init__(self, rules: TextRules, reading: ReadingSettings) -> None:
        self.rules, self.settings = rules, reading

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        yield from (self._row(*json.loads(part)) for part in table.column(PART).to_pylist())

    def _row(self, kind: str, fields: dict[str, Any], language: str) -> pa.Table:
        left_out = ReadReport()
        counter = WordCounter(self.rules, threads=1)
        record: dict[str, Any] = {"language": language}
        try:
            for item in source_blocks(file_of(kind, fields), self.settings):
                if isinstance(item, TextBlock):
                    lines, counts = parse_lines(item)
                    left_out.add_counts(counts, item.source)
                    counter.add(lines)
                else:
                    record |= {"file": dataclasses.asdict(item), "is_skipped": isinstance(item, Skipped)}
        except BertsmithError as error:
            record["failure"] = record_of(error)
        words = counter.counts
        record["left_out"] = {name: getattr(left_out, name) for name in vars(BlockCounts())}
        record |= {"num_sources": words.num_sources, "chunks": words.chunks}
        columns = {name: [getattr(words, name)] for name in _COLUMNS}
        return pa.table({"record": [json.dumps(record)], "words": [list(words.words)], **columns}, schema=_SCHEMA)
