"""Build, extend and search indexes of texts."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.app.library.index_models import rows_per_segment
from bertsmith.base.core.errors import ConfigError, InputError, nearest_path
from bertsmith.base.core.parameters import ComputeSettings
from bertsmith.base.core.progress import tell
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require
from bertsmith.base.processes.engines import is_cluster
from bertsmith.base.storage.files import digest_bytes, digest_file
from bertsmith.inference.cluster.indexes import completed_on
from bertsmith.inference.indexes import building, parts
from bertsmith.inference.indexes.building import IndexChange
from bertsmith.inference.indexes.exporting import export_rows
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.parts import NewVectors
from bertsmith.inference.indexes.recipe import VectorsRecipe, made_of_index
from bertsmith.inference.indexes.request import (
    CompactIndexRequest,
    ExportIndexRequest,
    IndexRequest,
    JoinIndexesRequest,
    RemoveFromIndexRequest,
)
from bertsmith.inference.indexes.segment import VectorsRecord
from bertsmith.inference.indexes.stored_vectors import StoredVectors, vector_columns
from bertsmith.inference.search.index import kind_of
from bertsmith.inference.search.passages import Record, read_records
from bertsmith.inference.search.request import DENSE, MANIFEST, TOKENS, is_index, named
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.files import require_place
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.inference.vectors.writers import VECTOR
from bertsmith.tasks.datasets.file_text import file_text, lines_of
from bertsmith.tasks.metrics.vectors import unit

_COMPARED = 8  # texts whose vectors are computed to compare them with those in a file
_EQUAL = 0.98  # the cosine of vectors that precisions alone make different


@takes(IndexRequest)
def build_index(request: IndexRequest) -> IndexChange:
    """The numbers of an index of texts, built or extended; their vectors are computed, or read from a file.

    Raises:
        BertsmithError: texts, vectors, model, options or folder do not fit; the message says which.
    """
    folder, path = Path(request.out), Path(request.texts)
    if not path.exists():
        raise InputError.missing(path, "file or folder", nearest_path(path) or "check the path")
    if is_index(path):
        raise InputError(
            expected=f"texts or vectors at '{path}'",
            found="an index",
            fix=f"add texts to it with --out '{path}' --add, or write its texts with `bertsmith index export`",
        )
    models = [each for each in (request.model, *request.also) if each is not None]
    extends = request.add and (not models or (folder / MANIFEST).is_file())
    before = Manifest.read(folder) if extends else None
    if before is not None and not models:
        models = [each.model for each in before.vectors.values() if each.model]
    sources = {"texts": _digest(path), "text_column": request.text_column or "", "encoding": request.encoding}
    stored = _stored_vectors(request)
    recipe = VectorsRecipe(
        models=models,
        loading=request.arguments(load_embedder),
        of_tokens=request.values(ComputeSettings),
        prompt=request.passage_prompt,
    )
    if stored is None:
        if not models:
            raise ConfigError(
                expected="a model that makes the vectors",
                found="none",
                fix="name one with --model, or the vectors with --vectors",
            )
        vectors = recipe.vectors()
    else:
        if stored.path != path:
            sources["vectors"] = digest_file(stored.path)
        require(
            len(models) < 2,
            expected="at most one model with vectors in a file",
            found=len(models),
            fix="leave --also out, or let the models make all vectors",
        )
        made_of = stored.made_of
        if request.model is not None or (models and not made_of):
            made_of = _checked(stored, recipe.embedder(models[0]), _records(request, stored))
        record = VectorsRecord(model=str(models[0] if models else ""), made_of=made_of, width=stored.width)
        chosen = _with_text(request, stored)
        job = stored if chosen is None else stored.narrowed(chosen)
        vectors = {DENSE: NewVectors(job=job, record=record)}
    complete: building.Complete = parts.completed
    if is_cluster(request.engine):
        require(
            TOKENS not in vectors,
            expected="--engine local for vectors of tokens",
            found=request.engine,
            fix="leave --engine out, or the model",
        )
        complete = functools.partial(completed_on, request.engine, recipe)
    return building.build_index(
        folder,
        _records(request, stored),
        vectors,
        sources=sources,
        needs_text=stored is None or chosen is not None,
        add=request.add,
        resume=request.resume,
        recall=request.recall,
        rows_per_segment=rows_per_segment({kind: new.record for kind, new in vectors.items()}, request),
        complete=complete,
    )


def _stored_vectors(request: IndexRequest) -> StoredVectors | None:
    """The vectors that the request names; None if a model makes them."""
    if request.vectors is not None:
        return StoredVectors(Path(request.vectors))
    path = Path(request.texts)
    return StoredVectors(path) if path.suffix.lower() == ".npy" or VECTOR in vector_columns(path) else None


def _records(request: IndexRequest, stored: StoredVectors | None) -> Iterator[Record]:
    """The rows of the index: the texts, as many as there are vectors if these are in a file."""
    path, number = Path(request.texts), 0
    records: Iterable[Record]
    if path.suffix.lower() == ".npy":
        records = (Record(str(row), "", "", is_numbered=True) for row in range(1, stored.rows + 1 if stored else 1))
    else:
        column, encoding = request.text_column, request.encoding
        without = [each for each in vector_columns(path) if each != VECTOR or stored is not None]
        records = read_records(path, kind="texts", text_column=column, encoding=encoding, without=without)
    for number, record in enumerate(records, start=1):
        if stored is not None and number > stored.rows:
            break
        # The lines of several files are in one index.
        yield record._replace(id=f"{path.name}:{record.id}") if record.is_numbered else record
    if stored is not None and number != stored.rows:
        raise InputError(
            expected=f"a text for each of the {stored.rows:,} vectors in '{stored.path}'",
            found=f"{'more' if number > stored.rows else f'{number:,}'} in '{path}'",
            fix="name the texts that the vectors were made of",
        )


def _with_text(request: IndexRequest, stored: StoredVectors) -> npt.NDArray[np.int64] | None:
    """The rows with a text, int64; None for all: where all have one, or none has."""
    if Path(request.texts).suffix.lower() == ".npy":
        return None
    has_text = np.fromiter((bool(record.text) for record in _records(request, stored)), bool)
    return None if has_text.all() or not has_text.any() else np.flatnonzero(has_text)


def _checked(stored: StoredVectors, embedder: Embedder, records: Iterable[Record]) -> dict[str, Any]:
    """What the vectors depend on if they are of a model, which is checked as far as files and texts allow."""
    made_of, recorded = made_of_index(embedder), stored.made_of
    wrong = [name for name in {**made_of, **recorded} if recorded and made_of.get(name) != recorded.get(name)]
    if (kind := kind_of(embedder)) != DENSE:
        wrong = [f"dense ones, and the model makes {named(kind)}"]
    elif stored.width != embedder.width:
        wrong = [f"width {stored.width} instead of {embedder.width}"]
    elif not recorded:
        texts = [record.text for record in itertools.islice(records, _COMPARED)]
        if any(texts):
            vectors = next(stored.vectors(texts, 0))[0]
            cosines = np.sum(unit(vectors) * unit(embedder.embed(texts)), axis=1)
            wrong = [f"cosines of {min(cosines):.2f} with its own"] if min(cosines) < _EQUAL else []
        else:
            tell(f"nothing says of which model the vectors in '{stored.path}' are; only their width was checked")
    if wrong:
        raise InputError(
            expected=f"vectors of this model in '{stored.path}'",
            found=f"others ({', '.join(wrong)})",
            fix="name the model and the settings that they were made with",
        )
    return made_of


@takes(RemoveFromIndexRequest)
def remove_from_index(request: RemoveFromIndexRequest) -> IndexChange:
    """The numbers of an index from which texts were removed.

    Raises:
        BertsmithError: an id is unknown, and nothing was removed, or there is no index.
    """
    ids = list(request.id)
    if request.ids is not None:
        text = file_text(Path(request.ids), kind="ids", encoding=request.encoding)
        ids += [line.strip() for line in lines_of(text) if line.strip()]
    return building.remove_rows(Path(request.index), ids)


@takes(CompactIndexRequest)
def compact_index(request: CompactIndexRequest) -> IndexChange:
    """The numbers of an index whose small segments were joined, and whose removed texts were dropped.

    Raises:
        BertsmithError: there is no index.
    """
    folder = Path(request.index)
    rows = rows_per_segment(Manifest.read(folder).vectors, request)
    return building.compact_index(folder, recall=request.recall, rows_per_segment=rows)


@takes(JoinIndexesRequest)
def join_indexes(request: JoinIndexesRequest) -> IndexChange:
    """The numbers of a new index of the texts of several; of texts with the same id, that of the last one counts.

    Raises:
        BertsmithError: an index is missing or of another model, or `out` is in use.
    """
    return building.join_indexes(Path(request.out), [Path(index) for index in request.indexes])


@takes(ExportIndexRequest)
def export_index(request: ExportIndexRequest) -> int:
    """The number of texts of an index that were written to a Parquet file with ids, columns and vectors.

    Raises:
        BertsmithError: there is no index, or `out` exists.
    """
    out = Path(request.out)
    require_place(out, inputs=[request.index], index=True, replace=request.replace)
    return export_rows(Index(Path(request.index)), out, replace=request.replace)


def _digest(path: Path) -> str:
    """The digest of a file, or of all files in a folder."""
    if not path.is_dir():
        return digest_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return digest_bytes(json.dumps([(str(file.relative_to(path)), digest_file(file)) for file in files]).encode())
