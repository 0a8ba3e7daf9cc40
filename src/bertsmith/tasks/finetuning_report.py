"""A fine-tuning run, or several on the same dev examples, as one HTML page that needs nothing else. S68.

Several runs are compared by the scores of single examples, drawn again and again: that tells a difference from the
noise of the dev examples. How much chance there is in a training, the deviation over the seeds tells.
"""

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.errors import InputError, RunError
from bertsmith.files import read_json, read_json_lines, write_text
from bertsmith.metrics.labels import CLASS_METRICS
from bertsmith.metrics.numbers import NUMBER_METRICS
from bertsmith.metrics.uncertainty import PairedTest, paired_bootstrap
from bertsmith.progress import duration
from bertsmith.tasks.finetuning_job import PREDICTIONS_FILE, REPORT_FILE
from bertsmith.tasks.finetuning_pages import details
from bertsmith.tasks.finetuning_run import COUNTS
from bertsmith.training import pages
from bertsmith.training.plots import COLORS, Series, line_chart
from bertsmith.training.run_folder import RunFolder, flat

PAGE_FILE = "report.html"
DRAWS_OF_A_METRIC = 2_000
LEVEL = 0.05  # a p-value below it is more than noise

EXAMPLE_SCORES = {
    "classification": "right answers",
    "choice": "right answers",
    "regression": "minus the squared error",
    "span": "F1 of the answers",
    "tagging": "right tags of a sentence",
}

_HELD_OUT = "held_out_"


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A run as the page shows it.

    Attributes:
        path: the folder.
        name: what the page calls it.
        color: of its name and, beside other runs, of its curves.
        record: what settings.json holds.
        report: what report.json holds.
        logs: the lines of metrics.jsonl of each training, by its folder.
        lines: those of predictions.jsonl; none without dev examples.
    """

    path: Path
    name: str
    color: str
    record: Mapping[str, Any]
    report: Mapping[str, Any]
    logs: Mapping[str, Sequence[Mapping[str, Any]]]
    lines: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs on the same examples.

    Attributes:
        first: name of the first run.
        second: name of the second.
        score: what an example counts.
        examples: how many there are.
        test: what the examples say about the difference.
    """

    first: str
    second: str
    score: str
    examples: int
    test: PairedTest

    @property
    def verdict(self) -> str:
        """One sentence: whether the difference is more than noise."""
        if self.test.p_value >= LEVEL:
            return f"The difference is no more than noise: {self.examples:,} examples do not tell the two apart."
        better, worse = (self.first, self.second) if self.test.difference > 0 else (self.second, self.first)
        return f"The difference is more than the noise of {self.examples:,} examples: {better} is better than {worse}."

    def line(self) -> str:
        """The difference, its interval, the p-value and the verdict."""
        return (
            f"{self.first} against {self.second}, {self.score}: {self.test.difference:+.4f} "
            f"({self._interval()}, 95% interval), p = {self.test.p_value:.4f}. {self.verdict}"
        )

    def cells(self) -> list[str]:
        """The same as a row of a table."""
        pair = f"{self.first} against {self.second}"
        return [pair, f"{self.test.difference:+.4f}", self._interval(), f"{self.test.p_value:.4f}", self.verdict]

    def _interval(self) -> str:
        return f"{self.test.low:+.4f} to {self.test.high:+.4f}"


def is_finetuning(run: Path) -> bool:
    """Whether the run in a folder is a fine-tuning.

    Raises:
        RunError: there is no run.
    """
    return bool(RunFolder.open(run).record["settings"].get("task") == "finetuning")


def write_finetuning_report(
    runs: Sequence[Path], out: Path | None = None, *, on_line: Callable[[str], None] | None = None
) -> Path:
    """The page that was written: `out`, or report.html in the first run.

    Args:
        runs: one run folder, or several that were scored on the same dev examples.
        out: another place for the page.
        on_line: is told what came of each comparison of two runs.

    Raises:
        RunError: a folder holds no fine-tuning that has ended.
        InputError: a file of a run is damaged, or the runs were scored on different examples.
    """
    assert runs, "at least one run"
    names = pages.run_names(runs)
    shown = [_read(path, names[i], COLORS[i % len(COLORS)]) for i, path in enumerate(runs)]
    comparisons = [_compare(first, second) for first, second in itertools.combinations(shown, 2)]
    for comparison in comparisons:
        if on_line is not None:
            on_line(comparison.line())
    target = out or runs[0] / PAGE_FILE
    write_text(target, _page(shown, comparisons))
    return target


