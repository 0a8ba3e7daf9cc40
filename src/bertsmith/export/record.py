"""What `export.json` beside an exported model says: how far it is from the library, on what, and with which packages.

*Spread* is the standard deviation of an output of the library, or a tenth of its largest magnitude where that is more
(a model that says the same of everything has none); differences are in its units.
"""

import dataclasses
from typing import Any

import numpy as np
import torch

import bertsmith

RECORD = "export.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """How far the two sides are apart in one output.

    Attributes:
        output: its name.
        values: how many numbers were compared.
        largest: difference in units of the spread; not a number where the other side gives none.
        mean: difference in units of the spread.
        spread: see the head of this module.
    """

    output: str
    values: int
    largest: float
    mean: float
    spread: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """What came of running both sides on one sample.

    Attributes:
        differences: one an output.
        metric: name of the task's score; None without labelled examples.
        library, exported: the score, as the task prints it.
        loss: what the score loses, as a share.
        examples: how many were scored.
        changed: of how many the two sides give different answers; None where an answer is a number, which nearly
            always differs.
    """

    differences: tuple[Difference, ...]
    metric: str | None = None
    library: float | None = None
    exported: float | None = None
    loss: float | None = None
    examples: int | None = None
    changed: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "outputs": {
                one.output: {name: value for name, value in dataclasses.asdict(one).items() if name != "output"}
                for one in self.differences
            }
        }
        if self.metric is not None:
            names = ("library", "exported", "loss", "examples", "changed")
            values["metric"] = {"name": self.metric, **{name: getattr(self, name) for name in names}}
        return values

    def line(self) -> str:
        """What a person wants to know."""
        parts = [
            f"{one.output} differ by {one.largest:.2g} of their spread at most, {one.mean:.2g} on average"
            for one in self.differences
        ]
        return "; ".join([*parts, f"{self.metric} {self.scores}"] if self.metric is not None else parts)

    @property
    def scores(self) -> str:
        """Both scores, and how many answers differ, for a line."""
        both = f"{self.exported:.4f}, library {self.library:.4f}"
        if self.changed is None or self.examples is None:
            return both
        return f"{both}, answers changed: {self.changed:,} of {self.examples:,}"


def versions(**others: str) -> dict[str, str]:
    """The versions of the packages that were at work."""
    return {"bertsmith": bertsmith.__version__, "torch": torch.__version__, "numpy": np.__version__, **others}
