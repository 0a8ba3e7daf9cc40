"""The user's GLUE scores next to the published ones in a table, and their averages.

Own scores are measured on dev data, published ones on the hidden test data: close, but not the same.
"""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsmith.base.core.errors import InputError
from bertsmith.base.storage.files import read_json
from bertsmith.recipes.results.published_scores import (
    GLUE_COLUMNS,
    GLUE_NOTE,
    GLUE_TABLE,
    GLUE_TRAIN_SIZES,
    HEADLINES,
    table_average,
)
from bertsmith.tasks.datasets.glue import GLUE, glue_average

_KEYS = {"MNLI-m": "mnli", "MNLI-mm": "mnli-mm"} | {
    task.title: key for key, task in GLUE.items() if task.title != "MNLI"
}
_ROWS = tuple(_KEYS[column] for column in GLUE_COLUMNS)
_WIDTH = 100


def read_scores(runs: Sequence[Path]) -> dict[str, dict[str, float]]:
    """The scores by task and metric, from the reports of fine-tuning runs or the output of `evaluate --json`.

    MNLI needs two: the run for the matched dev set, and an evaluation of its model on the mismatched one.
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
    """The lines of the published table with a column of own scores, of scores on other sets, averages and a note.

    Scores are times 100. The average of the table is that of the paper: the mean of its rows. The averages below it
    count each task once, as the leaderboard does.
    """
    lines = [_line("task", "training", "own dev score", [row.system for row in GLUE_TABLE])]
    for number, (key, size) in enumerate(zip(_ROWS, GLUE_TRAIN_SIZES, strict=True)):
        lines.append(_line(key, size, _own(key, scores), [row.scores[number] for row in GLUE_TABLE]))
    own = [scores.get(key, {}).get(GLUE[key].metric) for key in _ROWS]
    known = [value for value in own if value is not None]
    average = f"{100 * table_average(known):.1f}" if len(known) == len(own) else "-"
    lines.append(_line("average", "", average, [row.average for row in GLUE_TABLE]))
    lines += [_line(key, "-", _own(key, scores), ["-"] * len(GLUE_TABLE)) for key in scores if key not in _ROWS]
    for with_wnli in (False, True):
        what = f"average {'with' if with_wnli else 'without'} WNLI, each task once"
        try:
            lines.append(f"{what}: {100 * glue_average(scores, with_wnli=with_wnli):.1f}")
        except InputError as missing:
            lines.append(f"{what}: incomplete; {missing.expected.removesuffix(' for the GLUE score')} is missing")
    return [*lines, HEADLINES["glue"].text(), *textwrap.wrap(GLUE_NOTE, _WIDTH)]


def _own(key: str, scores: Mapping[str, Mapping[str, float]]) -> str:
    """The scores of a task in its official metrics, or a dash."""
    own = scores.get(key, {})
    return ", ".join(f"{name} {100 * own[name]:.1f}" for name in GLUE[key].metrics if name in own) or "-"


def _line(name: str, size: str, own: str, published: Sequence[object]) -> str:
    """A line of the table; a column of published scores is as wide as the name of its system."""
    there = [f"{value:>{len(row.system) + 2}}" for row, value in zip(GLUE_TABLE, published, strict=True)]
    return f"{name:<9}{size:<10}{own:<28}" + "".join(there)
