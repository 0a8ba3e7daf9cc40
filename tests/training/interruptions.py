"""Runs that are interrupted or killed, and the files of two runs compared byte by byte."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.training.loop.callbacks import Callback, callbacks
from bertsmith.training.loop.trainer import Trainer


class KilledError(BaseException):
    """Ends a training as if it were killed: nothing is written on the way out."""


@contextlib.contextmanager
def killed_at_step(number: int) -> Iterator[None]:
    """The training in the block is killed in the middle of a step, counted from 1; the block fails if it is not."""
    step, count = Trainer.gradient, []

    def dies(self: Trainer, *arguments: object) -> object:
        count.append(1)
        if len(count) == number:
            raise KilledError
        return step(self, *arguments)

    with mock.patch.object(Trainer, "gradient", dies), pytest.raises(KilledError):
        yield


@contextlib.contextmanager
def killed_at_evaluation(number: int) -> Iterator[None]:
    """The training in the block is killed at the evaluation of a step; the block fails if it is not."""

    class Killer(Callback):
        def on_evaluation(self, step: int, values: object) -> None:
            if step == number:
                raise KilledError

    with callbacks(Killer()), pytest.raises(KilledError):
        yield


@contextlib.contextmanager
def interrupted(owner: Any, function: str, stops: Callable[..., bool]) -> Iterator[None]:
    """The block is interrupted at the first call of a function for which `stops` is true; it fails if there is none."""
    whole = getattr(owner, function)

    def interrupts(*arguments: Any, **options: Any) -> Any:
        if stops(*arguments, **options):
            raise KeyboardInterrupt
        return whole(*arguments, **options)

    with mock.patch.object(owner, function, interrupts), pytest.raises(KeyboardInterrupt):
        yield


def assert_same_files(first: Path, second: Path, *names: str) -> None:
    """Files of two folders are equal to the byte."""
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def assert_resumes(job: FinetuningJob, folder: Path, again: FinetuningJob | None = None) -> None:
    """A training that is killed at its first evaluation, by the same or an equal job, resumes to the same bytes."""

    def dies(scores: object) -> None:
        raise KilledError

    again = again or job
    job.train_once(folder / "straight", 7)
    with pytest.raises(KilledError):
        again.train_once(folder / "killed", 7, dies)
    assert not (folder / "killed" / "model").exists()
    again.train_once(folder / "killed", 7, resume=True)
    assert_same_files(folder / "killed", folder / "straight", "model/model.safetensors")
