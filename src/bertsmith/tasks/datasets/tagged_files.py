"""Files of tagged sentences, of entities or of parts of speech: the format is detected from the content."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.settings import require
from bertsmith.tasks.datasets.conll import read_conll
from bertsmith.tasks.datasets.examples import MARKED, NESTED_NER, EntityExample, Example, ExampleFile, TaggedExample
from bertsmith.tasks.datasets.file_text import file_head, file_text, quoted, suffix_of
from bertsmith.tasks.datasets.label_spelling import in_scheme
from bertsmith.tasks.datasets.labels import scheme_of_names
from bertsmith.tasks.datasets.marked_texts import SPANS
from bertsmith.tasks.datasets.parquet_records import parquet_records
from bertsmith.tasks.datasets.records import json_records
from bertsmith.tasks.datasets.spans import has_spans, read_spans
from bertsmith.tasks.datasets.standoff import is_bioc, is_brat, is_pubtator, read_bioc, read_brat, read_pubtator
from bertsmith.tasks.datasets.tables import columns_of, read_table
from bertsmith.tasks.datasets.tagged_records import (
    has_entities,
    has_words,
    is_word_table,
    read_token_entities,
    read_token_records,
    read_word_table,
)
from bertsmith.tasks.datasets.values import looks_like_json
from bertsmith.tasks.metrics.entities import entity_spans
from bertsmith.text.documents.encodings import UTF_8

_OF_DOCUMENTS = ((is_bioc, read_bioc), (is_pubtator, read_pubtator))
_TABLES = (".csv", ".tsv", ".xlsx", ".parquet")
COLUMNS, RECORDS, WORD_TABLE, PARQUET, DOCUMENTS = FORMS = ("columns", "records", "word table", "parquet", "documents")


def read_tagged(
    task: str,
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    word_column: int = 0,
    tag_column: int = -1,
    scheme: str = "",
    gold: bool = True,
    encoding: str = UTF_8,
) -> ExampleFile:
    """The sentences of a file, or of a folder of brat; for the tasks in `MARKED` with entities in place of tags.

    Args:
        scheme: of the tags that marked spans are read as; by default IOB2. SPANS for entities in place of tags.
    """
    if task in MARKED:
        file = read_tagged(
            "ner",
            path,
            text_column=text_column,
            label_column=label_column,
            word_column=word_column,
            tag_column=tag_column,
            scheme=SPANS,
            gold=gold,
            encoding=encoding,
        )
        return dataclasses.replace(file, examples=_with_entities(file.examples))
    reader = _document_reader(path, encoding)
    has_columns = reader is None and not (
        has_spans(path, encoding=encoding) or suffix_of(path) in (".parquet", ".xlsx")
    )
    require(
        has_columns or (word_column, tag_column) == (0, -1),
        expected=f"columns of words and tags in '{path}'",
        found="JSON, which has none" if reader is None else "a format that has none",
        fix="omit --word-column and --tag-column",
    )
    if reader is not None:
        if task != "ner":
            raise InputError.at(quoted(path), "a tag for each word", "marked spans", f"use --task ner or {NESTED_NER}")
        return reader(path, scheme=scheme or "IOB2", encoding=encoding)
    if suffix_of(path) in _TABLES and is_word_table(_columns(path, encoding)):
        return read_word_table(path, read_table(path, encoding=encoding), task, label_column=label_column, gold=gold)
    if has_columns:
        return read_conll(path, word_column=word_column, tag_column=tag_column, task=task, encoding=encoding)
    records = tagged_records(path, encoding)
    first = next(records, None)
    if first is None:
        raise InputError(expected=f"sentences in {quoted(path)}", found="no rows", fix="name another file")
    records = itertools.chain([first], records)
    if scheme == SPANS and gold and label_column is None and has_entities(first[1]):
        return read_token_entities(path, records)
    if has_words(first[1]):
        return read_token_records(path, records, task, label_column=label_column, gold=gold)
    if task == "ner" or not gold:
        return read_spans(path, text_column=text_column, scheme=scheme or "IOB2", gold=gold, records=records)
    return read_conll(path, word_column=word_column, tag_column=tag_column, task=task, encoding=encoding)


def form_of(path: Path, *, encoding: str = UTF_8) -> str:
    """The form of a file that `read_tagged` reads: one of `FORMS`."""
    if _document_reader(path, encoding) is not None:
        return DOCUMENTS
    if suffix_of(path) in _TABLES and is_word_table(_columns(path, encoding)):
        return WORD_TABLE
    if suffix_of(path) == ".parquet":
        return PARQUET
    return RECORDS if has_spans(path, encoding=encoding) else COLUMNS


def _document_reader(path: Path, encoding: str) -> Callable[..., ExampleFile] | None:
    """The reader of a format of whole documents; None for other files."""
    if is_brat(path):
        return read_brat
    if path.is_dir() or suffix_of(path) in _TABLES:
        return None
    return next((read for fits, read in _OF_DOCUMENTS if fits(path, encoding=encoding)), None)


def _with_entities(examples: Sequence[Example]) -> tuple[Example, ...]:
    """The sentences with the entities that their tags mark; those without tags as they are."""
    sentences = [cast("TaggedExample", example) for example in in_scheme(examples)]
    tagged = [sentence for sentence in sentences if sentence.tags is not None]
    scheme = scheme_of_names(tagged) if tagged else ""
    return tuple(
        sentence
        if sentence.tags is None
        else EntityExample.of(
            sentence, ((start, end, kind or "entity") for kind, start, end in entity_spans(sentence.tags, scheme))
        )
        for sentence in sentences
    )


def _columns(path: Path, encoding: str) -> list[str]:
    """The names of the columns of a table; empty if the file is not a table."""
    if suffix_of(path) in (".csv", ".tsv"):
        head = file_head(path, encoding=encoding).lstrip("\n\r")
        if looks_like_json(head) or not is_word_table(_cells_of(head)):
            return []
    return columns_of(path, encoding=encoding)


def _cells_of(head: str) -> list[str]:
    """The possible names of columns in the first line of a file."""
    lines = head.replace("\r", "\n").split("\n", 1)
    return [cell.strip(' "') for mark in ",;\t" for cell in lines[0].split(mark)]


def tagged_records(path: Path, encoding: str) -> Iterator[tuple[str, Any]]:
    """The records of a file with their locations."""
    if suffix_of(path) == ".parquet":
        return parquet_records(path)
    return json_records(
        path, file_text(path, kind="texts with marked spans", encoding=encoding), lines=suffix_of(path) == ".jsonl"
    )
