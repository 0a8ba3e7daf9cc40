"""The report of a comparison: rows for the terminal, a Markdown file and a page with plots.

Everything is computed from the content of report.json.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.progress import counted, shown_p
from bertsmith.base.pages import html
from bertsmith.base.pages.charts import COLORS, Series, line_chart
from bertsmith.base.storage.files import write_json, write_text

JSON_FILE, MARKDOWN_FILE = "report.json", "report.md"

_NOTES = (
    "The mean over the seeds ± their standard deviation; each seed draws its own training examples, the same for every "
    "system. The 95% interval is that of the first seed over the scored examples.",
    "Against the best: the difference of the means over the seeds, on the same scored examples, with the p-value of a "
    "paired permutation test that swaps the answers of all seeds to an example together.",
    "Processor time is summed over all threads: of pre-training or word vectors, which are made once, and of one fit "
    "to the labels. The vocabulary and the token shards are made once for all and are not counted, nor is what a model "
    "that was given has cost elsewhere. The time per text is the median over some dev examples, each answered alone: "
    "processor time as well, with networks on a GPU wall-clock time.",
)


_WITH = "with the 95% interval of the first seed"


def write_report(folder: Path, report: Mapping[str, Any]) -> Path:
    """Writes report.json, report.md and report.html, and returns the path of the page."""
    write_json(folder / JSON_FILE, report)
    write_text(folder / MARKDOWN_FILE, _markdown(report))
    return html.write_page(folder / html.PAGE_FILE, f"Comparison: {report['task']}", *_parts(report))


def table_of(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table, as texts."""
    header = ["labels", "system", html.words(report["metric"]), "95% interval", "against the best"]
    header += ["pre-training, s", "fit, s", "parameters", "ms a text"]
    rows = []
    for row in report["rows"]:
        score = f"{row['mean']:.4f}" + (f" ± {row['deviation']:.4f}" if len(row["values"]) > 1 else "")
        between = "–" if row["interval"] is None else f"{row['interval'][0]:.4f} to {row['interval'][1]:.4f}"
        test = "best" if row["is_best"] else "–"
        if row["p_value"] is not None:
            test = f"{row['difference']:+.4f}, p {shown_p(row['p_value'])}"
        rows.append(
            [
                f"{row['labels']:,}",
                row["system"],
                score,
                between,
                test,
                "–" if row["making"] is None else f"{row['making']:,.1f}",
                f"{row['fitting']:,.1f}",
                f"{row['parameters']:,}",
                f"{row['milliseconds']:.2f}",
            ]
        )
    scored = {(row["labels"], row["system"]) for row in report["rows"]}
    for failure in report["failures"]:
        labels, system = cell = (failure.get("labels", 0), failure["system"])
        if cell not in scored:
            scored.add(cell)
            rows.append(_empty(f"{labels:,}", system, "failed", len(header)))
    rows += [
        _empty("–", system["system"], "left out", len(header)) for system in report["systems"] if system["why_not"]
    ]
    return header, rows


def _empty(labels: str, system: str, why: str, width: int) -> list[str]:
    """The row of a system without scores; the sentences below the table say the reason."""
    return [labels, system, why, *["–"] * (width - 3)]


def lines_below(report: Mapping[str, Any]) -> list[str]:
    """The sentences of the report: which step was worth it, what was left out, what failed, what a score hides."""
    lines = [*report["verdicts"], *filter(None, [report.get("advice")])]
    lines += [f"{line['system']} is left out: {line['why_not']}" for line in report["systems"] if line["why_not"]]
    failed: dict[tuple[str, str], list[str]] = {}
    for line in report["failures"]:
        failed.setdefault((line["system"], line["error"]), []).append(line["cell"])
    for (system, error), cells in failed.items():
        which = cells[0] if len(cells) == 1 else f"{system}, {len(cells):,} cells,"
        lines.append(f"{which} failed: {error}")
    lines += [f"{row['system']}, {row['labels']:,} labels: {row['note']}" for row in report["rows"] if row["note"]]
    if allowed := report.get("allowed_seconds"):
        used = {row["system"]: row["making"] / allowed for row in report["rows"] if row["making"] is not None}
        shares = ", ".join(f"{name} {share:.0%}" for name, share in used.items())
        lines += [f"of {allowed:,.0f} s of processor time for the text were used: {shares}"] if used else []
    unknown = {row["system"]: row["unknown_words"] for row in report["rows"] if row.get("unknown_words")}
    texts = "texts" if report.get("folds") else "dev texts"
    lines += [
        f"{name}: {count:,} of the {total:,} words of the {texts} have no vector ({count / max(total, 1):.1%})"
        for name, (count, total) in unknown.items()
    ]
    return lines


