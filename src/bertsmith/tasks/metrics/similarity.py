"""Scores of similarities: of pairs that belong together or not, and of neighbors.

Letters: E examples, D width of the vectors.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.models.heads.vector_forms import BY_COSINE
from bertsmith.tasks.metrics.vectors import all_similarities

Vectors = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.int64]

_BLOCK = 1024  # vectors that are compared with all others at a time


def pair_average_precision(belongs: npt.ArrayLike, similarities: npt.ArrayLike) -> float:
    """The area under precision and recall of pairs ranked by similarity, from 0 to 1; 0 if no pair belongs together.

    Args:
        belongs: bool [E].
        similarities: float [E].

    Equal similarities are one rank. Source: the main score of pair classification in MTEB (Muennighoff et al., 2023),
    which is `sklearn.metrics.average_precision_score`.
    """
    is_match, values = np.asarray(belongs, dtype=bool), np.asarray(similarities, dtype=np.float64)
    if not is_match.any():
        return 0.0
    order = np.argsort(-values, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)  # of each rank
    right = np.cumsum(is_match[order])[ends]
    return float((right / (ends + 1) * np.diff(right, prepend=0)).sum() / right[-1])


def best_pair_accuracy(belongs: npt.ArrayLike, similarities: npt.ArrayLike) -> float:
    """The highest accuracy that a threshold between two different similarities reaches, from 0 to 1.

    If all similarities are equal: the share of the more frequent answer.

    Source: `_find_best_acc_and_threshold` of MTEB, which orders equal similarities by position.

    >>> best_pair_accuracy([True, False, True], [0.9, 0.2, 0.1])
    0.6666666666666666
    """
    is_match, values = np.asarray(belongs, dtype=bool), np.asarray(similarities, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    ranked, values = is_match[order], values[order]
    right = np.cumsum(ranked) + (~ranked).sum() - np.cumsum(~ranked)
    borders = np.flatnonzero(values[:-1] > values[1:])
    return float(max(is_match.mean(), 1 - is_match.mean()) if not len(borders) else right[borders].max() / len(ranked))


def ranks_of_partners(
    first: Vectors, second: Vectors, names: Sequence[str], similarity: str = BY_COSINE
) -> npt.NDArray[np.int64]:
    """The rank from 1, among all `second` [E, D], of the partner of each of `first` [E, D]: int64 [E].

    Others that are exactly as near count as nearer, so that equal vectors for all texts give the last rank.

    Args:
        names: of the second ones; others with the name of the partner do not count.
        similarity: what ranks them, see `vectors.similarities`.
    """
    return ranks_by(lambda part: all_similarities(first[part], second, similarity), names)


def ranks_by(compared: Callable[[Places], Vectors], names: Sequence[str]) -> npt.NDArray[np.int64]:
    """The ranks of `ranks_of_partners` by similarities that are computed for some texts at a time.

    Args:
        compared: the similarities of some of the first texts, int64 [e], and all second ones, [e, E].
    """
    ranks = np.empty(len(names), dtype=np.int64)
    _, group = np.unique(np.array(names), return_inverse=True)
    for start in range(0, len(names), _BLOCK):
        part = np.arange(start, min(start + _BLOCK, len(names)))
        similarities = compared(part)
        partner = np.take_along_axis(similarities, part[:, None], axis=1)
        is_nearer = (similarities >= partner) & (group[None, :] != group[part, None])
        ranks[part] = 1 + is_nearer.sum(axis=1)
    return ranks
