"""Words for feature vectors: the tree against brute-force descent, its file, the arrays and tables that are read."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from sklearn.cluster import KMeans

import bertsmith
from bertsmith.base.core.errors import BertsmithError, InputError
from bertsmith.base.core.randomness import derive
from bertsmith.recipes.video.features import write_events
from bertsmith.text.codes.feature_words import ROOT, FeatureWords, learn_feature_words


def points(count: int = 400, width: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def descend(words: FeatureWords, point: np.ndarray) -> str:
    """The path to the leaf, one node at a time, by the names of the nodes."""
    node, path = -1, []
    while len(children := np.flatnonzero(words.parents == node)):
        distances = [((point.astype(np.float64) - words.centers[child]) ** 2).sum() for child in children]
        number = int(np.argmin(distances))
        node = int(children[number])
        path.append(str(number))
    return ".".join(path)


@pytest.mark.parametrize(("depth", "branching"), [(1, 7), (3, 4), (4, 2)])
def test_each_point_gets_the_leaf_of_greedy_descent(depth: int, branching: int) -> None:
    learned = learn_feature_words(points(), depth=depth, branching=branching, seed=3)
    assert 1 < len(learned) <= branching**depth
    assert learned.is_sound()
    for features in (points(), points(50, seed=1)):
        words = learned.words_of(features)
        assert [learned.names[word] for word in words] == [descend(learned, point) for point in features]
    assigned = learned.words_of(points())
    assert np.bincount(assigned, minlength=len(learned)).tolist() == learned.counts[learned.leaves].tolist()
    assert min(learned.counts) > 0
    np.testing.assert_array_equal(learned.centroids, learned.centers[learned.leaves])


@settings(max_examples=12)
@given(
    count=st.integers(30, 200), width=st.integers(1, 9), branching=st.integers(2, 5), seed=st.integers(0, 2**63),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e20, 1e36]), shift=st.sampled_from([0.0, 3.0]),
)  # fmt: skip
def test_each_level_is_that_of_k_means_of_scikit_learn(
    count: int, width: int, branching: int, seed: int, scale: float, shift: float
) -> None:
    plain = points(count, width, seed) + np.float32(shift)
    factor = np.float32(2.0 ** np.round(np.log2(scale)))  # changes no digit
    learned = learn_feature_words(plain * factor, depth=2, branching=branching, seed=seed)
    members = {ROOT: np.arange(count)}
    for height in range(2):
        below = {}
        for node, indices in members.items():
            children = np.flatnonzero(learned.parents == node)
            if not len(children):
                continue
            state = derive(seed, "clusters", height, node + 1) % 2**32
            theirs = KMeans(min(branching, len(indices)), n_init=2, random_state=state).fit(plain[indices])
            centers = learned.centers[children] / factor
            np.testing.assert_allclose(centers, theirs.cluster_centers_, rtol=1e-4, atol=1e-5)
            numbers = theirs.predict(plain[indices])
            below |= {int(child): indices[numbers == number] for number, child in enumerate(children)}
        members = below
    words = learned.words_of(plain * factor)
    for child, indices in members.items():
        assert set(words[indices]) <= {learned.leaves.tolist().index(child)}


def test_a_vector_has_the_same_word_alone_and_in_a_batch() -> None:
    learned = learn_feature_words(points(), depth=3, branching=3, seed=1)
    together = learned.words_of(points())
    assert [int(learned.words_of(point[None])[0]) for point in points()] == together.tolist()


def test_equal_points_are_not_divided_and_few_points_have_few_words() -> None:
    corners = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    learned = learn_feature_words(corners, depth=4, branching=12, seed=1)
    assert sorted(learned.names) == ["0", "1", "2"]
    assert len(set(learned.words_of(corners).tolist())) == 3
    alone = learn_feature_words(corners[:1], depth=2, branching=5, seed=1)
    assert alone.names == ["0"]
    assert alone.words_of(corners).tolist() == [0] * 12


def test_words_are_the_same_for_the_same_seed_and_after_a_file(tmp_path: Path) -> None:
    first, again = (learn_feature_words(points(), depth=2, branching=4, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.centers, again.centers)
    first.save(tmp_path / "words.safetensors")
    read = FeatureWords.load(tmp_path / "words.safetensors")
    assert read.names == first.names
    np.testing.assert_array_equal(read.words_of(points()), first.words_of(points()))


def test_a_file_that_holds_no_tree_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    with pytest.raises(InputError, match="feature words"):
        FeatureWords.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="is not a file of feature words"):
        FeatureWords.load(path)
    save_file({"centers": np.ones((1, 2), np.float32)}, path)
    with pytest.raises(InputError, match="it has no 'parents'"):
        FeatureWords.load(path)
    parents = np.array([-1, 1])  # a node that is its own parent
    save_file({"centers": np.ones((2, 2), np.float32), "parents": parents, "counts": np.ones(2, np.int64)}, path)
    with pytest.raises(InputError, match="its tree is damaged"):
        FeatureWords.load(path)
    top = np.array([-1])
    for width, counts in ((0, np.ones(1, np.int64)), (2, np.array(1))):
        save_file({"centers": np.ones((1, width), np.float32), "parents": top, "counts": counts}, path)
        with pytest.raises(InputError, match="its tree is damaged"):
            FeatureWords.load(path)
    save_tensors({"centers": torch.ones(1, 2, dtype=torch.bfloat16)}, path)
    with pytest.raises(InputError, match="is not a file of feature words"):
        FeatureWords.load(path)


def test_files_and_a_table_of_sequences_become_the_same_events(tmp_path: Path) -> None:
    features = points(60)
    (tmp_path / "f").mkdir()
    for name, start in (("a", 0), ("b", 20), ("c", 40)):
        np.save(tmp_path / f"f/{name}.npy", features[start : start + 20])
    np.save(tmp_path / "all.npy", features)
    (tmp_path / "index.csv").write_text("subject,start,stop\na,0,20\nb,20,40\nc,40,60\n", encoding="utf-8")
    words = tmp_path / "w.safetensors"
    learned = bertsmith.cluster_features([tmp_path / "f"], words, depth=2, branching=3)
    assert bertsmith.assign_words(words, [tmp_path / "f"], tmp_path / "e.csv", seconds=2.5) == 60
    bertsmith.assign_words(
        words, [tmp_path / "all.npy"], tmp_path / "e2.csv", sequences=tmp_path / "index.csv", seconds=2.5
    )
    text = (tmp_path / "e.csv").read_text(encoding="utf-8")
    assert text == (tmp_path / "e2.csv").read_text(encoding="utf-8")
    lines = text.splitlines()
    assert lines[:2] == ["subject,time,code", f"a,0,{learned.names[learned.words_of(features[:1])[0]]}"]
    assert lines[22] == f"b,2.5,{learned.names[learned.words_of(features[21:22])[0]]}"
    with pytest.raises(InputError, match="`replace=True`"):
        bertsmith.assign_words(words, [tmp_path / "f"], tmp_path / "e.csv")


def test_an_archive_of_arrays_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", a=points(), b=points())
    archive = (tmp_path / "f.npz").read_bytes()
    for content in (archive, archive[:40], b"\x93NUMPY\x01\x00\x10\x00{'descr': '<f4'"):
        (tmp_path / "f.npy").write_bytes(content)
        with pytest.raises(InputError, match=r"f\.npy' is not a NumPy array"):
            bertsmith.cluster_features([tmp_path / "f.npy"], tmp_path / "w.safetensors")


def test_times_of_events_are_written_in_full(tmp_path: Path) -> None:
    times = [0.0, 1.5, 10000.04, 123456.75, 2000000.0]
    assert write_events(tmp_path / "e.csv", [("a", time, "x") for time in times]) == 5
    lines = (tmp_path / "e.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["0", "1.5", "10000.04", "123456.75", "2000000"]


def test_a_part_of_the_points_is_drawn_to_learn_from(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", points(100))
    learned = bertsmith.cluster_features([tmp_path / "f.npy"], tmp_path / "w.safetensors", depth=1, points=40)
    assert int(learned.counts.sum()) == 40


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.array([[1.0, 2], [np.nan, 1]])}, r"row 1 of '.*a\.npy'; found NaN"),
        ({"a": np.array([[1.0, 2], [1e300, 1]])}, r"row 1 of '.*a\.npy'; found NaN, infinity or too large"),
        ({"a": np.ones((2, 3)), "b": np.ones((2, 4))}, r"width 3, as in '.*a\.npy', in '.*b\.npy'; found width 4"),
        ({"a": np.ones((0, 3))}, r"a\.npy' is not .*it has no rows"),
        ({"a": np.ones(3)}, r"its shape is \[3\]"),
        ({"a": np.array([["x"]])}, r"its type <U1"),
        ({"a": np.array([[object()]], dtype=object)}, r"a\.npy' is not"),
        ({}, r"expected \.npy files in"),
    ],
)
def test_arrays_that_are_no_features_are_refused_with_name_and_row(
    tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    (tmp_path / "f").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / f"f/{name}.npy", array, allow_pickle=True)
    with pytest.raises(BertsmithError, match=message):
        bertsmith.cluster_features([tmp_path / "f"], tmp_path / "w.safetensors", depth=1)
    assert not (tmp_path / "w.safetensors").exists()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,0,7", "within the 5 rows of the array"),
        ("a,3,3", "3 to 3"),
        ("a,x,3", "row numbers from 0"),
        ("a,0,2\na,2,3", "'a', as in"),
        ("", "expected rows below the header"),
    ],
)
def test_a_wrong_table_of_sequences_is_refused(tmp_path: Path, rows: str, message: str) -> None:
    np.save(tmp_path / "f.npy", points(5))
    (tmp_path / "i.csv").write_text(f"subject,start,stop\n{rows}\n", encoding="utf-8")
    with pytest.raises(BertsmithError, match=message):
        bertsmith.cluster_features([tmp_path / "f.npy"], tmp_path / "w.safetensors", sequences=tmp_path / "i.csv")


def test_features_of_another_width_than_the_words_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", points(9, 5))
    np.save(tmp_path / "g.npy", points(9, 6))
    bertsmith.cluster_features([tmp_path / "f.npy"], tmp_path / "w.safetensors", depth=1, branching=2)
    with pytest.raises(BertsmithError, match="width 5, as the words were learned from"):
        bertsmith.assign_words(tmp_path / "w.safetensors", [tmp_path / "g.npy"], tmp_path / "e.csv")
