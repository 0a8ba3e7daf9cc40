"""Byte-pair encoding as the paper writes it: count all pairs, join the most frequent one everywhere, repeat."""

import itertools
from collections import Counter
from collections.abc import Mapping


def learned_merges(word_counts: Mapping[str, int], first: list[str], size: int) -> list[str]:
    """The merges; of equally frequent pairs, that of the pieces that were there first is joined first."""
    ids = {piece: id for id, piece in enumerate(first)}
    words = {word: [*word[:-1], word[-1] + "</w>"] for word in word_counts}
    merges = []
    while len(ids) < size:
        counts: Counter[tuple[str, str]] = Counter()
        for word, pieces in words.items():
            for pair in itertools.pairwise(pieces):
                counts[pair] += word_counts[word]
        best = min(counts, key=lambda pair: (-counts[pair], ids[pair[0]], ids[pair[1]]), default=None)
        if best is None or counts[best] < 2:
            break
        merges.append(" ".join(best))
        ids.setdefault("".join(best), len(ids))
        words = {word: joined(pieces, best) for word, pieces in words.items()}
    return merges


def joined(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    """The pieces of a word with a pair joined, from left to right."""
    result: list[str] = []
    index = 0
    while index < len(pieces):
        is_pair = tuple(pieces[index : index + 2]) == pair
        result.append("".join(pair) if is_pair else pieces[index])
        index += 2 if is_pair else 1
    return result
