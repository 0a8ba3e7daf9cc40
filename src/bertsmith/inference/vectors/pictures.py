"""Plots of vectors: scatter plots by group and histograms of cosines, as .png, .svg or an .html page.

Only this module and `charts.py` load matplotlib. A page loads nothing from anywhere.
"""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.pages.charts import COLORS
from bertsmith.base.pages.html import section, write_page
from bertsmith.base.storage.files import atomic_file, write_text
from bertsmith.tasks.metrics.vectors import VectorReport

KINDS = (".png", ".svg", ".html")
_GREY = "#9a9a9a"


def require_picture(path: Path) -> None:
    """Checks that the name has the extension of a picture."""
    if path.suffix.lower() not in KINDS:
        raise ConfigError(
            expected=f"a picture that ends in {', '.join(KINDS)}", found=repr(path.name), fix="use one of these endings"
        )


def scatter(
    points: npt.NDArray[np.float64], groups: npt.NDArray[np.int64], names: Sequence[str], shown: float
) -> Figure:
    """A scatter plot of points [E, 2], colored by group.

    Args:
        groups: int64 [E], from 0.
        shown: the fraction of the variance in the plane, for the axis label.
    """
    figure = Figure(figsize=(6.8, 5.2), layout="constrained")
    axes = figure.add_subplot()
    for group, name in enumerate(names):
        inside = groups == group
        color = COLORS[group % len(COLORS)]
        axes.scatter(points[inside, 0], points[inside, 1], s=16, alpha=0.7, color=color, label=_plain(name))
    axes.set_xlabel(f"first and second principal component, {shown:.0%} of the variance")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.legend(frameon=False)
    return figure


def cosine_histogram(before: VectorReport, after: VectorReport | None = None) -> Figure:
    """A histogram of the cosines of random pairs of vectors, and of the same vectors after a change."""
    figure = Figure(figsize=(6.8, 3.6), layout="constrained")
    axes = figure.add_subplot()
    reports = [("vectors", before, _GREY if after is not None else COLORS[0])]
    if after is not None:
        reports = [("before", before, _GREY), ("after", after, COLORS[0])]
    for name, report, color in reports:
        counts = np.array(report.histogram, dtype=np.float64)
        edges = np.linspace(-1, 1, len(counts) + 1)
        label = f"{name}: mean {report.mean_cosine:.2f}"
        axes.stairs(counts / counts.sum(), edges, fill=True, alpha=0.55, color=color, label=label)
    axes.set_xlim(-1, 1)
    axes.set_xlabel("cosine of random pairs")
    axes.set_ylabel("fraction of pairs")
    axes.legend(frameon=False)
    return figure


def write_picture(path: Path, figure: Figure, title: str, below_html: str = "") -> None:
    """Writes a picture, as a page if the name ends in .html."""
    require_picture(path)
    suffix = path.suffix.lower()
    if suffix == ".html":
        write_page(path, title, section(title, _svg(figure)), below_html)
    elif suffix == ".svg":
        write_text(path, _svg(figure))
    else:
        with atomic_file(path) as file:
            figure.savefig(file, format="png", dpi=150, metadata={"Software": None})


def _svg(figure: Figure) -> str:
    """The figure as an `<svg>` element without a date."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "bertsmith"}):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = file.getvalue()
    return text[text.index("<svg") :].strip()


def _plain(name: str) -> str:
    """A name that matplotlib neither renders as a formula nor drops."""
    return name.replace("$", r"\$").lstrip("_") or "-"
