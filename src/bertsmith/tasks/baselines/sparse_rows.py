"""Sparse rows of numbers, such as the counts of words in texts, in NumPy alone.

A prediction needs only their product with a dense matrix, and so no SciPy; `matrix` makes the array of SciPy that
models are fitted to.

Letters: E rows, D columns, K outputs, N entries that are not zero.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class SparseRows(NamedTuple):
    """The entries of a matrix, row by row, in the order of the columns.

    Attributes:
        rows, columns: of the entries, int64 [N]; no two entries share both.
        values: float64 [N].
        shape: (E, D).
    """

    rows: Ints
    columns: Ints
    values: Floats
    shape: tuple[int, int]

    def __matmul__(self, matrix: npt.NDArray[np.floating]) -> Floats:
        """The product with a dense matrix [D, K], float64 [E, K]; that of a row does not depend on other rows."""
        products = [np.bincount(self.rows, self.values * part[self.columns], self.shape[0]) for part in matrix.T]
        return np.stack(products, axis=1) if products else np.zeros((self.shape[0], 0))

    def combined(self, other: "SparseRows", function: Callable[[Floats, Floats], Floats]) -> "SparseRows":
        """A function of the entries of two matrices of the same shape, which is 0 where both are."""
        sides = [part.rows * self.shape[1] + part.columns for part in (self, other)]
        places, inverse = np.unique(np.concatenate(sides), return_inverse=True)
        both = np.zeros((2, len(places)))
        both[0, inverse[: len(sides[0])]], both[1, inverse[len(sides[0]) :]] = self.values, other.values
        values = function(both[0], both[1])
        rows, columns = np.divmod(places[values != 0], max(1, self.shape[1]))
        return SparseRows(rows, columns, values[values != 0], self.shape)

    def sums(self) -> Floats:
        """The sum of each row, float64 [E]."""
        return (self @ np.ones((self.shape[1], 1)))[:, 0]

    def matrix(self, dtype: type[np.floating] = np.float64) -> "sp.csr_array":
        """The same as an array of SciPy."""
        import scipy.sparse as sp

        borders = np.concatenate([[0], np.cumsum(np.bincount(self.rows, minlength=self.shape[0]))])
        return sp.csr_array((self.values.astype(dtype), self.columns, borders), shape=self.shape)


def side_by_side(parts: Sequence[SparseRows]) -> SparseRows:
    """The columns of several matrices with the same rows, one after another."""
    widths = np.cumsum([0, *(part.shape[1] for part in parts)])
    rows = np.concatenate([part.rows for part in parts])
    columns = np.concatenate([part.columns + first for part, first in zip(parts, widths[:-1], strict=True)])
    order = np.argsort(rows, kind="stable")
    values = np.concatenate([part.values for part in parts])
    return SparseRows(rows[order], columns[order], values[order], (parts[0].shape[0], int(widths[-1])))


def sparse(dense: Floats) -> SparseRows:
    """The entries of a dense matrix [E, D] that are not zero."""
    rows, columns = np.nonzero(dense)
    return SparseRows(rows.astype(np.int64), columns.astype(np.int64), dense[rows, columns], dense.shape)
