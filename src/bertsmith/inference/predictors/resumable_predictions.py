"""Predictions in a file, which survive when the process that makes them does not.

::

    OUT                 a JSON object for each line of the input, in order; complete
    OUT.partial         the same, as long as it is not complete
    OUT.partial.json    how much of it counts: lines, bytes, the digest of the lines of the input, what it is made of
"""

import collections
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from bertsmith.base.core.errors import RunError
from bertsmith.base.storage.files import misfit, read_json, write_json
from bertsmith.base.storage.locks import locked_file
from bertsmith.base.storage.outputs import PREDICTIONS, require_output
from bertsmith.tasks.datasets.examples import Example
from bertsmith.tasks.datasets.text_lines import RunningDigest
from bertsmith.tasks.specs.task import Prediction

Answers = Iterator[tuple[Example, Prediction]]
_SAVED_LINES = 1000  # predictions between two times that the file is made to survive
_STATE = {"lines": int, "bytes": int, "digest": str, "made_of": {}}


def kept_predictions(
    out: Path,
    lines: Iterable[str],
    predict: Callable[[Iterable[str], int], Answers],
    made_of: Mapping[str, Any],
    *,
    resume: bool = False,
    replace: bool = False,
    uploaded: bool = False,
) -> Answers:
    """The predictions for lines, which are also written to a file; those that it has already are left out.

    Args:
        out: a file whose name ends in .jsonl.
        predict: returns the predictions for lines, without those for a number of first lines.
        made_of: what the predictions depend on besides the lines, as plain values.
        resume: continue the unfinished file; start one if there is none.
        replace: the file may exist, or an unfinished one.
        uploaded: the file is uploaded next and then deleted. What it is made of stays next to it, so that `resume`
            finds the complete predictions if the upload failed.
    """
    require_output(out, PREDICTIONS, replace=replace or (uploaded and resume))
    with locked_file(out):
        if uploaded and resume and out.exists() and _state_of(out).exists():
            os.replace(out, _partial_of(out))
        unfinished = _Unfinished(out, made_of, resume=resume, replace=replace)
        with unfinished.opened() as file:
            try:
                for example, prediction in predict(unfinished.noted(lines), unfinished.done):
                    record = {"id": example.id, **prediction.to_dict()}
                    line = json.dumps(record, ensure_ascii=False).encode() + b"\n"
                    file.write(line)
                    unfinished.add(len(line), file)
                    yield example, prediction
            finally:
                unfinished.save(file)
        unfinished.complete(keep_state=uploaded)


def _partial_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial")


def _state_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.partial.json")


class _Unfinished:
    """The file in progress: how many lines it has, and from which lines of the input they were made."""

    def __init__(self, out: Path, made_of: Mapping[str, Any], *, resume: bool, replace: bool) -> None:
        self.out, self.made_of = out, dict(made_of)
        self.path, self.state = _partial_of(out), _state_of(out)
        self.done = 0
        self._counted = (0, 0, "")  # lines, bytes and digest; Ctrl-C may come between any two assignments
        self._digest, self._waiting, self._before = RunningDigest(), collections.deque[str](), ""
        if not self.path.exists():  # the process was killed when the predictions had just become complete
            self.state.unlink(missing_ok=True)
        if not self.state.exists():
            return
        if not (resume or replace):
            raise RunError(
                expected=f"no unfinished predictions in '{self.path}'",
                found="some",
                fix="resume with --resume, or use --replace",
            )
        if not resume:
            self.state.unlink()  # so that it is never read next to another file
            return
        before = read_json(self.state)
        if (
            misfit(before, _STATE)
            or before["made_of"] != json.loads(json.dumps(self.made_of))
            or before["bytes"] > self.path.stat().st_size
        ):
            raise RunError(
                expected=f"the models and options that the predictions in '{self.path}' were started with",
                found="others",
                fix="use the same again, or start over with --replace",
            )
        self.done, self._before = before["lines"], before["digest"]
        self._counted = (before["lines"], before["bytes"], before["digest"])

    @contextlib.contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Yields the file, at the end of what counts."""
        with open(self.path, "r+b" if self.done else "wb") as file:
            file.truncate(self._counted[1])
            file.seek(self._counted[1])
            yield file

    def noted(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines of the input, after checking that the first ones are those of the file."""
        count = 0
        for count, line in enumerate(lines, start=1):
            if count <= self.done:
                self._digest.add([line])
                self._require_same(count)
            else:
                self._waiting.append(line)
            yield line
        if count < self.done:
            raise self._others(f"only {count:,}")

    def add(self, size: int, file: BinaryIO) -> None:
        """Counts a prediction that was written, with its size in bytes."""
        lines, so_far, _ = self._counted
        self._digest.add([self._waiting.popleft()])
        self._counted = (lines + 1, so_far + size, str(self._digest))
        if (lines + 1) % _SAVED_LINES == 0:
            self.save(file)

    def save(self, file: BinaryIO) -> None:
        """Makes the file survive as far as it is counted."""
        file.flush()
        os.fsync(file.fileno())
        lines, size, digest = self._counted
        if lines > self.done:
            write_json(self.state, {"lines": lines, "bytes": size, "digest": digest, "made_of": self.made_of})

    def complete(self, *, keep_state: bool) -> None:
        """Gives the file its name."""
        os.replace(self.path, self.out)
        if not keep_state:
            self.state.unlink(missing_ok=True)

    def _require_same(self, count: int) -> None:
        if count == self.done and str(self._digest) != self._before:
            raise self._others("others")

    def _others(self, found: str) -> RunError:
        return RunError(
            expected=f"the {self.done:,} lines that '{self.path}' has predictions for, first",
            found=found,
            fix="give the same lines again, or start over with --replace",
        )
