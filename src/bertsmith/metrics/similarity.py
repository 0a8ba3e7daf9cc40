"""Scores of vectors as measures of similarity: pairs that belong together, neighbors, triplets, clusters.

Letters: E examples, D width of the vectors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.metrics.vectors import unit

Vectors = npt.NDArray[np.floating[Any]]

CLUSTERING_BATCH, CLUSTERING_SEED = 500, 42  # of k-means, those of MTEB
_BLOCK = 1024  # vectors that are compared with all others at a time


def pair_average_precision(belongs: npt.ArrayLike, similarities: npt.ArrayLike) -> float:
    """The area under precision and recall of pairs ranked by similarity, from 0 to 1; 0 if no pair belongs together.

    Args:
        belongs: bool [E].
        similarities: float [E].

    Source: `sklearn.metrics.average_precision_score`, the main score of pair classification in MTEB (Muennighoff et
    al., 2023).
    """
    from sklearn.metrics import average_precision_score

    found = np.asarray(belongs, dtype=bool)
    return float(average_precision_score(found, similarities)) if found.any() else 0.0


def best_pair_accuracy(belongs: npt.ArrayLike, similarities: npt.ArrayLike) -> float:
    """The highest accuracy that a threshold between two different similarities reaches, from 0 to 1.

    If all similarities are equal, that of the more frequent answer. Source: `_find_best_acc_and_threshold` of MTEB, which
    orders equal similarities by their place.

    >>> best_pair_accuracy([True, False, True], [0.9, 0.2, 0.1])
    0.6666666666666666
    """
    found, values = np.asarray(belongs, dtype=bool), np.asarray(similarities, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    ranked, values = found[order], values[order]
    right = np.cumsum(ranked) + (~ranked).sum() - np.cumsum(~ranked)
    borders = np.flatnonzero(values[:-1] > values[1:])
    return float(max(found.mean(), 1 - found.mean()) if not len(borders) else right[borders].max() / len(ranked))


def ranks_of_partners(first: Vectors, second: Vectors, names: Sequence[str]) -> npt.NDArray[np.int64]:
    """The rank from 1, among all `second` [E, D], of the partner of each of `first` [E, D], by cosine: int64 [E].

    Others that are exactly as near count as nearer, so that equal vectors for all texts give the last rank.

    Args:
        names: of the second ones; others with the name of the partner do not count.
    """
    queries, candidates = (unit(np.asarray(side, dtype=np.float64)) for side in (first, second))
    ranks = np.empty(len(queries), dtype=np.int64)
    _, group = np.unique(np.array(names), return_inverse=True)
    for start in range(0, len(queries), _BLOCK):
        part = queries[start : start + _BLOCK]
        cosines = part @ candidates.T
        own = np.take_along_axis(cosines, np.arange(start, start + len(part))[:, None], axis=1)
        is_nearer = (cosines >= own) & (group[None, :] != group[start : start + len(part), None])
        ranks[start : start + len(part)] = 1 + is_nearer.sum(axis=1)
    return ranks


def clustering_v_measure(vectors: Vectors, labels: npt.ArrayLike) -> float:
    """How well k-means clusters of the vectors [E, D] agree with the labels [E], from 0 to 1; k is that of the labels.

    Source: Rosenberg and Hirschberg, "V-measure" (2007); k-means in batches as in MTEB.
    """
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.metrics import v_measure_score

    gold = np.asarray(labels)
    model = MiniBatchKMeans(
        n_clusters=len(np.unique(gold)), batch_size=CLUSTERING_BATCH, n_init="auto", random_state=CLUSTERING_SEED
    )
    return float(v_measure_score(gold, model.fit(vectors).labels_))
