"""A run on disk: its settings, the machine it ran on, the log, the checkpoints.

::

    RUN/
        request.toml        what was asked for, as a settings file that starts the same run
        settings.json       settings as given, the resolved number of steps, versions, machine, digests of the inputs
        metrics.jsonl       the log, one object per line; "kind" is train, evaluation, spike or skipped
        checkpoints/        step-00000100/ ...
        best-00000100.safetensors   on request, the parameters with the best held-out value, by their step
        model/              the resulting model folder, written by the caller
        tensorboard/, wandb/    on request
        continued/, teacher/, start/, first-stage/, folds/   what comes before the run, see `PREPARED`

After a crash the log is cut back to the checkpoint from which the run resumes, so in the end it is the log of an
uninterrupted run.
"""

import contextlib
import functools
import json
import shutil
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError, RunError
from bertsmith.base.core.progress import warn
from bertsmith.base.core.settings import flat
from bertsmith.base.core.tables import table_name
from bertsmith.base.machine.runtime import ALONE, Rank, machine
from bertsmith.base.processes.code import versions
from bertsmith.base.processes.distributed import on_first_rank, require_equal
from bertsmith.base.storage.files import (
    FORMAT,
    append_json_line,
    misfit,
    read_json,
    read_json_lines,
    remove_partials,
    require_format,
    sync_file,
    write_json,
    write_text,
)
from bertsmith.base.storage.locks import require_new_run
from bertsmith.training.loop.checkpoint import (
    Position,
    checkpoint_folder,
    checkpoint_steps,
    disk_errors,
    read_best,
    read_checkpoint,
    remove_checkpoints,
    set_aside,
    write_best,
    write_checkpoint,
)
from bertsmith.training.loop.optimizer import Optimizer
from bertsmith.training.loop.settings import MAY_CHANGE_ON_RESUME

SETTINGS_FILE, REQUEST_FILE, METRICS_FILE = "settings.json", "request.toml", "metrics.jsonl"
CONTINUED = "continued"
# Of a student: the stored logits of its teacher, the model that it starts from, and its first stage.
TEACHER, START, FIRST_STAGE = "teacher", "start", "first-stage"
FOLDS = "folds"  # a run for each fold of the training examples
PREPARED = (CONTINUED, TEACHER, START, FIRST_STAGE, FOLDS)  # what a run may find in its folder when it is created
_DIGITS = 12  # of a digest in a message
_RESUME = "free some space or make the folder writable, and resume"
BEST_FILE, BEST_FILES = "best-{step:08d}.safetensors", "best-*.safetensors"
# What is read of the record and of its resolved settings, see `misfit`.
_RECORD: dict[str, Any] = {
    "settings": {},
    "digests?": {},
    "versions?": {},
    "machine?": {},
    "resolved?": {},
    "tracked?": {"*": str},
}
_RESOLVED = {"steps": int, "evaluate_every": int, "replanned?": str, "*": float}


