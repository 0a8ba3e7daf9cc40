"""Checkpoints of a run: each is a folder with the model, the optimizer and the position in the run.

::

    step-00000100/
        model.safetensors       parameters and buffers
        optimizer.safetensors   m.<parameter>, v.<parameter>
        carried.safetensors     what the next step continues from, for a workload that carries state from step to step
        state.json              counters, and the digests of the files above

A checkpoint is written under a temporary name and then renamed, so it is complete or absent. The digests reveal files
that were damaged later. Of a model that is divided among processes, each of them writes its part of the first two files
(`parts.py`), and any number of processes can resume.
"""

import contextlib
import functools
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from bertsmith.base.core.errors import CheckpointError, InputError, TrainingError
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import from_all_ranks, on_every_rank, on_first_rank, result_of_first_rank
from bertsmith.base.processes.sharding import is_divided, put_parameter
from bertsmith.base.storage.files import (
    FORMAT,
    PARTIAL_SUFFIX,
    atomic_file,
    atomic_folder,
    digest_file,
    read_json,
    require_format,
    sync_file,
    write_json,
)
from bertsmith.base.storage.tensor_file import write_tensors
from bertsmith.training.loop.guard import LossGuard
from bertsmith.training.loop.optimizer import Optimizer
from bertsmith.training.loop.parts import Parts, part_name, save_tensors, whole_tensors

MODEL_FILE, OPTIMIZER_FILE, STATE_FILE = "model.safetensors", "optimizer.safetensors", "state.json"
CARRIED_FILE = "carried.safetensors"  # only where there is something to carry

_REMOVABLE = "free some space or make its folder writable, and resume; the newest checkpoint is intact"
_NAME = re.compile(r"step-(\d{8,})")


@dataclass
class Position:
    """The position in a run: everything besides tensors that is needed to resume as if it had not stopped.

    Attributes:
        tokens: real tokens of these steps, over all ranks.
        seconds: wall-clock time of the run, summed over its resumed parts.
        processor_seconds: processor time of the run, summed over its threads and resumed parts.
        updates: optimizer updates; a step whose loss or gradient was not finite makes none.
        pending: sums over the steps since the last log line.
    """

    step: int = 0
    tokens: int = 0
    sequences: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    updates: int = 0
    guard: dict[str, Any] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)


def checkpoint_folder(parent: Path, step: int) -> Path:
    """The folder of the checkpoint after `step` steps."""
    return parent / f"step-{step:08d}"


def checkpoint_steps(parent: Path) -> list[int]:
    """The steps that have a checkpoint, in ascending order."""
    if not parent.is_dir():
        return []
    return sorted(int(match[1]) for entry in parent.iterdir() if (match := _NAME.fullmatch(entry.name)))


def write_checkpoint(
    parent: Path,
    position: Position,
    model: nn.Module,
    optimizer: Optimizer,
    carried: Mapping[str, Tensor],
    rank: Rank | None = None,
) -> Path:
    """Writes a checkpoint and returns its folder.

    Args:
        carried: see `Workload.carried`; nothing if the model is divided.
        rank: this process among those that the model is divided among, which all write; otherwise one writes all.
    """
    assert not carried or rank is None, "each process would write it, and none would find it again"
    folder, kept = checkpoint_folder(parent, position.step), checkpoint_steps(parent)
    earlier = f"the checkpoint of step {kept[-1]} is intact" if kept else "there is no earlier checkpoint"
    fix = f"free some space and resume; {earlier}"
    space = functools.partial(disk_errors, f"space for a checkpoint in '{parent}'", fix)
    if rank is None:
        with space(), atomic_folder(folder, replace=True) as partial:
            _complete(partial, position, _write(partial, model, optimizer, carried))
        return folder
    with contextlib.ExitStack() as stack:

        def begin() -> str:
            with space():
                return str(stack.enter_context(atomic_folder(folder, replace=True)))

        def finish() -> None:
            with space():
                _complete(partial, position, digests)
                stack.close()  # which gives it its name

        partial = Path(result_of_first_rank(begin, rank))
        written = on_every_rank(lambda: _write(partial, model, optimizer, carried, rank), rank)
        digests = {name: digest for part in from_all_ranks(written, rank) for name, digest in part.items()}
        on_first_rank(finish, rank)
    return folder


