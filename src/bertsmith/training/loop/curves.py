"""Curves of training runs: the log of a run read, and its values drawn over steps or tokens.

One run is drawn over steps; several are drawn over tokens, so that they are compared at equal work. What a workload
logs, and which of it is drawn, is up to the report of that workload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import RunError
from bertsmith.base.pages import html
from bertsmith.base.pages.charts import COLORS, Series, line_chart
from bertsmith.base.pages.html import Key
from bertsmith.training.loop.run_folder import RunFolder

HELD_OUT = "held_out_"


@dataclass(frozen=True, kw_only=True)
class Level:
    """A value that stays the same over a run, drawn as a dashed line into the chart of another value.

    Attributes:
        charts: names of values; the level goes into the chart of the first one that the run has logged.
        text: what the legend says; with several runs, up to the first colon.
    """

    name: str
    charts: tuple[str, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """A run as a page shows it.

    Attributes:
        events: how many other lines there are: steps that were skipped or spiked.
    """

    name: str
    color: str
    folder: RunFolder
    train: list[dict[str, Any]]
    evaluation: list[dict[str, Any]]
    events: int


def read_logged_run(path: Path, name: str, color: str) -> LoggedRun:
    """The run in a folder with its log."""
    run = RunFolder.open(path)
    lines = run.metrics()
    kinds = {kind: [line for line in lines if line.get("kind") == kind] for kind in ("train", "evaluation")}
    if not kinds["train"]:
        raise RunError(expected=f"a log of training in '{path}'", found="no line of it", fix="train first")
    events = len(lines) - sum(map(len, kinds.values()))
    return LoggedRun(
        name=name, color=color, folder=run, train=kinds["train"], evaluation=kinds["evaluation"], events=events
    )


def curve(
    name: str, label: str, runs: Sequence[LoggedRun], *, levels: Sequence[Level] = (), from_zero: bool = False
) -> str:
    """The chart of one logged value with its legend: training as lines, held-out values as points."""
    alone = len(runs) == 1
    axis = "step" if alone else "tokens"
    series: list[Series] = []
    keys: list[Key] = []
    for run in runs:
        held_out_color = COLORS[1] if alone else run.color
        for lines, key, style, color in (
            (run.train, name, "line", run.color),
            (run.evaluation, HELD_OUT + name, "points", held_out_color),
        ):
            points = [(line[axis], line[key]) for line in lines if key in line and axis in line]
            if points:
                x, y = zip(*points, strict=True)
                series.append(Series(x=x, y=y, color=color, style="points" if style == "points" else "line"))
                kind = "held-out" if style == "points" else "training"
                keys.append(Key(style, color, kind if alone else f"{run.name}, {kind}"))
        for level in levels:
            chart_of_run = next((chart for chart in level.charts if any(chart in line for line in run.train)), None)
            # With a held-out curve, the level is that of the held-out text.
            held_out = HELD_OUT + level.name
            points = [(line[axis], line[held_out]) for line in run.evaluation if held_out in line]
            points = points or [(line[axis], line[level.name]) for line in run.train if level.name in line]
            if chart_of_run == name and points:
                x, y = zip(*points, strict=True)
                color = COLORS[2] if alone else run.color
                # From the left edge on, before the first evaluation.
                series.append(Series(x=(0, *x), y=(y[0], *y), color=color, style="level"))
                text = level.text if alone else f"{run.name}, {level.text.split(':')[0]}"
                keys.append(Key("level", color, text))
    svg = line_chart(series, x_label="steps" if alone else "tokens", y_label=label, from_zero=from_zero)
    return html.figure(words(name), svg, keys)


def last_values(run: LoggedRun) -> dict[str, Any]:
    """The last value of everything that a run has logged, by its name in words."""
    values: dict[str, Any] = {}
    for lines in (run.train, run.evaluation):
        values |= {name: value for name, value in (lines[-1] if lines else {}).items() if name != "kind"}
    values.pop("time_left", None)
    return {words(name): value for name, value in values.items()}


def words(name: str) -> str:
    """The name of a logged value in words.

    >>> words("held_out_mlm_loss")
    'held-out MLM loss'
    """
    return html.words(name.replace(HELD_OUT, "held-out "))