class RunFolder:
    """The folder of a run; use `create`, `resume` or `open` to get one.

    Attributes:
        is_new: whether `create` made it, so that nothing in it is older than this object.
    """

    def __init__(self, path: Path, record: dict[str, Any], *, is_new: bool = False) -> None:
        self.path, self.record, self.is_new = path, record, is_new
        self.checkpoints, self.model = path / "checkpoints", path / "model"

    @staticmethod
    def create(path: Path, settings: Mapping[str, Any], digests: Mapping[str, str] | None = None) -> "RunFolder":
        """A new run folder with its settings.json.

        Args:
            settings: plain values, nested by topic; the training settings are under "train".
            digests: digests of the inputs, by name; they must be the same when the run is resumed.
        """
        require_new_run(path, besides=PREPARED)
        record = {
            "format": FORMAT,
            "settings": dict(settings),
            "digests": dict(digests or {}),
            "versions": versions(),
            "machine": machine(),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        run = RunFolder(path, record, is_new=True)
        run._write_record()
        return run

    @staticmethod
    def open(path: Path) -> "RunFolder":
        """The run in an existing folder."""
        if not (path / SETTINGS_FILE).is_file():
            raise RunError(expected=f"a run in '{path}'", found=f"no {SETTINGS_FILE}", fix="check the path")
        record = read_json(path / SETTINGS_FILE)
        if isinstance(record, dict):
            require_format(record, path / SETTINGS_FILE)  # before its shape, which another format may change
        resolved = {"resolved": _RESOLVED} if isinstance(record, dict) and record.get("resolved") else {}
        if fault := misfit(record, {**_RECORD, **resolved}):
            raise RunError(expected=f"a run in '{path}'", found=f"{fault} in {SETTINGS_FILE}", fix="check the path")
        return RunFolder(path, record)

    @staticmethod
    def resume(
        path: Path,
        settings: Mapping[str, Any],
        digests: Mapping[str, str] | None = None,
        *,
        may_change: Collection[str] = (),
        inputs: Mapping[str, Path] | None = None,
    ) -> "RunFolder":
        """The run in an existing folder, after checking that its settings and inputs match the given ones.

        Intervals of logging, evaluation and saving may differ; the new ones apply from now on.

        Args:
            may_change: further settings that may differ, by dotted name, such as paths of inputs whose content is
                compared by digest.
            inputs: the paths of inputs that have a digest, by its name, for the message.
        """
        run = RunFolder.open(path)
        differing: list[str] = []
        for topic, values in (("settings", settings), ("digests", digests or {})):
            old, new = flat(run.record.get(topic, {})), flat(values)
            free = (
                {f"train.{name}" for name in MAY_CHANGE_ON_RESUME} | set(may_change) if topic == "settings" else set()
            )
            names = [n for n in sorted(old.keys() | new.keys()) if n not in free and old.get(n) != new.get(n)]
            prefix = "" if topic == "settings" else "digest of "
            if topic == "digests":
                old, new = ({n: _shortened(digest) for n, digest in values.items()} for values in (old, new))
                others = [path for n, path in (inputs or {}).items() if n in names and old.get(n) and new.get(n)]
                if others:  # rows made of an input differ with it
                    names = [n for n in names if not n.endswith("_rows")]
                differing = [*map(_is_other, others), *differing]
            differing += [f"{prefix}{n} = {new.get(n)!r} (was {old.get(n)!r})" for n in names]
        if differing:
            raise RunError(
                expected=f"the settings that the run in '{path}' was started with",
                found="; ".join(differing),
                fix="resume with the original values or start a new run",
            )
        run.record["settings"] = dict(settings)
        now, before = versions(), run.record.get("versions", {})
        changed = [name for name in now if now[name] != before.get(name)]
        if changed:
            text = ", ".join(f"{name} {now[name]} (was {before.get(name)})" for name in changed)
            warn(f"resuming with other versions, so numbers may differ in the last bits: {text}")
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
        inputs: Mapping[str, Path] | None = None,
    ) -> "RunFolder":
        """The run folder, for every process of a training: rank 0 creates or resumes it, then the others open it."""
        rank = rank or Rank()
        require_equal(
            {name: value for name, value in flat(settings).items() if name not in may_change}, digests or {}, rank
        )
        begin = (
            functools.partial(RunFolder.resume, may_change=may_change, inputs=inputs) if resume else RunFolder.create
        )
        return on_first_rank(lambda: begin(path, settings, digests), rank) or RunFolder.open(path)

    @property
    def resolved(self) -> dict[str, Any]:
        """Resolved values of the settings, such as the number of steps for a budget in minutes; empty until known."""
        return dict(self.record.get("resolved", {}))

    def resolve(self, values: Mapping[str, Any]) -> None:
        """Records resolved values of the settings."""
        self.record["resolved"] = dict(values)
        self._write_record()

    @property
    def tracked(self) -> dict[str, str]:
        """The names that trackers gave the run, by tracker."""
        return dict(self.record.get("tracked", {}))

    def track(self, tracker: str, name: str) -> None:
        """Records the name that a tracker gave the run."""
        if self.tracked.get(tracker) != name:
            self.record["tracked"] = {**self.tracked, tracker: name}
            self._write_record()

    def _write_record(self) -> None:
        try:
            write_json(self.path / SETTINGS_FILE, self.record)
        except OSError as error:
            raise RunError(
                expected=f"a writable folder '{self.path}'",
                found=str(error.strerror),
                fix="free some space or name another folder",
            ) from None

    def save(
        self,
        position: Position,
        model: nn.Module,
        optimizer: Optimizer,
        keep: int,
        carried: Mapping[str, Tensor],
        rank: Rank | None = None,
    ) -> Path:
        """Writes a checkpoint and returns its folder; keeps only the last `keep` checkpoints."""

        def sync_log() -> None:  # so that it survives a power cut like the checkpoint
            with disk_errors(f"space for the log in '{self.path}'", _RESUME):
                if (self.path / METRICS_FILE).exists():
                    sync_file(self.path / METRICS_FILE)

        on_first_rank(sync_log, rank or ALONE)
        folder = write_checkpoint(self.checkpoints, position, model, optimizer, carried, rank)
        on_first_rank(lambda: remove_checkpoints(self.checkpoints, keep), rank or ALONE)
        return folder

    def load(
        self, model: nn.Module, optimizer: Optimizer, carried: dict[str, Tensor], *, repair: bool = True
    ) -> Position | None:
        """Loads the newest intact checkpoint and returns its position; None if there are no checkpoints.

        `carried` receives the tensors that the next step continues from, see `Workload.carried`.

        A damaged checkpoint is set aside as `damaged-step-...` with a line on stderr, and the previous one is used.
        The log is cut back to the position. Without `repair` nothing on disk is changed.
        """
        if repair:
            self._remove_leftovers()
        steps = checkpoint_steps(self.checkpoints)
        reason = ""
        for step in reversed(steps):
            folder = checkpoint_folder(self.checkpoints, step)
            try:
                position = read_checkpoint(folder, model, optimizer, carried)
            except CheckpointError as error:
                reason = error.found
                warn(f"the checkpoint of step {step} cannot be used: {error}")
                continue
            if repair:
                for later in (s for s in steps if s > step):
                    set_aside(checkpoint_folder(self.checkpoints, later))
                self.cut_metrics(position.step)
            return position
        if steps:
            raise CheckpointError(
                expected=f"a checkpoint of this model in '{self.checkpoints}'",
                found=f"{len(steps)} unusable (the oldest: {reason})",
                fix="start a new run",
            )
        if repair:
            self.cut_metrics(-1)
        return None

    def save_best(self, model: nn.Module, step: int, rank: Rank | None = None) -> None:
        """Writes the parameters as the best so far; all processes that train together call it.

        Those of an earlier step are kept until `forget_best`, because a killed run resumes from an earlier checkpoint.
        """
        write_best(self.path / BEST_FILE.format(step=step), model, rank)

    def load_best(self, model: nn.Module, step: int) -> None:
        """Copies the best parameters, saved after `step`, into the model."""
        read_best(self.path / BEST_FILE.format(step=step), model)

    def forget_best(self, but: int | None = None) -> None:
        """Removes saved best parameters, optionally except those of one step."""
        for path in self.path.glob(BEST_FILES):
            if but is None or path.name != BEST_FILE.format(step=but):
                with disk_errors(f"to remove '{path}', which is no longer needed", _RESUME):
                    path.unlink()

    def clear(self) -> None:
        """Removes checkpoints and best parameters, after the result has been written elsewhere."""
        remove_checkpoints(self.checkpoints, 0)
        self._remove_leftovers()
        self.forget_best()

    def _remove_leftovers(self) -> None:
        """Removes what a killed process left: partial files, and checkpoints that it was removing."""
        remove_partials(self.path)
        remove_partials(self.checkpoints)

    def discard(self) -> None:
        """Removes a run without a trained step, and its folder if nothing else is in it, not even a lock.

        The folder of a run that is locked is removed together with its lock, see `locks.locked_folder`.
        """
        self.clear()
        for path in (self.checkpoints, self.path / "tensorboard", self.path / "wandb"):
            shutil.rmtree(path, ignore_errors=True)
        for name in (SETTINGS_FILE, REQUEST_FILE, METRICS_FILE):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it contains the user's files, or a lock
            self.path.rmdir()

    def last_step(self) -> int | None:
        """The step of the newest checkpoint, or None."""
        steps = checkpoint_steps(self.checkpoints)
        return steps[-1] if steps else None

    def log(self, line: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        with disk_errors(f"space for the log in '{self.path}'", _RESUME):
            append_json_line(self.path / METRICS_FILE, dict(line))

    def metrics(self, kind: str | None = None) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl, all or those of one kind; a damaged file is a RunError."""
        path = self.path / METRICS_FILE
        lines = read_json_lines(path) if path.exists() else []
        if fault := next(filter(None, (misfit(line, {"step": int, "kind?": str}) for line in lines)), ""):
            raise RunError(expected=f"the log of a run in '{path}'", found=fault, fix="restore the file")
        return [line for line in lines if kind in (None, line.get("kind"))]

    def cut_metrics(self, step: int) -> None:
        """Removes the lines of metrics.jsonl after `step`, and an incomplete last line."""
        path = self.path / METRICS_FILE
        if not path.exists():
            return
        kept = [line for line in self.metrics() if line["step"] <= step]
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept))


def _shortened(digest: object) -> object:
    """The beginning of a digest, which is enough to tell two apart."""
    return digest[: len("sha256:") + _DIGITS] if isinstance(digest, str) and digest.startswith("sha256:") else digest


def _is_other(path: Path) -> str:
    name = table_name(path)
    if name is not None:
        return f"the table '{name}' has other rows than when the run began"
    return f"'{path}' has other content than when the run began"


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run."""
    return (path / SETTINGS_FILE).is_file()