@contextlib.contextmanager
def disk_errors(expected: str, fix: str) -> Iterator[None]:
    """Makes an error of the disk inside the block one that `on_first_rank` and `on_every_rank` pass on."""
    try:
        yield
    except (OSError, safetensors.SafetensorError) as error:
        raise TrainingError(expected=expected, found=getattr(error, "strerror", None) or str(error), fix=fix) from error


def _write(
    partial: Path, model: nn.Module, optimizer: Optimizer, carried: Mapping[str, Tensor], rank: Rank | None = None
) -> dict[str, str]:
    """Writes the tensors, or the part of this process, and returns the digest of each file."""
    files = {MODEL_FILE: model_tensors(model), OPTIMIZER_FILE: optimizer.state_tensors()}
    files |= {CARRIED_FILE: dict(carried)} if carried else {}
    digests = {}
    for file, tensors in files.items():
        name = file if rank is None else part_name(file, rank)
        fix = "free some space and resume; older checkpoints are intact"
        expected = f"space for '{name}' of a checkpoint in '{partial.parent}'"
        with contextlib.nullcontext() if rank is None else disk_errors(expected, fix):
            save_tensors(tensors, partial / name, rank)
            sync_file(partial / name)  # which the process that completes the folder may not be able to do for others
            digests[name] = digest_file(partial / name)
    return digests


def _complete(partial: Path, position: Position, digests: Mapping[str, str]) -> None:
    """Writes the file that makes a checkpoint of the others."""
    write_json(partial / STATE_FILE, {"format": FORMAT, **asdict(position), "digests": dict(digests)})


