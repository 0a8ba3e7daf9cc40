"""A finished fine-tuning run, read from its folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError, RunError
from bertsmith.base.core.progress import counted
from bertsmith.base.storage.files import read_json, read_json_lines
from bertsmith.training.loop.run_folder import RunFolder

REPORT_FILE, PREDICTIONS_FILE = "report.json", "predictions.jsonl"
MODEL_FOLDER, ADAPTER_FOLDER = "model", "adapter"
OUT_OF_FOLD = "out_of_fold.jsonl"  # the predictions of all examples, each by the run of its fold
COUNTS = ("total", "missing")  # that the SQuAD scorer reports next to its scores
AVERAGE = "average"  # of the weights of several trainings, in place of the folder of the best one
START = "start"  # the linear model that the trainings start from, in place of the folder of one of them
BAG_FOLDER = "bag-of-words"  # the bag of words, likewise; the baselines leave one in a folder of that name
WITHOUT_TRAINING = (AVERAGE, START, BAG_FOLDER)  # what may be kept in place of a training
FITTED = ("temperature", "threshold", "thresholds")  # fields of a `TaskSpec` with values that dev examples give
TABLE_FILE = "trials.json"  # of a search for settings


def search_folder(out: Path) -> Path:
    """The folder of the search for settings of a run in `out`."""
    return out.resolve().with_name(f"{out.resolve().name}-search")


@dataclass(frozen=True, kw_only=True)
class SeedResult:
    """The result of one training."""

    seed: int
    scores: Mapping[str, float]  # the scores of the best epoch on the dev examples
    collapsed: bool  # whether the model gives the same answer to every example that was tried
    best_step: int  # the step whose model was kept
    steps: int
    seconds: float  # the training time, including evaluations
    tokens: int  # tokens trained on
    learning_rate: float | None = None  # the peak rate


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A run with everything that its page needs."""

    path: Path
    name: str
    color: str  # color of its name and, next to other runs, of its curves
    record: Mapping[str, Any]
    report: Mapping[str, Any]
    logs: Mapping[str, Sequence[Mapping[str, Any]]]  # the lines of metrics.jsonl of each training, by folder
    lines: Sequence[Mapping[str, Any]]  # the lines of predictions.jsonl; empty without dev examples
    trials: Sequence[Mapping[str, Any]] = ()  # trials of the search that chose its settings; empty without a search

    @property
    def spec(self) -> Mapping[str, Any]:
        """The plain values of its `TaskSpec` at the start of training."""
        return self.record["settings"].get("spec") or {}


def kept_scores(report: Mapping[str, Any]) -> Mapping[str, float]:
    """The scores of the model that was kept, from a report.json: of folds, a training, or one of `WITHOUT_TRAINING`."""
    if folds := report.get("cross_validation"):
        return dict(folds["scores"])
    if report["best"] in WITHOUT_TRAINING:
        return dict(report[report["best"]]["scores"])
    return dict(next(run["scores"] for run in report["runs"] if run["folder"] == report["best"]))


def kept_name(report: Mapping[str, Any]) -> str:
    """The model that was kept, in words: the folder of the best training, or what is kept in place of one."""
    return named(str(report["best"]), report.get(AVERAGE, {}).get("parts", 0))


def named(name: str, parts: int) -> str:
    """A model of some trainings in words.

    >>> named("average", 3), named("start", 0), named("seed-1", 1)
    ('the average of 3 trainings', 'the linear start', 'seed-1')
    """
    names = {AVERAGE: f"the average of {counted(parts, 'training')}", START: "the linear start"}
    return names.get(name, "the bag of words" if name == BAG_FOLDER else name)


def scored_parts(report: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What the mean of a score is over, with "folder" and "scores" of each: the folds of a run, or its trainings."""
    return list((report.get("cross_validation") or {}).get("folds") or report["runs"])


def warning_lines(report: Mapping[str, Any]) -> list[str]:
    """The line that counts the warnings about the examples of a run, which were given at its start; empty for none."""
    count = len(report.get("warnings", ()))
    return [f"{counted(count, 'warning')} about the data, see the report"] if count else []


def read_run(path: Path, name: str, color: str) -> FinishedRun:
    """The run in a folder."""
    record = RunFolder.open(path).record
    if record["settings"].get("task") != "finetuning":
        raise RunError(expected=f"a fine-tuning run in '{path}'", found="another run", fix="name a run of `finetune`")
    if not (path / REPORT_FILE).is_file():
        raise RunError(
            expected=f"a finished fine-tuning run in '{path}'", found=f"no {REPORT_FILE}", fix="resume it with --resume"
        )
    report = read_json(path / REPORT_FILE)
    if not (isinstance(report, dict) and {"kind", "metric", "scores", "runs", "best"} <= report.keys()):
        fix = "name the folder that contains the folders of the seeds"
        raise RunError.is_not(path / REPORT_FILE, "the report of a run", "it lacks the scores of all seeds", fix)
    return FinishedRun(
        path=path,
        name=name,
        color=color,
        record=record,
        report=report,
        logs={run["folder"]: RunFolder(path / run["folder"], {}).metrics() for run in report["runs"]},
        lines=_predictions(path / PREDICTIONS_FILE) or _predictions(path / OUT_OF_FOLD),
        trials=read_json(path / TABLE_FILE) if (path / TABLE_FILE).is_file() else (),
    )


def _predictions(path: Path) -> list[dict[str, Any]]:
    """The lines of a predictions.jsonl; empty if there is no such file."""
    lines = read_json_lines(path) if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        if not (isinstance(line, dict) and {"id", "gold", "score", "prediction"} <= line.keys()):
            location, shown = f"line {number} of '{path}'", repr(line)[:40]
            raise InputError.at(location, "id, gold, score and prediction", shown, "restore the file or train again")
    return lines


def table_cells(table: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the table of trials for display: settings, state, value and seconds."""
    columns = [name for name in table[0] if name != "by_epoch"] if table else []
    return [name.replace("_", " ") for name in columns], [[row.get(name) for name in columns] for row in table]