def facts(report: Mapping[str, Any]) -> str:
    """What was compared, in one line."""
    dev = counted(report["dev_examples"], "dev example")
    if folds := report.get("folds"):
        examples = counted(report["dev_examples"], "example")
        dev = f"{examples}, each by a model that was fitted without its fold, one of {folds}"
    parts = [f"{report['task']}, scored on {dev}", counted(len(report["seeds"]), "seed")]
    if report["budget"]:
        parts.append(f"{report['budget']} for each system that reads the text")
    return "; ".join(parts)


def _markdown(report: Mapping[str, Any]) -> str:
    header, rows = table_of(report)
    cells = [header, ["---"] * len(header), *rows]
    table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in cells]
    sentences = [f"- {line}" for line in lines_below(report)]
    parts = ["# Comparison", "", facts(report), "", *sentences, "", *table, "", *_NOTES]
    return "\n".join(parts) + "\n"


def _parts(report: Mapping[str, Any]) -> list[str]:
    header, rows = table_of(report)
    verdicts = report["verdicts"] or ["No system has a score."]
    parts = [html.summary([facts(report)]), html.section("Which step was worth it", *map(html.note, verdicts))]
    rest = [html.note(line) for line in lines_below(report)[len(report["verdicts"]) :]]
    parts += [html.figures(_figures(report)), html.section("Scores and costs", html.table(rows, header))]
    parts.append(html.section("Notes", *rest, *map(html.note, _NOTES)))
    about = [[system["system"], system["about"]] for system in report["systems"]]
    parts.append(html.section("Systems", html.table(about, ["system", "what it is"])))
    return [*parts, html.record_tables([{key: report[key] for key in ("settings", "machine", "versions")}])]


def _figures(report: Mapping[str, Any]) -> list[str]:
    """The score by the number of labels, and by the processor time for the most labels."""
    rows = report["rows"]
    if not rows:
        return []
    names = list(dict.fromkeys(row["system"] for row in rows))
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    metric = html.words(report["metric"])
    most = max(row["labels"] for row in rows)
    figures = []
    if len({row["labels"] for row in rows}) > 1:
        lines = {name: [(row["labels"], row) for row in rows if row["system"] == name] for name in names}
        caption = f"{metric} by the number of labels, {_WITH}"
        figures.append(_figure(caption, lines, colors, x_label="labels", y_label=metric))
    points = {row["system"]: [(row["processor_seconds"], row)] for row in rows if row["labels"] == most}
    caption = f"{metric} by processor time, {most:,} labels, {_WITH}"
    figures.append(_figure(caption, points, colors, x_label="seconds, pre-training and one fit", y_label=metric))
    return figures


def _figure(
    caption: str,
    points: Mapping[str, Sequence[tuple[float, Mapping[str, Any]]]],
    colors: Mapping[str, str],
    *,
    x_label: str,
    y_label: str,
) -> str:
    series, keys = [], []
    for name, values in points.items():
        x, rows = zip(*values, strict=True)
        y, intervals = [row["mean"] for row in rows], [row["interval"] for row in rows]
        series.append(Series(x=x, y=y, color=colors[name], style="points", intervals=intervals))
        keys.append(html.Key("points", colors[name], name))
    return html.figure(caption, line_chart(series, x_label=x_label, y_label=y_label), keys)
