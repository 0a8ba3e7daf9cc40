"""A fine-tuning run that has ended, as its folder tells of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError, RunError
from bertsmith.files import read_json, read_json_lines
from bertsmith.finetuning.training import PREDICTIONS_FILE, REPORT_FILE
from bertsmith.finetuning.tuning import TABLE_FILE
from bertsmith.training.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run and what its page needs beside.

    Attributes:
        path: the folder.
        name: what the page calls it.
        color: of its name and, beside other runs, of its curves.
        record: what settings.json holds.
        report: what report.json holds.
        logs: the lines of metrics.jsonl of each training, by its folder.
        lines: those of predictions.jsonl; none without dev examples.
        trials: of the search that chose its settings; none without one.
    """

    path: Path
    name: str
    color: str
    record: Mapping[str, Any]
    report: Mapping[str, Any]
    logs: Mapping[str, Sequence[Mapping[str, Any]]]
    lines: Sequence[Mapping[str, Any]]
    trials: Sequence[Mapping[str, Any]] = ()

    @property
    def spec(self) -> Mapping[str, Any]:
        """The plain values of its `TaskSpec`, as training began."""
        return self.record["settings"].get("spec") or {}


def read_run(path: Path, name: str, color: str) -> FinishedRun:
    """The run in a folder.

    Raises:
        RunError: the folder holds no fine-tuning that has ended.
        InputError: a file of the run is damaged.
    """
    record = RunFolder.open(path).record
    if record["settings"].get("task") != "finetuning":
        raise RunError(expected=f"a fine-tuning in '{path}'", found="another run", fix="name a run of `finetune`")
    if not (path / REPORT_FILE).is_file():
        raise RunError(
            expected=f"a fine-tuning in '{path}' that has ended", found=f"no {REPORT_FILE}", fix="go on with --resume"
        )
    report = read_json(path / REPORT_FILE)
    if not (isinstance(report, dict) and {"kind", "metric", "scores", "runs", "best"} <= report.keys()):
        raise RunError(
            expected=f"the scores of all seeds in '{path / REPORT_FILE}'",
            found="something else, such as those of one training",
            fix="name the folder that holds the folders of the seeds",
        )
    return FinishedRun(
        path=path,
        name=name,
        color=color,
        record=record,
        report=report,
        logs={run["folder"]: RunFolder(path / run["folder"], {}).metrics() for run in report["runs"]},
        lines=_predictions(path / PREDICTIONS_FILE),
        trials=read_json(path / TABLE_FILE) if (path / TABLE_FILE).is_file() else (),
    )


def _predictions(path: Path) -> list[dict[str, Any]]:
    """The lines of a predictions.jsonl; none where there is no such file."""
    lines = read_json_lines(path) if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not (isinstance(line, dict) and {"id", "gold", "score", "prediction"} <= line.keys()):
            raise InputError(
                expected=f"id, gold, score and prediction in line {number} of '{path}'",
                found=repr(line)[:40],
                fix="restore the file or train again",
            )
    return lines
