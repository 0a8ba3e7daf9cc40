"""A program that runs a command, and of whose processes the second kills itself in the middle of a step, once.

See test_killed_rank.py.
"""

import os
import signal
import sys
from typing import Any

from bertsmith.cli.app import main
from bertsmith.runtime import Rank
from bertsmith.training.trainer import Trainer


def die_in(step: int) -> None:
    """Has this process kill itself when it computes a gradient for that time, counted over all that it trains."""
    real, calls = Trainer.gradient, []

    def gradient(self: Trainer, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments)

    Trainer.gradient = gradient  # type: ignore[method-assign]


if __name__ == "__main__":
    rank, dying_step = Rank.from_environment(), int(sys.argv.pop(1))
    if rank.index == 1 and not rank.restarts and dying_step:
        die_in(dying_step)
    main()
