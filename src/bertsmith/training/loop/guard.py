"""Monitors a run: losses and parameters that are not finite, loss spikes, and requests to stop."""

import contextlib
import math
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal

from torch import nn

from bertsmith.base.core.errors import NotFiniteError, TrainingError
from bertsmith.base.core.finite import not_finite
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import from_all_ranks
from bertsmith.base.processes.sharding import own_rows

Verdict = Literal["fine", "spike", "skip"]

_MEMORY = 0.98  # decay of the running mean per step: about the last 50 steps
_STEPS_BEFORE_SPIKES = 50  # the loss falls steeply at first; before this many steps nothing counts as a spike
_SPIKE_DEVIATIONS = 6.0
_SPIKE_SHARE = 0.2
_LOOK = "or look for extreme values in the training data"


@dataclass
class LossGuard:
    """Compares the loss of each step with the running mean of the previous losses.

    A step is skipped when its loss or its gradient norm is not finite. A step is a spike when its loss exceeds the
    mean by more than six mean deviations and by more than a fifth; it is applied, but reported. A loss that stays high
    counts as one spike.
    """

    mean: float = 0.0
    deviation: float = 0.0
    steps: int = 0
    skipped: int = 0
    skipped_in_a_row: int = 0
    spikes: int = 0
    high: bool = False

    def judge(self, loss: float, gradient_norm: float) -> Verdict:
        """The verdict on a step, from its loss and gradient norm; updates the running mean."""
        if not (math.isfinite(loss) and math.isfinite(gradient_norm)):
            self.skipped += 1
            self.skipped_in_a_row += 1
            return "skip"
        self.skipped_in_a_row = 0
        limit = self.mean + max(_SPIKE_DEVIATIONS * self.deviation, _SPIKE_SHARE * abs(self.mean))
        was_high, self.high = self.high, self.steps >= _STEPS_BEFORE_SPIKES and loss > limit
        spike = self.high and not was_high
        self.spikes += spike
        # A high loss enters the mean clipped to the limit: one outlier hardly moves it, a lasting rise does.
        seen = limit if self.high else loss
        keep = min(_MEMORY, self.steps / (self.steps + 1))
        self.deviation = keep * self.deviation + (1 - keep) * abs(seen - (self.mean if self.steps else seen))
        self.mean = keep * self.mean + (1 - keep) * seen
        self.steps += 1
        return "spike" if spike else "fine"


def remedies(precision: str) -> str:
    """What to try after losses that are not finite, without the precision that was used already.

    >>> remedies("bf16"), remedies("fp32")
    ('lower the learning rate or use fp32', 'lower the learning rate')
    """
    return "lower the learning rate" + ("" if precision in ("fp32", "fp64") else " or use fp32")


def of_process(broken: Sequence[int], rank: Rank) -> str:
    """Which processes have a loss that is not finite, as the end of a sentence; empty for a single process.

    >>> of_process((1,), Rank(index=0, count=2))
    ' in process 1'
    """
    if rank.count == 1:
        return ""
    return f" in process {', '.join(map(str, broken))}" if broken else ", although the loss of each process is finite"


def too_many_skipped(guard: LossGuard, step: int, values: str, precision: str, last: int | None) -> TrainingError:
    """The error for too many steps in a row that were not finite."""
    kept = f"the last checkpoint, of step {last}, was written before them" if last else "there is no checkpoint yet"
    return TrainingError(
        expected="a finite loss and gradient",
        found=f"NaN or infinity in {counted(guard.skipped_in_a_row, 'step')} in a row, up to step {step} ({values}), "
        "so the training was stopped",
        fix=f"{remedies(precision)}, and start a new run; {kept}",
    )


def require_trained(model: nn.Module, guard: LossGuard, precision: str, rank: Rank) -> None:
    """Checks that a finished run has trained its model; all processes call it."""
    if guard.skipped and not guard.steps:
        raise TrainingError(
            expected="steps with a finite loss and gradient",
            found=f"{counted(guard.skipped, 'step')}, all skipped, so nothing was learned",
            fix=f"{remedies(precision)}, {_LOOK}",
        )
    names_by_rank = from_all_ranks(
        not_finite({name: own_rows(tensor) for name, tensor in model.state_dict().items()}), rank
    )
    if broken := list(dict.fromkeys(name for names in names_by_rank for name in names)):
        raise TrainingError(
            expected="finite parameters at the end of training",
            found=f"NaN or infinite values in {counted(len(broken), 'tensor')}, such as {broken[0]}",
            fix=f"{remedies(precision)}, {_LOOK}",
        )


@contextlib.contextmanager
def divergence_in_words(precision: str) -> Iterator[None]:
    """Says what to do about a training whose model computes NaN or infinity when it is scored."""
    try:
        yield
    except NotFiniteError as error:
        raise TrainingError(
            expected="numbers from the trained model",
            found=error.found,
            fix=f"{remedies(precision)}, {_LOOK}",
        ) from None


class StepAbandoned(KeyboardInterrupt):
    """A step was abandoned before its end; nothing of it was applied."""


class StopRequest:
    """Turns Ctrl-C and SIGTERM into a flag, inside a `with` block of the main thread.

    After Ctrl-C the step is finished; after SIGTERM, which a cluster follows with a kill, it ends with its micro-batch.
    A second signal interrupts immediately. In other threads it does nothing, because Python lets only the main thread
    handle signals.

    Attributes:
        is_urgent: the signal was SIGTERM.
    """

    def __init__(self) -> None:
        self.requested = self.is_urgent = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested, self.is_urgent = True, number == signal.SIGTERM
        when = "before the end of this step" if self.is_urgent else "after this step"
        warn(
            f"stopping {when} and writing a checkpoint, from which --resume continues "
            "(interrupt again to stop immediately)"
        )
