"""The vectors of the texts of examples, and their cosines, as a sentence encoder gives them.

The prompt for queries is in front of the first text of an example, that for passages in front of the others.

Letters: E examples.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from bertsmith.inference.vectors.embedder import BLOCK, Embedder
from bertsmith.tasks.datasets.examples import Example, texts_of_group
from bertsmith.tasks.specs.predictions import SimilarityPrediction


def compared(embedder: Embedder, examples: Sequence[Example]) -> list[SimilarityPrediction]:
    """The vectors of the texts of each example [E], with the cosines of its first text with the others."""
    if not examples:
        return []
    groups = [texts_of_group(example) for example in examples]
    counts = np.array([len(texts) for texts in groups])
    starts = np.cumsum(counts) - counts
    is_first = np.zeros(counts.sum(), dtype=bool)
    is_first[starts] = True
    every = list(itertools.chain.from_iterable(groups))
    vectors = np.empty((len(every), embedder.width), dtype=np.float32)
    cut = np.empty(len(every), dtype=np.int64)
    for chosen, reader in ((is_first, embedder.for_queries()), (~is_first, embedder.for_passages())):
        texts = [every[index] for index in np.flatnonzero(chosen).tolist()]
        vectors[chosen], cut[chosen] = reader.embed_counting(texts)
    parts, lost = np.split(vectors, starts[1:]), np.add.reduceat(cut, starts).tolist()
    return [SimilarityPrediction.of(part, tokens) for part, tokens in zip(parts, lost, strict=True)]


def cosines_of(embedder: Embedder, examples: Sequence[Example]) -> list[tuple[float, ...]]:
    """The cosines of the first text of each example [E] with its others; 1 for a single text."""
    blocks = (compared(embedder, examples[start : start + BLOCK]) for start in range(0, len(examples), BLOCK))
    return [(row.value, *row.others) for block in blocks for row in block]
