"""Words for feature vectors: the leaves of a tree of centers, learned by hierarchical k-means.

The points of a node are divided among at most `branching` centers, the points of each center again, `depth` times, so
that there are at most branching**depth leaves. The word of a vector is the leaf that greedy descent reaches: from the
root to the nearest center, from there to the nearest of its centers, and so on. Its name is that path: `3.0.11`.

A tree is one file of safetensors::

    centers   float32 [M, F]   of all nodes but the root, level by level, the children of a node next to each other
    parents   int64 [M]        the node above each; -1 is the root
    counts    int64 [M]        the points of the training data in each

N points, F numbers of a feature vector, M nodes, L leaves.

Source: Nister and Stewenius (2006), "Scalable Recognition with a Vocabulary Tree"; Sun et al. (2019), "VideoBERT",
section 4.2.
"""

import dataclasses
import functools
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors
import safetensors.numpy
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, short_repr
from bertsmith.base.core.randomness import derive
from bertsmith.base.storage.files import atomic_file, require_file

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

ROOT = -1
_KIND = "bertsmith feature words"
_FEW_POINTS = 20_000  # of a node, up to which each round of k-means reads all of them
_NUMBERS = 2**22  # differences that are computed at once


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureWords:
    """A tree of centers, whose leaves are words; see the module for its arrays."""

    centers: Floats
    parents: Ints
    counts: Ints

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.leaves)

    @property
    def width(self) -> int:
        """F."""
        return int(self.centers.shape[1])

    @functools.cached_property
    def leaves(self) -> Ints:
        """The nodes without children, ascending: the node of each word, int64 [L]."""
        return np.setdiff1d(np.arange(len(self.parents)), self.parents)

    @property
    def centroids(self) -> Floats:
        """The center of each word, float32 [L, F]."""
        centroids: Floats = self.centers[self.leaves]
        return centroids

    @functools.cached_property
    def _words(self) -> Ints:
        """The word of each node that is a leaf, int64 [M]; -1 of others."""
        words = np.full(len(self.parents), -1)
        words[self.leaves] = np.arange(len(self.leaves))
        return words

    @functools.cached_property
    def names(self) -> list[str]:
        """The name of each word, the path from the root to its leaf, such as `3.0.11`."""
        names: list[str] = []
        for node, parent in enumerate(self.parents.tolist()):
            number = node - self._children(parent).start
            names.append(str(number) if parent == ROOT else f"{names[parent]}.{number}")
        return [names[leaf] for leaf in self.leaves.tolist()]

    def words_of(self, features: npt.NDArray[np.floating]) -> Ints:
        """The word of each vector, int64 [N]; the same one whatever vectors are next to it."""
        nodes = np.full(len(features), ROOT)
        while True:
            inner = np.flatnonzero((nodes == ROOT) | (self._words[nodes] < 0))
            if not len(inner):
                words: Ints = self._words[nodes]
                return words
            for node, chosen in _grouped(inner, nodes[inner]):
                children = self._children(node)
                nodes[chosen] = children.start + nearest(features[chosen], self.centers[children.start : children.stop])

    def _children(self, node: int) -> range:
        """The nodes directly below a node."""
        first, end = np.searchsorted(self.parents, [node, node + 1]).tolist()
        return range(first, end)

    def save(self, path: Path) -> None:
        """Writes the tree to a file."""
        tensors: dict[str, npt.NDArray[Any]] = {"centers": self.centers, "parents": self.parents, "counts": self.counts}
        with atomic_file(path) as file:
            file.write(safetensors.numpy.save(tensors, metadata={"kind": _KIND}))

    @staticmethod
    def load(path: Path | str) -> "FeatureWords":
        """The tree of a file that `save` wrote.

        Raises:
            InputError: there is no such file, or it holds something else.
        """
        path, fix = Path(path), "name a file of `bertsmith codes cluster`"
        require_file(path, "a file of feature words")
        try:
            tensors = safetensors.numpy.load_file(path)
        except (safetensors.SafetensorError, OSError, TypeError) as error:  # TypeError: a type that NumPy lacks
            raise InputError.is_not(path, "a file of feature words", str(error), fix) from None
        try:
            words = FeatureWords(tensors["centers"], tensors["parents"], tensors["counts"])
        except KeyError as error:
            raise InputError.is_not(path, "a file of feature words", f"it has no {error}", fix) from None
        if not words.is_sound():
            raise InputError.is_not(path, "a file of feature words", "its tree is damaged", fix)
        return words

    def is_sound(self) -> bool:
        """Whether the arrays belong together: each node after its parent, and finite centers."""
        centers, parents = self.centers, self.parents
        return (
            (centers.ndim, parents.ndim) == (2, 1)
            and parents.shape == self.counts.shape == (len(centers),)
            and centers.size > 0
            and centers.dtype == np.float32
            and parents.dtype == np.int64
            and bool(parents[0] == ROOT)
            and bool((np.diff(parents) >= 0).all())
            and bool((parents < np.arange(len(parents))).all())
            and bool(np.isfinite(centers).all())
        )


