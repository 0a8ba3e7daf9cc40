"""The check that a model computed numbers: no answer is made from NaN or infinity.

Each check reads a number once and keeps none: a sum of float32 numbers in double precision is finite if and
only if all of them are. Only if it is not are the numbers looked at one by one.
"""

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import NotFiniteError

if TYPE_CHECKING:
    from torch import Tensor

Numbers = npt.NDArray[np.floating[Any]]


def without_nan(value: Any) -> Any:
    """The plain value with None in place of each NaN or infinity, for which JSON has no form.

    >>> without_nan({"a": [1.5, math.nan], "b": "x"})
    {'a': [1.5, None], 'b': 'x'}
    """
    if isinstance(value, Mapping):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def first_not_finite(values: Numbers) -> int | None:
    """The index along the first axis of the first entry with NaN or infinity; None if there is none."""
    with np.errstate(invalid="ignore"):  # of infinity minus infinity
        if not values.size or math.isfinite(values.sum(dtype=np.float64)):
            return None
    is_finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    wrong = np.flatnonzero(~is_finite)
    return int(wrong[0]) if len(wrong) else None


def require_finite(values: Numbers, text_of: Callable[[int], int]) -> None:
    """Returns if all numbers are finite.

    Args:
        text_of: returns the text, counted from 0, of an index along the first axis.

    Raises:
        NotFiniteError: one is not; the error names the text.
    """
    index = first_not_finite(values)
    if index is not None:
        raise NotFiniteError(text_of(index))


def not_finite(tensors: "Mapping[str, Tensor]") -> list[str]:
    """The names of the tensors with infinite or NaN values, in their order.

    >>> import torch
    >>> not_finite({"a": torch.ones(2), "b": torch.tensor([1.0, torch.inf])})
    ['b']
    """
    # A finite sum has only finite terms, and is much faster to compute than a check of each term.
    with np.errstate(invalid="ignore", over="ignore"):  # they may be arrays of NumPy
        return [
            name
            for name, tensor in tensors.items()
            if not math.isfinite(tensor.sum()) and not bool((tensor - tensor == 0).all())
        ]
