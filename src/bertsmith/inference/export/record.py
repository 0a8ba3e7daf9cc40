"""The content of `export.json`: differences from the library, the data they were measured on, package versions.

The *spread* of an output is its standard deviation in the library, or a tenth of its largest magnitude if that is more
(a model with constant output has no standard deviation); differences are in units of the spread.
"""

import dataclasses
from typing import Any

import numpy as np
import torch

from bertsmith.base.core.version import __version__

RECORD = "export.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between the two sides in one output."""

    output: str
    values: int
    largest: float  # largest difference in units of the spread; NaN if the other side gives NaN
    mean: float  # mean difference in units of the spread
    spread: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of running both sides on the same sample."""

    differences: tuple[Difference, ...]
    metric: str | None = None  # name of the task's score; None without labelled examples
    # library, exported: the score on each side, as the task prints it
    library: float | None = None
    exported: float | None = None
    loss: float | None = None  # loss of the score, as a fraction
    examples: int | None = None
    # number of examples with different answers; None if answers are numbers, which nearly always differ
    changed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "outputs": {
                difference.output: {
                    name: value for name, value in dataclasses.asdict(difference).items() if name != "output"
                }
                for difference in self.differences
            }
        }
        if self.metric is not None:
            names = ("library", "exported", "loss", "examples", "changed")
            values["metric"] = {"name": self.metric, **{name: getattr(self, name) for name in names}}
        return values

    def line(self) -> str:
        """A summary for display."""
        parts = [
            f"{difference.output} differ by at most {difference.largest:.2g} of their spread, "
            f"{difference.mean:.2g} on average"
            for difference in self.differences
        ]
        return "; ".join([*parts, f"{self.metric} {self.scores}"] if self.metric is not None else parts)

    @property
    def scores(self) -> str:
        """Both scores and the number of changed answers, as text."""
        both = f"{self.exported:.4f}, library {self.library:.4f}"
        if self.changed is None or self.examples is None:
            return both
        return f"{both}, answers changed: {self.changed:,} of {self.examples:,}"


def versions(**others: str) -> dict[str, str]:
    """The versions of the packages involved."""
    return {"bertsmith": __version__, "torch": torch.__version__, "numpy": np.__version__, **others}
