"""Changes of vectors: on the set they were fitted on, on another set, and saved to a file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.decomposition import PCA

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.base.core.randomness import generator
from bertsmith.inference.vectors import changes as module
from bertsmith.inference.vectors.changes import (
    ChangeSettings,
    VectorChange,
    fit_change,
    read_vectors,
    require_finite,
    write_npy,
)
from bertsmith.inference.vectors.files import VectorFile
from bertsmith.tasks.metrics.vectors import describe


@pytest.fixture
def vectors() -> np.ndarray:
    """Correlated vectors with a large mean and one dominant direction."""
    source = generator(0, "vectors to change")
    values = source.standard_normal((600, 8)) @ source.standard_normal((8, 8)) + 5
    values[:, 2] *= 10
    return values.astype(np.float32)


def test_centring_subtracts_the_mean(vectors: np.ndarray) -> None:
    changed = fit_change(vectors, ChangeSettings(center=True)).apply(vectors)
    assert changed.dtype == np.float32
    assert np.allclose(changed, vectors - vectors.mean(axis=0), atol=1e-4)


def test_whitening_equals_scikit_learns_up_to_signs(vectors: np.ndarray) -> None:
    for dimensions in (None, 3):
        change = fit_change(vectors, ChangeSettings(whiten=True, dimensions=dimensions))
        expected = PCA(n_components=dimensions, whiten=True).fit_transform(vectors.astype(np.float64))
        expected *= np.sqrt(len(vectors) / (len(vectors) - 1))
        assert change.width == expected.shape[1]
        assert np.allclose(np.abs(change.apply(vectors)), np.abs(expected), atol=1e-3)


def test_whitened_vectors_are_uncorrelated_with_equal_variance(vectors: np.ndarray) -> None:
    changed = fit_change(vectors, ChangeSettings(whiten=True)).apply(vectors)
    assert np.allclose(np.cov(changed, rowvar=False, bias=True), np.eye(8), atol=1e-4)
    assert describe(vectors).mean_cosine > 0.3 > abs(describe(changed).mean_cosine)


def test_the_top_directions_are_removed_and_the_others_kept(vectors: np.ndarray) -> None:
    """Mu and Viswanath (2018), algorithm 1, with the directions of scikit-learn."""
    changed = fit_change(vectors, ChangeSettings(remove_top=2)).apply(vectors)
    centered = vectors.astype(np.float64) - vectors.mean(axis=0)
    top = PCA(n_components=2).fit(centered).components_
    assert np.allclose(changed, centered - centered @ top.T @ top, atol=1e-3)
    assert np.abs(changed @ top.T).max() < 1e-3


def test_removing_and_whitening_together_keep_the_directions_after_the_removed_ones(vectors: np.ndarray) -> None:
    both = fit_change(vectors, ChangeSettings(remove_top=1, whiten=True, dimensions=2)).apply(vectors)
    whole = fit_change(vectors, ChangeSettings(whiten=True)).apply(vectors)
    assert np.allclose(both, whole[:, 1:3], atol=1e-5)


def test_normalization_comes_last_and_zeros_stay_zeros(vectors: np.ndarray) -> None:
    change = fit_change(vectors, ChangeSettings(center=True, normalize=True))
    changed = change.apply(np.concatenate([vectors, change.mean[None].astype(np.float32)]))
    assert np.allclose(np.linalg.norm(changed[:-1], axis=1), 1, atol=1e-6)
    alone = fit_change(vectors, ChangeSettings(normalize=True))
    assert alone.apply(np.zeros((1, 8), np.float32)).tolist() == [[0.0] * 8]


def test_a_change_is_fitted_on_one_set_and_applied_to_another(vectors: np.ndarray) -> None:
    change = fit_change(vectors[:500], ChangeSettings(center=True))
    assert np.allclose(change.apply(vectors[500:]), vectors[500:] - vectors[:500].mean(axis=0), atol=1e-4)
    assert change.fitted_on == 500
    assert change.apply(vectors[:0]).shape == (0, 8)


def test_a_change_survives_a_round_trip_through_its_file(vectors: np.ndarray, tmp_path: Path) -> None:
    for settings in (ChangeSettings(whiten=True, dimensions=4, normalize=True), ChangeSettings(center=True)):
        change = fit_change(vectors, settings)
        change.save(tmp_path / "changes.safetensors")
        again = VectorChange.load(tmp_path / "changes.safetensors")
        assert (again.settings, again.fitted_on) == (settings, 600)
        assert np.array_equal(again.apply(vectors), change.apply(vectors))


def test_vectors_are_written_in_blocks_as_numpy_writes_them(vectors: np.ndarray, tmp_path: Path) -> None:
    blocks = iter([vectors[:250], vectors[250:]])
    write_npy(tmp_path / "x.npy", blocks, vectors.shape)
    np.save(tmp_path / "y.npy", vectors)
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "y.npy").read_bytes()
    assert isinstance(read_vectors(tmp_path / "x.npy"), np.memmap)


@pytest.mark.parametrize("half", [False, True])
def test_the_column_of_a_table_is_read_like_an_array(vectors: np.ndarray, tmp_path: Path, half: bool) -> None:
    path = tmp_path / "x.parquet"
    for array in (vectors, vectors[:0]):
        with VectorFile(path, {}, 8, half=half, index=False, resume=False, replace=True) as file:
            file.append(array[:200], {"text": pa.array(["a"] * len(array[:200]))})
            file.append(array[200:], {"text": pa.array(["b"] * len(array[200:]))})
            file.commit({})
            file.finish()
        result = read_vectors(path)
        assert result.dtype == (np.float16 if half else np.float32)
        assert np.array_equal(result, array.astype(result.dtype))
        assert isinstance(result, np.memmap) == bool(len(array))


def test_a_table_without_vectors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    kind = pa.list_(pa.float32(), 2)
    for table, words in (
        ({"text": ["a"]}, "only 'text'"),
        ({"vector": ["a"]}, "values of the type string"),
        ({"vector": pa.array([[1.0, 2.0], None], kind)}, "rows without one"),
        ({"vector": pa.array([[1.0, None]], kind)}, "rows without one"),
    ):
        pq.write_table(pa.table(table), path)
        with pytest.raises(InputError, match=words):
            read_vectors(path)
    whole = path.read_bytes()
    for content in (b"", b"no table", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(InputError, match="found none"):
            read_vectors(path)
    with pytest.raises(InputError, match="no such file"):
        read_vectors(tmp_path / "absent.parquet")


def test_vectors_that_vary_in_too_few_directions_are_refused(vectors: np.ndarray) -> None:
    flat = np.outer(np.arange(20.0), np.ones(8))
    for settings in (ChangeSettings(whiten=True, dimensions=2), ChangeSettings(remove_top=1)):
        with pytest.raises(InputError, match="at least 2 directions; found 1, from 20 vectors"):
            fit_change(flat, settings)
    assert fit_change(flat, ChangeSettings(whiten=True)).width == 1, "only what varies"
    with pytest.raises(InputError, match="found none"):
        fit_change(vectors[:0], ChangeSettings(center=True))


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_row(
    vectors: np.ndarray, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BLOCK", 100)
    change = fit_change(vectors, ChangeSettings(normalize=True))
    vectors[234, 5] = wrong
    for settings in (ChangeSettings(whiten=True), ChangeSettings(remove_top=1), ChangeSettings(center=True)):
        with pytest.raises(InputError, match="NaN or infinity in row 235"):
            fit_change(vectors, settings)
    with pytest.raises(InputError, match="row 235"):
        change.apply(vectors)
    with pytest.raises(InputError, match="finite numbers in 'x'"):
        require_finite(vectors, "'x'")


def test_another_width_and_invalid_settings_are_refused(vectors: np.ndarray) -> None:
    with pytest.raises(InputError, match="vectors of width 8"):
        fit_change(vectors, ChangeSettings(center=True)).apply(vectors[:, :5])
    for wrong in ({"remove_top": -1}, {"dimensions": 3}, {"whiten": True, "dimensions": 0}):
        with pytest.raises(ConfigError):
            ChangeSettings(**wrong)


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(InputError, match="no such file"):
        read_vectors(path)
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 8"
    unclosed = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    for content in (b"", b"not numpy at all", b"\x93NUMPY", unclosed):
        path.write_bytes(content)
        with pytest.raises(InputError, match="found none"):
            read_vectors(path)
    for array in (np.ones(3), np.ones((2, 2), dtype=np.int64)):
        np.save(path, array)
        with pytest.raises(InputError, match="two-dimensional array of floating-point numbers"):
            read_vectors(path)
    with pytest.raises(InputError, match="saved vector changes"):
        VectorChange.load(path)
    with pytest.raises(InputError, match="saved vector changes"):
        VectorChange.load(tmp_path / "absent")


def test_a_change_fitted_on_no_more_vectors_than_dimensions_warns(vectors: np.ndarray) -> None:
    width = vectors.shape[1]
    for settings in (ChangeSettings(whiten=True), ChangeSettings(remove_top=1)):
        assert f"fitted on {width} vectors of width {width}" in fit_change(vectors[:width], settings).warning
        assert fit_change(vectors[: width + 1], settings).warning == ""
    assert fit_change(vectors[:2], ChangeSettings(center=True)).warning == ""
