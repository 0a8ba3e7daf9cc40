"""Blocks of text and of ids as rows of Arrow tables, which is how they travel and how they are kept on disk.

A row has the number of its file (`source`), its number in that file (`item`), a `kind`, a JSON `record`, and the bytes
or ids. After the blocks of a file comes its own record, so the rows of a file end with one that is not a block.
"""

import dataclasses
import json
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.addresses import address_of
from bertsmith.text.corpus.duplicates import BANDS
from bertsmith.text.corpus.encode import EncodedBlock, EncodedPart, Item
from bertsmith.text.corpus.shards import Words
from bertsmith.text.documents.parsing import BlockCounts, TextBlock
from bertsmith.text.documents.readers import FileRead
from bertsmith.text.documents.sources import Skipped, Source
from bertsmith.text.tokenizers.encoded import offsets_of

BLOCK, FILE, SKIPPED, FAILURE = "block", "file", "skipped", "failure"
_PLACE = [("source", pa.int64()), ("item", pa.int64()), ("kind", pa.string()), ("record", pa.string())]
TEXT_ROWS = pa.schema([*_PLACE, ("data", pa.large_binary())])
_COUNTS = ("words", "sentences_without_tokens", "read_bytes", "language", "characters", "unknown")


def encoded_rows(dtype: type[np.unsignedinteger[Any]], *, words: bool = False) -> pa.Schema:
    """The columns of encoded rows; the parts of a block follow each other in the flat columns."""
    flat = {
        "tokens": pa.from_numpy_dtype(dtype),
        "token_counts": pa.int64(),
        "sentence_lengths": pa.uint32(),
        "sentence_counts": pa.int64(),
        "keys": pa.uint64(),
        "ends": pa.bool_(),
        "bands": pa.uint32(),
        **({"words": pa.uint64(), "word_counts": pa.uint32()} if words else {}),
    }
    return pa.schema([*_PLACE, *((name, pa.large_list(kind)) for name, kind in flat.items())])


def file_record(file: Source | Skipped) -> tuple[str, dict[str, Any]]:
    """(the kind, the fields) of a file, as plain values for JSON."""
    return type(file).__name__, dataclasses.asdict(file)


def file_of(kind: str, fields: dict[str, Any]) -> Source | Skipped:
    """The file of a `file_record`, on the machine of a worker."""
    if kind != Source.__name__:
        return Skipped(**fields)
    source = Source(**fields)
    if address_of(source.name) is None and os.path.isfile(source.name):
        size = os.stat(source.name).st_size
        if size != source.size:
            raise InputError(
                expected=f"the same file '{source.shown}' on all machines of the cluster, of {source.size:,} bytes",
                found=f"one of {size:,} bytes on {socket.gethostname()}",
                fix="copy it there, or start again when nothing writes it",
            )
    return source


def text_row(item: TextBlock | FileRead | Skipped, source: int, number: int) -> pa.Table:
    """One row of `TEXT_ROWS`."""
    if isinstance(item, TextBlock):
        record = {name: value for name, value in vars(item).items() if name != "data"}
        is_bytes = isinstance(item.data, bytes)
        data = item.data if is_bytes else json.dumps(item.data).encode("ascii")
        return row_of(TEXT_ROWS, source, number, BLOCK, {**record, "is_bytes": is_bytes}, [data])
    kind = FILE if isinstance(item, FileRead) else SKIPPED
    return row_of(TEXT_ROWS, source, number, kind, dataclasses.asdict(item))


