"""The rows of a labelled table to look at.

Letters: E examples, K labels, D columns.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.progress import tell
from bertsmith.recipes.audit.request import MOST_PAIRED
from bertsmith.tasks.baselines.bag_of_words import TextSpace
from bertsmith.tasks.datasets.examples import Example, TextExample, whole_text
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    joint_counts,
    normalized_margins,
    probably_wrong,
)
from bertsmith.tasks.metrics.uncertainty import bootstrap_interval, proportion_interval
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.tasks.specs.task import TaskSpec
from bertsmith.tasks.task_data.split import inputs_of

WRONG, DIFFERS, NEAR, UNCLEAR = "wrong label", "same text, other label", "similar text, other label", "no clear label"
SHARED, OUTLIER = "also in the dev file", "unlike all others"
KINDS = (WRONG, DIFFERS, NEAR, SHARED, UNCLEAR, OUTLIER)
MOST_PAIRS = 20  # labels that overlap, in the report
_BLOCK = 512  # texts that are compared with all others at once
_NEIGHBORS = 5  # whose mean cosine says how unlike a row is
_FENCE = 3.0  # interquartile ranges below the first quartile, from which a value is "far out" (Tukey, 1977, chapter 2)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Audited:
    """A labelled table with the predictions for its rows."""

    spec: TaskSpec
    examples: Sequence[TextExample]
    labels: Ints  # [E]
    probabilities: Floats  # [E, K]
    confident: Ints  # the label that each row confidently has, or `NO_LABEL`, [E]

    def issue(self, row: int, kind: str, other: str = "") -> dict[str, Any]:
        """The record of a row to look at.

        Args:
            other: the row that it is compared with, in words.
        """
        example, names = self.examples[row], self.spec.labels
        best = int(self.probabilities[row].argmax() if self.confident[row] == NO_LABEL else self.confident[row])
        return {
            "row": row + 1,
            "location": example.location,
            "issue": kind,
            "label": names[self.labels[row]],
            "suggested": names[best],
            "probability": round(float(self.probabilities[row, self.labels[row]]), 4),
            "probability_of_suggested": round(float(self.probabilities[row, best]), 4),
            "other": other,
            "text": " | ".join(example.texts),
        }


def issues_of(
    table: Audited, near: float, dev: Sequence[TextExample] = (), vectors: Any = None
) -> list[dict[str, Any]]:
    """The rows to look at, by kind of issue: probably wrong labels first.

    Args:
        near: the least cosine of similar texts.
        dev: other examples, in which no text of the table should be.
        vectors: of an encoder, [E, D], to find outliers by.
    """
    labels, confident = table.labels, table.confident
    order = np.argsort(normalized_margins(table.probabilities, labels), kind="stable").tolist()
    predicted = table.probabilities.argmax(axis=1)
    is_wrong = probably_wrong(table.probabilities, labels, confident)
    issues = [table.issue(row, WRONG) for row in order if is_wrong[row]]

    issues += issues_of_texts(
        table.examples, labels, lambda row: table.spec.labels[labels[row]], table.issue, near, dev, vectors
    )
    issues += _unclear(table, order, predicted)
    return sorted(issues, key=lambda issue: KINDS.index(issue["issue"]))


def issues_of_texts(
    examples: Sequence[Example],
    labels: Ints,
    name: Callable[[int], str],
    issue: Callable[..., dict[str, Any]],
    near: float,
    dev: Sequence[Example] = (),
    vectors: Any = None,
    *,
    are_comparable: bool = True,
) -> list[dict[str, Any]]:
    """The rows to look at because of their texts: equal or similar ones with other labels, and outliers.

    Args:
        labels: a number for each row, equal for equal labels, [E].
        name: the label of a row in words.
        issue: the record of a row, see `Audited.issue`.
        near, dev, vectors: see `issues_of`.
        are_comparable: whether similar texts that are not equal may have the same label, as sentences with tags do not.
    """

    def labelled(row: int) -> str:
        return f"{name(row)} ({examples[row].location})"

    issues = []
    by_text: dict[Any, list[int]] = {}
    for row, example in enumerate(examples):
        by_text.setdefault(inputs_of(example), []).append(row)
    for rows in by_text.values():
        for row in rows:
            others = [other for other in rows if labels[other] != labels[row]]
            issues += [issue(row, DIFFERS, labelled(others[0]))] if others else []
    if len(examples) + len(dev) > MOST_PAIRED:
        tell(f"more than {MOST_PAIRED:,} examples: similar texts and outliers are not searched")
        return issues
    joined = [whole_text(example) for example in (*examples, *dev)]
    weights = sp.csr_array(TextSpace(joined).weights(joined), dtype=np.float32)
    ours, theirs = weights[: len(examples)], weights[len(examples) :]
    for row, other in _similar(ours, ours, near, labels) if are_comparable else ():
        if inputs_of(examples[row]) != inputs_of(examples[other]):  # equal texts are another kind of issue
            issues.append(issue(row, NEAR, labelled(other)))
    issues += [issue(row, SHARED, dev[other].location) for row, other in _similar(ours, theirs, near)]
    if vectors is not None:
        issues += [issue(row, OUTLIER) for row in _outliers(unit(vectors))]
    return issues


def estimated(rows: npt.NDArray[Any], errors: Callable[[Any], float], seed: int, draws: int = 200) -> dict[str, Any]:
    """The share of errors and its 95% interval, for audit.json.

    Args:
        errors: the share among rows, all of which it judges again.
        draws: of the bootstrap.
    """
    share = errors(rows)
    low, high = bootstrap_interval(rows, errors, seed=seed, draws=draws)
    if low == high:  # without a single error, say, draws tell nothing about other rows
        low, high = proportion_interval(round(share * len(rows)), len(rows))
    return {"errors": share, "interval": [min(low, share), max(high, share)]}


def overlaps_of(names: Sequence[str], confident: Ints, labels: Ints) -> list[dict[str, Any]]:
    """The pairs of labels whose examples are taken for each other, the largest share of both first.

    Args:
        confident: the label that each example confidently has, or `NO_LABEL`, [E].
        labels: the one that it has, [E].
    """
    joint, counts = joint_counts(confident, labels, len(names)), np.bincount(labels, minlength=len(names))
    both = (joint + joint.T).tolist()
    overlaps = [
        {"label": names[a], "other": names[b], "examples": both[a][b], "share": both[a][b] / int(counts[a] + counts[b])}
        for a in range(len(names))
        for b in range(a + 1, len(names))
        if both[a][b] >= 1
    ]
    return sorted(overlaps, key=lambda pair: -pair["share"])


def _unclear(table: Audited, order: Sequence[int], predicted: Ints) -> list[dict[str, Any]]:
    rows = [row for row in order if table.confident[row] == NO_LABEL and predicted[row] != table.labels[row]]
    return [table.issue(row, UNCLEAR) for row in rows]


def _similar(
    rows: "sp.csr_array", others: "sp.csr_array", near: float, labels: Ints | None = None
) -> Iterator[tuple[int, int]]:
    """Each row with its most similar other, the first of equal ones, if their cosine is at least `near`.

    Args:
        labels: of both, if they are the same rows: others of the same label are left out.
    """
    for start in range(0, rows.shape[0], _BLOCK):
        cosines = sp.coo_array(rows[start : start + _BLOCK] @ others.T)
        kept = cosines.data >= near
        if labels is not None:
            kept &= labels[cosines.row + start] != labels[cosines.col]
        best: dict[int, tuple[float, int]] = {}
        pairs = zip(cosines.row[kept].tolist(), cosines.col[kept].tolist(), cosines.data[kept].tolist(), strict=True)
        for row, other, cosine in pairs:
            best[row] = max(best.get(row, (0.0, 0)), (cosine, -other))
        yield from ((start + row, -other) for row, (_, other) in sorted(best.items()))


def _outliers(units: Any) -> list[int]:
    """The rows whose nearest rows are far away compared with those of others, the farthest first.

    Args:
        units: vectors of length 1, [E, D].
    """
    closeness = np.zeros(len(units))
    count = min(_NEIGHBORS, len(units) - 1)
    for start in range(0, len(units), _BLOCK):
        cosines = units[start : start + _BLOCK] @ units.T
        cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -np.inf  # itself
        closeness[start : start + _BLOCK] = np.partition(cosines, -count, axis=1)[:, -count:].mean(axis=1)
    low, high = np.quantile(closeness, [0.25, 0.75])
    order = np.argsort(closeness, kind="stable")
    return [row for row in order.tolist() if closeness[row] < low - _FENCE * (high - low)]
