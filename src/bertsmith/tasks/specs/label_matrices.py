"""Gold and predicted labels of multi-label texts as matrices, and the effect of a label hierarchy on them.

Letters: E examples, K labels.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Values = TypeVar("Values", bound=np.generic)


def label_matrix(names: Iterable[Sequence[str]], labels: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Whether each example has each label, bool [E, K]; names that are no label are left out.

    >>> label_matrix([("b",), ("a", "x")], ("a", "b")).astype(int).tolist()
    [[0, 1], [1, 0]]
    """
    number = {label: column for column, label in enumerate(labels)}
    columns = [[number[name] for name in row if name in number] for row in names]
    result = np.zeros((len(columns), len(labels)), dtype=np.bool_)
    rows = np.repeat(np.arange(len(columns)), [len(row) for row in columns])
    result[rows, [column for row in columns for column in row]] = True
    return result


def with_parents(values: npt.NDArray[Values], labels: Sequence[str], parents: Sequence[str]) -> npt.NDArray[Values]:
    """Values of labels [E, K] in which each label has at least the highest value of its children.

    So a text that has a label has its parents, and a probability is not higher than a parent's.

    Args:
        labels: K names; labels that are not in `parents` have no parent.
        parents: the name of the parent of each label, "" if it has none; empty without a hierarchy.

    >>> with_parents(np.array([[0.1, 0.7, 0.2]]), ("a", "b", "c"), ("", "a", "b")).tolist()
    [[0.7, 0.7, 0.2]]
    """
    if not any(parents):
        return values
    number = {label: column for column, label in enumerate(labels)}
    above = [number[name] if name else -1 for name in parents]
    result = values.copy()
    # The deepest labels first, so that a value reaches the top.
    for column in sorted(range(len(above)), key=lambda column: -_depth(column, above)):
        if above[column] >= 0:
            np.maximum(result[:, above[column]], result[:, column], out=result[:, above[column]])
    return result


def _depth(column: int, above: Sequence[int]) -> int:
    count = 0
    while (column := above[column]) >= 0:
        count += 1
    return count
