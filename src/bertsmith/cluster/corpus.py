"""A corpus whose blocks are read and encoded by the workers of a cluster, with the bytes that one process writes.

Readers cut files into blocks, workers encode them, and this process joins the results into documents and shards in the
order of the text, as `corpus.build` does. What has arrived is kept next to the corpus, in `CORPUS.partial/`, until the
corpus is complete: a run that was killed resumes after the last part that was kept.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bertsmith.cluster.engine import PART, Stage, stream
from bertsmith.cluster.rows import (
    BLOCK,
    FAILURE,
    TEXT_ROWS,
    encoded_items,
    encoded_row,
    encoded_rows,
    file_of,
    file_record,
    row_of,
    text_items,
    text_row,
)
from bertsmith.corpus.build import CorpusSettings, build_corpus
from bertsmith.corpus.encode import BlockEncoder, EncodedBlock, Item
from bertsmith.corpus.language_sampling import SamplingSettings
from bertsmith.corpus.manifest import MANIFEST, read_manifest
from bertsmith.corpus.shards import token_type
from bertsmith.documents.languages import language_sources
from bertsmith.documents.parsing import BlockCounts, TextBlock
from bertsmith.documents.readers import Document, ReadingSettings, source_blocks
from bertsmith.documents.sources import STDIN, Skipped, Source, find_sources
from bertsmith.errors import InputError, RunError
from bertsmith.files import atomic_file, digest_bytes, digest_file, read_json, write_json
from bertsmith.locks import locked_folder
from bertsmith.remote import address_of
from bertsmith.settings import require, to_dict
from bertsmith.text.pipeline import PipelineTokenizer
from bertsmith.text.tokenizer import Tokenizer

STARTED = "started.json"
COMPLETE = "complete.json"
KEPT_BYTES = 32 * 2**20  # encoded blocks are kept on disk in parts of about this size
_READ_TOGETHER = 64 * 2**20  # bytes of small files that one reader reads


def build_corpus_on(
    engine: str,
    texts: Iterable[Path | str],
    tokenizer: Tokenizer,
    out: Path | str,
    *,
    settings: CorpusSettings | None = None,
    sampling: SamplingSettings | None = None,
    workers: int | None = None,
    replace: bool = False,
    resume: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """The manifest of the corpus built in the folder `out` by the workers of a cluster; see `build_corpus`.

    Args:
        engine: see `stream`. Workers open the files themselves, so every machine needs them at the same path.
        workers: the largest number of worker processes; None means as many as the cluster has processors.
        resume: continue an unfinished corpus; start one if there is none.
        options: further arguments of `build_corpus`.

    Raises:
        BertsmithError: as for `build_corpus`; `RunError` if there is an unfinished corpus and neither `resume` nor
            `replace` is given, or it was started from something else, or the workers of the cluster fail.
    """
    out, settings = Path(out), settings or CorpusSettings()
    paths = list(texts)
    require(
        not any(isinstance(one, Document) or str(one) == STDIN for one in paths),
        expected="files and folders, which the workers of a cluster open themselves",
        found="stdin, or documents that have already been read",
        fix="write the text to a file, or leave --engine out",
    )
    by_language = sampling is not None and sampling.languages
    state = out.with_name(f"{out.name}.partial")
    with locked_folder(state):
        kept = _Kept(state, replace=replace, resume=resume)
        listed = list(language_sources(paths)) if by_language else [(found, "") for found in find_sources(paths)]
        made_of = {"tokenizer": _digest(tokenizer), "settings": to_dict(settings), "texts": _listing(listed)}
        kept.require_same(made_of)
        if kept.has_made(out):
            manifest = read_manifest(out)
        else:

            def encode(_: Sequence[Path | str]) -> Iterator[Item]:
                # Only now it is known that `out` is free, or may be replaced.
                kept.begin(made_of)
                return _encoded(engine, listed, tokenizer, settings, kept, workers)

            manifest = build_corpus(
                paths, tokenizer, out, settings=settings, sampling=sampling, replace=replace, encode=encode, **options
            )
            kept.complete(out)
        kept.remove()
    return manifest


class _Kept:
    """The encoded blocks that are on disk, in parts of consecutive rows.

    Raises:
        RunError: there are some, and the caller wants neither to resume nor to start over.
    """

    def __init__(self, folder: Path, *, replace: bool, resume: bool) -> None:
        self.folder = folder
        was_begun = (folder / STARTED).exists()
        self.resumes = was_begun and resume
        if was_begun and not (resume or replace):
            raise RunError(
                expected=f"no unfinished corpus in '{folder}'",
                found="one",
                fix="resume with --resume, or use --replace",
            )

    def require_same(self, made_of: dict[str, Any]) -> None:
        """Checks that a corpus that is resumed is made of the same.

        Raises:
            RunError: it is made of something else.
        """
        if not self.resumes:
            return
        before = read_json(self.folder / STARTED)
        for name, value in made_of.items():
            if not isinstance(before, dict) or before.get(name) != value:
                raise RunError(
                    expected=f"the {name} that the unfinished corpus in '{self.folder}' was started with",
                    found="others",
                    fix="use the same again, or start over with --replace",
                )

    def begin(self, made_of: dict[str, Any]) -> None:
        """Records what the corpus is made of, and deletes what another one left, unless this one is resumed."""
        if not self.resumes:
            self.remove()
            write_json(self.folder / STARTED, made_of)

    def complete(self, out: Path) -> None:
        """Records that the corpus is in `out`."""
        write_json(self.folder / COMPLETE, {"manifest": digest_file(out / MANIFEST)})

    def has_made(self, out: Path) -> bool:
        """Whether the corpus in `out` is the one that is resumed, complete."""
        place, manifest = self.folder / COMPLETE, out / MANIFEST
        is_there = self.resumes and place.exists() and manifest.exists()
        return is_there and read_json(place) == {"manifest": digest_file(manifest)}

    def tables(self) -> Iterator[pa.Table]:
        """The parts on disk, memory-mapped."""
        for path in self._paths():
            with pa.memory_map(str(path)) as data:
                yield pa.ipc.open_file(data).read_all()

    def add(self, tables: Sequence[pa.Table]) -> None:
        """Writes the next part."""
        if tables:
            whole = pa.concat_tables(tables).combine_chunks()
            path = self.folder / f"part-{len(self._paths()):06d}.arrow"
            with atomic_file(path) as file, pa.ipc.new_file(file, whole.schema) as writer:
                writer.write_table(whole)

    def remove(self) -> None:
        """Deletes everything but the lock, whose folder goes with it."""
        # In this order: without `STARTED`, what is left is not resumed.
        for path in (self.folder / COMPLETE, self.folder / STARTED, *self._paths()):
            path.unlink(missing_ok=True)

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.arrow"))


def _encoded(
    engine: str,
    listed: Sequence[tuple[Source | Skipped, str]],
    tokenizer: Tokenizer,
    settings: CorpusSettings,
    kept: _Kept,
    workers: int | None,
) -> Iterator[Item]:
    """All items in order: first those that are on disk, then those that the cluster still has to make."""
    first, skip = 0, 0
    for table in kept.tables():
        for source, number, item in encoded_items(table):
            if (source, number) != (first, skip):
                raise RunError(
                    expected=f"block {skip + 1:,} of file {first + 1:,} next in '{kept.folder}'",
                    found=f"block {number + 1:,} of file {source + 1:,}",
                    fix="start over with --replace",
                )
            first, skip = (source, number + 1) if isinstance(item, EncodedBlock) else (source + 1, 0)
            yield item
    waiting: list[pa.Table] = []
    stage = Stage(
        worker=_Encoder, arguments=(tokenizer, settings.fingerprints), read=_read, workers=workers, resumes=True
    )
    with contextlib.closing(stream(engine, _parts(listed, settings, first, skip), stage)) as tables:
        try:
            for table in tables:
                found = list(encoded_items(table))
                for _, _, item in found:
                    if isinstance(item, EncodedBlock) and item.failure is not None:
                        expected, what, fix = item.failure
                        raise InputError(expected=expected, found=what, fix=fix)
                waiting.append(table)
                if sum(one.nbytes for one in waiting) >= KEPT_BYTES:
                    # In this order: rows that may be on disk are never written a second time.
                    rows, waiting = waiting, []
                    kept.add(rows)
                yield from (item for _, _, item in found)
        finally:
            kept.add(waiting)


def _parts(
    listed: Sequence[tuple[Source | Skipped, str]], settings: ReadingSettings, first: int, skip: int
) -> list[dict[str, str]]:
    """What each reader reads: consecutive files, small ones together, from item `skip` of file `first` on."""
    reading = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ReadingSettings)}
    groups: list[dict[str, Any]] = []
    size = _READ_TOGETHER
    for number, (found, language) in enumerate(listed):
        if number < first:
            continue
        if size >= _READ_TOGETHER:
            groups.append({"first": number, "skip": skip if number == first else 0, "files": [], "settings": reading})
            size = 0
        groups[-1]["files"].append([*file_record(found), language])
        size += found.size if isinstance(found, Source) else 0
    return [{PART: json.dumps(group)} for group in groups]


def _read(table: pa.Table) -> Iterator[pa.Table]:
    """The blocks and records of the files of a part, a row each."""
    for text in table.column(PART).to_pylist():
        part = json.loads(text)
        settings, skip = ReadingSettings(**part["settings"]), part["skip"]
        for source, (kind, fields, language) in enumerate(part["files"], start=part["first"]):
            found = file_of(kind, fields)
            number = 0
            try:
                for number, item in enumerate(source_blocks(found, settings)):
                    if number >= skip:
                        if isinstance(item, TextBlock):
                            item = dataclasses.replace(item, language=language)
                        yield text_row(item, source, number)
            except InputError as error:
                failure = {"failure": [error.expected, error.found, error.fix]}
                yield row_of(TEXT_ROWS, source, number, FAILURE, failure)
                return
            skip = 0


class _Encoder:
    """Turns rows of text into rows of ids."""

    def __init__(self, tokenizer: Tokenizer, fingerprints: bool) -> None:
        self.encode = BlockEncoder(tokenizer, fingerprints=fingerprints)
        self.schema = encoded_rows(token_type(len(tokenizer.vocabulary)))

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        yield from (self._row(*row) for row in text_items(table))

    def _row(self, source: int, number: int, kind: str, record: dict[str, Any], block: Any) -> pa.Table:
        if kind == FAILURE:
            failed = EncodedBlock("", [], BlockCounts(), failure=record["failure"])
            return encoded_row(failed, source, number, self.schema)
        if kind != BLOCK:
            return row_of(self.schema, source, number, kind, record)
        return encoded_row(self.encode(block), source, number, self.schema)


def _digest(tokenizer: Tokenizer) -> str:
    made_of: dict[str, Any] = {"vocabulary": tokenizer.vocabulary.digest, "rules": to_dict(tokenizer.rules)}
    if isinstance(tokenizer, PipelineTokenizer):
        made_of["pipeline"] = tokenizer.description
    return digest_bytes(json.dumps(made_of, sort_keys=True).encode("utf-8"))


def _listing(listed: Sequence[tuple[Source | Skipped, str]]) -> str:
    """A digest of the names, sizes and times of all files: other files, or files that were changed, are not resumed.

    Files at addresses have no time.
    """
    files = []
    for found, language in listed:
        times = [os.stat(found.name).st_mtime_ns] if isinstance(found, Source) and not address_of(found.name) else []
        files.append([dataclasses.asdict(found), language, times])
    return digest_bytes(json.dumps(files).encode("utf-8"))
