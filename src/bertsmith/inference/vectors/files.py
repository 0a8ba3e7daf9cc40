"""Vector files that are written block by block and resumed after a crash.

While a file is written, its vectors are in `X.npy.partial` (the parts of `X.parquet` in a folder of that name), and
`X.npy.partial.json` records their inputs and how many are complete. On resuming, everything after the last
complete block is cut off, so a killed process or a full disk costs at most one block. At the end the file is moved to
its final path, and `X.npy.json` keeps the record of its inputs (model, settings, texts).
"""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.storage.files import FORMAT, misfit, read_json, require_format, write_json
from bertsmith.base.storage.outputs import TOKEN_LINES, VECTOR_RECORD, VECTORS, FileKind, require_output
from bertsmith.inference.vectors.writers import Columns, VectorWriter, writer_for

_WRITING, _WHOLE = "writing", "whole"
# What is read of the state of a file, see `misfit`.
_STATE = {
    "stage": str,
    "made_of": {},
    "position": {"*": int},
    "done": {"texts?": int, "digest?": str, "counts?": {"*": int}},
}


class VectorFile:
    """A vector file with a record of its inputs; a context manager.

    Args:
        path: the final path; its extension gives the format, .npy or .parquet.
        made_of: what the vectors depend on (model, settings, input), for JSON. A file resumes only if this is the same.
        index: there are columns in addition to the vectors; a .parquet file may have some in any case.
        resume: resume a partial file; start a new one if there is none.
        writer: None for that of the extension.

    Attributes:
        done: the last value passed to `commit`; empty at the start.
        is_complete: the file is at its final path, with the same inputs.
    """

    def __init__(
        self,
        path: Path,
        made_of: Mapping[str, Any],
        width: int,
        *,
        half: bool = False,
        index: bool = False,
        resume: bool = False,
        replace: bool = False,
        writer: type[VectorWriter] | None = None,
    ) -> None:
        require_place(path, index=index, resume=resume, replace=replace)
        self.path = path
        self.made_of = {**made_of, "width": width, "numbers": "float16" if half else "float32"}
        self.writer = (writer or writer_for(path))(path, width, half=half, index=index)
        self.record_path = _record_path(path)
        self.state_path = _state_path(path)
        self.done: dict[str, Any] = {}
        self._position: dict[str, int] = {}
        self.is_complete = False
        if resume:
            self._take_up()
        elif replace:
            self.state_path.unlink(missing_ok=True)

    def __enter__(self) -> "VectorFile":
        if not self.is_complete:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.state_path.exists():
                self.writer.clear()
            self.writer.begin(self._position)
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()
        if not self.is_complete and not self.state_path.exists():
            self.writer.clear()

    @property
    def rows(self) -> int:
        """The number of vectors written."""
        return self._position.get("rows", 0) if self.is_complete else self.writer.rows

    def append(self, vectors: Any, columns: Columns | None = None) -> None:
        """Writes vectors of r rows, see `VectorWriter.append`; they count after `commit`.

        Args:
            columns: arrays of r values, with the same names in every call.
        """
        self.writer.append(vectors, columns or {})

    def commit(self, done: Mapping[str, Any]) -> None:
        """Makes the appended vectors durable: after a crash, work resumes from here.

        Args:
            done: what the caller needs to resume, for JSON.
        """
        self._position, self.done = self.writer.whole(), dict(done)
        self._write_state(_WRITING)

    def finish(self) -> None:
        """Moves the file, as of the last `commit`, to its final path and writes the record next to it."""
        self.writer.close()
        self._write_state(_WHOLE)
        self._place()

    def _place(self) -> None:
        self.writer.end(self._position)
        stale = stale_index(self.path)
        if stale is not None and not self.writer.index:
            stale.unlink(missing_ok=True)
        os.replace(self.state_path, self.record_path)
        self.is_complete = True

    def _write_state(self, stage: str) -> None:
        progress = {"made_of": self.made_of, "position": self._position, "done": self.done}
        write_json(self.state_path, {"stage": stage, "format": FORMAT, **progress})

    def _take_up(self) -> None:
        """Reads the state of a partial file; one that is fully written moves to its final path."""
        if self.state_path.exists():
            if self._read(self.state_path) == _WHOLE:
                self._place()
        elif self.path.exists():
            if not self.record_path.exists():
                raise RunError(
                    expected=f"'{self.record_path}', which records what '{self.path}' is made of",
                    found="no such file",
                    fix="name another file, or use --replace",
                )
            self._read(self.record_path)
            self.is_complete = True

    def _read(self, path: Path) -> str:
        """Loads the state of a file, checks that its inputs are the same, and returns its stage."""
        state = read_json(path)
        if fault := misfit(state, _STATE):
            raise InputError(
                expected=f"the state of a vector file in '{path}'",
                found=fault,
                fix="restore it, or start over with --replace",
            )
        require_format(state, path)
        before = state["made_of"]
        for name in {**before, **self.made_of}:
            if before.get(name) != self.made_of.get(name):
                raise RunError(
                    expected=f"the {name} that '{self.path}' was started with, {before.get(name)}",
                    found=str(self.made_of.get(name)),
                    fix="use the same again, or start over with --replace",
                )
        self._position, self.done = state["position"], state["done"]
        return str(state["stage"])


