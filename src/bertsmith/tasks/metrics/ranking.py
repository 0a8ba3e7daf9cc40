"""Scores of a ranking: how high the relevant passages are.

A ranking is represented by its gains: the judged relevance of each ranked passage, in ranking order; 0 for a passage
that is not relevant or was not judged. A passage is relevant if its gain is above 0. Relevant passages that were not
ranked count as well, so each score also takes the gains of all judged passages.

Letters: R ranked passages, J judged passages.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError

Floats = npt.NDArray[np.float64]


def ndcg(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int = 10, *, exponential: bool = False) -> float:
    """The normalized discounted cumulative gain of the first `k`, from 0 to 1.

    The gain of rank r (from 1) is divided by log2(r + 1); the sum is divided by the sum of the best possible ranking.

    Args:
        ranked: gains in the order of the ranking, [R].
        judged: gains of all judged passages in any order, [J].
        exponential: whether a gain g counts as 2^g - 1 (Burges et al.) instead of g (Järvelin and Kekäläinen,
            trec_eval). For gains of 0 and 1 there is no difference.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), with the discount of
    Burges et al., "Learning to rank using gradient descent" (2005), which trec_eval uses too.

    >>> round(ndcg([3, 2, 3, 0, 1, 2], [3, 3, 2, 2, 1], k=6), 4)
    0.9608
    """
    gains, judgments = _gains(ranked, judged, k)
    if exponential:
        gains, judgments = np.exp2(gains) - 1, np.exp2(judgments) - 1
    return _discounted(gains[:k]) / _discounted(np.sort(judgments)[::-1][:k])


def recall(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int = 10) -> float:
    """The fraction of the relevant passages that are among the first `k`.

    >>> recall([0, 1, 0], [1, 1], k=2)
    0.5
    """
    gains, judgments = _gains(ranked, judged, k)
    return float(np.count_nonzero(gains[:k]) / np.count_nonzero(judgments))


def precision(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int = 10) -> float:
    """The fraction of the first `k` that is relevant; unfilled ranks count as not relevant.

    >>> precision([0, 1], [1, 1], k=4)
    0.25
    """
    gains, _ = _gains(ranked, judged, k)
    return float(np.count_nonzero(gains[:k]) / k)


def reciprocal_rank(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int | None = None) -> float:
    """One over the rank of the first relevant passage; 0 if none is among the first `k` (or in the ranking).

    Source: Voorhees, "The TREC-8 question answering track report" (1999).

    >>> reciprocal_rank([0, 0, 1, 1], [1, 1])
    0.3333333333333333
    """
    gains, _ = _gains(ranked, judged, k)
    places = np.flatnonzero(gains[:k])
    return float(1 / (places[0] + 1)) if len(places) else 0.0


def average_precision(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int | None = None) -> float:
    """The mean of the precisions at the ranks of the relevant passages; a passage that was not ranked counts as 0.

    Source: Buckley and Voorhees, "Evaluating evaluation measure stability" (2000).

    >>> average_precision([1, 0, 1], [1, 1, 1, 1])
    0.41666666666666663
    """
    gains, judgments = _gains(ranked, judged, k)
    ranks = np.flatnonzero(gains[:k]) + 1
    return float((np.arange(1, len(ranks) + 1) / ranks).sum() / np.count_nonzero(judgments))


RANKING_METRICS: dict[str, Callable[[npt.ArrayLike, npt.ArrayLike], float]] = {
    "ndcg@10": ndcg,
    "recall@10": recall,
    "recall@100": lambda ranked, judged: recall(ranked, judged, k=100),
    "mrr@10": lambda ranked, judged: reciprocal_rank(ranked, judged, k=10),
    "map@100": lambda ranked, judged: average_precision(ranked, judged, k=100),
}
"""The scores of a search by name, each for one query; the score of a search is the mean over its queries."""


RANK_METRICS: dict[str, Callable[[Floats], Floats]] = {
    "recall@1": lambda ranks: (ranks <= 1).astype(np.float64),
    "recall@2": lambda ranks: (ranks <= 2).astype(np.float64),
    "recall@5": lambda ranks: (ranks <= 5).astype(np.float64),
    "mrr": lambda ranks: 1 / ranks,
}
"""The scores of a list of candidates of which one is right, by name: the value of each list, from the rank of that one.

Source: Lowe et al., "The Ubuntu Dialogue Corpus" (2015), section 4.3, for the recall of 1 in 10.
"""


def value_of_list(metric: str, scores: Sequence[float], gold: Sequence[float]) -> float | None:
    """A score of the ranking of a list of candidates; None if their gold scores are equal, so that nothing is wrong.

    Of equal scores, the better candidate is ranked last. Gold scores below 0, such as those of a teacher, are counted
    from the lowest one of the list.

    Args:
        metric: one of `RANKING_METRICS`.

    >>> value_of_list("mrr@10", [0.1, 0.7, 0.7], [0, 1, 0]), value_of_list("mrr@10", [0.1, 0.2], [1, 1])
    (0.5, None)
    """
    gains = np.asarray(gold, dtype=np.float64)
    gains = gains - min(0.0, gains.min())
    if (gains == gains[0]).all():
        return None
    return RANKING_METRICS[metric](gains[np.lexsort((gains, -np.asarray(scores, dtype=np.float64)))], gains)


def rank_of(scores: Sequence[float], right: int) -> int:
    """The rank, from 1, of the candidate `right` by descending score; of equal candidates, the earlier one is first.

    >>> rank_of([0.2, 0.5, 0.2], 2), rank_of([0.2, 0.5, 0.2], 0)
    (3, 2)
    """
    right_score = scores[right]
    return 1 + sum(score > right_score for score in scores) + sum(score == right_score for score in scores[:right])


def _discounted(gains: Floats) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _gains(ranked: npt.ArrayLike, judged: npt.ArrayLike, k: int | None) -> tuple[Floats, Floats]:
    assert k is None or k >= 1, k
    result = np.asarray(ranked, dtype=np.float64).reshape(-1)
    judgments = np.asarray(judged, dtype=np.float64).reshape(-1)
    for values in (result, judgments):
        wrong = values[~(np.isfinite(values) & (values >= 0))]
        if len(wrong):
            raise InputError(
                expected="gains of 0 or more", found=f"{wrong[0]:g}", fix="use a gain of 0 for passages not relevant"
            )
    if not judgments.any():
        raise InputError(
            expected="a relevant passage for the query", found="none", fix="leave out queries without an answer"
        )
    return result, judgments