def read_checkpoint(folder: Path, model: nn.Module, optimizer: Optimizer, carried: dict[str, Tensor]) -> Position:
    """The position of the checkpoint, whose tensors are copied into `model` and `optimizer`.

    `carried` receives the tensors that the next step continues from. Nothing is copied until all files have been
    verified.
    """
    try:
        state = read_json(folder / STATE_FILE)
        digests = state.pop("digests")
        require_format(state, folder / STATE_FILE)
        state.pop("format")
        position = Position(**state)
        _require_types(position)
        _require_types(LossGuard(**position.guard))
    except (InputError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(folder, STATE_FILE, str(error)) from error
    for file in (MODEL_FILE, OPTIMIZER_FILE):
        if not _files_of(digests, file):
            raise _damaged(folder, file, "its digest is missing")
    for name, digest in digests.items():
        try:
            actual = digest_file(folder / name)
        except OSError as error:
            raise _damaged(folder, name, str(error)) from error
        if actual != digest:
            raise _damaged(folder, name, "its digest differs from the recorded one")
    try:
        trained, moments = (
            Parts([folder / name for name in _files_of(digests, file)]) for file in (MODEL_FILE, OPTIMIZER_FILE)
        )
        rest = safetensors.torch.load_file(folder / CARRIED_FILE) if CARRIED_FILE in digests else {}
    except (OSError, safetensors.SafetensorError) as error:
        raise _damaged(folder, MODEL_FILE, str(error)) from error
    trained.require_fit(model_tensors(model), "the model")
    moments.require_fit(optimizer.state_tensors(), "the optimizer state")
    trained.copy_to(model_tensors(model))
    moments.copy_to(optimizer.state_tensors())
    optimizer.updates = position.updates
    carried.clear()
    carried.update(rest)
    return position


def _files_of(digests: Mapping[str, str], file: str) -> list[str]:
    """The names of a file, or of its parts in order, among those of a checkpoint."""
    stem = file.removesuffix(".safetensors")
    return sorted(name for name in digests if name == file or re.fullmatch(rf"{stem}-\d+-of-\d+\.safetensors", name))


def _require_types(state: Position | LossGuard) -> None:
    """Checks that every value has the type of its default; a sum may be a whole number."""
    for attribute in fields(state):
        default = attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
        value, kinds = getattr(state, attribute.name), (int, float) if isinstance(default, float) else (type(default),)
        numbers = value.values() if isinstance(value, dict) else ()
        if type(value) not in kinds or not all(isinstance(number, int | float) for number in numbers):
            raise TypeError(f"{attribute.name} is {value!r}"[:80])


def write_best(path: Path, model: nn.Module, rank: Rank | None = None) -> None:
    """Writes the whole parameters of a model to one file, replacing the previous one."""
    _write_whole(path, model, rank or Rank(), "the best model")


def take_whole(model: nn.Module, folder: Path, rank: Rank) -> None:
    """Gives process 0 the whole parameters of a model that is divided among processes, to write them elsewhere.

    They are mapped from a file that has no name any more, so that they take no memory; the model cannot be trained from
    then on. No-op if it is not divided.
    """
    if not is_divided(model):
        return
    path = folder / f".whole{PARTIAL_SUFFIX}"
    _write_whole(path, model, rank, "the whole model")
    if rank.index == 0:
        for name, tensor in safetensors.torch.load_file(path).items():
            put_parameter(model, name, nn.Parameter(tensor, requires_grad=False))
        path.unlink()


def _write_whole(path: Path, model: nn.Module, rank: Rank, contents: str) -> None:
    """Writes whole parameters; all processes gather one after another, and rank 0 writes."""
    tensors = model_tensors(model)
    values = whole_tensors(tensors)

    def write() -> None:
        try:
            space = disk_errors(f"space for {contents} in '{path.parent}'", "free some space and resume")
            with space, atomic_file(path) as file:
                write_tensors(file, tensors, values)
        finally:
            for _ in values:  # which the other processes gather in any case
                pass

    if rank.index:
        for _ in values:
            pass
    on_first_rank(write, rank)


def read_best(path: Path, model: nn.Module) -> None:
    """Copies the parameters written by `write_best` into a model."""
    try:
        best = Parts([path])
    except (OSError, safetensors.SafetensorError) as error:
        raise _damaged(path.parent, path.name, str(error)) from error
    best.require_fit(model_tensors(model), "the best model")
    best.copy_to(model_tensors(model))


def _damaged(folder: Path, name: str, reason: str) -> CheckpointError:
    """The error for an unusable file of a checkpoint."""
    return CheckpointError(
        expected=f"an intact file '{folder / name}'", found=reason, fix="use an older checkpoint of the run"
    )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and saved buffers by name; tied tensors appear once, under their first name."""
    saved = model.state_dict(keep_vars=True).keys()
    tensors: dict[str, Tensor] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in saved:
            tensors[name] = tensor.detach()
    return tensors


def set_aside(folder: Path) -> None:
    """Renames a damaged checkpoint, so that it is ignored but not lost."""
    aside = folder.with_name(f"damaged-{folder.name}")
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)


def remove_checkpoints(parent: Path, keep: int) -> None:
    """Deletes the oldest checkpoints, and keeps a number of them.

    Each is renamed first, so that a crash leaves no partial checkpoint under its name.
    """
    steps = checkpoint_steps(parent)
    for step in steps[: max(0, len(steps) - keep)]:
        folder = checkpoint_folder(parent, step)
        doomed = folder.with_name(f".{folder.name}.{os.getpid()}{PARTIAL_SUFFIX}")
        with disk_errors(f"to remove '{folder}', which is no longer needed", _REMOVABLE):
            folder.rename(doomed)
            shutil.rmtree(doomed)
