"""Results of a cluster that are kept on disk until the output is complete: Arrow tables in parts, and JSON.

::

    OUTPUT.partial/
        started.json        what the output is made of
        part-000000.arrow   results, in order
        complete.json       what the output was, once it is complete
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bertsmith.base.core.errors import RunError
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.files import atomic_file, digest_bytes, read_json, write_json
from bertsmith.text.documents.sources import Skipped, Source

STARTED = "started.json"
COMPLETE = "complete.json"
KEPT_BYTES = 32 * 2**20  # results are kept on disk in parts of about this size


class Kept:
    """The results that are on disk, in parts of consecutive rows."""

    def __init__(self, folder: Path, kind: str, *, replace: bool, resume: bool) -> None:
        self.folder, self.kind = folder, kind
        was_started = (folder / STARTED).exists()
        self.resumes = was_started and resume
        if was_started and not (resume or replace):
            raise RunError(
                expected=f"no unfinished {kind} in '{folder}'",
                found="one",
                fix="resume with --resume, or use --replace",
            )

    def require_same(self, made_of: Mapping[str, Any]) -> None:
        """Checks that an output that is resumed is made of the same."""
        if not self.resumes:
            return
        before = read_json(self.folder / STARTED)
        for name, value in made_of.items():
            if not isinstance(before, dict) or before.get(name) != value:
                raise RunError(
                    expected=f"the {name} that the unfinished {self.kind} in '{self.folder}' was started with",
                    found="others",
                    fix="use the same again, or start over with --replace",
                )

    def begin(self, made_of: Mapping[str, Any]) -> None:
        """Records what the output is made of, and deletes what another one left, unless this one is resumed."""
        if not self.resumes:
            self.remove()
            write_json(self.folder / STARTED, dict(made_of))

    def complete(self, record: Mapping[str, Any]) -> None:
        """Records that the output is complete."""
        write_json(self.folder / COMPLETE, dict(record))

    def is_complete(self, record: Mapping[str, Any]) -> bool:
        """Whether the output that is resumed was recorded as this complete one."""
        path = self.folder / COMPLETE
        return self.resumes and path.exists() and read_json(path) == dict(record)

    def tables(self) -> Iterator[pa.Table]:
        """The parts on disk, memory-mapped."""
        for path in self._paths():
            with pa.memory_map(str(path)) as data:
                yield pa.ipc.open_file(data).read_all()

    def add(self, tables: Sequence[pa.Table]) -> None:
        """Writes the next part."""
        if tables:
            table = pa.concat_tables(tables)
            path = self.folder / f"part-{len(self._paths()):06d}.arrow"
            with atomic_file(path) as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)

    def adding(self, tables: Iterable[pa.Table]) -> Generator[pa.Table]:
        """The tables; the ones that were yielded are kept, at the latest when the caller stops."""
        waiting: list[pa.Table] = []
        try:
            for table in tables:
                waiting.append(table)
                if sum(part.nbytes for part in waiting) >= KEPT_BYTES:
                    # In this order: rows that may be on disk are never written a second time.
                    rows, waiting = waiting, []
                    self.add(rows)
                yield table
        finally:
            self.add(waiting)

    def remove(self) -> None:
        """Deletes everything but a lock, and the folder if there is none."""
        # In this order: without `STARTED`, what is left is not resumed.
        for path in (self.folder / COMPLETE, self.folder / STARTED, *self._paths()):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.arrow"))


def digest_of_files(listed: Sequence[tuple[Source | Skipped, str]]) -> str:
    """A digest of the names, sizes and times of all files: other files, or files that were changed, are not resumed."""
    files = []
    for file, language in listed:
        times = [os.stat(file.name).st_mtime_ns] if isinstance(file, Source) and not address_of(file.name) else []
        files.append([dataclasses.asdict(file), language, times])
    return digest_bytes(json.dumps(files).encode("utf-8"))
