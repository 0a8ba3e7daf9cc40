"""Vectors of a file's texts, computed block by block by the workers of a cluster.

A reader cuts the file into the blocks that one process would compute, each worker keeps the model, and this process
appends the results to the vector file in order. So the file, its record and resuming are those of
`inference.vectors.jobs`.
"""

import contextlib
import io
import itertools
import json
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from bertsmith.base.core.errors import BertsmithError, RunError
from bertsmith.base.core.settings import to_dict
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
from bertsmith.inference.vectors.jobs import JobRecipe, VectorJob
from bertsmith.inference.vectors.writers import Columns, Vectors
from bertsmith.tasks.datasets.blocks import text_blocks
from bertsmith.tasks.datasets.text_lines import RunningDigest, TextLines
from bertsmith.tasks.encoding.onnx_session import num_threads
from bertsmith.text.documents.encodings import EncodingSettings


class ClusterVectors(VectorJob):
    """A job whose blocks are computed by the workers of a cluster; `close` ends their work.

    Args:
        job: the same job in this process, which computes nothing.
    """

    def __init__(self, engine: str, recipe: JobRecipe, job: VectorJob, source: TextLines) -> None:
        self.engine, self.recipe, self.job, self.source = engine, recipe, job, source
        self.block, self.index = job.block, job.index
        self._counts: Counter[str] = Counter(dict.fromkeys(job.counts(), 0))
        self._results: Iterator[dict[str, Any]] | None = None
        self._open = contextlib.ExitStack()

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.job.width

    @property
    def made_of(self) -> dict[str, Any]:
        """See `VectorJob`."""
        return self.job.made_of

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Vectors, Columns]]:
        """See `VectorJob`; the texts are the next block of the file."""
        if self._results is None:
            self._results = self._open.enter_context(contextlib.closing(self._stream(first)))
        for row in self._results:
            record = json.loads(row["record"])
            raise_any(record["failure"])
            if (row["first"], record["texts"]) != (first, len(texts)):
                raise RunError(
                    expected=f"{len(texts):,} texts from text {first + 1:,} of '{self.source.path}' on every machine",
                    found=f"{record['texts']:,} from text {row['first'] + 1:,}",
                    fix="see that all machines have the same file",
                )
            if record["digest"] != _digest(texts):
                raise RunError(
                    expected=f"the same texts from text {first + 1:,} of '{self.source.path}' on every machine",
                    found="others on one of them",
                    fix="see that all machines have the same file",
                )
            columns = pa.ipc.open_stream(row["columns"]).read_all()
            arrays = {name: columns.column(name).combine_chunks() for name in columns.column_names}
            yield np.frombuffer(row["vectors"], np.float32).reshape(-1, self.width), arrays
            if row["ends"]:
                self._counts.update(record["counts"])
                return
        raise RunError(
            expected=f"vectors from text {first + 1:,} of '{self.source.path}' on",
            found="no more",
            fix="see that all machines have the same file",
        )

    def counts(self) -> dict[str, int]:
        """See `VectorJob`."""
        return dict(self._counts)

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """See `VectorJob`."""
        return self.job.notes(counts)

    def close(self) -> None:
        """Ends the work of the cluster."""
        self._open.close()

    def _stream(self, first: int) -> Generator[dict[str, Any], None, None]:
        part = {
            "path": self.source.path,
            "column": self.source.column,
            "reading": to_dict(self.source.reading),
            "first": first,
            "block": self.block,
        }
        stage = Stage(
            worker=_Worker,
            arguments=(self.recipe, json.dumps(self.made_of), num_threads()),
            read=_read,
            threads=num_threads(),
            gpus=num_gpus(self.recipe.loading.get("device", "auto")),
            resumes=True,
        )
        with contextlib.closing(stream(self.engine, [{PART: json.dumps(part)}], stage)) as tables:
            for table in tables:
                yield from table.to_pylist()


def _read(table: pa.Table) -> Iterator[pa.Table]:
    for text in table.column(PART).to_pylist():
        part = json.loads(text)
        first = part["first"]
        source = TextLines(part["path"], part["column"], EncodingSettings(**part["reading"]))
        texts = itertools.islice(iter(source), first, None)
        for block in text_blocks(texts, part["block"]):
            data = [line.encode("utf-8", "surrogatepass") for line in block]
            yield pa.table({"first": [first], "texts": pa.array([data], pa.large_list(pa.large_binary()))})
            first += len(block)


class _Worker:
    """Computes the vectors of blocks."""

    def __init__(self, recipe: JobRecipe, made_of: str, threads: int) -> None:
        use_threads(threads)
        self.job: VectorJob | None = None
        self.failure: dict[str, Any] | None = None
        try:
            self.job = recipe.job()
            if json.dumps(self.job.made_of) != made_of:
                raise another_model([recipe.model])
        except BertsmithError as error:
            self.failure = record_of(error)

    def __call__(self, table: pa.Table) -> Iterator[pa.Table]:
        for row in table.to_pylist():
            yield from self._rows(row["first"], [data.decode("utf-8", "surrogatepass") for data in row["texts"]])

    def _rows(self, first: int, texts: list[str]) -> Iterator[pa.Table]:
        """A row for each array of vectors that the job yields for a block; the last one has the counts."""
        record: dict[str, Any] = {"failure": self.failure, "texts": len(texts), "digest": _digest(texts)}
        results: list[tuple[Vectors, Columns]] = []
        if self.job is not None and self.failure is None:
            before = self.job.counts()
            try:
                results = list(self.job.vectors(texts, first))
            except BertsmithError as error:
                record["failure"] = record_of(error)
            record["counts"] = {name: count - before[name] for name, count in self.job.counts().items()}
        if record["failure"] is not None:
            results = [(np.empty((0, 1), np.float32), {})]
        for number, (vectors, columns) in enumerate(results, start=1):
            yield pa.table(
                {
                    "first": [first],
                    "vectors": pa.array([np.ascontiguousarray(vectors, np.float32).tobytes()], pa.large_binary()),
                    "columns": pa.array([_stored(pa.table(dict(columns)))], pa.large_binary()),
                    "ends": [number == len(results)],
                    "record": [json.dumps(record)],
                }
            )


def _digest(texts: Sequence[str]) -> str:
    read = RunningDigest()
    read.add(texts)
    return str(read)


def _stored(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
