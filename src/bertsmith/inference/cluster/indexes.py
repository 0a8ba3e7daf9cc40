"""Segments of an index that the workers of a cluster write.

The process that starts the build writes the rows of all segments. A worker writes the rest of a segment, its words and
vectors and what these are searched by, with the function that one process calls, into the folder of the index, which
all machines have at the same path. So the files are those of one process, and so is resuming.
"""

import contextlib
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.core.progress import Progress, quiet, warn
from bertsmith.inference.cluster.engine import (
    PART,
    Stage,
    another_model,
    num_gpus,
    raise_any,
    record_of,
    stream,
    use_threads,
)
from bertsmith.inference.indexes import parts
from bertsmith.inference.indexes.index import record_of as segment_of
from bertsmith.inference.indexes.parts import NewVectors
from bertsmith.inference.indexes.recipe import VectorsRecipe
from bertsmith.inference.indexes.rows import ROWS
from bertsmith.inference.indexes.segment import SegmentRecord, VectorsRecord
from bertsmith.inference.indexes.stored_vectors import StoredVectors
from bertsmith.inference.search.request import DENSE
from bertsmith.tasks.encoding.onnx_session import num_threads

_ROWS = "rows"  # the column with the numbers of the stored vectors of a segment, int64; empty if a model makes them


def completed_on(
    engine: str,
    recipe: VectorsRecipe,
    folder: Path,
    segments: Sequence[SegmentRecord],
    vectors: Mapping[str, NewVectors],
    recall: float,
    earlier: Sequence[SegmentRecord],
) -> list[SegmentRecord]:
    """The records of new segments, whose rows are written, once workers have written the rest; see `parts.completed`.

    Args:
        recipe: makes the vectors that are not in a file; none of tokens, whose segments share a coder.
    """
    threads = num_threads()
    stored = next((new.job for new in vectors.values() if isinstance(new.job, StoredVectors)), None)
    records = {kind: new.record for kind, new in vectors.items()}
    tasks, first = list[dict[str, Any]](), 0
    for segment in segments:
        numbers = b"" if stored is None else stored.numbers(first, segment.rows).tobytes()
        tasks.append({PART: json.dumps({"segment": dataclasses.asdict(segment), "first": first}), _ROWS: numbers})
        first += segment.rows
    stage = Stage(
        worker=_Worker,
        arguments=(str(folder.absolute()), recipe, records, stored and str(stored.path), recall, threads),
        workers=len(segments),
        threads=threads,
        gpus=0 if stored is not None else num_gpus(recipe.loading.get("device", "auto")),
        resumes=True,
    )
    written, counts = list[SegmentRecord](), {kind: Counter[str]() for kind in vectors}
    with (
        Progress("segments", total=first, unit="texts", how=engine) as progress,
        contextlib.closing(stream(engine, tasks, stage)) as tables,
    ):
        for record in (json.loads(text) for table in tables for text in table.column("record").to_pylist()):
            raise_any(record["failure"])
            written.append(segment_of(record["segment"]))
            for kind, added in record["counts"].items():
                counts[kind].update(added)
            progress.advance(written[-1].rows)
    for kind, new in vectors.items():
        for note in new.job.notes(counts[kind]):
            warn(note)
    return written


class _Worker:
    """Writes the words and vectors of segments."""

    def __init__(
        self,
        folder: str,
        recipe: VectorsRecipe,
        records: Mapping[str, VectorsRecord],
        stored: str | None,
        recall: float,
        threads: int,
    ) -> None:
        use_threads(threads)
        self.folder, self.recall, self.records = Path(folder), recall, records
        self.failure: dict[str, Any] | None = None
        try:
            with quiet():
                self.stored = None if stored is None else StoredVectors(Path(stored))
                self.vectors = recipe.vectors() if stored is None else {}
            if stored is None and {kind: new.record for kind, new in self.vectors.items()} != records:
                raise another_model(recipe.models)
        except BertsmithError as error:
            self.failure = record_of(error)

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        for row in table.to_pylist():
            result: dict[str, Any] = {"failure": self.failure}
            if self.failure is None:
                try:
                    with quiet(warnings=True):
                        result |= self._completed(json.loads(row[PART]), row[_ROWS])
                except BertsmithError as error:
                    result["failure"] = record_of(error)
            yield pa.table({"record": [json.dumps(result)]})

    def _completed(self, task: Mapping[str, Any], numbers: bytes) -> dict[str, Any]:
        segment, first, vectors = segment_of(task["segment"]), task["first"], self.vectors
        if not (self.folder / segment.name / ROWS).is_file():
            raise RunError(
                expected=f"the folder '{self.folder}' on every machine of the cluster",
                found="none on one of them",
                fix="name a folder that all machines share, or build an index on each machine and join them with "
                "`bertsmith index join`",
            )
        if self.stored is not None:
            job = self.stored.narrowed(np.frombuffer(numbers, np.int64))
            vectors, first = {DENSE: NewVectors(job=job, record=self.records[DENSE])}, 0
        before = {kind: Counter(new.job.counts()) for kind, new in vectors.items()}
        (whole,) = parts.completed(self.folder, [segment], vectors, self.recall, (), first)
        counts = {kind: Counter(new.job.counts()) - before[kind] for kind, new in vectors.items()}
        return {"segment": dataclasses.asdict(whole), "counts": counts}
