"""Repeated runs and shared n-grams of tokens, counted with plain lists and sets."""

from collections import Counter
from collections.abc import Sequence


def run_counts(runs: Sequence[Sequence[int]]) -> list[int]:
    """The number of occurrences of each distinct run, in ascending order."""
    return sorted(Counter(map(tuple, runs)).values())


def grams(runs: Sequence[Sequence[int]], size: int) -> list[tuple[int, ...]]:
    """All n-grams within the runs, in order."""
    return [tuple(run[start : start + size]) for run in runs for start in range(len(run) - size + 1)]
