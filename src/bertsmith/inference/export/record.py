"""The content of `export.json`: differences from the library, the data they were measured on, and their limits.

The *spread* of an output is its standard deviation in the library, or a tenth of its largest magnitude if that is more
(a model with constant output has no standard deviation); differences are in units of the spread.

An exact export must stay within two limits: one on every output and, with labelled examples, one on the score. The
first does not imply the second: an answer flips wherever two outputs are closer together than the two sides are. But
one such tie is noise, and on few examples it costs more than any sensible limit: a single changed answer is accepted.

A file in int8 may lose a little of the score. On few examples, chance moves the measured loss by more, so it may
lose as many answers as a model at the limit loses in 95 of 100 samples of that size (`chance_changes`).
"""

import dataclasses
import math
from typing import Any

import numpy as np
import torch

from bertsmith.base.core.errors import CheckpointError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.version import __version__

RECORD = "export.json"
FP32_LIMIT = 1e-4  # largest difference, in units of the spread
METRIC_LIMIT = 0.001  # largest loss of the task's score, as a fraction
TIES = 1  # answers that may change, whatever that costs in the score
INT8_LIMIT = 0.2  # mean difference, in units of the spread
INT8_METRIC_LIMIT = 0.004  # largest loss of the task's score, as a fraction


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


def require_equal(comparison: Comparison, subject: str, limit: float | None = None) -> dict[str, float]:
    """Checks an exact export and returns the limits it meets: on the outputs and, if there is one, on the score.

    Args:
        limit: overrides `FP32_LIMIT`; the limit on the score is unchanged.
    """
    most, fix = FP32_LIMIT if limit is None else limit, "nothing was written; try other versions of the packages, or "
    _require_outputs(comparison, subject, "largest", most, f"{fix}allow more with --limit")
    if comparison.loss is None:
        return {"largest": most}
    ties = {} if comparison.changed is None else {"ties": TIES}
    if comparison.changed is None or comparison.changed > TIES:
        or_tie = f", or at most {TIES} changed answer" if ties else ""
        _require_score(comparison, subject, METRIC_LIMIT, f"{fix}compare on more examples", or_tie)
    return {"largest": most, "metric_loss": METRIC_LIMIT, **ties}


def require_near(comparison: Comparison, subject: str, limit: float | None = None) -> dict[str, float]:
    """Checks a quantized export and returns the limit it meets: on the score if there is one, else on the outputs.

    Args:
        limit: overrides `INT8_METRIC_LIMIT` or `INT8_LIMIT`.
    """
    fix = "nothing was written; omit --int8, or allow more with --limit"
    if comparison.loss is not None:
        most = INT8_METRIC_LIMIT if limit is None else limit
        if limit is not None or comparison.changed is None or comparison.examples is None:
            _require_score(comparison, subject, most, fix)
            return {"metric_loss": most}
        by_chance = chance_changes(comparison.examples, most)
        most = max(most, by_chance / comparison.examples)
        if comparison.changed > by_chance:
            or_few = f", or at most {counted(by_chance, 'changed answer')}"
            _require_score(comparison, subject, most, fix, or_few)
        return {"metric_loss": most, "changed": by_chance}
    most = INT8_LIMIT if limit is None else limit
    _require_outputs(comparison, subject, "mean", most, fix)
    return {"mean": most}


def chance_changes(examples: int, share: float) -> int:
    """The answers that change in at most 95 of 100 samples in which each changes with a probability; at least `TIES`.

    It is the quantile of the binomial distribution.

    >>> [chance_changes(examples, 0.004) for examples in (10, 100, 250, 10_000)]
    [1, 2, 3, 51]
    """
    from scipy.special import bdtrik  # the import takes a moment

    return max(TIES, math.ceil(float(bdtrik(0.95, examples, share))))


# Both are written so that NaN fails, too.
def _require_outputs(comparison: Comparison, subject: str, name: str, most: float, fix: str) -> None:
    on_average, mean = (" on average", "mean ") if name == "mean" else ("", "")
    for difference in comparison.differences:
        if not (value := getattr(difference, name)) <= most:
            of_spread = f"within {most:g} of their spread ({difference.spread:.4g}) of the library's{on_average}"
            expected = f"{difference.output} of {subject} {of_spread}"
            raise CheckpointError(expected=expected, found=f"a {mean}difference of {value:.3g}", fix=fix)


def _require_score(comparison: Comparison, subject: str, most: float, fix: str, or_few: str = "") -> None:
    assert comparison.loss is not None, "labelled examples"
    if not comparison.loss <= most:
        expected = f"{comparison.metric} of {subject} at most {most:g} below the library's{or_few}"
        raise CheckpointError(expected=expected, found=comparison.scores, fix=fix)