def learn_feature_words(features: Floats, *, depth: int, branching: int, seed: int) -> FeatureWords:
    """The tree of centers of feature vectors.

    Points that are all equal are not divided further, and a center without points is dropped, so that every word
    occurs in the data.

    Args:
        features: float32 [N, F], finite, at least one.
        depth: levels of centers below the root.
        branching: the most centers of a node.
    """
    assert len(features), "there is a point to learn from"
    centers: list[Floats] = []
    parents: list[int] = []
    counts: list[int] = []
    level: list[tuple[int, Ints]] = [(ROOT, np.arange(len(features)))]
    with Progress("clustering", total=depth * len(features), unit="points") as progress:
        for height in range(depth):
            below: list[tuple[int, Ints]] = []
            for node, points in level:
                parts = _divided(features[points], branching, derive(seed, "clusters", height, node + 1))
                if len(parts) > 1 or node == ROOT:
                    for center, members in parts:
                        below.append((len(centers), points[members]))
                        centers.append(center)
                        parents.append(node)
                        counts.append(len(members))
                progress.advance(len(points))
            level = below
    return FeatureWords(np.stack(centers), np.array(parents, dtype=np.int64), np.array(counts, dtype=np.int64))


def nearest(points: npt.NDArray[np.floating], centers: Floats) -> Ints:
    """The nearest center of each point, the first of several, int64 [N].

    Each distance is summed by itself, not by a product of matrices, whose last digits depend on the other points.

    >>> nearest(np.array([[0.1], [0.9], [0.5]]), np.array([[0.0], [1.0]], dtype=np.float32)).tolist()
    [0, 1, 0]
    """
    together = max(1, _NUMBERS // centers.size)
    result = np.empty(len(points), dtype=np.int64)
    exact = centers.astype(np.float64)
    for start in range(0, len(points), together):
        differences = points[start : start + together, None, :] - exact  # [n, K, F]
        result[start : start + together] = np.square(differences).sum(axis=2).argmin(axis=1)
    return result


def _divided(points: Floats, branching: int, seed: int) -> Sequence[tuple[Floats, Ints]]:
    """The centers of points that have some, each with the indices of its points."""
    clusters = min(branching, _count_distinct(points, branching))
    if clusters == 1:
        return [(points.mean(axis=0, dtype=np.float64).astype(np.float32), np.arange(len(points)))]
    options = {"n_clusters": clusters, "random_state": seed % 2**32}
    few = len(points) <= _FEW_POINTS
    model = KMeans(n_init=2, **options) if few else MiniBatchKMeans(n_init=3, batch_size=8192, **options)
    exponent = np.frexp(np.abs(points).max())[1]  # a power of two changes no digit, but squares overflow without it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer clusters than asked for: equal up to rounding
        centers = np.ldexp(model.fit(np.ldexp(points, -exponent)).cluster_centers_, exponent).astype(np.float32)
    numbers = nearest(points, centers)
    return [(centers[number], members) for number, members in _grouped(np.arange(len(points)), numbers)]


def _count_distinct(points: Floats, most: int) -> int:
    """The number of different points, counted up to `most`."""
    seen = set[bytes]()
    for point in points:
        seen.add(point.tobytes())
        if len(seen) >= most:
            break
    return len(seen)


def _grouped(values: Ints, keys: Ints) -> Iterator[tuple[int, Ints]]:
    """The values of each key, by ascending key, in their order."""
    order = np.argsort(keys, kind="stable")
    numbers, starts = np.unique(keys[order], return_index=True)
    yield from zip(numbers.tolist(), np.split(values[order], starts[1:]), strict=True)
