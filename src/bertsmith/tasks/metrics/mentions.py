"""Scores of pronouns with candidates, as the official scorer of GAP counts them.

Each candidate of each pronoun is a yes/no decision: does the pronoun refer to it? Precision, recall and F1 are of the
decisions with "yes", over all pronouns, and over masculine and feminine ones alone. The bias is the F1 of feminine
pronouns divided by that of masculine ones. The accuracy is the share of pronouns with the right answer, which may be
"none".

Source: Webster et al. (2018), "Mind the GAP: A Balanced Corpus of Gendered Ambiguous Pronouns"; `gap_scorer.py` and
`constants.py` of github.com/google-research-datasets/gap-coreference.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MENTION_METRICS = ("f1", "precision", "recall", "accuracy")  # those that all pronouns have
MASCULINE, FEMININE, BIAS = "f1_masculine", "f1_feminine", "bias"
_GENDERS = {
    **dict.fromkeys(("he", "his", "him"), MASCULINE),
    **dict.fromkeys(("she", "her", "hers"), FEMININE),
}
_COLUMNS = {MASCULINE: slice(3, 6), FEMININE: slice(6, 9)}  # the counts of the decisions on such pronouns

Counts = npt.NDArray[np.float64]
"""Of each pronoun the right, gold and predicted candidates: of all, of masculine and of feminine pronouns, [E, 9]."""


def counts_of(answers: Sequence[tuple[int | None, int | None]], pronouns: Sequence[str]) -> Counts:
    """The counts of pronouns, from the numbers of the gold and of the predicted candidate; None for no candidate.

    >>> counts_of([(0, 0), (1, None)], ["She", "it"]).astype(int).tolist()
    [[1, 1, 1, 0, 0, 0, 1, 1, 1], [0, 1, 0, 0, 0, 0, 0, 0, 0]]
    """
    rows = np.zeros((len(pronouns), 9))
    for row, (gold, answer), pronoun in zip(rows, answers, pronouns, strict=True):
        row[:3] = gold is not None and gold == answer, gold is not None, answer is not None
        if gender := _GENDERS.get(pronoun.lower()):
            row[_COLUMNS[gender]] = row[:3]
    return rows


def score_of_counts(metric: str, rows: npt.NDArray[np.generic]) -> float:
    """A score, except for the accuracy, from the counts of some pronouns; 0 if it is undefined."""
    sums = np.asarray(rows, dtype=np.float64).sum(axis=0)
    if metric == BIAS:
        masculine, feminine = (_f1(sums[_COLUMNS[gender]]) for gender in (MASCULINE, FEMININE))
        return feminine / masculine if masculine else 0.0
    right, gold, predicted = sums[_COLUMNS.get(metric, slice(3))].tolist()
    if metric in ("precision", "recall"):
        return float(right / max(1.0, predicted if metric == "precision" else gold))
    return _f1(sums[_COLUMNS.get(metric, slice(3))])


def mention_scores(answers: Sequence[tuple[int | None, int | None]], pronouns: Sequence[str]) -> dict[str, float]:
    """All scores, as fractions; those of genders and the bias only where there are pronouns of both.

    The bias is left out where one of its F1 is 0, as in the official scorer.
    """
    rows = counts_of(answers, pronouns)
    scores = {metric: score_of_counts(metric, rows) for metric in MENTION_METRICS}
    scores["accuracy"] = float(np.mean([gold == answer for gold, answer in answers])) if answers else 0.0
    genders = {_GENDERS.get(pronoun.lower()) for pronoun in pronouns}
    if {MASCULINE, FEMININE} <= genders:
        scores |= {gender: score_of_counts(gender, rows) for gender in (MASCULINE, FEMININE)}
        if scores[MASCULINE] and scores[FEMININE]:
            scores[BIAS] = score_of_counts(BIAS, rows)
    return scores


def _f1(counts: npt.NDArray[np.float64]) -> float:
    right, gold, predicted = counts.tolist()
    return float(2 * right / max(1.0, gold + predicted))
