"""A run, or several side by side, as one HTML page that needs nothing else.

The page loads no script, font, style or picture from anywhere. Its colours follow the light or dark setting
of whoever reads it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from bertsmith.errors import RunError
from bertsmith.files import write_text
from bertsmith.progress import amount, duration
from bertsmith.training.plots import COLORS, Series, line_chart
from bertsmith.training.run_folder import RunFolder, flat

REPORT_FILE = "report.html"
HELD_OUT = "held_out_"

# A value that stays the same over a run is drawn as a level into the first of these charts that there is.
LEVELS = {"unigram_entropy": ("mlm_loss", "loss")}
LEVEL_NAMES = {"unigram_entropy": "unigram entropy: all that word frequencies alone can reach"}

ABBREVIATIONS = ("mlm", "nsp", "sop")

# Drawn after losses and accuracies, with (unit, whether the axis starts at 0).
OTHER_CHARTS = {
    "learning_rate": ("learning rate", True),
    "tokens_per_second": ("tokens per second", True),
    "gradient_norm": ("gradient norm before clipping", True),
}


@dataclass(frozen=True, kw_only=True)
class Samples:
    """A table of examples that goes into the report, such as filled masks.

    Attributes:
        title: what they show.
        header: names of the columns; none for no header.
        rows: the cells, as text.
    """

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class _Shown:
    """A run as the page shows it."""

    name: str
    color: str
    folder: RunFolder
    train: list[dict[str, Any]]
    evaluation: list[dict[str, Any]]
    events: int


def write_report(
    runs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    title: str = "Training report",
    samples: Sequence[Samples] = (),
) -> Path:
    """The page that was written: `out`, or report.html in the first run.

    Args:
        runs: one run folder, or several to compare; with several the curves run over tokens, so that they
            are compared at equal work.
        out: another place for the page.
        title: its heading.
        samples: tables of examples, in order.

    Raises:
        RunError: a folder is no run, or has no line in its log yet.
    """
    paths = [runs] if isinstance(runs, Path) else list(runs)
    shown = [_read(path, name, i) for i, (path, name) in enumerate(zip(paths, _names(paths), strict=True))]
    page = _page(title, shown, samples)
    target = out or paths[0] / REPORT_FILE
    write_text(target, page)
    return target


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or the whole path where two would be called the same."""
    last = [path.resolve().name for path in paths]
    return last if len(set(last)) == len(last) else [str(path) for path in paths]


def _read(path: Path, name: str, index: int) -> _Shown:
    run = RunFolder.open(path)
    lines = run.metrics()
    kinds = {kind: [line for line in lines if line.get("kind") == kind] for kind in ("train", "evaluation")}
    if not kinds["train"]:
        raise RunError(expected=f"a log of training in '{path}'", found="no line of it", fix="train first")
    events = len(lines) - sum(map(len, kinds.values()))
    return _Shown(name, COLORS[index % len(COLORS)], run, kinds["train"], kinds["evaluation"], events)


def _page(title: str, shown: Sequence[_Shown], samples: Sequence[Samples]) -> str:
    names = list(dict.fromkeys(key for run in shown for line in run.train for key in line))
    losses = sorted((n for n in names if n.endswith("loss")), key=lambda n: (n != "mlm_loss", n != "loss", n))
    accuracies = [n for n in names if n.endswith("accuracy")]
    charts = [_chart(name, _words(name) + (", nats" if name in losses else ""), shown) for name in losses + accuracies]
    charts += [_chart(name, unit, shown, zero) for name, (unit, zero) in OTHER_CHARTS.items() if name in names]
    sections = [
        f'<div class="charts">{"".join(charts)}</div>',
        _table("Last values", _columns([_final(run) for run in shown]), shown),
        *(_samples(one) for one in samples),
        _table("Settings", _columns([flat(run.folder.record.get("settings", {})) for run in shown]), shown),
        _table("What the settings came to", _columns([run.folder.resolved for run in shown]), shown),
        _table("Machine", _columns([flat(run.folder.record.get("machine", {})) for run in shown]), shown),
        _table("Versions", _columns([flat(run.folder.record.get("versions", {})) for run in shown]), shown),
        _table("Digests of the inputs", _columns([flat(run.folder.record.get("digests", {})) for run in shown]), shown),
    ]
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n"
        + "".join(_summary(run, len(shown) > 1) for run in shown)
        + "\n".join(section for section in sections if section)
        + "\n</main></body></html>\n"
    )


