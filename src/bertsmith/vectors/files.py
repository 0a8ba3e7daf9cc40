"""Files of vectors that grow block by block, and go on after a crash.

While it is written, a file lies beside its place: the vectors in `X.npy.partial` (the parts of `X.parquet` in a folder
of such a name), and in `X.npy.partial.json` what they are made of and how far they are whole. What was written after
the last whole block is cut off when the work goes on, so a process that is killed at any moment, or a full disk, costs
one block. In the end the file moves to its place, and `X.npy.json` keeps what it is made of.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError, RunError
from bertsmith.files import read_json, require_file_place, write_json
from bertsmith.vectors.writers import Columns, Vectors, writer_for

_WRITING, _WHOLE = "writing", "whole"


class VectorFile:
    """A file of vectors with the record of what they are made of; a context manager.

    Args:
        path: where it will be; its ending says the format, .npy or .parquet.
        made_of: what the vectors depend on (model, settings, input), for JSON. Work goes on only where it is the same.
        width: numbers in a vector.
        half: float16 in place of float32.
        index: there are columns beside the vectors; in a .parquet file there may be some in any case.
        resume: go on with the file where it was left; begin it where there is none.
        replace: write over an existing one, or over what was left of one.

    Attributes:
        done: what `commit` was told last; empty at the start.
        is_complete: the file is at its place, made of the same.

    Raises:
        ConfigError: the ending is none of a format.
        InputError: the place cannot be written.
        RunError: there is a file, whole or not, that may not be touched, or that is made of something else.
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
    ) -> None:
        require_place(path, index=index, resume=resume, replace=replace)
        self.path = path
        self.made_of = {**made_of, "width": width, "numbers": "float16" if half else "float32"}
        self.writer = writer_for(path)(path, width, half=half, index=index)
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
        """The vectors that were written."""
        return self._position.get("rows", 0) if self.is_complete else self.writer.rows

    def append(self, vectors: Vectors, columns: Columns | None = None) -> None:
        """Writes vectors [r, width]; they count once `commit` was called.

        Args:
            columns: arrays of r values, the same names each time.
        """
        self.writer.append(vectors, columns or {})

    def commit(self, done: Mapping[str, Any]) -> None:
        """Makes what was appended whole: from here the work goes on after a crash.

        Args:
            done: what the caller needs to go on, for JSON.
        """
        self._position, self.done = self.writer.whole(), dict(done)
        self._write_state(_WRITING)

    def finish(self) -> None:
        """Moves the file to its place, as `commit` left it, and the record beside it."""
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
        state = {"stage": stage, "made_of": self.made_of, "position": self._position, "done": self.done}
        write_json(self.state_path, state)

    def _take_up(self) -> None:
        """Reads how far the work has come; what was all written moves to its place."""
        if self.state_path.exists():
            if self._read(self.state_path) == _WHOLE:
                self._place()
        elif self.path.exists():
            if not self.record_path.exists():
                raise RunError(
                    expected=f"'{self.record_path}', which says what '{self.path}' is made of",
                    found="no such file",
                    fix="name another file, or say --replace",
                )
            self._read(self.record_path)
            self.is_complete = True

    def _read(self, path: Path) -> str:
        """Takes what the state of a file that is made of the same says, and returns its stage."""
        state = read_json(path)
        if not isinstance(state, dict) or not {"stage", "made_of", "position", "done"} <= set(state):
            raise InputError(
                expected=f"the state of a file of vectors in '{path}'",
                found="something else",
                fix="restore it, or begin anew with --replace",
            )
        before = state["made_of"]
        for name in {**before, **self.made_of}:
            if before.get(name) != self.made_of.get(name):
                raise RunError(
                    expected=f"the {name} that '{self.path}' was begun with, {before.get(name)}",
                    found=str(self.made_of.get(name)),
                    fix="give the same again, or begin anew with --replace",
                )
        self._position, self.done = state["position"], state["done"]
        return str(state["stage"])


def require_place(path: Path, *, index: bool = False, resume: bool = False, replace: bool = False) -> None:
    """Refuses a place where no file of vectors can be written, before work is spent on its content.

    Args:
        index: there are columns beside the vectors, which may go to a file of their own.

    Raises:
        ConfigError: the ending is none of a format.
        InputError: the place cannot be written.
        RunError: there is a file, or the beginning of one, that nobody wants to go on with or to replace.
    """
    places = final_places(path, index=index)
    for place in places:
        require_file_place(place)
    begun = os.path.lexists(path) or os.path.lexists(_state_path(path))
    if replace or (resume and begun):
        return
    for place in places:
        if os.path.lexists(place):
            raise RunError(
                expected=f"no file at '{place}'", found="one that exists", fix="name another file, or say --replace"
            )
    if begun:
        raise RunError(
            expected=f"no file at '{path}'", found="the beginning of one", fix="go on with --resume, or say --replace"
        )


def final_places(path: Path, *, index: bool = False) -> list[Path]:
    """The files that there are in the end: the vectors, the columns where they have a file of their own, the record.

    Raises:
        ConfigError: the ending is none of a format.
    """
    beside = writer_for(path)(path, 0).index_path if index else None
    return [path, *([] if beside is None else [beside]), _record_path(path)]


def written_places(path: Path, *, index: bool = False) -> list[Path]:
    """All that may be written or removed for a file of vectors, while it is written and in the end.

    Raises:
        ConfigError: the ending is none of a format.
    """
    stale = stale_index(path)
    final = [*final_places(path, index=index), *([] if stale is None else [stale])]
    return [*final, *(place.with_name(f"{place.name}.partial") for place in final), _state_path(path)]


def stale_index(path: Path) -> Path | None:
    """The file of columns that the record of an earlier file at `path` says it has; None where it says none."""
    beside, record = writer_for(path)(path, 0).index_path, _record_path(path)
    if beside is None or not record.is_file():
        return None
    try:
        state = read_json(record)
    except InputError:
        return None
    position = state.get("position") if isinstance(state, dict) else None
    return beside if isinstance(position, dict) and "token_bytes" in position else None


def _record_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _state_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.partial.json")
