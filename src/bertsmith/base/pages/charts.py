"""Charts as inline SVG that takes the text color of the page around it.

Matplotlib is imported where it draws, since its import is slow. Names of runs and labels are not drawn in lines and
points, whose page shows them in legends and tables; those of bars are.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Readable on white and on near-black.
COLORS = ("#4878d0", "#e0812b", "#3c9d6d", "#9a63c6", "#d1495b", "#2a9d9d", "#a0761f", "#7f7f7f")

# Drawn in this color, which is then replaced by `currentColor`, the text color around the chart.
_INK = "#010203"

# Settings of Matplotlib for a chart that `svg_text` writes.
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}

_MOST_POINTS = 800

Style = Literal["line", "points", "level"]


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart.

    Attributes:
        style: a thin "line" for many values, "points" for few, or a dashed "level".
        intervals: of "points", both ends of the interval of each value, which are drawn as a vertical line; None for a
            value without one.
    """

    x: Sequence[float]
    y: Sequence[float]
    color: str
    style: Style = "line"
    intervals: Sequence[Sequence[float] | None] = ()


def line_chart(series: Sequence[Series], *, x_label: str, y_label: str, from_zero: bool = False) -> str:
    """The chart as an `<svg>` element; equal series give equal text.

    Args:
        series: the lines to draw; values that are not finite leave a gap.
    """

    def draw(axes: "Axes") -> None:
        from matplotlib.ticker import EngFormatter, MaxNLocator

        for line in series:
            _draw(axes, line)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(_short)
        axes.margins(x=0.01)
        if from_zero:
            axes.set_ylim(bottom=0)

    return _svg(draw, x_label, y_label, height=3.4)


def diagonal_chart(
    x: Sequence[float],
    y: Sequence[float],
    *,
    x_label: str,
    y_label: str,
    limits: tuple[float, float] | None = None,
    joined: bool = False,
) -> str:
    """Points against the diagonal y = x, as an `<svg>` element.

    Args:
        y: actual values, as many; points with a value that is not finite are omitted.
        limits: lower and upper end of both axes; by default from the values.
        joined: draw few points, joined by a line, instead of a cloud.
    """
    finite = [value for value in (*x, *y) if math.isfinite(value)] or [0.0, 1.0]
    room = 0.05 * (max(finite) - min(finite)) or 0.5
    low, high = limits or (min(finite) - room, max(finite) + room)

    def draw(axes: "Axes") -> None:
        axes.plot([low, high], [low, high], color=COLORS[-1], linewidth=1.2, linestyle=(0, (5, 4)))
        if joined:
            _draw(axes, Series(x=x, y=y, color=COLORS[0], style="points"))
        else:
            axes.plot(x, y, color=COLORS[0], linestyle="none", marker="o", markersize=3.5, alpha=0.5)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_aspect("equal")

    return _svg(draw, x_label, y_label, height=4.4)


def bar_chart(values: Mapping[str, tuple[float, float, float]], *, x_label: str) -> str:
    """Horizontal bars from zero with their names, the first on top, as an `<svg>` element.

    Args:
        values: by name, the length of the bar and both ends of its range, which are equal to it if it has none.
    """
    middles, lows, highs = zip(*values.values(), strict=True)

    def draw(axes: "Axes") -> None:
        axes.barh(range(len(values)), middles, color=COLORS[0], height=0.6)
        axes.hlines(range(len(values)), lows, highs, color=_INK, linewidth=1.4)
        axes.set_yticks(range(len(values)), list(values), parse_math=False)
        axes.invert_yaxis()

    return _svg(draw, x_label, "", height=0.7 + 0.27 * len(values))


def _svg(draw: "Callable[[Axes], None]", x_label: str, y_label: str, *, height: float) -> str:
    """The chart that `draw` puts on the axes, as SVG text without date and size; `height` in inches."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({**STYLE, "svg.hashsalt": f"{x_label} {y_label}"}):
        figure = Figure(figsize=(6.4, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        draw(axes)
        # The name of a score may contain a dollar sign, which would start a formula.
        axes.set_xlabel(x_label, parse_math=False)
        axes.set_ylabel(y_label, parse_math=False)
        axes.grid(color=_INK, alpha=0.12, linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_alpha(0.4)
        return svg_text(figure)


def svg_text(figure: "Figure") -> str:
    """A figure that was drawn in `STYLE`, as an `<svg>` element without date and size."""
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    text = text[text.index("<svg") :].replace(_INK, "currentColor")
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'role="img"', text, count=1).strip()


def thinned(x: Sequence[float], y: Sequence[float], most: int = _MOST_POINTS) -> tuple[list[float], list[float]]:
    """At most `most` points, each the mean of neighbors, for lines with more values than a screen can show.

    >>> thinned([1, 2, 3, 4], [10, 20, 30, 50], most=2)
    ([1.5, 3.5], [15.0, 40.0])
    """
    size = math.ceil(len(x) / most) if len(x) > most else 1
    if size == 1:
        return list(x), list(y)
    parts = [slice(start, start + size) for start in range(0, len(x), size)]
    return [_mean(x[part]) for part in parts], [_mean(y[part]) for part in parts]


def _short(value: float, position: float = 0) -> str:
    """A tick label for the y axis.

    >>> _short(12000), _short(0.25), _short(8e-05)
    ('12k', '0.25', '8e-05')
    """
    return f"{value / 1000:g}k" if abs(value) >= 10_000 else f"{round(value, 12):g}"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _draw(axes: "Axes", series: Series) -> None:
    x, y = thinned(series.x, series.y)
    if series.style == "level":
        axes.plot(x, y, color=series.color, linewidth=1.4, linestyle=(0, (5, 4)))
    elif series.style == "points":
        axes.plot(x, y, color=series.color, linewidth=2.0, marker="o", markersize=4.5)
        ends = [
            (position, *pair) for position, pair in zip(series.x, series.intervals, strict=False) if pair is not None
        ]
        if ends:
            axes.vlines(*zip(*ends, strict=True), color=series.color, linewidth=1.2, alpha=0.6)
    else:
        # A single value makes no line, so it is drawn as a dot.
        marker = "." if len(x) == 1 else None
        axes.plot(x, y, color=series.color, linewidth=1.2, alpha=0.75, marker=marker)
