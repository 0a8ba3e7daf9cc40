"""The results of `learning_speed.py`: its file of runs, the summary over seeds, the table and the plot."""

import json
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from harness import write_result
from matplotlib.figure import Figure

BASELINES = ("unigram", "bigram")
OURS = "auto"  # the arm that is compared with the others
OF_ALL = ("corpus", "corpus_digest", "size", "minutes", "length", "rows")  # what all runs of a file share


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of results; none if it does not exist."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_line(path: Path, line: dict[str, Any]) -> None:
    """Adds a line to a file of results."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def summary(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each arm and share: means over the seeds, and the standard deviation of the loss."""
    arms = sorted(dict.fromkeys(line["arm"] for line in lines), key=lambda arm: arm == OURS)
    groups: dict[tuple[str, Fraction], list[dict[str, Any]]] = {}
    for line in lines:
        groups.setdefault((line["arm"], Fraction(line["share"])), []).append(line)
    rows = []
    for (arm, share), runs in sorted(groups.items(), key=lambda item: (arms.index(item[0][0]), item[0][1])):
        losses = [run["loss"] for run in runs]

        def mean(get: Callable[[dict[str, Any]], float], runs: list[dict[str, Any]] = runs) -> float:
            return round(statistics.fmean(map(get, runs)), 4)

        rows.append(
            {
                "arm": arm,
                "share": str(share),
                "seeds": len(runs),
                "steps": runs[0]["steps"],
                "seconds": mean(lambda run: run["seconds"]),
                "loss": mean(lambda run: run["loss"]),
                "deviation": round(statistics.stdev(losses), 4) if len(losses) > 1 else 0.0,
                "accuracy": mean(lambda run: run["accuracy"]),
                "top5": mean(lambda run: run["top5"]),
                "probes": {name: mean(lambda run, name=name: run["probes"][name]) for name in runs[0]["probes"]},
            }
        )
    return rows


def speed_ups(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """How many times fewer seconds `auto` needs for the mean loss that each other arm has at its full budget.

    Between two runs of `auto`, the loss is taken to be linear in the logarithm of the seconds.
    """
    ours = sorted((row for row in rows if row["arm"] == OURS), key=lambda row: row["seconds"])
    speeds = {}
    for peer in rows:
        if peer["arm"] == OURS or Fraction(peer["share"]) != 1 or not ours:
            continue
        first = next((number for number, row in enumerate(ours) if row["loss"] <= peer["loss"]), None)
        if first is None:
            speeds[peer["arm"]] = "not reached"
        elif first == 0:
            speeds[peer["arm"]] = f"more than {peer['seconds'] / ours[0]['seconds']:.1f}"
        else:
            slower, faster = ours[first - 1], ours[first]
            way = (slower["loss"] - peer["loss"]) / (slower["loss"] - faster["loss"])
            seconds = slower["seconds"] * (faster["seconds"] / slower["seconds"]) ** way
            speeds[peer["arm"]] = f"{peer['seconds'] / seconds:.1f}"
    return speeds


def table(rows: Sequence[dict[str, Any]], references: dict[str, Any]) -> str:
    """The rows in Markdown."""
    tasks = list(rows[0]["probes"]) if rows else []
    columns = ["arm", "share", "processor seconds", "steps", "held-out loss", "accuracy", "among first 5", *tasks]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]

    def add(cells: Sequence[str], probes: dict[str, float]) -> None:
        lines.append(
            f"| {' | '.join([*cells, *(f'{probes[task]:.3f}' if task in probes else '' for task in tasks)])} |"
        )

    for name in BASELINES:
        reference = references[name]
        add([name, "", "", "", f"{reference['loss']:.3f}", "", f"{reference['top5']:.3f}"], {})
    reference = references["untrained"]
    scores = [f"{reference[name]:.3f}" for name in ("loss", "accuracy", "top5")]
    add(["untrained", "", "0", "0", *scores], reference["probes"])
    for row in rows:
        loss = f"{row['loss']:.3f} ± {row['deviation']:.3f}"
        scores = [loss, f"{row['accuracy']:.3f}", f"{row['top5']:.3f}"]
        add([row["arm"], row["share"], f"{row['seconds']:.0f}", str(row["steps"]), *scores], row["probes"])
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, Any]], references: dict[str, Any], path: Path, title: str) -> None:
    """Draws loss and probe scores against processor seconds, with standard deviations over the seeds of the loss."""
    tasks = list(rows[0]["probes"])
    figure = Figure(figsize=(5 * (1 + len(tasks)), 4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, 1 + len(tasks)))
    for arm in dict.fromkeys(row["arm"] for row in rows):
        runs = [row for row in rows if row["arm"] == arm]
        seconds = [row["seconds"] for row in runs]
        losses, deviations = [row["loss"] for row in runs], [row["deviation"] for row in runs]
        if runs:
            axes[0].errorbar(seconds, losses, yerr=deviations, marker="o", capsize=3, label=arm)
            for axis, task in zip(axes[1:], tasks, strict=True):
                axis.plot(seconds, [row["probes"][task] for row in runs], marker="o", label=arm)
    for name, style in zip(BASELINES, (":", "--"), strict=True):
        axes[0].axhline(references[name]["loss"], color="grey", linestyle=style, label=name)
    for axis, task in zip(axes[1:], tasks, strict=True):
        axis.axhline(references["untrained"]["probes"][task], color="grey", linestyle=":", label="untrained")
    for axis, label in zip(axes, ["held-out loss, nats", *(f"{task}, accuracy" for task in tasks)], strict=True):
        axis.set(xlabel="processor seconds", ylabel=label, xscale="log")
        axis.legend()
    figure.suptitle(title)
    figure.savefig(path, metadata={"Date": None})


def report(name: str, path: Path) -> None:
    """Writes summary and plot of all runs in a file, and prints the table."""
    lines = read_lines(path)
    first = next(line for line in lines if "references" in line)
    runs = [line for line in lines if "arm" in line]
    if not runs:
        return
    rows = summary(runs)
    print(table(rows, first["references"]))
    ratios = speed_ups(rows)
    print("times fewer seconds of auto for the loss of the full budget:", ratios)
    fixed = {key: first[key] for key in OF_ALL}
    title = f"{fixed['corpus']}, {fixed['size']}, one thread"
    draw(rows, first["references"], path.with_suffix(".svg"), title)
    write_result(
        name,
        {"machine": first["machine"], **fixed, "references": first["references"], "speed_ups": ratios, "rows": rows},
    )
