"""Sums by key in bounded memory against a dictionary, and counts of neighbors with a tiny limit against a large one."""

import collections
import tracemalloc

import numpy as np
import pytest

from bertsmith.text.corpus import pair_counts
from bertsmith.text.corpus.cooccurrence import count_neighbors, neighbor_matrix
from bertsmith.text.corpus.pair_counts import PairCounts


@pytest.mark.parametrize("memory", [1, 20_000, 1e9])
@pytest.mark.parametrize("most_runs", [2, 64])
def test_sums_are_those_of_a_dictionary_with_every_limit_of_memory(tmp_path, monkeypatch, memory, most_runs):
    monkeypatch.setattr(pair_counts, "_MOST_RUNS", most_runs)
    counts, wanted = PairCounts(tmp_path, memory), collections.Counter()
    rng = np.random.default_rng(2)
    for value in (1, 3, 2**40):
        keys = rng.integers(0, 800, size=3000)
        counts.add(keys, value)
        for key in keys.tolist():
            wanted[key] += value
    for _ in range(2):  # the blocks can be read again
        blocks = list(counts.blocks())
        keys, sums = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
        assert (np.diff(keys) > 0).all()
        assert dict(zip(keys.tolist(), sums.tolist(), strict=True)) == wanted
    assert (counts.spilled > 0) == (memory < 1e9)
    assert len(list(tmp_path.iterdir())) == min(counts.spilled, 1)
    if memory == 1:
        assert counts.spilled > 64, "more runs than are merged at once"
        assert max(len(keys) for keys, _ in blocks) <= 64, "what is read at once is bounded too"
    counts.remove()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("memory", [2e6, 8e6])
def test_the_limit_of_memory_is_kept(tmp_path, memory):
    rng = np.random.default_rng(4)
    parts = [rng.integers(0, 10**12, size=100_000) for _ in range(8)]
    counts = PairCounts(tmp_path, memory)
    tracemalloc.start()
    try:
        for part in parts:
            counts.add(part, 1)
        result = sum(len(keys) for keys, _ in counts.blocks())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts.spilled > 0
    assert result == len(np.unique(np.concatenate(parts)))
    assert peak < memory


def test_nothing_added_is_nothing_counted(tmp_path):
    counts = PairCounts(tmp_path, 1e6)
    assert list(counts.blocks()) == []
    counts.add(np.array([], dtype=np.int64), 1)
    assert neighbor_matrix(counts, 3).nnz == 0


@pytest.mark.parametrize("by_distance", [False, True])
def test_neighbors_are_counted_alike_with_every_limit_of_memory(tmp_path, by_distance):
    rng = np.random.default_rng(3)
    ids = np.append(rng.integers(-1, 40, size=2000), [-1] * 4)
    wanted = np.zeros((40, 40))
    for position, word in enumerate(ids.tolist()):
        for distance in range(1, 5):
            other = ids[position + distance] if position + distance < len(ids) else -1
            if word >= 0 and other >= 0:
                wanted[word, other] += 1 / distance if by_distance else 1
                wanted[other, word] += 1 / distance if by_distance else 1
    result = []
    for number, memory in enumerate((1, 1e9)):
        folder = tmp_path / str(number)
        folder.mkdir()
        counts = PairCounts(folder, memory)
        count_neighbors(ids, 40, counts, window=4, by_distance=by_distance)
        assert (counts.spilled > 1) == (memory == 1)
        result.append(neighbor_matrix(counts, 40))
    np.testing.assert_array_equal(result[0].toarray(), result[1].toarray())
    np.testing.assert_allclose(result[0].toarray(), wanted, rtol=1e-6)
