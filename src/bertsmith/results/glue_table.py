"""The user's GLUE scores next to the published ones in a table, and their averages.

Own scores are measured on dev data, published ones on the hidden test data: close, but not the same.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsmith.datasets.glue import GLUE, glue_average
from bertsmith.errors import InputError
from bertsmith.files import read_json
from bertsmith.results.published_scores import GLUE_COLUMNS, GLUE_TABLE

_COLUMNS = {"mnli": "MNLI-m", "mnli-mm": "MNLI-mm"} | {
    key: task.title for key, task in GLUE.items() if task.title in GLUE_COLUMNS
}
_SHOWN = ("BERT base", "BERT large")


def read_scores(runs: Sequence[Path]) -> dict[str, dict[str, float]]:
    """The scores by task and metric, from the reports of fine-tuning runs or the output of `evaluate --json`.

    MNLI needs two: the run for the matched dev set, and an evaluation of its model on the mismatched one.

    Raises:
        InputError: a run has no report, its task is not part of GLUE, or the task occurs twice.
    """
    result: dict[str, dict[str, float]] = {}
    for run in runs:
        path = run / "report.json" if run.is_dir() else run
        report = read_json(path)
        task = report.get("task") if isinstance(report, dict) else None
        if task not in GLUE or task in result:
            raise InputError(
                expected=f"the report of a GLUE task, one per task, in '{path}'",
                found=f"{task!r}" + (" again" if task in result else ""),
                fix="name one run per task",
            )
        scores = report.get("scores", {})
        result[task] = {name: score["mean"] if isinstance(score, dict) else score for name, score in scores.items()}
    return result


def glue_lines(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The lines of the table: one per task, then the averages; scores times 100."""
    published = {row.system: dict(zip(GLUE_COLUMNS, row.scores, strict=True)) for row in GLUE_TABLE}
    lines = [f"{'task':<10}{'own dev score':<34}" + "".join(f"{system + ' (test)':>20}" for system in _SHOWN)]
    for key, own in scores.items():
        cells = ", ".join(f"{name} {100 * own[name]:.1f}" for name in GLUE[key].metrics if name in own)
        there = [published[system].get(_COLUMNS.get(key, "")) for system in _SHOWN]
        lines.append(f"{key:<10}{cells:<34}" + "".join(f"{'-' if value is None else value:>20}" for value in there))
    for with_wnli in (False, True):
        what = "average with WNLI" if with_wnli else "average without WNLI"
        try:
            lines.append(f"{what}: {100 * glue_average(scores, with_wnli=with_wnli):.1f}")
        except InputError as missing:
            lines.append(f"{what}: incomplete; {missing.expected.removesuffix(' for the GLUE score')} is missing")
    return lines
