"""Simple predictions of the codes of a visit, which a model has to beat, and the comparison with the best of them.

=================  ======================================================================================
most frequent      the codes that most training visits have
previous visit     the codes of the latest visit that has some, then the most frequent ones
linear             a logistic regression per code, of the codes of the visit that are known and how often each
                   code occurred before
=================  ======================================================================================

Each has a threshold of its own, the best on the dev subjects.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from bertsmith.recipes.codes.encoding import NO_ROW, EncodedSubjects, Example
from bertsmith.tasks.baselines.linear import PENALTIES_OF_BAGS, fit_linear
from bertsmith.tasks.metrics.sets import (
    Floats,
    Sets,
    average_precision_of_sets,
    best_threshold,
    f1_of_sets,
    interval_by_group,
    jaccard,
    paired_test_by_group,
)

FREQUENT, PREVIOUS, LINEAR = "most frequent", "previous visit", "linear"
MODEL = "model"
METRICS = ("jaccard", "pr_auc", "f1")
_ABOVE_RARE = 0.99  # what a code of the previous visit counts, so that the others keep their order


@dataclasses.dataclass(frozen=True, eq=False)
class Visits:
    """Subjects and those of their visits that are predicted; `gold` [E, labels] is what they have."""

    data: EncodedSubjects
    examples: Sequence[Example]
    gold: Sets

    @property
    def groups(self) -> list[int]:
        """The subject of each example."""
        return [example.subject for example in self.examples]


def baselines(
    train: Visits, others: Sequence[Visits], size: int, *, recommends: bool, seed: int
) -> Mapping[str, list[Floats]]:
    """For each baseline the chances [E, labels] of the codes in each of the other sets of visits.

    Args:
        size: of the vocabulary.
    """
    shares = train.gold.mean(axis=0)
    chances: dict[str, list[Floats]] = {
        FREQUENT: [np.tile(shares, (len(visits.examples), 1)) for visits in others],
        PREVIOUS: [_previous(visits, shares) for visits in others],
    }
    features = _features(train, size, recommends=recommends)
    labels = train.gold.shape[1]
    linear = fit_linear(
        features, train.gold.astype(np.int64), num_outputs=labels, seed=seed, penalties=PENALTIES_OF_BAGS
    )
    chances[LINEAR] = [
        1 / (1 + np.exp(-linear.outputs(_features(visits, size, recommends=recommends)).astype(np.float64)))
        for visits in others
    ]
    return chances


def _previous(visits: Visits, shares: Floats) -> Floats:
    chances = np.tile(shares * (1 - _ABOVE_RARE), (len(visits.examples), 1))
    for number, (subject, visit) in enumerate(visits.examples):
        before = visits.data.targets[subject][:visit]
        latest = next((labels for labels in reversed(before) if len(labels)), None)
        if latest is not None:
            chances[number, latest] += _ABOVE_RARE
    return chances


def _features(visits: Visits, size: int, *, recommends: bool) -> Any:
    """What the linear baseline reads, a sparse float32 [E, 2 size]: the current visit, and the logarithms of counts."""
    rows, columns, values = [], [], []
    for number, (subject, visit) in enumerate(visits.examples):
        of_subject, ids = visits.data.rows[subject], visits.data.ids
        current = of_subject[visit, :1] if recommends else of_subject[visit - 1]
        now = [ids[row][1:] for row in current.tolist() if row != NO_ROW]
        past = [ids[row][1:] for row in of_subject[:visit].flatten().tolist() if row != NO_ROW]
        for offset, parts in ((0, now), (size, past)):
            codes, counts = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *parts]), return_counts=True)
            rows.append(np.full(len(codes), number))
            columns.append(codes + offset)
            values.append(np.log1p(counts))
    entries = np.concatenate(values).astype(np.float32), (np.concatenate(rows), np.concatenate(columns))
    return sp.csr_array(entries, shape=(len(visits.examples), 2 * size))


def compared(
    chances: Mapping[str, tuple[Floats, Floats]], dev: Visits, test: Visits
) -> tuple[dict[str, Any], dict[str, float]]:
    """The scores of each system on the test visits, with intervals and tests by subject, and its threshold.

    The model is tested against the baseline with the best F1 on these same visits, a choice that favors the baseline.

    Args:
        chances: of each system on dev and test visits.
    """
    thresholds = {name: best_threshold(dev.gold, of_dev) for name, (of_dev, _) in chances.items()}
    values = {name: _values(test.gold, of_test, thresholds[name]) for name, (_, of_test) in chances.items()}
    groups = test.groups
    results: dict[str, Any] = {"subjects": len(set(groups)), "visits": len(test.examples), "systems": {}}
    for name, of_system in values.items():
        scores = {}
        for metric, each in of_system.items():
            low, high = interval_by_group(each, groups)
            scores[metric] = {"value": float(each.mean()), "low": low, "high": high}
        results["systems"][name] = {"threshold": thresholds[name], **scores}
    others = {name: float(of_system["f1"].mean()) for name, of_system in values.items() if name != MODEL}
    if others and len(set(groups)) > 1:
        best = max(others, key=others.__getitem__)
        results["best_baseline"] = best
        results["against_best_baseline"] = {
            metric: dataclasses.asdict(paired_test_by_group(values[MODEL][metric], values[best][metric], groups))
            for metric in METRICS
        }
    return results, thresholds


def _values(gold: Sets, chances: Floats, threshold: float) -> dict[str, Floats]:
    predicted = chances >= threshold
    values = (jaccard(gold, predicted), average_precision_of_sets(gold, chances), f1_of_sets(gold, predicted))
    return dict(zip(METRICS, values, strict=True))
