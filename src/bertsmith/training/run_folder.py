"""A run on disk: what was asked, what machine did it, the log, the checkpoints.

::

    RUN/
        settings.json       settings as given, the steps they came to, versions, machine, digests of the inputs
        metrics.jsonl       the log, one object a line; "kind" is train, evaluation, spike or skipped
        checkpoints/        step-00000100/ ...
        best-00000100.safetensors   on request, the parameters that did best on held-out data, by their step
        model/              the result, written by whoever started the run
        tensorboard/        on request

After a crash the log is cut back to the checkpoint that the run goes on from, so in the end it is the log
of a run that never stopped.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from torch import nn

from bertsmith import __version__
from bertsmith.errors import CheckpointError, RunError, TrainingError
from bertsmith.files import (
    PARTIAL_SUFFIX,
    append_json_line,
    read_json,
    read_json_lines,
    remove_partials,
    write_json,
    write_text,
)
from bertsmith.progress import warn
from bertsmith.runtime import Rank, machine
from bertsmith.training.checkpoint import (
    Position,
    checkpoint_folder,
    checkpoint_steps,
    read_best,
    read_checkpoint,
    write_best,
    write_checkpoint,
)
from bertsmith.training.distributed import wait_for_all
from bertsmith.training.optimizer import Optimizer
from bertsmith.training.settings import MAY_CHANGE_ON_RESUME

SETTINGS_FILE, METRICS_FILE = "settings.json", "metrics.jsonl"
BEST_FILE, BEST_FILES = "best-{step:08d}.safetensors", "best-*.safetensors"

# Packages whose version may change the numbers of a run.
VERSIONS_OF = ("torch", "numpy", "pyarrow")


class RunFolder:
    """The folder of one run; made by `create`, `resume` or `open`.

    Attributes:
        path: the folder.
        record: what settings.json holds.
    """

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        self.path, self.record = path, record

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints lie."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """Where the trained model goes."""
        return self.path / "model"

    @staticmethod
    def create(
        path: Path,
        settings: Mapping[str, Any],
        digests: Mapping[str, str] | None = None,
    ) -> "RunFolder":
        """A new run folder with its settings.json.

        Args:
            path: a folder that does not exist or is empty.
            settings: plain values, nested by topic; those of the training stand under "train".
            digests: of the inputs, by name; a continuation must have the same.

        Raises:
            RunError: the folder holds something already, or cannot be written.
        """
        if path.exists() and not path.is_dir():
            raise RunError(expected="a folder for the run", found=f"the file '{path}'", fix="name another folder")
        if path.is_dir() and any(path.iterdir()):
            is_run = (path / SETTINGS_FILE).exists()
            raise RunError(
                expected=f"a new folder '{path}'",
                found="a run" if is_run else "a folder that is not empty",
                fix="continue it with --resume or name another folder" if is_run else "name another folder",
            )
        record = {
            "settings": dict(settings),
            "digests": dict(digests or {}),
            "versions": _versions(),
            "machine": machine(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        run = RunFolder(path, record)
        run._write_record()
        return run

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """The run in an existing folder.

        Raises:
            RunError: there is no run.
        """
        if not (path / SETTINGS_FILE).is_file():
            raise RunError(expected=f"a run in '{path}'", found=f"no {SETTINGS_FILE}", fix="check the path")
        record = read_json(path / SETTINGS_FILE)
        if not (isinstance(record, dict) and isinstance(record.get("settings"), dict)):
            raise RunError(expected=f"a run in '{path}'", found=f"another {SETTINGS_FILE}", fix="check the path")
        return RunFolder(path, record)

    @staticmethod
    def resume(
        path: Path,
        settings: Mapping[str, Any],
        digests: Mapping[str, str] | None = None,
        *,
        may_change: Collection[str] = (),
    ) -> "RunFolder":
        """The run in an existing folder, once its settings and inputs are seen to be the given ones.

        Intervals of logging, evaluation and saving may differ; the new ones hold from here on.

        Args:
            may_change: further settings that may differ, by their dotted names, such as places of inputs whose content
                is compared by digest.

        Raises:
            RunError: there is no run, or settings or digests differ; the message names them.
        """
        run = RunFolder.open(path)
        differing = []
        for topic, given in (("settings", settings), ("digests", digests or {})):
            old, new = flat(run.record.get(topic, {})), flat(given)
            free = (
                {f"train.{name}" for name in MAY_CHANGE_ON_RESUME} | set(may_change) if topic == "settings" else set()
            )
            names = [n for n in sorted(old.keys() | new.keys()) if n not in free and old.get(n) != new.get(n)]
            prefix = "" if topic == "settings" else "digest of "
            differing += [f"{prefix}{n} = {new.get(n)!r} (was {old.get(n)!r})" for n in names]
        if differing:
            raise RunError(
                expected=f"the settings that the run in '{path}' was started with",
                found="; ".join(differing),
                fix="resume with the old values or start a new run",
            )
        run.record["settings"] = dict(settings)
        now, before = _versions(), run.record.get("versions", {})
        changed = [name for name in now if now[name] != before.get(name)]
        if changed:
            text = ", ".join(f"{name} {now[name]} (was {before.get(name)})" for name in changed)
            warn(f"the run goes on with other versions, so its numbers may differ in the last bits: {text}")
        run._write_record()
        return run

    @staticmethod
    def prepare(
        path: Path,
        settings: Mapping[str, Any],
        digests: Mapping[str, str] | None = None,
        *,
        resume: bool = False,
        rank: Rank | None = None,
        may_change: Collection[str] = (),
    ) -> "RunFolder":
        """The run folder for every process of a training: rank 0 makes or resumes it, then the others open it.

        Raises:
            RunError: see `create` and `resume`.
        """
        rank = rank or Rank()
        run = None
        if rank.index == 0:
            run = (
                RunFolder.resume(path, settings, digests, may_change=may_change)
                if resume
                else RunFolder.create(path, settings, digests)
            )
        wait_for_all(rank)
        return run or RunFolder.open(path)

    @property
    def resolved(self) -> dict[str, Any]:
        """What the settings came to, such as the number of steps of a budget in minutes; empty before that."""
        return dict(self.record.get("resolved", {}))

    def resolve(self, values: Mapping[str, Any]) -> None:
        """Records what the settings came to."""
        self.record["resolved"] = dict(values)
        self._write_record()

    def _write_record(self) -> None:
        try:
            write_json(self.path / SETTINGS_FILE, self.record)
        except OSError as error:
            raise RunError(
                expected=f"a folder '{self.path}' to write to",
                found=str(error.strerror),
                fix="free some space or name another folder",
            ) from None

    def save(self, position: Position, model: nn.Module, optimizer: Optimizer, keep: int) -> Path:
        """The checkpoint that was written; of the older ones all but the last `keep` are removed.

        Raises:
            TrainingError: it could not be written; the older ones are as they were.
        """
        _flush(self.path / METRICS_FILE)
        folder = write_checkpoint(self.checkpoints, position, model, optimizer)
        for step in checkpoint_steps(self.checkpoints)[:-keep]:
            _remove_checkpoint(checkpoint_folder(self.checkpoints, step))
        return folder

    def load(self, model: nn.Module, optimizer: Optimizer, repair: bool = True) -> Position | None:
        """The position of the newest whole checkpoint, with its tensors copied; None where there is none.

        A damaged checkpoint is set aside as `damaged-step-...` with a line on stderr, and the one before is
        taken. The log is cut back to the position. Without `repair` nothing on the disk is touched.

        Raises:
            CheckpointError: there are checkpoints, but none that can be used.
        """
        if repair:
            remove_partials(self.path)
            remove_partials(self.checkpoints)
        steps = checkpoint_steps(self.checkpoints)
        reason = ""
        for step in reversed(steps):
            folder = checkpoint_folder(self.checkpoints, step)
            try:
                position = read_checkpoint(folder, model, optimizer)
            except CheckpointError as error:
                reason = error.found
                warn(f"the checkpoint of step {step} cannot be used: {error}")
                continue
            if repair:
                for later in (s for s in steps if s > step):
                    _set_aside(checkpoint_folder(self.checkpoints, later))
                self.cut_metrics(position.step)
            return position
        if steps:
            raise CheckpointError(
                expected=f"a checkpoint of this model in '{self.checkpoints}'",
                found=f"{len(steps)} that cannot be used (the oldest: {reason})",
                fix="start a new run",
            )
        if repair:
            self.cut_metrics(-1)
        return None

    def save_best(self, model: nn.Module, step: int) -> None:
        """Writes the parameters as the best ones so far.

        Those of an earlier step stay until `forget_best`, since a run that is killed goes on from a checkpoint before.

        Raises:
            TrainingError: they could not be written; the ones before are as they were.
        """
        write_best(self.path / BEST_FILE.format(step=step), model)

    def load_best(self, model: nn.Module, step: int) -> None:
        """Copies the best parameters, which are those of `step`, into the model.

        Raises:
            CheckpointError: they are missing, damaged or those of another model.
        """
        read_best(self.path / BEST_FILE.format(step=step), model)

    def forget_best(self, but: int | None = None) -> None:
        """Removes best parameters, all or all but those of a step."""
        for path in self.path.glob(BEST_FILES):
            if but is None or path.name != BEST_FILE.format(step=but):
                path.unlink()

    def clear(self) -> None:
        """Removes checkpoints and best parameters, once what came of them is written elsewhere."""
        for step in checkpoint_steps(self.checkpoints):
            _remove_checkpoint(checkpoint_folder(self.checkpoints, step))
        self.forget_best()

    def discard(self) -> None:
        """Removes a run of which no step was trained, and its folder if nothing else is in it."""
        self.clear()
        for path in (self.checkpoints, self.path / "tensorboard"):
            shutil.rmtree(path, ignore_errors=True)
        for name in (SETTINGS_FILE, METRICS_FILE):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something of the user's
            self.path.rmdir()

    def last_step(self) -> int | None:
        """The step of the newest checkpoint, or None."""
        steps = checkpoint_steps(self.checkpoints)
        return steps[-1] if steps else None

    def log(self, line: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl.

        Raises:
            TrainingError: the disk is full.
        """
        try:
            append_json_line(self.path / METRICS_FILE, dict(line))
        except OSError as error:
            raise TrainingError(
                expected=f"room for the log in '{self.path}'",
                found=str(error.strerror),
                fix="free some space and resume",
            ) from error

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, all or those of one kind."""
        path = self.path / METRICS_FILE
        lines = read_json_lines(path) if path.exists() else []
        return [line for line in lines if kind in (None, line.get("kind"))]

    def cut_metrics(self, step: int) -> None:
        """Removes the lines of metrics.jsonl that come after `step`, and a last line that was cut off."""
        path = self.path / METRICS_FILE
        if not path.exists():
            return
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings as one level of dotted names, with tuples as the lists that JSON makes of them."""
    return dict(_leaves(values, prefix))


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


def _versions() -> dict[str, str]:
    return {"bertsmith": __version__, **{name: metadata.version(name) for name in VERSIONS_OF}}


def _flush(path: Path) -> None:
    """Makes sure that the log up to here outlives a power cut, as the checkpoint that follows does."""
    if path.exists():
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def _set_aside(folder: Path) -> None:
    """Renames a damaged checkpoint, so that it neither counts as one nor is lost."""
    aside = folder.with_name(f"damaged-{folder.name}")
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)


def _remove_checkpoint(folder: Path) -> None:
    """Deletes a checkpoint; renamed first, so that a crash leaves no half of one under its name."""
    doomed = folder.with_name(f".{folder.name}{PARTIAL_SUFFIX}")
    folder.rename(doomed)
    shutil.rmtree(doomed)
