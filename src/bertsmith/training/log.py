"""The log of a run: metrics.jsonl and, on request, TensorBoard."""

import numbers
from collections.abc import Mapping
from typing import Any

from bertsmith.errors import ConfigError
from bertsmith.training.run_folder import RunFolder


class MetricsLog:
    """Writes the log lines of a run; use it as a context manager.

    Args:
        run: the run folder; lines are appended to its metrics.jsonl.
        tensorboard: also write the numbers to RUN/tensorboard.

    Raises:
        ConfigError: TensorBoard is requested but not installed.
    """

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

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
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