def _summary(run: _Shown, named: bool) -> str:
    last, settings = run.train[-1], run.folder.resolved
    total = settings.get("steps", last["step"])
    parts = [
        f"{total:,} step{'s' * (total != 1)}" if last["step"] == total else f"{last['step']:,} of {total:,} steps",
        f"{amount(last.get('tokens', 0))} tokens",
        duration(last.get("seconds", 0.0)),
    ]
    for name in ("mlm_loss", "loss"):
        held_out = [line[HELD_OUT + name] for line in run.evaluation if HELD_OUT + name in line]
        if held_out:
            parts.append(f"held-out {_words(name)} {held_out[-1]:.3f}")
            if "unigram_entropy" in last:
                parts.append(f"unigram entropy {last['unigram_entropy']:.3f}")
            break
    parts.append(f"{run.events} steps skipped or spiked" if run.events else "no step skipped, no spike")
    dot = f'<b style="color:{run.color}">{escape(run.name)}</b> · ' if named else ""
    return f'<p class="summary">{dot}{escape(" · ".join(parts))}</p>\n'


def _chart(name: str, label: str, shown: Sequence[_Shown], from_zero: bool = False) -> str:
    """One chart with its legend, over steps for one run and over tokens for several."""
    axis = "step" if len(shown) == 1 else "tokens"
    series: list[Series] = []
    legend: list[tuple[str, str, str]] = []
    for number, run in enumerate(shown):
        held_out_color = COLORS[1] if len(shown) == 1 else run.color
        for lines, key, style, color in (
            (run.train, name, "line", run.color),
            (run.evaluation, HELD_OUT + name, "points", held_out_color),
        ):
            points = [(line[axis], line[key]) for line in lines if key in line and axis in line]
            if points:
                x, y = zip(*points, strict=True)
                series.append(Series(x=x, y=y, color=color, style="points" if style == "points" else "line"))
                what = "held-out" if style == "points" else "training"
                legend.append((style, color, what if len(shown) == 1 else f"{run.name}, {what}"))
        for level, places in LEVELS.items():
            place = next((p for p in places if any(p in line for line in run.train)), None)
            points = [(line[axis], line[level]) for line in run.train if level in line]
            if place == name and points:
                x, y = zip(*points, strict=True)
                color = COLORS[2] if len(shown) == 1 else run.color
                # From the left edge on, where the first evaluation stands.
                series.append(Series(x=(0, *x), y=(y[0], *y), color=color, style="level"))
                if number == 0 or len(shown) > 1:
                    text = LEVEL_NAMES[level]
                    legend.append(("level", color, text if len(shown) == 1 else f"{run.name}, {text.split(':')[0]}"))
    svg = line_chart(series, x_label="steps" if axis == "step" else "tokens", y_label=label, from_zero=from_zero)
    items = "".join(
        f'<li><i class="{style}" style="color:{color}"></i>{escape(text)}</li>' for style, color, text in legend
    )
    words = _words(name)
    keys = f"<ul>{items}</ul>" if len(legend) > 1 else ""
    return f"<figure><figcaption>{escape(words[0].upper() + words[1:])}</figcaption>{svg}{keys}</figure>\n"


def _final(run: _Shown) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for lines in (run.train, run.evaluation):
        values |= {name: value for name, value in (lines[-1] if lines else {}).items() if name != "kind"}
    values.pop("time_left", None)
    return {_words(name): value for name, value in values.items()}


def _columns(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One row for each name in any run, with the value that it has in each."""
    names = dict.fromkeys(name for run in runs for name in run)
    return [[name, *(_cell(run[name]) if name in run else "" for run in runs)] for name in names]


def _table(title: str, rows: Sequence[Sequence[str]], shown: Sequence[_Shown]) -> str:
    header = ["", *(run.name for run in shown)] if len(shown) > 1 else []
    return _samples(Samples(title=title, header=header, rows=rows))


def _samples(table: Samples) -> str:
    if not table.rows:
        return ""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in table.rows)
    return (
        f"<section><h2>{escape(table.title)}</h2><table>"
        + (f"<thead><tr>{head}</tr></thead>" if head else "")
        + f"<tbody>{body}</tbody></table></section>"
    )


def _words(name: str) -> str:
    """A name of the log as a reader would say it."""
    words = name.replace(HELD_OUT, "held-out ").replace("_", " ").split()
    return " ".join(word.upper() if word in ABBREVIATIONS else word for word in words)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    return str(value)


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
.summary { margin: 0 0 6px; color: var(--dim); }
.charts { display: grid; gap: 16px; margin: 18px 0; }
.charts { grid-template-columns: repeat(auto-fit, minmax(min(460px, 100%), 1fr)); }
figure, section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
figure { margin: 0; color: var(--dim); }
section { margin: 0 0 16px; overflow-x: auto; }
figcaption { font-weight: 600; color: var(--ink); margin-bottom: 4px; }
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
td { overflow-wrap: anywhere; }
td:first-child { color: var(--dim); }
thead + tbody td:first-child { color: var(--ink); }
"""