def row_of(
    schema: pa.Schema, source: int, number: int, kind: str, record: dict[str, Any], columns: Sequence[Any] = ()
) -> pa.Table:
    """One row; `columns` are the values of the columns after the record, which are all empty if none are given."""
    values = [source, number, kind, json.dumps(record)]
    empty: list[Any] = [None if pa.types.is_large_binary(field.type) else [] for field in schema][len(values) :]
    arrays = [
        _one(value, field.type) if isinstance(value, np.ndarray | bytes) else pa.array([value], field.type)
        for value, field in zip([*values, *(columns or empty)], schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def text_items(table: pa.Table) -> Iterator[tuple[int, int, str, dict[str, Any], TextBlock | None]]:
    """The rows of a table of `TEXT_ROWS`: source, number, kind, record, and the block if it is one."""
    for row in range(len(table)):
        source, number, kind, text = (table.column(column)[row].as_py() for column in range(len(_PLACE)))
        record = json.loads(text)
        if kind != BLOCK:
            yield source, number, kind, record, None
            continue
        data = table.column("data")[row].as_py()
        is_bytes = record.pop("is_bytes")
        yield source, number, kind, record, TextBlock(**record, data=data if is_bytes else json.loads(data))


def encoded_row(block: EncodedBlock, source: int, number: int, schema: pa.Schema) -> pa.Table:
    """One row of `encoded_rows`."""
    parts = block.parts
    record: dict[str, Any] = {"source": block.source, "counts": dataclasses.asdict(block.counts)}
    record["failure"] = block.failure
    record |= {name: getattr(block, name) for name in _COUNTS}
    if any(part.url for part in parts):
        record["urls"] = [part.url for part in parts]
    tokens = np.concatenate(
        [np.empty(0, schema.field("tokens").type.value_type.to_pandas_dtype()), *_all(parts, "tokens")]
    )
    lengths = np.concatenate([np.empty(0, np.uint32), *_all(parts, "sentence_lengths")])
    columns = [
        tokens,
        np.array([len(part.tokens) for part in parts], dtype=np.int64),
        lengths,
        np.array([len(part.sentence_lengths) for part in parts], dtype=np.int64),
        np.array([part.key for part in parts], dtype=np.uint64),
        np.array([part.ends for part in parts], dtype=np.bool_),
        np.concatenate([np.empty(0, np.uint32), *(part.bands for part in parts if part.bands is not None)]),
    ]
    if "words" in schema.names:
        words, counts = zip((np.empty(0, np.uint64), np.empty(0, np.uint32)), *_all(parts, "words"), strict=True)
        columns += [np.concatenate(words), np.concatenate(counts)]
    return row_of(schema, source, number, BLOCK, record, columns)


def encoded_items(table: pa.Table) -> Iterator[tuple[int, int, Item]]:
    """The rows of a table of `encoded_rows`: source, number, and the block or record."""
    for row in range(len(table)):
        source, number, kind, text = (table.column(column)[row].as_py() for column in range(len(_PLACE)))
        record = json.loads(text)
        if kind == FILE:
            yield source, number, FileRead(**record)
        elif kind == SKIPPED:
            yield source, number, Skipped(**record)
        else:
            yield source, number, _block(table, row, record)


def failures(table: pa.Table) -> Iterator[Any]:
    """Of the blocks of a table of `encoded_rows` that failed, why; nothing else is decoded."""
    for kind, record in zip(table.column("kind").to_pylist(), table.column("record").to_pylist(), strict=True):
        if kind == BLOCK and (failure := json.loads(record)["failure"]) is not None:
            yield failure


def _block(table: pa.Table, row: int, record: dict[str, Any]) -> EncodedBlock:
    tokens, token_counts, lengths, sentence_counts, keys, ends, bands, *words = (
        table.column(column)[row].values.to_numpy(zero_copy_only=False)
        for column in range(len(_PLACE), table.num_columns)
    )
    token_ends, sentence_ends = offsets_of(token_counts), offsets_of(sentence_counts)
    word_ends = offsets_of(words[1]) if words else sentence_ends
    hashes = iter(bands.reshape(-1, BANDS))  # of the parts with tokens, or none at all
    urls = record.get("urls") or [""] * len(keys)
    parts = [
        EncodedPart(
            source=record["source"],
            tokens=tokens[token_ends[part] : token_ends[part + 1]],
            sentence_lengths=lengths[sentence_ends[part] : sentence_ends[part + 1]],
            key=int(keys[part]),
            ends=bool(ends[part]),
            words=_words_of(words, word_ends, sentence_ends[part : part + 2]) if words else None,
            bands=next(hashes, None) if token_counts[part] else None,
            url=urls[part],
        )
        for part in range(len(keys))
    ]
    failure = record["failure"]
    return EncodedBlock(
        source=record["source"],
        parts=parts,
        counts=BlockCounts(**record["counts"]),
        failure=None if failure is None else tuple(failure),
        **{name: record[name] for name in _COUNTS},
    )


def _words_of(
    columns: Sequence[npt.NDArray[Any]], word_ends: npt.NDArray[np.int64], sentences: npt.NDArray[np.int64]
) -> Words:
    """The words of the sentences of a part, which are between two numbers."""
    words, counts = columns
    begin, end = sentences
    return words[word_ends[begin] : word_ends[end]], counts[begin:end]


def _all(parts: Sequence[EncodedPart], name: str) -> list[Any]:
    return [getattr(part, name) for part in parts]


def _one(values: Any, kind: pa.DataType) -> pa.Array:
    """An array with `values`, an array or bytes, as its only list, or only bytes; they are not copied."""
    if isinstance(values, bytes):
        ends = pa.py_buffer(np.array([0, len(values)], dtype=np.int64))
        return pa.LargeBinaryArray.from_buffers(kind, 1, [None, ends, pa.py_buffer(values)])
    flat = pa.array(values, kind.value_type)
    return pa.LargeListArray.from_arrays(pa.array([0, len(flat)], pa.int64()), flat, type=kind)
