"""Measure how the vectors of a file are distributed, and apply changes that make them easier to compare."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.metrics.vectors import VectorReport, describe, in_words, sample_rows
from bertsmith.progress import warn
from bertsmith.reports.pictures import cosine_histogram, write_picture
from bertsmith.vectors.changes import (
    ChangeSettings,
    VectorChange,
    fit_change,
    read_vectors,
    report_rows,
    require_finite,
    write_npy,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChangedVectors:
    """The distribution of vectors before and after a change.

    Attributes:
        before: of the vectors in the file.
        after: of the changed vectors; None if there was no change.
        warning: a problem with the change; empty if there is none.
    """

    before: VectorReport
    after: VectorReport | None
    warning: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"before": self.before.to_dict(), "after": None if self.after is None else self.after.to_dict()}

    def rows(self) -> Sequence[Sequence[object]]:
        """The name and values of each statistic."""
        return report_rows(self.before, self.after)

    def lines(self) -> list[str]:
        """An interpretation of the statistics, as lines of text."""
        return list(in_words(self.after or self.before, may_praise=not self.warning))

    def draw(self, path: Path) -> None:
        """Writes a histogram of cosines of random pairs as .png, .svg or .html."""
        write_picture(path, cosine_histogram(self.before, self.after), "Cosines of random pairs")


def change_vectors(
    source: Path,
    settings: ChangeSettings,
    *,
    fit_on: Path | None = None,
    changes: Path | None = None,
    out: Path | None = None,
    save_changes: Path | None = None,
) -> ChangedVectors:
    """The distribution of the vectors in a file, before and after a change.

    Args:
        source: one vector per row, .npy or .parquet.
        settings: the changes to apply; the default is none.
        fit_on: the vectors to fit the changes on; by default those of `source`.
        changes: a file of saved changes, instead of `settings`.
        out: the .npy file for the changed vectors.
        save_changes: the file to save the changes to.

    Raises:
        InputError: a file cannot be read, or contains NaN or infinity.
        ConfigError: the changes cannot be fitted on these vectors.
    """
    given = read_vectors(source)
    require_finite(given, f"'{source}'")
    change = None
    if changes is not None:
        change = VectorChange.load(changes)
    elif not settings.is_nothing:
        fitted_on = given if fit_on is None else read_vectors(fit_on)
        require_finite(fitted_on, f"'{fit_on or source}'")
        change = fit_change(fitted_on, settings)
    before = describe(given)
    if change is None:
        return ChangedVectors(before=before, after=None, warning="")
    if change.warning:
        warn(change.warning)
    after = describe(change.apply(given[sample_rows(len(given))]))
    if out is not None:
        write_npy(out, change.stream(given), (len(given), change.width))
    if save_changes is not None:
        change.save(save_changes)
    return ChangedVectors(before=before, after=after, warning=change.warning)