def require_place(
    path: Path,
    *,
    inputs: Iterable[Path | str] = (),
    index: bool = False,
    resume: bool = False,
    replace: bool = False,
) -> None:
    """Refuses a path where a vector file cannot be written, before its content is computed.

    Args:
        index: there are columns in addition to the vectors, which may go to a separate file.
    """
    writer, sources = writer_for(path)(path, 0, index=index), list(inputs)
    for written, kind in _written(path, index=index).items():
        require_output(written, kind, inputs=sources, may_exist=True)
    if others := writer.foreign_files():
        raise InputError(
            expected=f"only parts of '{path.name}' in '{writer.partial}'",
            found=f"'{others[0]}'",
            fix="move it away, or name another output",
        )
    places = final_places(path, index=index)
    is_started = os.path.lexists(path) or os.path.lexists(_state_path(path))
    if replace or (resume and is_started):
        return
    for existing in places:
        if os.path.lexists(existing):
            raise RunError(
                expected=f"no file at '{existing}'", found="an existing file", fix="name another file, or use --replace"
            )
    if is_started:
        raise RunError(
            expected=f"no file at '{path}'", found="a partial file", fix="resume with --resume, or use --replace"
        )


def final_places(path: Path, *, index: bool = False) -> list[Path]:
    """The finished files: the vectors, the columns if they have a separate file, the record."""
    columns = writer_for(path)(path, 0).index_path if index else None
    return [path, *([] if columns is None else [columns]), _record_path(path)]


def _written(path: Path, *, index: bool = False) -> dict[Path, FileKind]:
    """All files that may be written or removed for a vector file, during and after writing, with their kinds."""
    vectors = VECTORS[path.suffix.lower()]
    is_bare = writer_for(path).is_sparse  # the partial files of a sparse matrix are numbers without a header
    growing = dataclasses.replace(vectors, endings=(), starts=() if is_bare else vectors.starts)
    kinds = {path: vectors, _record_path(path): VECTOR_RECORD, _state_path(path): VECTOR_RECORD}
    if (stale := stale_index(path)) is not None:
        kinds[stale] = TOKEN_LINES
    for partial, target in writer_for(path)(path, 0, index=index).partial_files().items():
        kinds[partial] = growing if target == path else TOKEN_LINES
        kinds.setdefault(target, TOKEN_LINES)
    return kinds


def stale_index(path: Path) -> Path | None:
    """The columns file named in the record of an earlier file at `path`; None if the record names none."""
    columns, record = writer_for(path)(path, 0).index_path, _record_path(path)
    if columns is None or not record.is_file():
        return None
    try:
        state = read_json(record)
    except InputError:
        return None
    position = state.get("position") if isinstance(state, dict) else None
    return columns if isinstance(position, dict) and "token_bytes" in position else None


def made_of_vectors(path: Path) -> Mapping[str, Any]:
    """What the vectors in a finished file depend on, as its record says; empty if it has none."""
    record = _record_path(path)
    if not record.is_file():
        return {}
    state = read_json(record)
    return {} if misfit(state, _STATE) else state["made_of"]


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial.json")
