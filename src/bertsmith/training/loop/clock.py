"""The time that a run has taken, and what a budget in minutes counts: wall-clock time or processor time."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from bertsmith.base.core.settings import flat, require
from bertsmith.base.machine.runtime import Rank

# The setting of a run that names its clock; it is recorded if it counts processor time.
BY_PROCESSOR = "clock.by_processor"
RESERVE = 0.03  # of the budget, for time that the trials did not show


class Clock:
    """The time of a run over its resumed parts, from the moment when this object is made.

    Args:
        by_processor: a budget in minutes counts the processor time of this process, divided by its threads, instead of
            wall-clock time. Other load on the machine then prolongs the run, but takes no steps from it.

    Attributes:
        started: the reading of `time.monotonic` at the beginning of this part of the run.
        reserve: the share of a budget that is left for time that the trial steps did not show.
        tolerance: a run that would end closer to its budget than this share of it is left alone.
        unused: a run that would leave less than this share of its budget gets no more steps than planned.
    """

    def __init__(self, *, by_processor: bool = False) -> None:
        self.by_processor = by_processor
        # Processor time depends little on what else runs, so the budget can be kept more exactly.
        self.reserve, self.tolerance, self.unused = (0.01, 0.02, 0.02) if by_processor else (RESERVE, 0.1, 0.2)
        self._threads = torch.get_num_threads()  # once: lanes change it in the middle of a run
        self.started, self._processor = time.monotonic(), time.process_time()
        self._began = self.now()
        self._seconds = self._processor_seconds = 0.0

    @staticmethod
    def of_run(rank: Rank, device: str, *, by_processor: bool, before: Mapping[str, Any]) -> "Clock":
        """The clock of a run that starts, or of one that is resumed, which keeps the one that it was started with."""
        by_processor = by_processor or bool(flat(before.get("settings", {})).get(BY_PROCESSOR))
        require(
            not by_processor or (rank.count == 1 and device == "cpu"),
            expected="one process on a CPU for a budget of processor time",
            found=f"{rank.count} processes" if rank.count > 1 else f"the device {device}",
            fix="count wall-clock time, in a new run",
        )
        return Clock(by_processor=by_processor)

    def record(self) -> dict[str, Any]:
        """What the settings of a run record of its clock: nothing if it counts wall-clock time."""
        topic, _, name = BY_PROCESSOR.partition(".")
        return {topic: {name: True}} if self.by_processor else {}

    def resume(self, seconds: float, processor_seconds: float) -> None:
        """Adds what earlier parts of the run took."""
        self._seconds, self._processor_seconds = seconds, processor_seconds

    @property
    def seconds(self) -> float:
        """Wall-clock seconds, over all parts."""
        return self._seconds + time.monotonic() - self.started

    @property
    def processor_seconds(self) -> float:
        """Seconds of processor time of this process, summed over its threads, over all parts."""
        return self._processor_seconds + time.process_time() - self._processor

    def now(self) -> float:
        """A point in time, in seconds as the budget counts them."""
        return time.process_time() / self._threads if self.by_processor else time.monotonic()

    def elapsed(self) -> float:
        """Seconds of this part of the run, as the budget counts them."""
        return self.now() - self._began

    def spent(self) -> float:
        """Seconds over all parts of the run, as the budget counts them."""
        return self.processor_seconds / self._threads if self.by_processor else self.seconds
