"""Counts of hashes of token runs equal the counts of plain lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.corpus import hashing
from bertsmith.text.corpus.hashing import HashCounts, HashSet, gram_hashes, run_hashes
from oracles.runs_of_tokens import grams, run_counts

RUNS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=20)


def flat(runs: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([token for run in runs for token in run], dtype=np.uint16), np.array([len(run) for run in runs])


@given(RUNS, st.integers(1, 7))
def test_equal_runs_and_only_those_have_equal_hashes(runs: list[list[int]], batch: int) -> None:
    counts = HashCounts(len(runs))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "_FIRST_MERGE", 4)
        for start in range(0, len(runs), batch):
            counts.add(run_hashes(*flat(runs[start : start + batch])))
        hashes, result = counts.finish()
    assert sorted(result.tolist()) == run_counts(runs)
    assert hashes.tolist() == sorted(set(hashes.tolist()))
    assert counts.total == len(runs)


@given(RUNS, st.integers(1, 4))
def test_ngrams_stay_inside_their_run(runs: list[list[int]], size: int) -> None:
    hashes, places = gram_hashes(*flat(runs), size)
    expected = grams(runs, size)
    assert len(hashes) == len(expected)
    assert [expected.index(gram) for gram in expected] == [hashes.tolist().index(key) for key in hashes.tolist()]
    assert places.tolist() == [number for number, run in enumerate(runs) for _ in range(len(run) - size + 1)]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=30), st.lists(st.integers(0, 2**64 - 1), max_size=30))
def test_hashes_are_found_at_their_positions(inside: list[int], others: list[int]) -> None:
    known = HashSet(np.array(inside, dtype=np.uint64))
    values = inside + others
    places = known.places(np.array(values, dtype=np.uint64)).tolist()
    expected = sorted(set(inside))
    assert places == [expected.index(value) if value in expected else -1 for value in values]
    assert len(known) == len(expected)
