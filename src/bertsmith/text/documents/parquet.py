"""Records of Parquet files, a few at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bertsmith.text.documents.names import doubled
from bertsmith.text.documents.sources import BLOCK_BYTES, SourceStream, UnreadableError
from bertsmith.text.documents.urls import url_of

_ROWS = 64


# Selects the column to read, given the names of all columns and of those that contain text.
Choice = Callable[[Sequence[str], Sequence[str]], str]


def parquet_blocks(
    stream: SourceStream, column: str | Choice, url_column: str | None = None
) -> Iterator[tuple[list[Any], list[str]]]:
    """Lists of about a megabyte of the values of one column, texts or lists of sentences, and their URLs.

    Args:
        column: its name; "" selects `text`, `sentences` or the only suitable column. Or a function that selects it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(stream.seekable(), buffer_size=BLOCK_BYTES)
        schema = file.schema_arrow
        if isinstance(column, str):
            if twice := doubled(schema.names):
                raise UnreadableError(twice)
            name = _column(schema, column)
        else:
            name = column(schema.names, [field.name for field in schema if _is_text(field.type)])
        kinds = dict(zip(schema.names, schema.types, strict=True))
        has_urls = url_column in kinds and url_column != name and _is_text(kinds[url_column])
        columns = [name, *([url_column] if has_urls else [])]
        values: list[Any] = []
        urls: list[str] = []
        size = 0
        # Without a buffer size, or with threads, whole row groups would be kept in memory.
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False):
            names = batch.schema.names
            values += batch.column(names.index(name)).to_pylist()
            if has_urls:
                urls += map(url_of, batch.column(names.index(url_column)).to_pylist())
            size += batch.nbytes
            if size >= BLOCK_BYTES:
                yield values, urls
                values, urls, size = [], [], 0
        if values:
            yield values, urls
    except (pa.ArrowException, OSError) as error:
        raise UnreadableError(f"Parquet data that cannot be read ({error})") from None


def _column(schema: Any, wanted: str) -> str:
    import pyarrow as pa

    def is_usable(kind: Any) -> bool:
        inside = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        return _is_text(kind) or (inside and _is_text(kind.value_type))

    usable = [field.name for field in schema if is_usable(field.type)]
    for name in [wanted] if wanted else ["text", "sentences", *(usable if len(usable) == 1 else [])]:
        if name in usable:
            return name
    raise UnreadableError(f"no text column {wanted or 'text'!r} among {', '.join(map(repr, schema.names))}")


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
