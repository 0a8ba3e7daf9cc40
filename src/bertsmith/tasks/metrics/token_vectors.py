"""Vectors of the tokens of texts, and what they say about how well texts fit a query.

The score of a text is the sum over the vectors of the query of the largest product with a vector of the text (MaxSim).

Letters: N texts, T vectors of all of them, K their width, Q queries, P documents.

Source: Khattab and Zaharia (2020), "ColBERT: Efficient and Effective Passage Search via Contextualized Late Interaction
over BERT", section 3.3.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizers.encoded import offsets_of, places_of

_PRODUCTS = 2**24  # products of vectors in memory at once


class Documents(Protocol):
    """The vectors of P documents, one document after another."""

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The vectors of each document, at least one, int64 [P]."""

    def rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        """Some consecutive vectors, float32 [end - begin, K]."""


@dataclasses.dataclass(frozen=True)
class TokenMatrix:
    """The vectors of N texts, one text after another.

    Args:
        vectors: float32 or float16 [T, K].
        lengths: int64 [N], the vectors of each text, at least one.
    """

    vectors: npt.NDArray[np.floating[Any]]
    lengths: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[npt.NDArray[np.floating[Any]]]:
        return iter(np.split(self.vectors, np.cumsum(self.lengths)[:-1]))

    def rows(self, begin: int, end: int) -> npt.NDArray[np.float32]:
        """Some consecutive vectors, float32 [end - begin, K]."""
        return self.vectors[begin:end].astype(np.float32, copy=False)

    def select(self, texts: npt.NDArray[np.int64]) -> "TokenMatrix":
        """Some of the texts, in the given order; `texts` are their indices, int64 [n]."""
        lengths = self.lengths[texts]
        return TokenMatrix(self.vectors[places_of(offsets_of(self.lengths)[:-1][texts], lengths)], lengths)


def max_sim(queries: TokenMatrix, documents: Documents, *, is_mean: bool = False) -> npt.NDArray[np.float32]:
    """The score of every document for every query, float32 [Q, P].

    Documents are taken a few at a time, so that memory is bounded.

    Args:
        is_mean: divide each score by the number of vectors of its query.
    """
    scores = np.empty((len(queries), len(documents.lengths)), dtype=np.float32)
    asked, firsts = queries.vectors.astype(np.float32, copy=False).T, offsets_of(queries.lengths)[:-1]
    offsets = offsets_of(documents.lengths)
    if not scores.size:
        return scores
    block = max(_PRODUCTS // max(asked.shape[1], 1), 1)  # vectors of documents
    begin = 0
    while begin < len(documents.lengths):
        end = max(int(np.searchsorted(offsets, offsets[begin] + block, side="right")) - 1, begin + 1)
        part = documents.rows(int(offsets[begin]), int(offsets[end]))
        largest = np.maximum.reduceat(part @ asked, offsets[begin:end] - offsets[begin], axis=0)  # [p, T of queries]
        scores[:, begin:end] = np.add.reduceat(largest, firsts, axis=1).T
        begin = end
    if is_mean:
        scores /= queries.lengths[:, None]
    return scores
