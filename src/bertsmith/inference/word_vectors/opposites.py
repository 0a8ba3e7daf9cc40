"""Whether two words are similar or opposites, judged by the cosine and by a probe on both vectors.

Opposites such as hot and cold are used alike, so that their cosine is high too, often as high as that of synonyms. What
a cosine does not show may still be in the vectors: a linear model on labelled pairs looks for it.

P pairs, D width.

Source: Levy, Remus, Biemann and Dagan, "Do supervised distributional methods really learn lexical inference relations?"
(2015), for keeping the words of the tested pairs out of training.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from bertsmith.base.core.errors import InputError, nearest
from bertsmith.base.core.progress import counted
from bertsmith.inference.word_vectors.answers import similarity, text_lines
from bertsmith.inference.word_vectors.word_vectors import Floats, WordVectors

SIMILAR, OPPOSITE = LABELS = ("similar", "opposite")
_FOLDS = 5
_STRENGTH = 0.01  # the inverse of the weight of the penalty: there are more features than pairs
_MOST_ROUNDS = 1000

Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OppositesScore:
    """How well vectors separate similar pairs from opposite ones."""

    # similar, opposite: the number of pairs whose words both have a vector
    similar: int
    opposite: int
    left_out: int
    # cosine_of_similar, cosine_of_opposite: mean cosines
    cosine_of_similar: float
    cosine_of_opposite: float
    # the probability that a similar pair has a higher cosine than an opposite one (AUC); 0.5 is chance
    by_cosine: float
    # the same of the probe, on pairs whose words it was not trained on; None if too many pairs have words in common for
    # any to be held out
    by_probe: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relation:
    """What vectors say of two words: their cosine, and the probability of the probe that they are opposites."""

    cosine: float
    opposite: float


def score_opposites(vectors: WordVectors, path: Path | str) -> OppositesScore:
    """How well vectors tell the similar from the opposite pairs of a file.

    Args:
        path: `word word similar` or `word word opposite` per line, with tabs, commas or spaces between; a line that
            starts with # is a comment.
    """
    rows, is_opposite, left_out = _pairs(vectors, Path(path))
    cosines = (vectors.units[rows[:, 0]] * vectors.units[rows[:, 1]]).sum(axis=1)
    return OppositesScore(
        similar=int((~is_opposite).sum()),
        opposite=int(is_opposite.sum()),
        left_out=left_out,
        cosine_of_similar=float(cosines[~is_opposite].mean()),
        cosine_of_opposite=float(cosines[is_opposite].mean()),
        by_cosine=float(roc_auc_score(~is_opposite, cosines)),
        by_probe=_probed(_features(vectors, rows), is_opposite, _groups(rows)),
    )


def relation(vectors: WordVectors, path: Path | str, a: str, b: str) -> Relation:
    """What the cosine and a probe say of two words; the probe learns from the pairs of a file without these words."""
    wanted = np.array([vectors.rows([a, b])])
    rows, is_opposite, _ = _pairs(vectors, Path(path))
    others = ~np.isin(rows, wanted).any(axis=1)
    _require_both(is_opposite[others], f"'{path}', without '{a}' and '{b}'")
    probe = _probe().fit(_features(vectors, rows[others]), is_opposite[others])
    chance = float(probe.predict_proba(_features(vectors, wanted))[0, 1])
    return Relation(cosine=similarity(vectors, a, b), opposite=chance)


def _probe() -> Pipeline:
    return make_pipeline(StandardScaler(), LogisticRegression(C=_STRENGTH, max_iter=_MOST_ROUNDS))


def _features(vectors: WordVectors, rows: Rows) -> Floats:
    """float32 [P, 2 D]: differences without their sign, and products; the order of the words does not matter."""
    first, second = vectors.units[rows[:, 0]], vectors.units[rows[:, 1]]
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def _groups(rows: Rows) -> npt.NDArray[np.int32]:
    """The number of the group of each pair, int32 [P]; pairs of different groups have no word in common."""
    size = int(rows.max()) + 1
    links = sparse.coo_matrix((np.ones(len(rows)), (rows[:, 0], rows[:, 1])), shape=(size, size))
    return np.asarray(connected_components(links, directed=False)[1][rows[:, 0]], dtype=np.int32)


def _probed(features: Floats, is_opposite: Flags, groups: npt.NDArray[np.int32]) -> float | None:
    """The AUC of the probe in cross-validation, with all pairs of a group in the same fold."""
    folds = np.empty(len(groups), dtype=np.int64)
    sizes = np.zeros(_FOLDS, dtype=np.int64)
    numbers, counts = np.unique(groups, return_counts=True)
    for index in np.argsort(-counts, kind="stable").tolist():  # the largest first, into the smallest fold
        fold = int(sizes.argmin())
        folds[groups == numbers[index]] = fold
        sizes[fold] += counts[index]
    scores = np.empty(len(groups))
    for fold in np.unique(folds).tolist():
        is_tested = folds == fold
        if len(np.unique(is_opposite[~is_tested])) < 2:
            return None
        probe = _probe().fit(features[~is_tested], is_opposite[~is_tested])
        scores[is_tested] = probe.decision_function(features[is_tested])
    return float(roc_auc_score(is_opposite, scores))


def _pairs(vectors: WordVectors, path: Path) -> tuple[Rows, Flags, int]:
    """(rows of the words, int64 [P, 2]; whether they are opposites, bool [P]; how many pairs were left out)."""
    rows, labels, left_out = [], [], 0
    for number, line in text_lines(path):
        if line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("\t" if "\t" in line else "," if "," in line else None)]
        if len(parts) != 3 or parts[2].lower() not in LABELS:
            raise InputError(
                expected=f"two words and 'similar' or 'opposite' in line {number:,} of '{path}'",
                found=repr(line[:40]),
                fix=nearest(parts[2], LABELS) if len(parts) == 3 else "correct it",
            )
        pair = vectors.row(parts[0]), vectors.row(parts[1])
        if None in pair:
            left_out += 1
            continue
        rows.append(pair)
        labels.append(parts[2].lower() == OPPOSITE)
    is_opposite = np.array(labels, dtype=bool)
    _require_both(is_opposite, f"'{path}'")
    return np.array(rows, dtype=np.int64), is_opposite, left_out


def _require_both(is_opposite: Flags, where: str) -> None:
    opposite = int(is_opposite.sum())
    similar = len(is_opposite) - opposite
    if min(similar, opposite) < 2:
        raise InputError(
            expected=f"at least two similar and two opposite pairs with vectors in {where}",
            found=f"{counted(similar, 'similar pair')}, {counted(opposite, 'opposite pair')}",
            fix="add pairs, use vectors of more words, or --lowercase",
        )
