"""The results of the ablations: means, ranges and paired tests of every question, and the pictures."""

import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ablation_differences import against
from matplotlib.figure import Figure

from bertsmith.base.storage.files import write_json, write_text
from bertsmith.recipes.comparison.fitting import Cell, CellKey, lines_of
from bertsmith.tasks.metrics.uncertainty import spread
from bertsmith.tasks.specs.task import TaskSpec

Tasks = Mapping[str, Sequence[Cell]]


def summary(
    questions: Mapping[str, Mapping[str, Any]],
    tasks: Tasks,
    folder: Path,
    spec_of: Callable[[str], TaskSpec],
    is_piece: Callable[[str], bool],
) -> dict[str, Any]:
    """The rows of each question: a row for each task and arm, for tasks on which every arm has scores.

    Args:
        questions: title of each, and the arms of each of its tasks.
        tasks: the cells of each task.
        folder: where the cells of tasks are.
        spec_of: returns the spec of a task.
        is_piece: whether a word is a single piece.
    """
    results = {}
    for name, question in questions.items():
        rows = []
        for task, arms in question["arms"].items():
            arm_rows = _rows(task, arms, tasks[task], folder / task, spec_of(task), is_piece) if task in tasks else []
            rows += arm_rows if len(arm_rows) == len(arms) else []
        if rows:
            results[name] = {"title": question["title"], "rows": rows, "verdict": verdict(rows)}
    return results


def verdict(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """For each arm but the first, the tasks on which it is "above" it, "below" it, or "level" with it.

    Above and below are intervals over seeds and dev examples without 0.

    >>> verdict([{"arm": "left", "task": "gaps", "interval": [-0.3, -0.1]}, {"arm": "both", "task": "gaps"}])
    {'left': {'below': ['gaps']}}
    """
    verdicts: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if "interval" in row:
            low, high = row["interval"]
            word = "above" if low > 0 else "below" if high < 0 else "level"
            verdicts.setdefault(row["arm"], {}).setdefault(word, []).append(row["task"])
    return verdicts


def _rows(
    task: str,
    arms: Sequence[str],
    cells: Sequence[Cell],
    folder: Path,
    spec: TaskSpec,
    is_piece: Callable[[str], bool],
) -> list[dict[str, Any]]:
    """A row for each arm that has scores: its mean, lowest and highest, and its differences from the first arm.

    A difference is taken seed by seed, between fits on the same labelled examples, see `ablation_differences.py`.
    """
    by_arm: dict[str, dict[CellKey, Cell]] = {}
    for cell in cells:
        if not cell.error and cell.key.system in arms:
            by_arm.setdefault(cell.key.system, {})[cell.key] = cell
    rows = []
    for arm in arms:
        of_arm = sorted(by_arm.get(arm, {}).values(), key=lambda cell: cell.key.seed)
        if not of_arm:
            continue
        over = spread([cell.scores[spec.metric] for cell in of_arm])
        row: dict[str, Any] = {
            "task": task,
            "metric": spec.metric,
            "arm": arm,
            "mean": round(over.mean, 4),
            "lowest": round(min(over.values), 4),
            "highest": round(max(over.values), 4),
            "values": [round(value, 4) for value in over.values],
            "fit_processor_seconds": round(spread([cell.costs["fit_processor_seconds"] for cell in of_arm]).mean, 1),
            "notes": sorted({cell.note for cell in of_arm if cell.note}),
        }
        row |= {"groups": groups} if (groups := _groups(of_arm, folder, spec)) else {}
        if arm != arms[0]:
            row |= against(arms[0], of_arm, by_arm.get(arms[0], {}), folder, spec, is_piece)
        rows.append(row)
    return rows


def _groups(cells: Sequence[Cell], folder: Path, spec: TaskSpec) -> dict[str, float]:
    """The mean score of the examples of each group, of choices whose ids begin with a group and a slash."""
    scores: dict[str, list[float]] = {}
    for line in itertools.chain.from_iterable(lines_of(folder, cell.key) for cell in cells):
        group, slash, _ = line["id"].partition("/")
        if spec.kind == "choice" and slash:
            scores.setdefault(group, []).append(line["score"])
    return {group: round(float(np.mean(values)), 4) for group, values in sorted(scores.items())}


def write_results(path: Path, values: Mapping[str, Any], tasks: Tasks, *, drawn: bool) -> None:
    """Writes PATH.json, PATH.jsonl with a line for each cell, and if `drawn` PATH.svg."""
    lines = []
    for task, cells in tasks.items():
        for cell in cells:
            fields = dataclasses.asdict(cell)
            settings = fields["provenance"].get("settings", {})
            kept = {
                key: settings[key]
                for key in ("reads", "learning_rate", "epochs", "steps", "penalty")
                if key in settings
            }
            line = {
                "task": task,
                **fields["key"],
                "scores": _rounded(fields["scores"]),
                "costs": _rounded(fields["costs"]),
            }
            line |= {"settings": kept, "train": fields["provenance"].get("train", "")}
            line |= {key: fields[key] for key in ("note", "error") if fields[key]}
            lines.append(json.dumps(line) + "\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path.with_name(path.name + ".jsonl"), "".join(lines))
    write_json(
        path.with_name(path.name + ".json"), {"benchmark": "ablations", "day": time.strftime("%Y-%m-%d"), **values}
    )
    if drawn and values["questions"]:
        draw(values["questions"], path.with_name(path.name + ".svg"))
    if drawn and len(sizes := _sizes(values)) > 1:
        draw_sizes(sizes, path.with_name(path.name + "_sizes.svg"))


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


def _sizes(values: Mapping[str, Any]) -> list[tuple[int, float, Mapping[str, float]]]:
    """The parameters, the held-out loss and the mean score on each task of the arms of "sizes", the smallest first."""
    sizes = []
    rows = values["questions"].get("sizes", {"rows": []})["rows"]
    for arm in {row["arm"] for row in rows} & values["models"].keys():
        model = values["models"][arm]
        scores = {row["task"]: row["mean"] for row in rows if row["arm"] == arm}
        sizes.append((model["parameters"], model["scores"]["held_out_loss"], scores))
    return sorted(sizes, key=lambda size: size[0])


def draw_sizes(sizes: Sequence[tuple[int, float, Mapping[str, float]]], path: Path) -> None:
    """Draws the held-out loss and the scores against the number of parameters."""
    figure = Figure(figsize=(7, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    parameters = [size[0] for size in sizes]
    left.plot(parameters, [size[1] for size in sizes], "o-", color="#4878d0")
    left.set_ylabel("held-out loss, nats")
    for task in sizes[0][2]:
        right.plot(parameters, [size[2].get(task, np.nan) for size in sizes], "o-", label=task)
    right.set_ylabel("score on the dev examples")
    right.legend(fontsize=8)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("parameters")
        axes.grid(alpha=0.2)
    figure.savefig(path, metadata={"Date": None})
