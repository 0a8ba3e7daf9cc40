"""Elements of a self-contained HTML page: frame, tables, charts with legends.

A page loads no scripts, fonts, styles or pictures from elsewhere. Its colors follow the reader's light or dark
setting. Every text argument is escaped, unless its name says that it is HTML.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.settings import flat
from bertsmith.base.storage.files import write_text

PAGE_FILE = "report.html"
# Entries of a record that a page shows, with their headings.
RECORDED = {
    "settings": "Settings",
    "resolved": "Resolved settings",
    "machine": "Machine",
    "versions": "Versions",
    "digests": "Digests of the inputs",
}
_LONGEST_UNBROKEN = 16  # characters of a word in a table
LONGEST_NAME = 100  # characters that the run names may take in the name of a page

ABBREVIATIONS = ("lm", "mlm", "nsp", "sop")

# Right and wrong in a table of counts; readable behind dark and light text.
_RIGHT, _WRONG = "72, 120, 208", "209, 73, 91"


class Key(NamedTuple):
    """An entry of a legend.

    Attributes:
        style: "line", "points" or "level", as the series is drawn.
    """

    style: str
    color: str
    text: str


def page(title: str, body_html: str, *, reload_seconds: int | None = None) -> str:
    """A complete page with its heading."""
    reload = "" if reload_seconds is None else f'<meta http-equiv="refresh" content="{reload_seconds}">'
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8">{reload}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n{body_html}\n</main></body></html>\n"
    )


def summary(parts: Sequence[str], *, name: str = "", color: str = "") -> str:
    """A line with the results of a run, preceded by the name of the run in its color if one is given."""
    dot = f'<b style="color:{color}">{escape(name)}</b> · ' if name else ""
    return f'<p class="summary">{dot}{escape(" · ".join(parts))}</p>\n'


def note(text: str) -> str:
    """A paragraph in a muted color."""
    return f'<p class="summary">{escape(text)}</p>\n'


def lines(texts: Sequence[str]) -> str:
    """Lines of text as they are, in letters of one width."""
    return f"<pre>{escape(chr(10).join(texts))}</pre>\n"


def heading(text: str) -> str:
    """A heading above several cards."""
    return f'<h2 class="part">{escape(text)}</h2>\n'


def section(title: str, *parts_html: str) -> str:
    """A card with a heading; "" if there is no content."""
    inner = "".join(parts_html)
    return f"<section><h2>{escape(title)}</h2>{inner}</section>\n" if inner else ""


def table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    """A table of texts; "" if there are no rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(text)}</th>" for text in header)
    body = "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>\n" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"


def _table_cell(text: str) -> str:
    """A cell; long names and digests may be broken anywhere, so that they fit a phone, but never short numbers."""
    css = ' class="long"' if max(map(len, text.split()), default=0) > _LONGEST_UNBROKEN else ""
    parts = re.sub(r"([_./])(?=\w)", r"\1<wbr/>", escape(text)) if css else escape(text)
    return f"<td{css}>{parts}</td>"


def counts_table(labels: Sequence[str], counts: npt.NDArray[np.int64], corner: str) -> str:
    """A table of counts [K, K] with the labels on both sides; each cell is shaded by its fraction of the row."""
    head = "".join(f"<th>{escape(text)}</th>" for text in (corner, *labels))
    rows = []
    for number, (label, row) in enumerate(zip(labels, counts.tolist(), strict=True)):
        total = max(1, sum(row))
        cells = "".join(
            f'<td style="background:rgba({_RIGHT if number == other else _WRONG}, {0.6 * count / total:.2f})">'
            f"{count:,}</td>"
            for other, count in enumerate(row)
        )
        rows.append(f"<tr><th>{escape(label)}</th>{cells}</tr>\n")
    return f'<table class="counts"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def figure(caption: str, svg: str, keys: Sequence[Key] = ()) -> str:
    """A chart with its caption, and with its legend if that has several entries."""
    items = "".join(f'<li><i class="{key.style}" style="color:{key.color}"></i>{escape(key.text)}</li>' for key in keys)
    legend = f"<ul>{items}</ul>" if len(keys) > 1 else ""
    return f"<figure><figcaption>{escape(sentence_case(caption))}</figcaption>{svg}{legend}</figure>\n"


