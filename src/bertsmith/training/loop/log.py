"""The log of a run: metrics.jsonl and, on request, TensorBoard; and the speed in it."""

import numbers
from collections.abc import Mapping
from typing import Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.training.loop.run_folder import RunFolder

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
    """Writes the log lines of a run; `close` it at the end."""

    def __init__(self, run: RunFolder, tensorboard: bool = False) -> None:
        self.run = run
        self._writer: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise ConfigError(
                    expected="the package tensorboard, for --tensorboard",
                    found="none",
                    fix="install it (pip install tensorboard) or omit the option",
                ) from None
            last = run.last_step()
            self._writer = SummaryWriter(str(run.path / "tensorboard"), purge_step=None if last is None else last + 1)

    def close(self) -> None:
        """Completes the files of TensorBoard."""
        if self._writer is not None:
            self._writer.close()

    def write(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """Writes one line; `kind` is train, evaluation, spike or skipped, `step` the number of completed steps."""
        self.run.log({"kind": kind, "step": step, **values})
        if self._writer is not None:
            for name, value in values.items():
                if isinstance(value, numbers.Real):
                    self._writer.add_scalar(f"{kind}/{name}", float(value), step)
            self._writer.flush()