def _read(path: Path, name: str, color: str) -> _Run:
    record = RunFolder.open(path).record
    if not is_finetuning(path):
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
    return _Run(
        path=path,
        name=name,
        color=color,
        record=record,
        report=report,
        logs={run["folder"]: RunFolder(path / run["folder"], {}).metrics() for run in report["runs"]},
        lines=_predictions(path / PREDICTIONS_FILE),
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


def _compare(first: _Run, second: _Run) -> Comparison:
    """The paired bootstrap of two runs over their dev examples.

    Raises:
        InputError: the runs were scored on other examples.
    """
    kinds = [run.report["kind"] for run in (first, second)]
    keys = [[(str(line["id"]), json.dumps(line["gold"])) for line in run.lines] for run in (first, second)]
    fix = "compare runs of one task with the same --dev file"
    if kinds[0] != kinds[1]:
        expected = f"a run of {kinds[0]}, as in '{first.path}', in '{second.path}'"
        raise InputError(expected=expected, found=kinds[1], fix=fix)
    if not keys[0]:
        raise InputError(expected=f"dev examples in '{first.path}'", found="none", fix=fix)
    if sorted(keys[0]) != sorted(keys[1]):
        others = set(keys[1])
        only = next((key[0] for key in keys[0] if key not in others), None)
        raise InputError(
            expected=f"the {len(keys[0]):,} dev examples of '{first.path}' in '{second.path}'",
            found=f"{len(keys[1]):,} examples" + ("" if only is None else f", without {only!r} or with another gold"),
            fix=fix,
        )
    # Equal ids of one file stand in the order of the file.
    orders = [sorted(range(len(part)), key=part.__getitem__) for part in keys]
    ours, theirs = ([run.lines[number] for number in order] for run, order in zip((first, second), orders, strict=True))
    score, test = _test(first.report, ours, theirs)
    return Comparison(
        first=first.name,
        second=second.name,
        score=score,
        examples=len(keys[0]),
        test=test,
    )


def _test(report: Mapping[str, Any], first: Sequence[Any], second: Sequence[Any]) -> tuple[str, PairedTest]:
    """What is compared, and the paired bootstrap of it over the lines of two runs, in one order.

    Where the main score is no mean over examples but can be had from single labels or numbers (Matthews, F1 of classes,
    correlations), it is computed anew for each draw; otherwise what each example adds is compared.
    """
    metric = report["metric"]
    table = {"classification": CLASS_METRICS, "regression": NUMBER_METRICS}.get(report["kind"], {})
    single = all(isinstance(line["gold"], str | float | int) for line in first)
    if metric not in table or metric == "accuracy" or not single:
        ours, theirs = ([float(line["score"]) for line in lines] for lines in (first, second))
        return EXAMPLE_SCORES.get(report["kind"], "score"), paired_bootstrap(ours, theirs)
    rows = []
    for lines in (first, second):
        if report["kind"] == "regression":
            rows.append([[float(line["gold"]), float(line["prediction"]["value"])] for line in lines])
        else:
            numbers = {name: number for number, name in enumerate(lines[0]["prediction"]["probabilities"])}
            rows.append([[numbers[str(line["gold"])], numbers[line["prediction"]["label"]]] for line in lines])

    def statistic(drawn: npt.NDArray[np.generic]) -> float:
        return float(table[metric](drawn[:, 0], drawn[:, 1]))

    return metric, paired_bootstrap(rows[0], rows[1], draws=DRAWS_OF_A_METRIC, statistic=statistic)


def _page(shown: Sequence[_Run], comparisons: Sequence[Comparison]) -> str:
    several = len(shown) > 1
    parts = [pages.summary(_summary(run), name=run.name if several else "", color=run.color) for run in shown]
    parts += [_scores(shown), _comparisons(comparisons), _curves(shown)]
    for run in shown:
        found = details(run.report["kind"], run.record["settings"].get("spec", {}), run.lines)
        parts.append(pages.heading(run.name) + found if several and found else found)
    records = [run.record for run in shown]
    for title, values in (
        ("Training", [_facts(run) for run in shown]),
        ("Settings", [flat(record["settings"]) for record in records]),
        ("Machine", [flat(record.get("machine", {})) for record in records]),
        ("Versions", [flat(record.get("versions", {})) for record in records]),
        ("Digests of the inputs", [flat(record.get("digests", {})) for record in records]),
    ):
        header = ["", *(run.name for run in shown)] if several else []
        parts.append(pages.section(title, pages.table(pages.columns(values), header)))
    tasks = ", ".join(dict.fromkeys(str(run.report.get("task", "")) for run in shown))
    return pages.page(f"Fine-tuning report: {tasks}", "".join(parts))


def _summary(run: _Run) -> list[str]:
    report, count = run.report, len(run.report["runs"])
    parts = [
        f"{count} training{'s' * (count != 1)}",
        f"{report.get('train_examples', 0):,} training and {report.get('dev_examples', 0):,} dev examples",
        duration(report.get("seconds", 0.0)),
    ]
    metric = report["metric"]
    if metric in report["scores"]:
        score = report["scores"][metric]
        parts.insert(1, f"{pages.words(metric)} {score['mean']:.4f} ± {score['deviation']:.4f}")
    if report.get("collapsed"):
        parts.append(f"{report['collapsed']} collapsed to one answer")
    return parts


def _facts(run: _Run) -> dict[str, Any]:
    names = ("task", "kind", "metric", "train_examples", "dev_examples", "best", "collapsed", "seconds")
    facts = {pages.words(name): run.report.get(name) for name in (*names, "tokens_per_second")}
    for one in run.report["runs"]:
        again = ", collapsed" if one.get("collapsed") else ""
        facts[one["folder"]] = (
            f"seed {one['seed']}: {one['steps']:,} steps, best after {one['best_step']:,}, "
            f"{one['tokens']:,} tokens, {duration(one['seconds'])}{again}"
        )
    return facts


def _scores(shown: Sequence[_Run]) -> str:
    """A row for each score of each run, the one that chose the model first."""
    folders = list(dict.fromkeys(one["folder"] for run in shown for one in run.report["runs"]))
    names = list(dict.fromkeys(name for run in shown for name in (run.report["metric"], *run.report["scores"])))
    rows = []
    for name in names:
        for run in shown:
            if name not in run.report["scores"]:
                continue
            score = run.report["scores"][name]
            by_folder = {one["folder"]: one["scores"].get(name) for one in run.report["runs"]}
            values = [score["mean"], score["deviation"], *(by_folder.get(folder) for folder in folders)]
            values.append(by_folder.get(run.report["best"]))
            rows.append([pages.words(name), *([run.name] if len(shown) > 1 else []), *map(_number, values)])
    header = ["score", *(["run"] if len(shown) > 1 else []), "mean", "deviation", *folders, "best model"]
    return pages.section("Scores on the dev examples", pages.table(rows, header))


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return ""
    header = ["runs", f"difference in {comparisons[0].score}", "95% interval", "p", "verdict"]
    text = (
        "Paired bootstrap over the dev examples between the best models of the runs. It knows the chance in the "
        "choice of the examples, not that in the seeds."
    )
    if len(comparisons) > 1:
        text += " Of twenty pairs without a difference one looks like more than noise."
    return pages.section(
        "Differences between the runs",
        pages.table([comparison.cells() for comparison in comparisons], header),
        pages.note(text),
    )


def _curves(shown: Sequence[_Run]) -> str:
    """Training loss and dev scores by step, one line a training."""
    scores = dict.fromkeys(name for run in shown for name in (run.report["metric"], *run.report["scores"]))
    charts = [_curve("training loss", "train", "loss", shown)]
    charts += [
        _curve(f"{pages.words(name)} on the dev examples", "evaluation", _HELD_OUT + name, shown)
        for name in scores
        if not name.endswith(("_thresh", *COUNTS))
    ]
    return pages.figures([chart for chart in charts if chart])


def _curve(caption: str, kind: str, key: str, shown: Sequence[_Run]) -> str:
    """One chart; "" where no log has such values."""
    series, keys = [], []
    style = "line" if kind == "train" else "points"
    for run in shown:
        for number, (folder, log) in enumerate(run.logs.items()):
            points = [(line["step"], line[key]) for line in log if line.get("kind") == kind and key in line]
            points = [(step, value) for step, value in points if math.isfinite(value)]
            if not points:
                continue
            x, y = zip(*points, strict=True)
            color = run.color if len(shown) > 1 else COLORS[number % len(COLORS)]
            series.append(Series(x=x, y=y, color=color, style="line" if kind == "train" else "points"))
            keys.append(pages.Key(style, color, f"{run.name}, {folder}" if len(shown) > 1 else folder))
    if not series:
        return ""
    label = "loss" if kind == "train" else pages.words(key.removeprefix(_HELD_OUT))
    return pages.figure(caption, line_chart(series, x_label="steps", y_label=label), keys)
