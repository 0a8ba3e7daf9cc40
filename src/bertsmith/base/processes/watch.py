"""Watches how long each of several processes works before it waits for the others, and names one that holds them up.

A process that is slow is not seen in the time of a step, which is that of all of them. So each adds up the seconds of
its own work: until its rows are prepared, and in the passes up to the last backward pass, which exchanges gradients. Of
a model that is divided among the processes every pass waits for all, so only the first part is counted. On a GPU the
passes are only launched here, so the seconds are the host's.
"""

import statistics
import time
from types import TracebackType

from bertsmith.base.core.progress import warn
from bertsmith.base.machine.runtime import Rank
from bertsmith.base.processes.distributed import from_all_ranks

# A process is slow if its work takes this many times as long as the usual one's, and this many seconds more.
_SLOW, _LEAST_WAIT = 1.5, 0.5


class Watch:
    """Adds up the seconds of work of this process; a `with` block adds its own duration."""

    def __init__(self, rank: Rank) -> None:
        self.rank, self._seconds, self._started = rank, 0.0, 0.0
        self._slow: int | None = None

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, value: object, traceback: TracebackType | None) -> None:
        self.add(time.monotonic() - self._started)

    def add(self, seconds: float) -> None:
        """Adds seconds of work."""
        self._seconds += seconds

    def look(self, step: int) -> list[float]:
        """The seconds of each process since the last look. Warns once of a slow one.

        All processes call it together.
        """
        seconds = [float(value) for value in from_all_ranks(self._seconds, self.rank)]
        self._seconds, slow = 0.0, slowest(seconds)
        if slow is not None and slow != self._slow:
            most = max(value for index, value in enumerate(seconds) if index != slow)
            warn(
                f"the others wait for process {slow}, which is slow: {seconds[slow]:.1f} s of work of its own in the "
                f"steps up to {step}, the others at most {most:.1f} s"
            )
        self._slow = slow
        return seconds


def slowest(seconds: list[float]) -> int | None:
    """The process that the others wait for: it takes half as long again as the usual one, and at least 0.5 s more.

    >>> slowest([2.0, 2.1, 9.0]), slowest([2.0, 2.1, 2.9])
    (2, None)
    """
    slow = max(range(len(seconds)), key=seconds.__getitem__)
    usual = statistics.median(value for index, value in enumerate(seconds) if index != slow)
    return slow if seconds[slow] > max(_SLOW * usual, usual + _LEAST_WAIT) else None
