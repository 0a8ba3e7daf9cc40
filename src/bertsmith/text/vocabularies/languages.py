"""Sampling of languages: the share of each, and word counts that are weighted by these shares.

Source: multilingual.md of google-research/bert: the probability of a language is its fraction of the text to the power
of 0.7, for the vocabulary and for the training data.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bertsmith.base.core.settings import require
from bertsmith.text.vocabularies.learn import LEAST_SOURCES
from bertsmith.text.vocabularies.word_counts import SPREAD_UNIT, WordCounts


def smoothed_shares(sizes: Sequence[float], exponent: float) -> list[float]:
    """The share of each language in the sampled text, for its size in the text; the sum is 1.

    >>> [round(share, 4) for share in smoothed_shares([1000, 1], 0.7)]
    [0.9921, 0.0079]
    """
    require_exponent(exponent)
    powers = (np.array(sizes, dtype=np.float64) / max(sizes)) ** exponent
    shares: list[float] = (powers / powers.sum()).tolist()
    return shares


def require_exponent(exponent: float) -> None:
    """Checks the exponent of the smoothing."""
    require(
        0 <= exponent <= 1,  # also false for NaN
        expected="a language exponent between 0 and 1",
        found=exponent,
        fix="use 0.7; 1 keeps the proportions of the text, 0 makes all languages equal",
    )


def num_characters(counts: WordCounts) -> int:
    """The number of characters of all words, repetitions included: the size of a language for its vocabulary."""
    lengths = np.fromiter(map(len, counts.words), np.int64, len(counts))
    return int(counts.counts @ lengths)


def weighted_counts(languages: Mapping[str, WordCounts], shares: Mapping[str, float]) -> WordCounts:
    """The word counts of a text in which each language has its share, measured in characters; the total stays the same.

    No text is copied: the counts of a language are multiplied. A word that occurs once in a language stays a stranger
    (see `learn.py`), however much its language weighs; in a language of few sources only such words are strangers.
    """
    sizes = {name: num_characters(counts) for name, counts in languages.items()}
    total = sum(sizes.values())
    parts = []
    for name, counts in languages.items():
        factor = shares[name] * total / sizes[name]
        knows_sources = counts.num_sources >= LEAST_SOURCES
        spread = counts.spread if knows_sources else SPREAD_UNIT * counts.counts
        sources = counts.sources if knows_sources else np.minimum(counts.counts, 2)
        parts.append(
            WordCounts(
                counts.words,
                np.maximum(1, np.rint(factor * counts.counts)).astype(np.int64),
                sources,
                np.maximum(1, np.rint(factor * spread)).astype(np.int64),
                max(counts.num_sources, LEAST_SOURCES),
                counts.chunks,
            )
        )
    return WordCounts.merged(parts)
