"""A program that runs a command; the second of its processes kills itself once, in the middle of a step.

See test_killed_rank.py.
"""

import os
import signal
import sys
from typing import Any

from bertsmith.app.cli.app import main
from bertsmith.base.machine.runtime import Rank
from bertsmith.training.loop.trainer import Trainer


def die_in(step: int) -> None:
    """Makes this process kill itself when it computes its `step`-th gradient, counted over all that it trains."""
    real, calls = Trainer.gradient, []

    def gradient(self: Trainer, *arguments: Any) -> Any:
        calls.append(None)
        if len(calls) == step:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(self, *arguments)

    Trainer.gradient = gradient


if __name__ == "__main__":
    rank, dying_step = Rank.from_environment(), int(sys.argv.pop(1))
    if rank.index == 1 and not rank.restarts and dying_step:
        die_in(dying_step)
    main()
