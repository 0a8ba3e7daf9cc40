"""The log of a run, metrics.jsonl, and the callbacks that receive its lines; and the speed in it."""

import contextlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from bertsmith.base.core.errors import BertsmithError, ConfigError, TrainingError
from bertsmith.base.core.progress import warn
from bertsmith.training.loop.callbacks import Callback, StopTraining, TrainingStart, current_callbacks
from bertsmith.training.loop.result import TrainResult
from bertsmith.training.loop.run_folder import RunFolder
from bertsmith.training.loop.trackers import Tracker, tracker_of

# Values of a log line that differ between two identical runs.
TIMES = ("tokens_per_second", "utilization", "seconds", "time_left")
# Sums that the loop keeps for the speed; no workload may use these names.
TOKENS, SECONDS, OPERATIONS = "loop.tokens", "loop.seconds", "loop.operations"


def speed(sums: Mapping[str, float], peak: float | None) -> dict[str, float]:
    """The tokens per second of some steps and, if they are known, the model FLOPs utilization of this process.

    >>> speed({TOKENS: 100.0, SECONDS: 2.0, OPERATIONS: 8e12}, 1e13)
    {'tokens_per_second': 50.0, 'utilization': 0.4}
    """
    seconds = max(sums[SECONDS], 1e-9)
    rates = {"tokens_per_second": round(sums[TOKENS] / seconds, 1)}
    if peak is not None and sums.get(OPERATIONS):
        rates["utilization"] = round(sums[OPERATIONS] / seconds / peak, 4)
    return rates


class MetricsLog:
    """Writes the log lines of a run and calls the callbacks, on rank 0 alone; a context that ends the run.

    Args:
        trackers: names of trackers, which are called before the callbacks of the program.
        is_first: whether this is rank 0.

    Attributes:
        is_stopped: whether a callback asked for the end of the training.
    """

    def __init__(self, run: RunFolder, trackers: Sequence[str] = (), *, is_first: bool = True) -> None:
        self.run, self.is_stopped = run, False
        # Every rank knows whether there are callbacks, because they may stop the training of all.
        self.may_stop = bool(current_callbacks())
        self.result: TrainResult | None = None
        self._waiting = [*(tracker_of(run, name) for name in trackers), *current_callbacks()] if is_first else []
        self._callbacks: list[Callback] = []  # those that have started

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.ExitStack() as ends:  # each of them is called, whatever another one raises
            for callback in self._callbacks:
                ends.callback(self._call, callback, "on_end", self.result, may_fail=kind is not None)

    def start(self, step: int, steps: int | None) -> None:
        """Tells the callbacks that the training starts or resumes after a step."""
        settings = self.run.record["settings"]
        start = TrainingStart(folder=self.run.path, settings=settings, step=step, steps=steps)
        for callback in self._waiting:
            self._call(callback, "on_start", start)
            self._callbacks.append(callback)

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes one line; `kind` is train, evaluation, spike or skipped, `step` the number of completed steps."""
        self.run.log({"kind": kind, "step": step, **values})
        if hook := {"train": "on_log", "evaluation": "on_evaluation", "spike": "on_spike"}.get(kind):
            for callback in tuple(self._callbacks):
                self._call(callback, hook, step, dict(values))

    def _call(self, callback: Callback, hook: str, *arguments: Any, may_fail: bool = False) -> None:
        """Calls a method of a callback, whose exception ends the training, except that of a tracker.

        Args:
            may_fail: only warn, because the training ends with another error.
        """
        name = type(callback).__name__
        try:
            getattr(callback, hook)(*arguments)
        except StopTraining:
            self.is_stopped = True
        except Exception as error:  # of the program, or of the package of a tracker
            if isinstance(error, BertsmithError) and not may_fail:
                raise
            raised = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
            if isinstance(callback, Tracker) and hook == "on_start":
                raise ConfigError(
                    expected=f"{name} to open a run", found=raised, fix="correct its settings, or omit --track"
                ) from error
            if isinstance(callback, Tracker):
                self._callbacks.remove(callback)
                warn(f"{name} receives nothing more of this training, because its package raised {raised}")
            elif may_fail:
                warn(f"the callback {name} raised {raised} in {hook}")
            else:
                last = self.run.last_step()
                raise TrainingError(
                    expected=f"{hook} of the callback {name} to return",
                    found=raised,
                    fix="correct it and resume"
                    + (f"; the last checkpoint, of step {last}, is intact" if last else "; there is no checkpoint yet"),
                ) from error
