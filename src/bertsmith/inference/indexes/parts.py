"""Writes the parts of new segments: words, vectors of each kind, and what these are searched by.

Every stage is resumable, and a function of the rows of the segments and the settings. Memory holds the vectors of one
block, and the different words and the cells of one segment.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from bertsmith.base.core.errors import NotFiniteError
from bertsmith.base.core.progress import Progress, counted, tell, warn
from bertsmith.base.storage.arrays import load_array
from bertsmith.base.storage.files import atomic_file
from bertsmith.inference.indexes import token_vectors
from bertsmith.inference.indexes.rows import TEXT, Rows, refused_if_damaged
from bertsmith.inference.indexes.segment import Ints, Segment, SegmentRecord, VectorsRecord
from bertsmith.inference.indexes.segment_vectors import VECTORS
from bertsmith.inference.indexes.sparse_vectors import SPARSE_VECTORS, TERMS, write_terms
from bertsmith.inference.indexes.token_vectors import (
    CODER,
    TOKEN_CELLS,
    TOKEN_VECTORS,
    TokenVectors,
    write_token_cells,
)
from bertsmith.inference.indexes.words import has_words, write_words
from bertsmith.inference.search.cells import CELLS, LEAST_ROWS, SEED, Cells, has_faiss, write_cells
from bertsmith.inference.search.postings import TextColumn
from bertsmith.inference.search.request import DENSE, SPARSE, TOKENS, WORDS, named
from bertsmith.inference.search.token_codes import TokenCoder
from bertsmith.inference.vectors.files import VectorFile
from bertsmith.inference.vectors.writers import CodesWriter
from bertsmith.tasks.metrics.vectors import unit

if TYPE_CHECKING:
    from bertsmith.inference.vectors.jobs import VectorJob

_BLOCK = 2048  # texts whose vectors are computed and saved together
_FILES = {DENSE: VECTORS, SPARSE: SPARSE_VECTORS, TOKENS: TOKEN_VECTORS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewVectors:
    """Vectors that are made for an index: how, and what its manifest says of them."""

    job: "VectorJob"
    record: VectorsRecord


def completed(
    folder: Path,
    segments: Sequence[SegmentRecord],
    vectors: Mapping[str, NewVectors],
    recall: float,
    earlier: Sequence[SegmentRecord],
    first_row: int = 0,
) -> list[SegmentRecord]:
    """The records of new segments, whose rows are written, once the rest of them is written.

    Args:
        vectors: by kind.
        earlier: the other segments of the index.
        first_row: the number of the first row of the segments among all new ones.
    """
    segments = with_words(folder, segments)
    for kind, new in vectors.items():
        segments = with_vectors(folder, segments, kind, new, earlier, first_row)
    return [searchable(folder, each, recall) for each in segments]


def with_words(folder: Path, segments: Sequence[SegmentRecord]) -> list[SegmentRecord]:
    """The records of new segments with words, once those that are missing are written."""
    missing = [each for each in segments if not has_words(folder / each.name)]
    if missing:
        with Progress("words", total=sum(each.rows for each in missing), unit="texts") as progress:
            for segment in missing:
                write_words(folder / segment.name, _texts(Rows(folder / segment.name), segment.rows, progress))
    return [dataclasses.replace(each, parts=(WORDS, *each.parts)) for each in segments]


def _texts(rows: Rows, count: int, progress: Progress) -> Iterator[str]:
    for first in range(0, count, _BLOCK):
        texts = rows.texts(first, min(first + _BLOCK, count))
        yield from texts
        progress.advance(len(texts))


def with_vectors(
    folder: Path,
    segments: Sequence[SegmentRecord],
    kind: str,
    new: NewVectors,
    earlier: Sequence[SegmentRecord],
    first_row: int,
) -> list[SegmentRecord]:
    """The records of new segments with vectors of a kind, once those that are missing are written; see `completed`."""
    job, encode = new.job, _encoding(folder, segments, kind, new.job, earlier)
    counts = Counter(job.counts())
    total = sum(each.rows for each in segments)
    with Progress(named(kind), total=total, unit="texts", how=job.made_of.get("precision", "")) as progress:
        for segment in segments:
            rows = Rows(folder / segment.name)

            def blocks(
                start: int, rows: Rows = rows, count: int = segment.rows, first_row: int = first_row
            ) -> Iterator[Any]:
                progress.advance(start)
                for first in range(start, count, _BLOCK):
                    texts = rows.texts(first, min(first + _BLOCK, count))
                    try:
                        for vectors, _ in job.vectors(texts, first_row + first):
                            yield encode(vectors)
                    except NotFiniteError as error:
                        raise NotFiniteError(first + error.index) from None
                    progress.advance(len(texts))

            write_vectors_of(folder / segment.name, kind, job.width, new.record.made_of, blocks)
            first_row += segment.rows
    for note in job.notes(Counter(job.counts()) - counts):
        warn(note)
    return [dataclasses.replace(each, parts=(*each.parts, kind)) for each in segments]


def _encoding(
    folder: Path, segments: Sequence[SegmentRecord], kind: str, job: "VectorJob", earlier: Sequence[SegmentRecord]
) -> Callable[[Any], Any]:
    """Returns the vectors of a job as they are stored; writes the coder of each segment if they are of tokens."""
    if kind == SPARSE:
        return lambda vectors: vectors
    if kind == DENSE:
        return unit
    source = folder / (earlier or segments)[0].name
    if not (source / CODER).exists():
        tell("fitting centroids to vectors of tokens")
        texts = TextColumn(Rows(source).table[TEXT])
        cast("Any", job).coder(texts).save(source / CODER)
    copy_coder(source, [folder / each.name for each in segments])
    with refused_if_damaged(source):
        return TokenCoder.load(source / CODER).encode


def copy_coder(source: Path, segments: Sequence[Path]) -> None:
    """Copies the coder of a segment to others that lack it."""
    for segment in segments:
        if not (segment / CODER).exists():
            with atomic_file(segment / CODER) as file:
                file.write((source / CODER).read_bytes())


def write_vectors_of(
    segment: Path, kind: str, width: int, made_of: Mapping[str, Any], blocks: Callable[[int], Iterator[Any]]
) -> None:
    """Writes the vectors of a segment, or the rest of them.

    Args:
        blocks: the vectors from a row on, in parts.
    """
    writer = None
    if kind == TOKENS:
        writer, width = CodesWriter, TokenCoder.load(segment / CODER).stored_bytes
    with VectorFile(segment / _FILES[kind], made_of, width, half=True, resume=True, writer=writer) as file:
        if not file.is_complete:
            for vectors in blocks(file.rows):
                file.append(vectors)
                file.commit({})
            file.finish()


def copy_vectors(segment: Path, kind: str, width: int, pieces: Sequence[tuple[Segment, Ints]]) -> None:
    """Writes the vectors of rows of other segments, with the same coder if they are of tokens, to a new one."""

    def blocks(first: int) -> Iterator[Any]:
        assert not first, "a new segment"
        for part, rows in pieces:
            for start in range(0, len(rows), _BLOCK):
                with refused_if_damaged(part.folder):
                    vectors = part.vectors[kind].stored(rows[start : start + _BLOCK])
                yield vectors

    if kind == TOKENS:
        copy_coder(pieces[0][0].folder, [segment])
    write_vectors_of(segment, kind, width, {}, blocks)


def searchable(folder: Path, record: SegmentRecord, recall: float) -> SegmentRecord:
    """The record of a segment with what its vectors are searched by, where that is not the vectors themselves."""
    if SPARSE in record.parts and not (folder / record.name / f"{TERMS}.arrow").exists():
        tell(f"{record.name}: terms of {counted(record.rows, 'vector')}")
        write_terms(folder / record.name)
    record = _with_cells(folder, record, recall) if DENSE in record.parts else record
    return _with_token_cells(folder, record, recall) if TOKENS in record.parts else record


def _with_cells(folder: Path, record: SegmentRecord, recall: float) -> SegmentRecord:
    """The record of a segment with cells, if it is large; without faiss its rows stay in no cells, with a notice."""
    if record.rows < LEAST_ROWS:
        return record
    if not has_faiss():
        warn(
            "faiss is not installed, so searches compare all rows; pip install 'bertsmith[index]', then `index compact`"
        )
        return record
    path = folder / record.name / CELLS
    vectors = load_array(folder / record.name / VECTORS)
    if not path.exists():
        tell(f"{record.name}: cells of {counted(record.rows, 'vector')}")
        write_cells(path, vectors, SEED)
    tuning = Cells.open(path, vectors).tuned(recall, SEED)
    tell(f"{record.name}: searches of {counted(tuning.probes, 'cell')} find {tuning.recall:.1%} of the 10 nearest")
    return dataclasses.replace(record, probes=tuning.probes, recall=tuning.recall)


def _with_token_cells(folder: Path, record: SegmentRecord, recall: float) -> SegmentRecord:
    """The record of a segment whose vectors of tokens are found by their centroids, if it is large."""
    if record.rows < token_vectors.LEAST_ROWS:
        return record
    vectors = TokenVectors(folder / record.name, record.rows)
    if not (folder / record.name / f"{TOKEN_CELLS}.arrow").exists():
        tell(f"{record.name}: centroids of the tokens of {counted(record.rows, 'text')}")
        write_token_cells(folder / record.name, vectors)
    compared = TokenVectors(folder / record.name, record.rows, 1).tuned(recall, SEED)
    tell(f"{record.name}: {compared.probes:,} compared texts have {compared.recall:.1%} of the 10 nearest by tokens")
    return dataclasses.replace(record, compared=compared.probes, recall=min(record.recall, compared.recall))


def is_whole(record: SegmentRecord) -> bool:
    """Whether a segment has words, and what its vectors are searched by unless it can have none."""
    has_cells = DENSE not in record.parts or record.probes > 0 or record.rows < LEAST_ROWS or not has_faiss()
    has_tokens = TOKENS not in record.parts or record.compared > 0 or record.rows < token_vectors.LEAST_ROWS
    return WORDS in record.parts and has_cells and has_tokens
