"""A corpus whose blocks are read and encoded by the workers of a cluster, with the bytes that one process writes.

Readers cut files into blocks, workers encode them, and this process joins the results into documents and shards in the
order of the text, as `corpus.build` does. What has arrived is kept next to the corpus, in `CORPUS.partial/`, until the
corpus is complete: a run that was killed resumes after the last part that was kept.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.core.settings import require, to_dict
from bertsmith.base.storage.files import digest_bytes, digest_file
from bertsmith.base.storage.locks import locked_folder
from bertsmith.inference.cluster.engine import PART, Stage, stream
from bertsmith.inference.cluster.kept import Kept, digest_of_files
from bertsmith.inference.cluster.rows import (
    BLOCK,
    FAILURE,
    TEXT_ROWS,
    encoded_items,
    encoded_row,
    encoded_rows,
    failures,
    file_of,
    file_record,
    row_of,
    text_items,
    text_row,
)
from bertsmith.text.corpus.build import build_corpus
from bertsmith.text.corpus.encode import BlockEncoder, EncodedBlock, Item
from bertsmith.text.corpus.manifest import MANIFEST, read_manifest
from bertsmith.text.corpus.request import CorpusSettings
from bertsmith.text.corpus.shards import token_type
from bertsmith.text.documents.languages import SamplingSettings, language_sources
from bertsmith.text.documents.parsing import BlockCounts, TextBlock
from bertsmith.text.documents.readers import Document, ReadingSettings, source_blocks
from bertsmith.text.documents.sources import STDIN, Skipped, Source, find_sources
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer

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
    """
    out, settings = Path(out), settings or CorpusSettings()
    paths = list(texts)
    require(
        not any(isinstance(path, Document) or str(path) == STDIN for path in paths),
        expected="files and folders, which the workers of a cluster open themselves",
        found="stdin, or documents that have already been read",
        fix="write the text to a file, or leave --engine out",
    )
    by_language = sampling is not None and sampling.languages
    state = out.with_name(f"{out.name}.partial")
    with locked_folder(state):
        kept = Kept(state, "corpus", replace=replace, resume=resume)
        listed = list(language_sources(paths)) if by_language else [(file, "") for file in find_sources(paths)]
        made_of = {"tokenizer": _digest(tokenizer), "settings": to_dict(settings), "texts": digest_of_files(listed)}
        kept.require_same(made_of)
        if (out / MANIFEST).exists() and kept.is_complete({"manifest": digest_file(out / MANIFEST)}):
            manifest = read_manifest(out)
        else:

            def encode(_: Sequence[Path | str]) -> Iterator[Item]:
                # Only now it is known that `out` is free, or may be replaced.
                kept.begin(made_of)
                return _encoded(engine, listed, tokenizer, settings, kept, workers)

            options |= {**vars(settings), **vars(sampling or SamplingSettings())}
            manifest = build_corpus(paths, tokenizer, out, replace=replace, encode=encode, **options)
            kept.complete({"manifest": digest_file(out / MANIFEST)})
        kept.remove()
    return manifest


def _encoded(
    engine: str,
    listed: Sequence[tuple[Source | Skipped, str]],
    tokenizer: Tokenizer,
    settings: CorpusSettings,
    kept: Kept,
    workers: int | None,
) -> Iterator[Item]:
    """All items in order: first the items on disk, then the items that the cluster still has to make."""
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
    stage = Stage(
        worker=_Encoder,
        arguments=(tokenizer, settings.removes, settings.fingerprints),
        read=_read,
        workers=workers,
        size=sum(file.size for file, _ in listed[first:] if isinstance(file, Source)),
        resumes=True,
    )

    def intact(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            for expected, content, fix in failures(table):
                raise InputError(expected=expected, found=content, fix=fix)
            yield table

    with (
        contextlib.closing(stream(engine, _parts(listed, settings, first, skip), stage)) as tables,
        contextlib.closing(kept.adding(intact(tables))) as added,
    ):
        for table in added:
            yield from (item for _, _, item in encoded_items(table))


def _parts(
    listed: Sequence[tuple[Source | Skipped, str]], settings: CorpusSettings, first: int, skip: int
) -> list[dict[str, str]]:
    """The share of each reader: consecutive files, small ones together, from item `skip` of file `first` on."""
    reading = {field.name: getattr(settings, field.name) for field in dataclasses.fields(ReadingSettings)}
    groups: list[dict[str, Any]] = []
    size = _READ_TOGETHER
    for number, (file, language) in enumerate(listed):
        if number < first:
            continue
        if size >= _READ_TOGETHER:
            begins = {"first": number, "skip": skip if number == first else 0}
            groups.append({**begins, "files": [], "settings": reading, "url_column": settings.compared_urls})
            size = 0
        groups[-1]["files"].append([*file_record(file), language])
        size += file.size if isinstance(file, Source) else 0
    return [{PART: json.dumps(group)} for group in groups]


def _read(table: pa.Table) -> Iterator[pa.Table]:
    for text in table.column(PART).to_pylist():
        part = json.loads(text)
        settings, skip = ReadingSettings(**part["settings"]), part["skip"]
        for source, (kind, fields, language) in enumerate(part["files"], start=part["first"]):
            number = 0
            try:
                file = file_of(kind, fields)
                for number, item in enumerate(source_blocks(file, settings, url_column=part["url_column"])):
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

    def __init__(self, tokenizer: Tokenizer, words: bool, fingerprints: bool) -> None:
        self.encode = BlockEncoder(tokenizer, words=words, fingerprints=fingerprints)
        self.schema = encoded_rows(token_type(len(tokenizer.vocabulary)), words=words)

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
