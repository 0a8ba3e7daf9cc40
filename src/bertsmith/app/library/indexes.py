"""Build, extend and search indexes of texts."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.requests import takes
from bertsmith.base.storage.files import digest_bytes, digest_file
from bertsmith.inference.indexes import building
from bertsmith.inference.indexes.building import IndexChange
from bertsmith.inference.indexes.index import Index, Manifest
from bertsmith.inference.indexes.request import CompactIndexRequest, IndexRequest, RemoveFromIndexRequest
from bertsmith.inference.search.index import maker_of
from bertsmith.inference.search.passages import Record, read_records
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.loading import load_embedder
from bertsmith.tasks.datasets.file_text import file_text, lines_of

# What may differ between the vectors of an index and those of its queries.
_OF_PASSAGES = ("prompt", "precision")


@takes(IndexRequest)
def build_index(request: IndexRequest) -> IndexChange:
    """The numbers of an index of texts, built or extended.

    Raises:
        BertsmithError: texts, model, options or folder do not fit; the message says which.
    """
    folder, path = Path(request.out), Path(request.texts)
    model = Manifest.read(folder).model if request.model is None else request.model
    embedder = load_embedder(model, **request.arguments(load_embedder)).for_passages(request.passage_prompt)
    if embedder.prompt:
        tell(f"prompt of the model for passages: {embedder.prompt!r}")
    made_of = {name: value for name, value in maker_of(embedder).items() if name != "precision"}

    def records() -> Iterator[Record]:
        for record in read_records(path, kind="texts", text_column=request.text_column, encoding=request.encoding):
            # The lines of several files are in one index.
            yield record._replace(id=f"{path.name}:{record.id}") if record.is_numbered else record

    return building.build_index(
        folder,
        records(),
        embedder,
        model=str(model),
        made_of=made_of,
        sources={"texts": _digest(path), "text_column": request.text_column or "", "encoding": request.encoding},
        add=request.add,
        resume=request.resume,
        recall=request.recall,
        rows_per_segment=request.segment_rows,
    )


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
    return building.compact_index(Path(request.index), recall=request.recall, rows_per_segment=request.segment_rows)


def index_embedder(index: Index, model: str | Path | None, settings: Mapping[str, Any]) -> Embedder:
    """The embedder for queries of an index, without their prompt.

    Args:
        model: None for the one that the index names.
        settings: of `ComputeSettings`.

    Raises:
        InputError: the vectors of the index are of another model or other settings.
    """
    made_of = index.manifest.made_of
    limits = {name: made_of[name] for name in ("pooling", "max_length")}
    loaded = load_embedder(index.manifest.model if model is None else model, characters=0, **limits, **settings)
    known = {name: value for name, value in maker_of(loaded).items() if name not in _OF_PASSAGES}
    if other := [name for name in known if known[name] != made_of.get(name)]:
        raise InputError(
            expected=f"the model of the vectors in '{index.folder}'",
            found=f"another ({', '.join(other)})",
            fix="name that model with --model, or build the index again",
        )
    return loaded


def _digest(path: Path) -> str:
    """The digest of a file, or of all files in a folder."""
    if not path.is_dir():
        return digest_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return digest_bytes(json.dumps([(str(file.relative_to(path)), digest_file(file)) for file in files]).encode())
