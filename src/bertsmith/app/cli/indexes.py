"""Commands that build and change indexes of texts."""

from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, print_json, say
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.inference.indexes.building import IndexChange
    from bertsmith.inference.indexes.request import (
        CompactIndexRequest,
        ExportIndexRequest,
        IndexRequest,
        JoinIndexesRequest,
        RemoveFromIndexRequest,
    )


def index(request: "IndexRequest", json: JsonOption = False) -> None:
    """Build an index of texts on disk, or add texts to one, for `bertsmith search INDEX`.

    Texts, ids and all columns of a table are kept, their words for BM25, and vectors: dense or sparse as float16, those
    of tokens as codes. With --also, one reading of the texts makes vectors of several kinds. Dense vectors may be in a
    file already (--vectors). Large indexes get cells of similar vectors (with faiss), of which a search reads as many
    as --recall needs; that is measured when they are built. --resume continues after Ctrl-C, a crash or a full disk;
    the result is byte-identical.
    """
    from bertsmith.app.library.indexes import build_index

    _print(call(build_index, request), json)


def remove(request: "RemoveFromIndexRequest", json: JsonOption = False) -> None:
    """Remove texts from an index by their ids; their space is freed by `bertsmith index compact`."""
    from bertsmith.app.library.indexes import remove_from_index

    _print(call(remove_from_index, request), json)


def compact(request: "CompactIndexRequest", json: JsonOption = False) -> None:
    """Join the small segments of an index, which every addition leaves, and drop removed texts."""
    from bertsmith.app.library.indexes import compact_index

    _print(call(compact_index, request), json)


def join(request: "JoinIndexesRequest", json: JsonOption = False) -> None:
    """Join indexes of the same model and columns, such as parts that several machines built, into a new one.

    No vector is computed, and where the file system has links, no file is copied. Of texts with the same id, that of
    the last index counts. The indexes stay as they are.
    """
    from bertsmith.app.library.indexes import join_indexes

    _print(call(join_indexes, request), json)


def export(request: "ExportIndexRequest") -> None:
    """Write the texts of an index to a Parquet file, with ids, columns and vectors, for DuckDB and other programs.

    Dense vectors are a fixed-size list of float32, sparse ones their indices and values. `bertsmith index X` makes an
    index of such a file.
    """
    from bertsmith.app.library.indexes import export_index

    say(f"{request.out}: {counted(call(export_index, request), 'text')}")


def _print(change: "IndexChange", json: bool) -> None:
    if json:
        print_json(change.to_dict())
        return
    say(*change.lines())
