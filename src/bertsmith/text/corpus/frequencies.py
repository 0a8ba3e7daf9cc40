"""The frequencies of pieces, from their counts, and the loss of a model that knows nothing else.

On the text that was counted, that loss is the entropy; on other text, the frequencies must be smoothed. V: vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def entropy(counts: npt.NDArray[Any]) -> float:
    """The entropy in nats of the distribution given by these counts.

    >>> round(entropy(np.array([1, 1, 0, 2])), 4)
    1.0397
    """
    frequencies = counts[counts > 0] / counts.sum()
    return float(-(frequencies * np.log(frequencies)).sum())


def smoothed_frequencies(counts: npt.NDArray[Any], spare_ids: Sequence[int] = ()) -> npt.NDArray[np.float64]:
    """The probability of each piece from its count, float64 [V], above 0 also for pieces that never occur.

    One is added to each count. The spare pieces that never occur share one added count: thousands of them, in a
    vocabulary that a small corpus does not fill, would otherwise take most of the probability from the others.

    Args:
        counts: how often each piece occurs, [V].
        spare_ids: those of the vocabulary's spare pieces.

    >>> smoothed_frequencies(np.array([4, 2, 0])).tolist()
    [0.5555555555555556, 0.3333333333333333, 0.1111111111111111]
    >>> smoothed_frequencies(np.array([4, 2, 0, 0]), spare_ids=[2, 3]).tolist()
    [0.5555555555555556, 0.3333333333333333, 0.05555555555555555, 0.05555555555555555]
    """
    spare = np.asarray(spare_ids, dtype=np.int64)
    spare = spare[counts[spare] == 0]
    smoothed = counts + 1.0
    smoothed[spare] = 1 / max(len(spare), 1)
    return np.asarray(smoothed / smoothed.sum())
