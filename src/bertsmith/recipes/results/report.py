"""Reports a fine-tuning run, or several on the same dev examples, as one self-contained HTML page.

Several runs are compared by resampling the scores of single examples, which separates a difference from the noise of
the dev examples. The standard deviation over seeds shows the randomness of training.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import counted, duration
from bertsmith.base.pages import html
from bertsmith.base.pages.charts import COLORS, Series, line_chart
from bertsmith.recipes.results.baseline_lines import better_line, lines_of_others, mean_line, rows_of_baselines
from bertsmith.recipes.results.comparison import Comparison, compare
from bertsmith.recipes.results.finished_run import (
    COUNTS,
    FinishedRun,
    kept_scores,
    read_run,
    scored_parts,
    table_cells,
)
from bertsmith.recipes.results.published_scores import HEADLINES, PublishedScore, dev_scores
from bertsmith.recipes.results.scores import details
from bertsmith.training.loop.curves import HELD_OUT
from bertsmith.training.loop.run_folder import RunFolder

_OF_FOLDS = (
    "Scores of folds: each example is predicted by a model that was trained on the other folds. The last two columns "
    "are of all examples together; the model that is kept was trained on all of them."
)
_NOT_SCORES = ("_thresh", *COUNTS)  # endings of the other values that scorers report


def is_finetuning(run: Path) -> bool:
    """Whether the run in a folder is a fine-tuning run."""
    return bool(RunFolder.open(run).record["settings"].get("task") == "finetuning")


def write_finetuning_report(
    runs: Sequence[Path], out: Path | None = None, *, on_line: Callable[[str], None] | None = None
) -> Path:
    """Writes the page and returns its path: `out`, or the one from `html.page_place`."""
    assert runs, "at least one run"
    names = html.run_names(runs)
    shown = [read_run(path, names[i], COLORS[i % len(COLORS)]) for i, path in enumerate(runs)]
    comparisons = [compare(first, second) for first, second in itertools.combinations(shown, 2)]
    for comparison in comparisons:
        if on_line is not None:
            on_line(comparison.line())
    tasks = ", ".join(dict.fromkeys(str(run.report.get("task", "")) for run in shown))
    return html.write_page(out or html.page_place(runs), f"Fine-tuning report: {tasks}", *_parts(shown, comparisons))


def _parts(shown: Sequence[FinishedRun], comparisons: Sequence[Comparison]) -> list[str]:
    several = len(shown) > 1
    parts = [html.summary(_summary(run), name=run.name if several else "", color=run.color) for run in shown]
    parts += [html.heading(run.name) * several + _warnings(run) for run in shown if run.report.get("warnings")]
    parts += [_scores(shown), _baselines(shown), _comparisons(comparisons), _curves(shown)]
    for run in shown:
        tables = details(run.report["kind"], run.spec, run.lines)
        tables = _trials(run) + tables
        parts.append(html.heading(run.name) + tables if several and tables else tables)
    names = [run.name for run in shown]
    facts = html.runs_table("Training", [_facts(run) for run in shown], names)
    return [*parts, _costs(shown), facts, html.record_tables([run.record for run in shown], names)]


def _summary(run: FinishedRun) -> list[str]:
    report, count = run.report, len(run.report["runs"])
    parts = [
        counted(count, "training"),
        f"{report.get('train_examples', 0):,} training and {counted(report.get('dev_examples', 0), 'dev example')}",
        duration(report.get("seconds", 0.0)),
    ]
    metric = report["metric"]
    if metric in report["scores"]:
        score = report["scores"][metric]
        parts.insert(1, f"{html.words(metric)} {score['mean']:.4f} ± {score['deviation']:.4f}")
    if report.get("collapsed"):
        parts.append(f"{report['collapsed']} collapsed to one answer")
    return parts


def _warnings(run: FinishedRun) -> str:
    """What is suspicious about the examples of a run."""
    return html.section("Warnings about the data", html.table([[line] for line in run.report["warnings"]]))


def _facts(run: FinishedRun) -> dict[str, Any]:
    names = ("task", "kind", "metric", "train_examples", "dev_examples", "best", "collapsed", "seconds")
    facts = {html.words(name): run.report.get(name) for name in (*names, "tokens_per_second")}
    # Fitted on the dev examples after training; not every model has them.
    facts |= {name: run.report[name] for name in ("temperature", "threshold") if run.report.get(name) is not None}
    for training in run.report["runs"]:
        again = ", collapsed" if training.get("collapsed") else ""
        facts[training["folder"]] = (
            f"seed {training['seed']}: {counted(training['steps'], 'step')}, best after {training['best_step']:,}, "
            f"{counted(training['tokens'], 'token')}, {duration(training['seconds'])}{again}"
        )
    return facts


def _costs(shown: Sequence[FinishedRun]) -> str:
    """The costs of pre-training and fine-tuning in each run; a cost that is not recorded is a dash."""
    rows = []
    for run in shown:
        of_best = [training for training in run.report["runs"] if training["folder"] == run.report["best"]]
        trainings = counted(len(run.report["runs"]), "training")
        costs: list[tuple[str, dict[str, Any]]] = [
            ("pre-training", run.report.get("pretraining", {})),
            *(("fine-tuning, the best training", training) for training in of_best),  # none where an average was kept
        ]
        names = ("steps", "tokens", "seconds")
        if len(run.report["runs"]) > 1 or not of_best:
            total = {name: sum(training[name] for training in run.report["runs"]) for name in names}
            costs.append((f"fine-tuning, {'all of ' * (len(run.report['runs']) > 1)}{trainings}", total))
        if again := run.report.get("refit_runs"):
            total = {name: sum(training[name] for training in again) for name in names}
            costs.append((f"again on all examples, {counted(len(again), 'training')}", total))
        for stage, cost in costs:
            seconds = cost.get("seconds")
            numbers = [html.cell(cost.get("steps")), html.cell(cost.get("tokens"))]
            rows.append([run.name, stage, *numbers, "–" if seconds is None else duration(seconds)])
    several = len(shown) > 1
    header = ["run", "stage", "steps", "tokens", "time"]
    return html.section("Cost", html.table([row if several else row[1:] for row in rows], header[not several :]))


def _trials(run: FinishedRun) -> str:
    """The trials of the hyper-parameter search behind a run, best first."""
    if not run.trials:
        return ""
    header, rows = table_cells(run.trials)
    return html.section("Tuning trials", html.table([list(map(html.cell, row)) for row in rows], header))


def _scores(shown: Sequence[FinishedRun]) -> str:
    """One row per score and run, the score that selected the model first, then published scores; a note on the best."""
    folders = list(dict.fromkeys(part["folder"] for run in shown for part in scored_parts(run.report)))
    names = list(dict.fromkeys(name for run in shown for name in (run.report["metric"], *run.report["scores"])))
    rows = []
    for name in names:
        for run in shown:
            if name not in run.report["scores"]:
                continue
            score = run.report["scores"][name]
            by_folder = {part["folder"]: part["scores"].get(name) for part in scored_parts(run.report)}
            values = [score["mean"], score["deviation"], *(by_folder.get(folder) for folder in folders)]
            values.append(kept_scores(run.report).get(name))
            between = " to ".join(map(_number, run.report.get("intervals", {}).get(name, ())))
            rows.append([html.words(name), *([run.name] if len(shown) > 1 else []), *map(_number, values), between])
        rows += [
            [
                f"{html.words(name)}, published: {published.system}",
                *([""] if len(shown) > 1 else []),
                _number(published.value),
                *[""] * (len(folders) + 3),
            ]
            for published in dict.fromkeys(itertools.chain.from_iterable(map(_published, shown)))
            if published.metric == name
        ]
    header = ["score", *(["run"] if len(shown) > 1 else []), "mean", "standard deviation", *folders, "best model"]
    header.append("its 95% interval")
    tasks = dict.fromkeys(str(run.report.get("task")) for run in shown)
    notes = [html.note(HEADLINES[task].text()) for task in tasks if task in HEADLINES]
    lost = [(run.name, line) for run in shown for line in lines_of_others(run.report)]
    notes += [html.note(html.sentence_case(f"{name}: {line}" if len(shown) > 1 else line)) for name, line in lost]
    folded = [run for run in shown if "cross_validation" in run.report]
    notes += [html.note(_OF_FOLDS) for _ in folded[:1]]
    title = "Scores on examples that a model was not trained on" if folded else "Scores on the dev examples"
    return html.section(title, html.table(rows, header), *notes)


def _baselines(shown: Sequence[FinishedRun]) -> str:
    """The baselines of each run, and which of them are better than its model; "" if none were computed."""
    with_some = [run for run in shown if run.report.get("baselines")]
    if not with_some:
        return ""
    several = len(shown) > 1
    first = with_some[0].report
    names = [name for name in dict.fromkeys([first["metric"], *first["scores"]]) if not name.endswith(_NOT_SCORES)]
    rows = [
        [*([run.name] if several else []), *row] for run in with_some for row in rows_of_baselines(run.report, names)
    ]
    header = [*(["run"] if several else []), "system", *map(html.words, names), "training examples", "seconds"]
    lines = [(run.name, line) for run in with_some for line in (*mean_line(run.report), *better_line(run.report))]
    notes = [html.note(html.sentence_case(f"{name}: {line}" if several else line)) for name, line in lines]
    text = (
        "Systems that take seconds, with 95% intervals over the dev examples; fine-tuning should be better than each. "
        "One that was fitted to fewer training examples than there are has a random sample of them."
    )
    return html.section("Baselines on the dev examples", html.table(rows, header), html.note(text), *notes)


def _published(run: FinishedRun) -> list[PublishedScore]:
    return dev_scores(str(run.report.get("task")), run.spec.get("labels") or ())


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return ""
    header = ["runs", f"difference in {comparisons[0].score}", "95% interval", "p", "verdict"]
    text = (
        "Between the best models of the runs, over the dev examples: the interval is a paired bootstrap, p a paired "
        "permutation test. Both account for the choice of the examples, not for the seeds."
    )
    if len(comparisons) > 1:
        text += " On average, one of twenty pairs without a real difference looks like more than noise."
    return html.section(
        "Differences between the runs",
        html.table([comparison.cells() for comparison in comparisons], header),
        html.note(text),
    )


def curves_of_run(path: Path) -> str:
    """The curves of the run in a folder."""
    return _curves([read_run(path, path.name, COLORS[0])])


def _curves(shown: Sequence[FinishedRun]) -> str:
    """Training loss and dev scores by step, one line per training."""
    scores = dict.fromkeys(name for run in shown for name in (run.report["metric"], *run.report["scores"]))
    charts = [_curve("training loss", "train", "loss", shown)]
    charts += [
        _curve(f"{html.words(name)} on the dev examples", "evaluation", HELD_OUT + name, shown)
        for name in scores
        if not name.endswith(_NOT_SCORES)
    ]
    return html.figures([chart for chart in charts if chart])


def _curve(caption: str, kind: str, key: str, shown: Sequence[FinishedRun]) -> str:
    """One chart; "" if no log has these values."""
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
            keys.append(html.Key(style, color, f"{run.name}, {folder}" if len(shown) > 1 else folder))
    if not series:
        return ""
    label = "loss" if kind == "train" else html.words(key.removeprefix(HELD_OUT))
    return html.figure(caption, line_chart(series, x_label="steps", y_label=label), keys)
