"""A pre-training run, or several side by side, as one HTML page that needs nothing else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import RunError
from bertsmith.files import write_text
from bertsmith.progress import amount, counted, duration
from bertsmith.reports import html
from bertsmith.reports.charts import COLORS, Series, line_chart
from bertsmith.reports.html import Key
from bertsmith.training.run_folder import RunFolder, flat

HELD_OUT = "held_out_"

# A value that stays the same over a run is drawn as a level into the first of these charts that there is.
LEVELS = {"unigram_entropy": ("mlm_loss", "loss")}
LEVEL_NAMES = {"unigram_entropy": "unigram entropy: all that word frequencies alone can reach"}

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
    """The page that was written: `out`, or what `html.page_place` names.

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
    shown = [_read(path, name, i) for i, (path, name) in enumerate(zip(paths, html.run_names(paths), strict=True))]
    page = _page(title, shown, samples)
    target = out or html.page_place(paths)
    write_text(target, page)
    return target


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
    records = [run.folder.record for run in shown]
    sections = [
        html.figures(charts),
        _table("Last values", [_final(run) for run in shown], shown),
        *(html.section(one.title, html.table(one.rows, one.header)) for one in samples),
        _table("Settings", [flat(record.get("settings", {})) for record in records], shown),
        _table("What the settings came to", [run.folder.resolved for run in shown], shown),
        _table("Machine", [flat(record.get("machine", {})) for record in records], shown),
        _table("Versions", [flat(record.get("versions", {})) for record in records], shown),
        _table("Digests of the inputs", [flat(record.get("digests", {})) for record in records], shown),
    ]
    return html.page(title, "".join([*(_summary(run, len(shown) > 1) for run in shown), *sections]))


def _summary(run: _Shown, named: bool) -> str:
    last, settings = run.train[-1], run.folder.resolved
    total = settings.get("steps", last["step"])
    parts = [
        counted(total, "step") if last["step"] == total else f"{last['step']:,} of {total:,} steps",
        f"{amount(last.get('tokens', 0))} tokens",
        duration(last.get("seconds", 0.0)),
    ]
    for name in ("mlm_loss", "loss"):
        held_out = [line[HELD_OUT + name] for line in run.evaluation if HELD_OUT + name in line]
        if held_out:
            parts.append(f"held-out {_words(name)} {held_out[-1]:.3f}")
            level = [
                line[HELD_OUT + "unigram_entropy"] for line in run.evaluation if HELD_OUT + "unigram_entropy" in line
            ]
            if level:
                parts.append(f"by word frequencies alone {level[-1]:.3f}")
            break
    parts.append(f"{counted(run.events, 'step')} skipped or spiked" if run.events else "no step skipped, no spike")
    return html.summary(parts, name=run.name if named else "", color=run.color)


def _chart(name: str, label: str, shown: Sequence[_Shown], from_zero: bool = False) -> str:
    """One chart with its legend, over steps for one run and over tokens for several."""
    axis = "step" if len(shown) == 1 else "tokens"
    series: list[Series] = []
    keys: list[Key] = []
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
                keys.append(Key(style, color, what if len(shown) == 1 else f"{run.name}, {what}"))
        for level, places in LEVELS.items():
            place = next((p for p in places if any(p in line for line in run.train)), None)
            # Beside a held-out curve stands what frequencies reach on the held-out text.
            points = [(line[axis], line[HELD_OUT + level]) for line in run.evaluation if HELD_OUT + level in line]
            points = points or [(line[axis], line[level]) for line in run.train if level in line]
            if place == name and points:
                x, y = zip(*points, strict=True)
                color = COLORS[2] if len(shown) == 1 else run.color
                # From the left edge on, where the first evaluation stands.
                series.append(Series(x=(0, *x), y=(y[0], *y), color=color, style="level"))
                if number == 0 or len(shown) > 1:
                    text = LEVEL_NAMES[level]
                    named = text if len(shown) == 1 else f"{run.name}, {text.split(':')[0]}"
                    keys.append(Key("level", color, named))
    svg = line_chart(series, x_label="steps" if axis == "step" else "tokens", y_label=label, from_zero=from_zero)
    return html.figure(_words(name), svg, keys)


def _final(run: _Shown) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for lines in (run.train, run.evaluation):
        values |= {name: value for name, value in (lines[-1] if lines else {}).items() if name != "kind"}
    values.pop("time_left", None)
    return {_words(name): value for name, value in values.items()}


def _table(title: str, values: Sequence[Mapping[str, Any]], shown: Sequence[_Shown]) -> str:
    header = ["", *(run.name for run in shown)] if len(shown) > 1 else []
    return html.section(title, html.table(html.columns(values), header))


def _words(name: str) -> str:
    return html.words(name.replace(HELD_OUT, "held-out "))
