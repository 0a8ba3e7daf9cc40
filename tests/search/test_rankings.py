"""Rankings against plain sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.search import rankings as module
from bertsmith.inference.search.rankings import NO_PASSAGE, Ranking, best, fused, joined, nearest_vectors


@given(
    arrays.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 12)), elements=st.integers(0, 3).map(float)),
    st.integers(1, 15),
)
def test_the_best_are_those_of_a_stable_sort(scores: np.ndarray, top: int) -> None:
    result = best(scores, top)
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    kept = expected.shape[1]
    assert np.array_equal(result.places[:, :kept], expected)
    assert np.array_equal(result.scores[:, :kept], np.take_along_axis(scores, expected, axis=1))
    assert (result.places[:, kept:] == NO_PASSAGE).all()
    assert result.places.shape == (len(scores), top)


def test_minus_infinity_is_never_ranked() -> None:
    result = best(np.array([[-np.inf, 1.0, -np.inf], [-np.inf] * 3]), 2)
    assert result.row(0) == [(1, 1.0)]
    assert result.row(1) == []


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_nearest_vectors_are_the_same_in_any_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_QUERIES", min(block, 2))
    passages = generator(0, "passages").integers(-2, 3, (60, 4)).astype(np.float32)
    queries = generator(0, "queries").integers(-2, 3, (5, 4)).astype(np.float32)
    result = nearest_vectors(queries, passages, 10)
    expected = np.argsort(-(queries @ passages.T), axis=1, kind="stable")[:, :10]
    assert np.array_equal(result.places, expected), "whole numbers: no rounding, many ties"
    assert nearest_vectors(queries[:0], passages, 10).places.shape == (0, 10)


def test_vectors_of_different_widths_are_refused() -> None:
    with pytest.raises(InputError, match="the same width"):
        nearest_vectors(np.ones((1, 3)), np.ones((2, 4)), 1)


def test_fusion_adds_reciprocal_ranks() -> None:
    first = Ranking(places=np.array([[5, 2, 7]]), scores=np.array([[3.0, 2.0, 1.0]]))
    second = Ranking(places=np.array([[2, 9, NO_PASSAGE]]), scores=np.array([[0.5, 0.4, -np.inf]]))
    assert fused([first, second], top=4).row(0) == [
        (2, pytest.approx(1 / 62 + 1 / 61)),
        (5, pytest.approx(1 / 61)),
        (9, pytest.approx(1 / 62)),
        (7, pytest.approx(1 / 63)),
    ]
    nobody = best(np.full((1, 3), -np.inf), 3)
    assert fused([nobody, nobody], top=2).row(0) == []
    assert joined([first, second]).row(1) == second.row(0)
