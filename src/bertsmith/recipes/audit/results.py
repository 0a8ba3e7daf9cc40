"""The files of an audit: the rows to look at, the corrected table, the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted, quiet
from bertsmith.base.storage.files import write_csv
from bertsmith.tasks.datasets.cells import LABEL_COLUMNS
from bertsmith.tasks.datasets.label_cells import gold_of_cell
from bertsmith.tasks.datasets.tables import label_column_of, read_table, text_columns
from bertsmith.tasks.datasets.values import brief
from bertsmith.tasks.specs.settings import ColumnSettings
from bertsmith.tasks.specs.task import VECTORS
from bertsmith.text.documents.encodings import has_mark

ISSUES_FILE, CORRECTED_FILE, PAGE_FILE = "issues.csv", "corrected.csv", "report.html"
BEFORE = "label_before"  # the column of the corrected table with the labels that were changed
COLUMNS = (
    "row", "location", "issue", "label", "suggested", "probability", "probability_of_suggested", "other", "change",
    "text",
)  # fmt: skip
_FEW_RIGHT = 0.6  # accuracy below which most disagreements are errors of a model, unless a fifth of the labels is wrong
_SHOWN = 200  # issues on the page
_LONGEST_TEXT = 300  # characters of a text on the page


def write_issues(folder: Path, table: Path, issues: Sequence[Mapping[str, Any]]) -> None:
    """Writes the rows to look at as a table, with a byte order mark if the audited table has one."""
    rows = [COLUMNS, *([issue.get(name, "") for name in COLUMNS] for issue in issues)]
    write_csv(folder / ISSUES_FILE, rows, mark=_has_mark(table))


def write_corrected(folder: Path, table: Path, columns: ColumnSettings, suggested: Mapping[str, str]) -> None:
    """Writes the table as CSV with the suggested labels; the last column has the labels that they replace.

    A label that was replaced by an earlier audit as well is the first one there. A byte order mark is kept.

    Args:
        suggested: by the location of a row.
    """
    with quiet():  # how the table is read was said before
        rows = list(read_table(table, encoding=columns.encoding))
    first = [name for name in rows[0].values if name != BEFORE]  # a table that was corrected before has it
    texts = text_columns(table, first, columns.text_column, columns.pair_column)
    label = label_column_of(table, first, texts, columns.label_column, LABEL_COLUMNS)
    names = [name for name in dict.fromkeys(name for row in rows for name in row.values) if name != BEFORE]
    lines = []
    for row in rows:
        changed = suggested.get(row.location)
        cells = {name: row.values.get(name, "") for name in (*names, BEFORE)}
        if changed is not None:
            cells |= {label: changed, BEFORE: cells[BEFORE] or cells[label]}
        lines.append(list(cells.values()))
    write_csv(folder / CORRECTED_FILE, [[*names, BEFORE], *lines], mark=_has_mark(table))


def _has_mark(table: Path) -> bool:
    """Whether a table begins with a byte order mark, as those of spreadsheets do."""
    with table.open("rb") as file:
        return has_mark(file.read(4))


def require_names(table: Path, columns: ColumnSettings, labels: Mapping[str, Sequence[str]]) -> None:
    """Refuses a table whose cells do not have the names of several labels, which a corrected one could not keep.

    Args:
        labels: of each row, by its location.
    """
    with quiet():
        rows = list(read_table(table, encoding=columns.encoding))
    names = [*rows[0].values]
    texts = text_columns(table, names, columns.text_column, columns.pair_column)
    label = label_column_of(table, names, texts, columns.label_column, LABEL_COLUMNS)
    for row in rows:
        if row.location not in labels or columns.hierarchy is not None:
            continue
        cell = gold_of_cell(row.values.get(label, ""), row.location, "labels")
        if cell != tuple(labels[row.location]):
            raise InputError.at(
                row.location,
                f"the names of its labels in the column {label!r}",
                brief(row.values.get(label, "")),
                "write names as a|b, each label in one spelling",
            )


def told_of_weak_models(report: Mapping[str, Any]) -> str:
    """What to think of the suggestions of models that seldom give the labels of the table; "" for better ones."""
    scores = report.get("accuracy", {})
    best = max(scores.values(), default=1.0)
    if best >= _FEW_RIGHT:
        return ""
    return (
        f"the best model disagrees with {1 - best:.0%} of the labels; most of its suggestions are probably its own "
        "errors, so that no corrected file is written, and this share is too high: label more rows"
        f"{'' if VECTORS in scores else ', or give --model'}"
    )


def write_page(folder: Path, report: Mapping[str, Any], issues: Sequence[Mapping[str, Any]]) -> Path:
    """Writes the page and returns its path."""
    from bertsmith.base.pages import html

    low, high = report["interval"]
    unit, labels = ("sentence", "tags") if "words" in report else ("example", "labels")
    if "entities" in report:
        unit, labels = "sentence", "entities, in the file or missing from it,"
    metric = "f1" if "f1" in report else "accuracy"
    parts = [
        html.summary(
            [
                counted(report["examples"], unit),
                f"{report['errors']:.1%} of the {labels} probably wrong (95% interval {low:.1%} to {high:.1%})",
                *filter(None, [told_of_weak_models(report)]),
            ]
        ),
        html.section("Issues", html.table([[name, f"{count:,}"] for name, count in report["issues"].items()])),
        html.section(
            f"Models that had not seen the {unit}s",
            html.table([[name, f"{score:.4f}"] for name, score in report[metric].items()], ["system", metric]),
        ),
    ]
    if report["overlaps"]:
        rows = [
            [pair["label"], pair["other"], f"{pair['examples']:.0f}", f"{pair['share']:.1%}"]
            for pair in report["overlaps"]
        ]
        header = ["label", "other label", "estimated examples", "share of both"]
        note = html.note(
            "Labels whose examples are taken for each other; if both mean the same, merge them with --map."
        )
        parts.append(html.section("Labels that overlap", html.table(rows, header), note))
    cells = [
        [
            str(issue["row"]), issue["issue"], issue["label"], issue["suggested"], f"{issue['probability']:.4f}",
            f"{issue['probability_of_suggested']:.4f}", issue["other"], issue["text"][:_LONGEST_TEXT],
        ]
        for issue in issues[:_SHOWN]
    ]  # fmt: skip
    header = ["row", "issue", "label", "suggested", "probability", "of the suggested", "other row", "text"]
    title = f"First {_SHOWN} of {len(issues):,} rows" if len(issues) > _SHOWN else counted(len(issues), "row")
    parts.append(html.section(title, html.table(cells, header)))
    return html.write_page(folder / PAGE_FILE, "Audit of labels", *parts)
