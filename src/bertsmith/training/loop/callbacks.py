"""A program's own code inside a training: objects with methods that the training loop calls, see `Callback`."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.progress import warn

if TYPE_CHECKING:
    from bertsmith.training.loop.result import TrainResult

_CALLBACKS = ContextVar[tuple["Callback", ...]]("callbacks of trainings", default=())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """A training that starts or resumes.

    Attributes:
        folder: its run folder; that of one seed, such as RUN/seed-1, where a command trains several.
        settings: the content of settings.json, nested by topic.
        step: the steps that were completed before.
        steps: the steps of the whole training; None until a budget in tokens or minutes is converted to steps.
    """

    folder: Path
    settings: Mapping[str, Any]
    step: int
    steps: int | None


class StopTraining(Exception):  # noqa: N818 - a request, not an error
    """Raised by a callback to end the training, with an evaluation, as `patience` ends it; the model is written."""


class Callback:
    """Methods that the training loop calls; a subclass overrides those that it needs.

    Every training inside `with bertsmith.callbacks(...)` calls them, in its first process. A method that raises
    `StopTraining` ends the training; any other exception ends it with an error, and it can be resumed.
    """

    def on_start(self, start: TrainingStart) -> None:
        """Called before the first step, and again when a training is resumed."""

    def on_log(self, step: int, values: Mapping[str, Any]) -> None:
        """Called with each `train` line of metrics.jsonl: completed steps, and values such as `loss` by name."""

    def on_evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Called with each `evaluation` line: completed steps, and values such as `held_out_accuracy` by name."""

    def on_spike(self, step: int, values: Mapping[str, Any]) -> None:
        """Called with each `spike` line: a step whose loss is far above the usual one, with both."""

    def on_end(self, result: "TrainResult | None") -> None:
        """Called at the end, with the result; None if the training was interrupted or failed."""


@contextlib.contextmanager
def callbacks(*called: Callback) -> Iterator[None]:
    """A context in which the methods of some objects are called by every training, see `Callback`."""
    token = _CALLBACKS.set((*_CALLBACKS.get(), *called))
    try:
        yield
    finally:
        _CALLBACKS.reset(token)


def warn_of_uncalled(work: str) -> None:
    """Warns of callbacks in the context that some work does not call."""
    if _CALLBACKS.get():
        warn(f"callbacks are not called by {work}")


def current_callbacks() -> Sequence[Callback]:
    """The callbacks of the context, in the order in which they are called."""
    return _CALLBACKS.get()
