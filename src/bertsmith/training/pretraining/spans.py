"""Splits a document into instances, for each row layout.

A walk receives a document's sentence boundaries (token offsets, starting with 0), the target length of the pass and a
function that returns the next uniform number. It appends seven integers per instance to `Instances.fields`: document,
start and end of A; the same of B; label. Documents are ranks among the usable ones. Draws are in the order of the
original code.
"""

import dataclasses
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import Words
from bertsmith.text.tokenizers.pack import pair_cuts
from bertsmith.training.pretraining.counted_draws import count_heads

Ints = npt.NDArray[np.int64]
Draw = Callable[[], float]

FIELDS = 7  # integers per instance
OPEN = -1  # the start of a B whose sentence has been drawn but not looked up yet
NOWHERE = -1  # the document of B if there is no B

_TRIES = 10  # to draw a document other than the current one
_DRAWS = 64  # at a time


@dataclasses.dataclass
class Instances:
    """The instances of documents with ranks from 0 to `num_documents`, and the draws that `OPEN` starts wait for."""

    num_documents: int
    fields: "array[int]" = dataclasses.field(default_factory=lambda: array("q"))
    openings: "array[float]" = dataclasses.field(default_factory=lambda: array("d"))


Walk = Callable[[Sequence[int], int, int, Draw, Instances], None]


def uniforms(rng: np.random.Generator) -> Iterator[float]:
    """An endless iterator of uniform numbers in [0, 1)."""
    while True:
        yield from rng.random(_DRAWS).tolist()


def walk_next_sentence(edges: Sequence[int], target: int, document: int, draw: Draw, instances: Instances) -> None:
    """Appends pairs with their actual next (label 0) or a random next (label 1) from another document.

    The start of a random next stays `OPEN`, its end is the number of tokens wanted, and the draw that chooses its first
    sentence goes to `openings`. In a corpus of one document it is from the same document, as in the original.
    """
    last, first = len(edges) - 1, 0
    while first < last:
        begin = edges[first]
        stop = min(bisect_left(edges, begin + target, first + 1), last)
        if stop - first == 1:
            split, random_next = stop, True
        else:
            split = first + 1 + int(draw() * (stop - first - 1))
            random_next = draw() < 0.5
        end = edges[split]
        if random_next:
            other = document
            for _ in range(_TRIES):
                other = int(draw() * instances.num_documents)
                if other != document:
                    break
            instances.fields.extend((document, begin, end, other, OPEN, target - (end - begin), 1))
            instances.openings.append(draw())
            first = split
        else:
            instances.fields.extend((document, begin, end, document, end, edges[stop], 0))
            first = stop


def walk_sentence_order(edges: Sequence[int], target: int, document: int, draw: Draw, instances: Instances) -> None:
    """Appends pairs from one document in order (label 0) or swapped (label 1), each with probability 0.5.

    A single sentence is cut at a random token, because a pair needs two parts; a final sentence of one token joins the
    previous chunk. The document must have at least two tokens.
    """
    last, first = len(edges) - 1, 0
    while first < last:
        begin = edges[first]
        stop = min(bisect_left(edges, begin + target, first + 1), last)
        end = edges[stop]
        if edges[last] - end == 1:
            stop, end = last, edges[last]
        if stop - first == 1:
            middle = begin + 1 + int(draw() * (end - begin - 1))
        else:
            middle = edges[first + 1 + int(draw() * (stop - first - 1))]
        if draw() < 0.5:
            instances.fields.extend((document, middle, end, document, begin, middle, 1))
        else:
            instances.fields.extend((document, begin, middle, document, middle, end, 0))
        first = stop


def walk_single(edges: Sequence[int], target: int, document: int, draw: Draw, instances: Instances) -> None:
    """Appends rows of one part (label -1): as many whole sentences as fit the target; no token is lost.

    A sentence longer than the target is cut, and the rest begins the next row.
    """
    end, begin = edges[-1], 0
    while begin < end:
        stop = edges[bisect_right(edges, begin + target) - 1]
        if stop <= begin:
            stop = begin + target
        instances.fields.extend((document, begin, stop, NOWHERE, 0, 0, -1))
        begin = stop


def walk_contiguous(edges: Sequence[int], target: int, document: int, draw: Draw, instances: Instances) -> None:
    """Appends rows of one part (label -1) that run on over the borders of sentences; no token is lost.

    All rows of a document but the last have the target length, as the spans of books in Radford et al. (2018), section
    4.1.
    """
    for begin in range(0, edges[-1], target):
        instances.fields.extend((document, begin, min(begin + target, edges[-1]), NOWHERE, 0, 0, -1))


def walk_twice(edges: Sequence[int], target: int, document: int, draw: Draw, instances: Instances) -> None:
    """Appends rows of which both parts are the same text (label -1): as many whole sentences as fit half of the target.

    A sentence that is longer is cut, as in `walk_single`.
    """
    alone = Instances(instances.num_documents)
    walk_single(edges, max(1, target // 2), document, draw, alone)
    for row in range(0, len(alone.fields), FIELDS):
        begin, stop = alone.fields[row + 1], alone.fields[row + 2]
        instances.fields.extend((document, begin, stop, document, begin, stop, -1))


def random_ends(lengths: Ints, room: int, keys: Words) -> tuple[Ints, Ints]:
    """The number of tokens that each part loses at its front and at its back, int64 [N, 2] each.

    The original rule, `truncate_seq_pair`, removes one token at a time from the longer part, at the front or the back
    with equal probability. How many each part loses follows from `pair_cuts`; coin tosses decide how many of these are
    at the front.

    Args:
        lengths: tokens of A and B, int64 [N, 2].
        room: the maximum number of tokens of both together.
    """
    lost = np.stack(pair_cuts(lengths[:, 0], lengths[:, 1], room), axis=1)
    front = np.zeros_like(lost)
    rows = np.flatnonzero(lost.any(axis=1))
    front[rows, 0] = count_heads(keys[rows], "front of A", lost[rows, 0])
    front[rows, 1] = count_heads(keys[rows], "front of B", lost[rows, 1])
    return front, lost - front
