"""Trackers: callbacks that send the log of a training to TensorBoard, MLflow or Weights & Biases.

A tracker is named as NAME or NAME:DESTINATION. Each of them receives the settings, which TensorBoard has no use for,
and every number of metrics.jsonl as `train/NAME`, `evaluation/NAME` or `spike/NAME` at its step. The record of the run
holds the name that the tracker gave it, so that a resumed training continues there; steps that are computed again are
not sent again.
"""

import numbers
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.progress import tell
from bertsmith.base.core.settings import flat
from bertsmith.training.loop.callbacks import Callback, TrainingStart

if TYPE_CHECKING:
    from bertsmith.training.loop.result import TrainResult
    from bertsmith.training.loop.run_folder import RunFolder

PROJECT = "bertsmith"  # the experiment of MLflow, and the project of W&B where none is named
_SENT = ("train", "evaluation", "spike")  # kinds of lines
_PARAMETERS = 100  # that MLflow takes at once
_LONGEST = 500  # characters of a parameter, in every version of MLflow


class Tracker(Callback, ABC):
    """Sends the log lines of one training; use `tracker_of`.

    Attributes:
        destination: where it keeps the trainings; empty for the default.
        title: how it shows the training: the last two parts of the path of the run.
    """

    def __init__(self, run: "RunFolder", name: str, destination: str) -> None:
        self.run, self.key, self.destination = run, f"{name}:{destination}", destination
        self.title = "/".join(run.path.resolve().parts[-2:])
        # Before the log is cut back to the checkpoint: the lines after it were sent, and will be computed again.
        is_new = self.key not in run.tracked
        self.sent = {
            kind: -1 if is_new else max((line["step"] for line in run.metrics(kind)), default=-1) for kind in _SENT
        }

    def on_start(self, start: TrainingStart) -> None:
        """Opens the training at the tracker; one that is new there receives the lines of the steps before."""
        self.run.track(self.key, self.open(start.settings, self.run.tracked.get(self.key)))
        for line in self.run.metrics():
            self._send(line["kind"], line["step"], line)

    def on_log(self, step: int, values: Mapping[str, Any]) -> None:
        """Sends a line."""
        self._send("train", step, values)

    def on_evaluation(self, step: int, values: Mapping[str, Any]) -> None:
        """Sends a line."""
        self._send("evaluation", step, values)

    def on_spike(self, step: int, values: Mapping[str, Any]) -> None:
        """Sends a line."""
        self._send("spike", step, values)

    def on_end(self, result: "TrainResult | None") -> None:
        """Closes the training at the tracker."""
        self.close(is_finished=result is not None)

    def _send(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        if kind not in _SENT or step <= self.sent[kind]:
            return
        self.sent[kind] = step
        numeric = {name: float(value) for name, value in values.items() if isinstance(value, numbers.Real)}
        self.add(step, {f"{kind}/{name}": value for name, value in numeric.items() if name != "step"})

    @abstractmethod
    def open(self, settings: Mapping[str, Any], earlier: str | None) -> str:
        """The name that the tracker gave the training.

        Args:
            earlier: the name, if the training is resumed.
        """

    @abstractmethod
    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the values of a step."""

    @abstractmethod
    def close(self, *, is_finished: bool) -> None:
        """Sends what is left, and whether the training came to its end."""


class TensorBoard(Tracker):
    """Event files in RUN/tensorboard."""

    def __init__(self, run: "RunFolder", name: str, destination: str) -> None:
        super().__init__(run, name, destination)
        from torch.utils.tensorboard import SummaryWriter

        self._make = SummaryWriter

    def open(self, settings: Mapping[str, Any], earlier: str | None) -> str:
        """The folder of the files."""
        folder = self.run.path / "tensorboard"
        # Points of versions that did not record what they sent are replaced.
        self.writer = self._make(str(folder), purge_step=0 if earlier is None else None)
        return folder.name

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Writes the values."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self, *, is_finished: bool) -> None:
        """Completes the files."""
        self.writer.close()


class MLflow(Tracker):
    """A run of the experiment `bertsmith`, where MLflow is configured to track or at the tracking URI `destination`.

    Settings are its parameters, except those of more than 500 characters, which MLflow refuses.
    """

    def __init__(self, run: "RunFolder", name: str, destination: str) -> None:
        super().__init__(run, name, destination)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read by the import; nothing is sent unasked
        import mlflow

        self.mlflow = mlflow
        self.client = mlflow.MlflowClient(tracking_uri=destination or None)

    def open(self, settings: Mapping[str, Any], earlier: str | None) -> str:
        """The id of the run."""
        if earlier is not None:
            self.client.update_run(earlier, status="RUNNING")
            self.id = earlier
            return earlier
        experiment = self.client.get_experiment_by_name(PROJECT)
        number = self.client.create_experiment(PROJECT) if experiment is None else experiment.experiment_id
        self.id = str(self.client.create_run(number, run_name=self.title).info.run_id)
        texts = {name: str(value) for name, value in flat(settings).items() if value is not None}
        kept = [self.mlflow.entities.Param(name, text) for name, text in texts.items() if len(text) <= _LONGEST]
        for first in range(0, len(kept), _PARAMETERS):
            self.client.log_batch(self.id, params=kept[first : first + _PARAMETERS])
        return self.id

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the values as metrics."""
        now = int(time.time() * 1000)
        self.client.log_batch(
            self.id, metrics=[self.mlflow.entities.Metric(name, value, now, step) for name, value in values.items()]
        )

    def close(self, *, is_finished: bool) -> None:
        """Ends the run."""
        self.client.set_terminated(self.id, "FINISHED" if is_finished else "KILLED")


class WeightsAndBiases(Tracker):
    """A run of Weights & Biases: offline, in RUN/wandb, or of the project `destination`, as wandb is configured."""

    def __init__(self, run: "RunFolder", name: str, destination: str) -> None:
        super().__init__(run, name, destination)
        if not destination:
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # read by the import; nothing is sent unasked
        import wandb

        self.wandb = wandb

    def open(self, settings: Mapping[str, Any], earlier: str | None) -> str:
        """The id of the run."""
        entity, _, project = self.destination.rpartition("/")
        self.open_run = self.wandb.init(
            dir=str(self.run.path),
            mode=None if self.destination else "offline",
            entity=entity or None,
            project=project or PROJECT,
            name=self.title,
            config=dict(settings),
            id=earlier,
            resume="allow",
            settings=self.wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )
        return str(self.open_run.id)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Sends the values as a row of the history."""
        self.open_run.log(dict(values), step=step)

    def close(self, *, is_finished: bool) -> None:
        """Ends the run."""
        self.open_run.finish(exit_code=0 if is_finished else 1)
        if not self.destination:
            tell(f"to upload the run to Weights & Biases: wandb sync {self.run.path / 'wandb'}/offline-run-*")


_KINDS: dict[str, Callable[..., Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def tracker_of(run: "RunFolder", named: str) -> Tracker:
    """The tracker of a run, by its name or NAME:DESTINATION.

    Raises:
        ConfigError: its package is not installed.
    """
    name, _, destination = named.partition(":")
    try:
        return _KINDS[name](run, name, destination)
    except ImportError as error:
        raise ConfigError(
            expected=f"the package {name}, for --track {name}",
            found=str(error),
            fix=f"install it (pip install 'bertsmith[{name}]') or omit the option",
        ) from None