def figures(figures_html: Sequence[str]) -> str:
    """Charts side by side, as many per line as fit."""
    return f'<div class="charts">{"".join(figures_html)}</div>\n'


def columns(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One row for each name in any run: the name, and its value in each run."""
    names = dict.fromkeys(name for run in runs for name in run)
    return [[name, *(cell(run[name]) if name in run else "" for run in runs)] for name in names]


def runs_table(title: str, values: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """A card with named values, a column for each run; several runs have a header with their names."""
    return section(title, table(columns(values), ["", *names] if len(names) > 1 else ()))


def record_tables(records: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> str:
    """The cards with what the records of runs say of settings, machine, versions and inputs; see `RECORDED`."""
    cards = [[flat(record.get(key, {})) for record in records] for key in RECORDED]
    return "".join(runs_table(title, values, names) for title, values in zip(RECORDED.values(), cards, strict=True))


def write_page(path: Path, title: str, *parts_html: str, reload_seconds: int | None = None) -> Path:
    """Writes the page and returns its path."""
    write_text(path, page(title, "".join(parts_html), reload_seconds=reload_seconds))
    return path


def cell(value: Any) -> str:
    """A value of a log or of settings, as text.

    >>> cell(12000), cell(0.123456789), cell(None), cell(True)
    ('12,000', '0.12346', '–', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    return str(value)


def words(name: str) -> str:
    """A name from the log in plain words.

    >>> words("mlm_loss")
    'MLM loss'
    """
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in name.replace("_", " ").split())


def sentence_case(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def page_place(runs: Sequence[Path]) -> Path:
    """The path of the page of these runs: in the run folder of a single run, in the current folder for several.

    A comparison belongs to no run in particular, and each run keeps its own page.

    >>> page_place([Path("runs/a")]).as_posix(), page_place([Path("runs/a"), Path("runs/b")]).as_posix()
    ('runs/a/report.html', 'report-a-b.html')
    """
    if len(runs) == 1:
        return runs[0] / PAGE_FILE
    names = [re.sub(r"[^\w.]+", "-", name).strip("-.") or "run" for name in run_names(runs)]
    joined = "-".join(names)
    if len(joined) > LONGEST_NAME:
        joined = f"{names[0][:LONGEST_NAME]}-and-{len(names) - 1}-more"
    return Path(f"report-{joined}.html")


def run_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole paths if two last parts are equal."""
    last = [path.resolve().name for path in paths]
    return last if len(set(last)) == len(last) else [str(path) for path in paths]


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5d6677; --page: #f6f7f9; --card: #ffffff; --line: #dfe3ea; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e7ee; --dim: #98a2b3; --page: #12161d; --card: #1a2029; --line: #2c3542; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 20px 60px; }
h1 { font-size: 26px; margin: 8px 0 4px; }
h2 { font-size: 17px; margin: 0 0 8px; }
h2.part { font-size: 21px; margin: 28px 0 12px; }
.summary { margin: 0 0 6px; color: var(--dim); }
.charts { display: grid; gap: 16px; margin: 18px 0; }
.charts { grid-template-columns: repeat(auto-fill, minmax(min(460px, 100%), 1fr)); }
figure, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
figure { margin: 0; color: var(--dim); }
section { margin: 0 0 16px; overflow-x: auto; }
section table + .summary, section table + table { margin-top: 12px; }
figcaption { font-weight: 600; color: var(--ink); margin-bottom: 4px; }
pre { margin: 0; font: 13px/1.4 ui-monospace, monospace; }
svg { width: 100%; height: auto; display: block; }
svg text { font-family: inherit !important; }
ul { list-style: none; display: flex; flex-wrap: wrap; gap: 2px 18px; margin: 6px 0 0; padding: 0; font-size: 13px; }
li i { display: inline-block; width: 22px; margin-right: 6px; vertical-align: middle; border-top: 2px solid; }
li i.points { border-top-width: 4px; border-radius: 2px; }
li i.level { border-top-style: dashed; }
table { border-collapse: collapse; font-size: 14px; }
th, td { text-align: left; padding: 4px 20px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
th { color: var(--dim); font-weight: 600; }
td.long { min-width: 8em; overflow-wrap: anywhere; }
td:first-child { color: var(--dim); }
thead + tbody td:first-child { color: var(--ink); }
.counts td { text-align: right; padding: 4px 10px; }
.counts th { padding: 4px 10px; }
"""
