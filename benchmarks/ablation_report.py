"""The results of the ablations: means, ranges and paired tests of every question, and the picture."""

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bertsmith.base.storage.files import write_json, write_text
from bertsmith.recipes.comparison.fitting import Cell, Place, lines_of
from bertsmith.recipes.results.comparison import paired
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.task import TaskSpec

Tasks = Mapping[str, Sequence[Cell]]


def summary(
    questions: Mapping[str, Mapping[str, Any]], tasks: Tasks, folder: Path, spec_of: Callable[[str], TaskSpec]
) -> dict[str, Any]:
    """The rows of each question: a row for each task and arm, for tasks on which every arm has scores.

    Args:
        questions: title, arms and tasks of each.
        tasks: the cells of each task.
        folder: where the cells of tasks are.
        spec_of: returns the spec of a task.
    """
    found = {}
    for name, question in questions.items():
        rows = []
        for task in question["tasks"]:
            own = _rows(task, question["arms"], tasks[task], folder / task, spec_of(task)) if task in tasks else []
            rows += own if len(own) == len(question["arms"]) else []
        if rows:
            found[name] = {"title": question["title"], "rows": rows}
    return found


def _rows(task: str, arms: Sequence[str], cells: Sequence[Cell], folder: Path, spec: TaskSpec) -> list[dict[str, Any]]:
    """A row for each arm that has scores: its mean, lowest and highest, and its differences from the first arm.

    The difference is taken seed by seed, between fits on the same labelled examples; `p_values` are those of a paired
    test over the dev examples, one for each seed.
    """
    by_arm: dict[str, dict[Place, Cell]] = {}
    for cell in cells:
        if not cell.error and cell.place.system in arms:
            by_arm.setdefault(cell.place.system, {})[cell.place] = cell
    rows = []
    for arm in arms:
        own = sorted(by_arm.get(arm, {}).values(), key=lambda one: one.place.seed)
        if not own:
            continue
        over = spread([cell.scores[spec.metric] for cell in own])
        row: dict[str, Any] = {
            "task": task,
            "metric": spec.metric,
            "arm": arm,
            "mean": round(over.mean, 4),
            "lowest": round(min(over.values), 4),
            "highest": round(max(over.values), 4),
            "values": [round(value, 4) for value in over.values],
            "fit_processor_seconds": round(spread([one.costs["fit_processor_seconds"] for one in own]).mean, 1),
            "notes": sorted({one.note for one in own if one.note}),
        }
        if arm != arms[0]:
            row |= _against(arms[0], own, by_arm.get(arms[0], {}), folder, spec)
        rows.append(row)
    return rows


def _against(
    first: str, own: Sequence[Cell], theirs: Mapping[Place, Cell], folder: Path, spec: TaskSpec
) -> dict[str, Any]:
    differences, p_values = [], []
    for cell in own:
        place = dataclasses.replace(cell.place, system=first)
        if place not in theirs:
            continue
        difference = cell.scores[spec.metric] - theirs[place].scores[spec.metric]
        differences.append(round(difference, 4))
        lines = [lines_of(folder, one) for one in (cell.place, place)]
        _, test = paired(spec.kind, spec.metric, spec.scheme, lines[:1], lines[1:])
        p_values.append(round(test.p_value, 4))
    return {"against": first, "differences": differences, "p_values": p_values}


def write_results(place: Path, values: Mapping[str, Any], tasks: Tasks, *, drawn: bool) -> None:
    """Writes PLACE.json, PLACE.jsonl with a line for each cell, and if `drawn` PLACE.svg."""
    lines = []
    for task, cells in tasks.items():
        for cell in cells:
            one = dataclasses.asdict(cell)
            settings = one["provenance"].get("settings", {})
            kept = {
                key: settings[key]
                for key in ("reads", "learning_rate", "epochs", "steps", "penalty")
                if key in settings
            }
            line = {"task": task, **one["place"], "scores": _rounded(one["scores"]), "costs": _rounded(one["costs"])}
            line |= {"settings": kept, "train": one["provenance"].get("train", "")}
            line |= {key: one[key] for key in ("note", "error") if one[key]}
            lines.append(json.dumps(line) + "\n")
    place.parent.mkdir(parents=True, exist_ok=True)
    write_text(place.with_name(place.name + ".jsonl"), "".join(lines))
    write_json(
        place.with_name(place.name + ".json"), {"benchmark": "ablations", "day": time.strftime("%Y-%m-%d"), **values}
    )
    if drawn and values["questions"]:
        draw(values["questions"], place.with_name(place.name + ".svg"))


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(float(value), 4) for name, value in values.items()}


def draw(questions: Mapping[str, Any], path: Path) -> None:
    """Draws the scores of each question: a row of points for each task and arm, the mean as a line."""
    names = list(questions)
    heights = [1 + len(questions[name]["rows"]) for name in names]
    figure = Figure(figsize=(7, max(1.5, 0.22 * sum(heights))), layout="constrained")
    grid = figure.subplots(len(names), 1, height_ratios=heights, squeeze=False, sharex=True)
    for axes, name in zip(grid[:, 0], names, strict=True):
        rows = questions[name]["rows"]
        for number, row in enumerate(rows):
            share = 0.01 if row["task"] == "squad" else 1.0  # whose scores are in percent
            points = [share * value for value in row["values"]]
            axes.plot(points, [number] * len(points), "o", color="#4878d0", markersize=4, alpha=0.6)
            axes.plot([share * row["mean"]], [number], "|", color="#d1495b", markersize=12)
        axes.set_yticks(range(len(rows)), [f"{row['task']}: {row['arm']}" for row in rows], fontsize=7)
        axes.invert_yaxis()
        axes.set_title(questions[name]["title"], fontsize=8, loc="left")
        axes.grid(axis="x", alpha=0.2)
    grid[-1, 0].set_xlabel("score on the dev examples; the bar is the mean over the seeds")
    figure.savefig(path, metadata={"Date": None})
