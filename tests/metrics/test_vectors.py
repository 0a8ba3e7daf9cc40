"""The distribution of vectors in their space, on sets with a known answer."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.randomness import generator
from bertsmith.tasks.metrics.vectors import (
    BINS,
    cosines,
    describe,
    in_words,
    partition_ratio,
    random_cosines,
    sample_rows,
    unit,
)


def normal(count: int, width: int) -> np.ndarray:
    return generator(0, "vectors of a test", count, width).standard_normal((count, width))


def test_cosines_equal_scikit_learn_and_a_vector_of_length_zero_has_cosine_zero() -> None:
    first, second = normal(20, 5), normal(20, 6)[:, :5]
    first[3] = 0
    expected = np.diag(cosine_similarity(first, second))
    assert np.allclose(cosines(first, second), expected)
    assert cosines(first, second)[3] == 0
    assert np.allclose(np.linalg.norm(unit(first), axis=1), np.arange(20) != 3)


def test_few_vectors_are_paired_with_each_other_and_never_with_themselves() -> None:
    assert np.allclose(random_cosines(np.eye(4)), np.zeros(6))
    many = random_cosines(np.eye(400), pairs=5000)
    assert len(many) == 5000
    assert not many.any()


def test_normal_vectors_are_spread_evenly() -> None:
    report = describe(normal(4000, 16))
    assert abs(report.mean_cosine) < 0.01
    assert report.deviation == pytest.approx(1 / np.sqrt(16), rel=0.03)
    assert report.effective_rank > 15.9
    assert report.partition_ratio > 0.85
    assert report.shared < 0.01
    assert report.quantiles[0.5] == pytest.approx(0, abs=0.02)
    assert in_words(report) == [
        f"mean cosine of random pairs {report.mean_cosine:.2f}: the vectors point in all directions, "
        "so cosines can be compared"
    ]


def test_few_vectors_get_no_praise_and_neither_do_those_on_which_a_change_was_fitted() -> None:
    few, enough = describe(normal(29, 256)), describe(normal(30, 256))
    assert "29 vectors are too few to judge how such vectors are distributed" in in_words(few)[0]
    assert "point in all directions" in in_words(enough)[0]
    assert "which says nothing about other vectors" in in_words(enough, may_praise=False)[0]
    crowded = describe(normal(5, 256) + 4)
    assert "all vectors point in similar directions" in in_words(crowded, may_praise=False)[0]


def test_a_common_direction_is_detected_and_named() -> None:
    vectors = normal(3000, 16)
    vectors[:, 0] += 10
    report = describe(vectors)
    assert report.mean_cosine == pytest.approx(100 / 116, abs=0.01)
    assert report.shared == pytest.approx(100 / 116, abs=0.01)
    assert report.partition_ratio < 1e-3
    assert "all vectors point in similar directions" in in_words(report)[0]
    assert "--whiten" in in_words(report)[0]


def test_a_direction_of_large_variance_is_detected_and_named() -> None:
    vectors = normal(3000, 32)
    vectors[:, 0] *= 20
    report = describe(vectors)
    assert report.top_shares[1] == pytest.approx(400 / 431, abs=0.01)
    assert report.effective_rank < 22
    assert any("one direction holds 93% of the variance" in line for line in in_words(report))


def test_the_effective_rank_of_equal_directions_is_their_number() -> None:
    vectors = np.concatenate([np.eye(8), -np.eye(8)])
    assert describe(vectors).effective_rank == pytest.approx(8)
    flat = np.outer(np.arange(10.0), np.ones(5))
    assert describe(flat).effective_rank == pytest.approx(1)


def test_the_partition_ratio_of_two_vectors_by_hand() -> None:
    """Z along (1, 0) is e + 1, against it 1/e + 1; along (0, 1) and against it the same with e^2."""
    vectors = np.array([[1.0, 0.0], [0.0, 2.0]])
    assert partition_ratio(vectors) == pytest.approx((1 + np.exp(-2)) / (1 + np.exp(2)))
    assert partition_ratio(1000 * vectors) == pytest.approx(0)


def test_the_histogram_contains_every_pair() -> None:
    report = describe(normal(60, 3))
    assert len(report.histogram) == BINS
    assert sum(report.histogram) == 60 * 59 // 2
    same = describe(np.ones((5, 3)))
    assert same.histogram[-1] == 10
    assert same.effective_rank == 0.0
    assert same.top_shares == {1: 0.0, 3: 0.0, 10: 0.0}


def test_a_report_on_many_vectors_reads_a_random_sample_and_is_repeatable() -> None:
    vectors = normal(500, 4).astype(np.float32)
    report = describe(vectors, rows=100)
    assert (report.count, report.sampled) == (500, 100)
    assert report == describe(vectors, rows=100)
    assert report != describe(vectors, rows=100, seed=1)
    rows = sample_rows(500, 100)
    assert np.all(np.diff(rows) > 0)
    assert np.array_equal(sample_rows(50, 100), np.arange(50))


def test_vectors_of_length_zero_are_counted() -> None:
    vectors = normal(50, 4)
    vectors[:7] = 0
    report = describe(vectors)
    assert report.zeros == 7
    assert "7 vectors of length 0" in in_words(report)[-1]


@pytest.mark.parametrize("shape", [(1, 3), (0, 3), (5, 0), (5,), (2, 3, 4)])
def test_input_that_is_not_a_set_of_vectors_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="at least two vectors"):
        describe(np.ones(shape))


def test_a_number_that_is_not_finite_is_named_by_its_row() -> None:
    vectors = normal(40, 3)
    vectors[17, 1] = np.nan
    with pytest.raises(InputError, match="in vector 18;"):
        describe(vectors)
