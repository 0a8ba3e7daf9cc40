"""One update of Word2Vec: the gradients of a block of examples, computed from the same vectors and then added.

An example is a hidden vector and the outputs it should, or should not, predict: noise words and the right one, or the
inner nodes of a Huffman tree. The original program updates after every example; here a block of examples shares its
starting vectors, and a block of one word is that program.

P examples, K outputs of each, D width, V rows of a table.

Source: word2vec.c.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from bertsmith.inference.word_vectors.draws import NO_WORD, Ids

LIMIT = 6.0  # scores beyond it are saturated
STEPS = 1000  # of the table of the sigmoid
_MOST_CELLS = 2**13  # of a dense matrix of weights

Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

_SCORES = (np.arange(STEPS) / STEPS * 2 - 1) * LIMIT
SIGMOID: Floats = (1 / (1 + np.exp(-_SCORES))).astype(np.float32)
"""float32 [STEPS], the sigmoid from -LIMIT to LIMIT."""


class Examples(NamedTuple):
    """What the hidden vectors of a block should predict."""

    outputs: Ids  # int32 [P, K], rows of the table of output vectors; -1 for none
    labels: Floats  # float32 [P, K], 1 for outputs that should be predicted and 0 for the others
    # outputs with a saturated score are left out, as in hierarchical softmax; otherwise their sigmoid is 0 or 1
    skips_saturated: bool


class Gradient(NamedTuple):
    """The result of a block."""

    hidden: Floats  # float32 [P, D], what to add to each hidden vector
    loss: float  # the sum over all outputs, in nats
    outputs: int  # how many there were


def sigmoid(scores: Floats) -> Floats:
    """The sigmoid of scores, read from the table; 0 or 1 where they are saturated.

    >>> sigmoid(np.array([-7.0, 0.0, 7.0], dtype=np.float32)).tolist()
    [0.0, 0.5, 1.0]
    """
    places = (np.clip(scores, -LIMIT, LIMIT) + LIMIT) * (STEPS / LIMIT / 2)
    values: Floats = SIGMOID.take(places.astype(np.int32), mode="clip")
    values[scores > LIMIT] = 1.0
    values[scores < -LIMIT] = 0.0
    return values


def update_outputs(hidden: Floats, table: Floats, examples: Examples, learning_rate: float) -> Gradient:
    """The gradient for the hidden vectors of a block; `table` receives that of the output vectors, in place.

    Args:
        hidden: float32 [P, D].
        table: float32 [V, D].
    """
    outputs, labels, skips = examples
    exists = outputs != NO_WORD
    rows = table[outputs]  # [P, K, D]; a missing output reads the last row, and gets no step
    scores = np.einsum("pkd,pd->pk", rows, hidden)  # [P, K]
    used = exists & (np.abs(scores) < LIMIT) if skips else exists
    steps = np.where(used, (labels - sigmoid(scores)) * np.float32(learning_rate), np.float32(0))
    gradient = np.einsum("pk,pkd->pd", steps, rows)
    add_rows(table, outputs.ravel(), steps.ravel(), hidden, outputs.shape[1])
    signed = np.where(labels > 0, -scores, scores)[exists]
    return Gradient(gradient, float(np.logaddexp(0, signed).sum(dtype=np.float64)), int(exists.sum()))


def add_rows(table: Floats, places: Ids, weights: Floats, sources: Floats, repeats: int) -> None:
    """Adds multiples of vectors to rows of a table, in place; a row may occur any number of times.

    Args:
        table: float32 [V, D].
        places: int32 [P * repeats], the rows; -1 for none, with weight 0.
        weights: float32 [P * repeats].
        sources: float32 [P, D]; each is used `repeats` times in a row.
    """
    count = len(places)
    numbers = np.empty(len(table), dtype=np.int32)
    numbers[places] = np.arange(count, dtype=np.int32)
    is_last = numbers[places] == np.arange(count, dtype=np.int32)
    rows = places[is_last]
    numbers[rows] = np.arange(len(rows), dtype=np.int32)
    columns = numbers[places]
    shape = len(sources), len(rows)
    if shape[0] * shape[1] <= _MOST_CELLS:
        # A small sparse matrix takes longer to make than a dense one to multiply.
        cells = columns + np.repeat(np.arange(shape[0]) * shape[1], repeats)
        dense = np.bincount(cells, weights, shape[0] * shape[1]).astype(np.float32).reshape(shape)
        table[rows] += dense.T @ sources
        return
    starts = np.arange(0, count + 1, repeats, dtype=np.int32)
    table[rows] += sparse.csr_matrix((weights, columns, starts), shape=shape).T @ sources
