"""The audit of texts with several labels: every pair of a row and a label is judged, whether the row has it or not.

A label is a question with two answers, so its probabilities are those of two labels, "has not" and "has".

Letters: E examples, K labels, S systems.

Source: Thyagarajan et al. (2022), "Identifying Incorrect Annotations in Multi-Label Classification Data", for the
margins of single labels; Northcutt, Jiang and Chuang (2021) as in `tasks.metrics.label_errors`.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.recipes.audit.issues import KINDS, WRONG, estimated, issues_of_texts
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.metrics.label_errors import (
    NO_LABEL,
    Floats,
    Ints,
    confident_labels,
    normalized_margins,
    share_probably_wrong,
)
from bertsmith.tasks.specs.task import TaskSpec


def two_answers(chances: Floats) -> Floats:
    """The probabilities of "has not" and "has" from those of "has": [..., 2]."""
    answers: Floats = np.stack([1 - chances, chances], axis=-1)
    return answers


def confident_answers(chances: Floats, has: Ints) -> Ints:
    """Whether each row confidently has each label, 0 or 1, [E, K]; `NO_LABEL` where neither reaches its threshold.

    >>> chances = np.array([[0.9], [0.8], [0.2], [0.1], [0.95]])
    >>> confident_answers(chances, np.array([[1], [1], [0], [0], [0]]))[:, 0].tolist()
    [1, -1, 0, 0, 1]
    """
    columns = [confident_labels(two_answers(part), answers) for part, answers in zip(chances.T, has.T, strict=True)]
    return np.stack(columns, axis=1)


def answer_margins(chances: Floats, has: Ints) -> Floats:
    """The probability of the answer that each row has for each label, less that of the other one, [E, K]."""
    return normalized_margins(two_answers(chances.ravel()), has.ravel()).reshape(has.shape)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SeveralAudited:
    """A table of texts with several labels, with the predictions for its rows.

    Attributes:
        has: whether each row has each label, 0 or 1, [E, K].
        chances: the probabilities that it has, [E, K].
        judged: the labels that rows of several parts have, [K].
    """

    spec: TaskSpec
    examples: Sequence[TextExample]
    has: Ints
    chances: Floats
    judged: npt.NDArray[np.bool_]

    def issues(self, near: float, dev: Sequence[TextExample], vectors: Any) -> list[dict[str, Any]]:
        """The pairs of a row and a label that are probably wrong, the most certain first, and other rows to look at."""
        confident, margins = confident_answers(self.chances, self.has), answer_margins(self.chances, self.has)
        is_wrong = (confident != NO_LABEL) & (confident != self.has) & (margins < 0) & self.judged
        rows, labels = (part[np.argsort(margins[is_wrong], kind="stable")] for part in np.nonzero(is_wrong))
        issues = [self._wrong(row, label) for row, label in zip(rows.tolist(), labels.tolist(), strict=True)]
        numbers = np.unique(self.has, axis=0, return_inverse=True)[1].ravel()
        return [*issues, *issues_of_texts(self.examples, numbers, self._names, self._issue, near, dev, vectors)]

    def _names(self, row: int, changed: int | None = None) -> str:
        """The labels of a row as a cell, or those with one of them added or removed."""
        has = self.has[row].astype(bool)
        if changed is not None:
            has[changed] = ~has[changed]
        return as_cell([self.spec.labels[label] for label in np.flatnonzero(has).tolist()])

    def _wrong(self, row: int, label: int) -> dict[str, Any]:
        chance = float(self.chances[row, label])
        has = bool(self.has[row, label])
        return self._record(row, WRONG) | {
            "suggested": self._names(row, label),
            "probability": round(chance if has else 1 - chance, 4),
            "probability_of_suggested": round(1 - chance if has else chance, 4),
            "other": f"{'without' if has else 'with'} {self.spec.labels[label]}",
            "change": self.spec.labels[label],
        }

    def _record(self, row: int, kind: str) -> dict[str, Any]:
        example, names = self.examples[row], self._names(row)
        answers = np.where(self.has[row] == 1, self.chances[row], 1 - self.chances[row])
        lowest = round(float(answers.min()), 4)
        return {
            "row": row + 1,
            "location": example.location,
            "issue": kind,
            "label": names,
            "suggested": names,
            "probability": lowest,
            "probability_of_suggested": lowest,
            "other": "",
            "text": " | ".join(example.texts),
        }

    def _issue(self, row: int, kind: str, other: str = "") -> dict[str, Any]:
        return self._record(row, kind) | {"other": other}

    def corrected(self, issues: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """The cells of rows with all of their corrections, by their locations."""
        changes: dict[int, set[str]] = {}
        for issue in issues:
            if issue["issue"] == WRONG:
                changes.setdefault(issue["row"] - 1, set()).add(issue["change"])
        cells = {}
        for row, names in changes.items():
            has = [label for label, answer in zip(self.spec.labels, self.has[row].tolist(), strict=True) if answer]
            cells[self.examples[row].location] = as_cell(toggled(self.spec.labels, has, names))
        return cells

    def report(
        self, systems: Mapping[str, Floats], weights: Floats, issues: Sequence[Mapping[str, Any]], seed: int
    ) -> dict[str, Any]:
        """The content of audit.json; shares are those of pairs of a row and a label."""
        rows = np.concatenate([self.chances[:, self.judged], self.has[:, self.judged]], axis=1)
        kinds = [issue["issue"] for issue in issues]
        counts = self.has.sum(axis=0).tolist()
        return {
            "examples": len(self.has),
            "pairs": int(self.has.size),
            "labels": dict(zip(self.spec.labels, counts, strict=True)),
            "accuracy": {name: float(((part >= 0.5) == self.has).mean()) for name, part in systems.items()},
            "weights": dict(zip(systems, weights.round(4).tolist(), strict=True)),
            **estimated(rows, _share, seed),
            "issues": {kind: kinds.count(kind) for kind in KINDS},
            "overlaps": [],
        }


def toggled(labels: Sequence[str], has: Iterable[str], names: Iterable[str] = ()) -> list[str]:
    """The labels of a text in the order of all labels, with those of some names added where missing, else removed.

    >>> toggled(["a", "b", "c"], ["c", "a"], ["b", "c"])
    ['a', 'b']
    """
    wanted = {*has} ^ {*names}
    return [label for label in labels if label in wanted]


def as_cell(names: Sequence[str]) -> str:
    """Labels as a cell that `finetune` reads, as a list in JSON if a name needs it.

    >>> as_cell(["a", "b"]), as_cell(["a|b"]), as_cell([])
    ('a|b', '["a|b"]', '')
    """
    plain = "|".join(names)
    is_plain = not any("|" in name or name.startswith(("[", "{")) for name in names)
    return plain if is_plain else json.dumps(list(names), ensure_ascii=False)


def _share(rows: npt.NDArray[np.generic]) -> float:
    """The share of probably wrong pairs, from probabilities and answers side by side."""
    chances, has = np.split(np.asarray(rows, dtype=np.float64), 2, axis=1)
    answers = has.astype(np.int64)
    return float(
        np.mean([share_probably_wrong(two_answers(part), y) for part, y in zip(chances.T, answers.T, strict=True)])
    )
