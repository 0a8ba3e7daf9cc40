"""The vectors of passages, kept in a file so that the next search does not compute them again.

The file is .safetensors: the vectors at length 1, a key a passage (the digest of its text), and for approximate search
a graph. Its metadata say which model and settings made it. Passages that are new or changed are computed, all others
are taken by their key; the vectors of another model are refused.

Letters: P passages, Q queries, D width of the vectors.
"""

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bertsmith.errors import ConfigError, InputError
from bertsmith.files import atomic_file
from bertsmith.metrics.vectors import CROWDED, random_cosines, sample_rows, unit
from bertsmith.progress import Progress, counted, tell, warn
from bertsmith.search.rankings import NOBODY, Ranking, nearest_vectors
from bertsmith.vectors.changes import VectorChange
from bertsmith.vectors.embedder import BLOCK, Embedder

Vectors = npt.NDArray[np.float32]
Keys = npt.NDArray[np.uint8]

_NAME = "passage vectors"
_KEY_BYTES = 16
_FEWEST, _SAMPLED, _PAIRS = 5, 1000, 10_000  # passages and pairs of them from which it is told how they lie


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassageIndex:
    """Passages that can be searched.

    Attributes:
        vectors: float32 [P, D], of length 1.
        keys: uint8 [P, 16], the digests of the texts.
        maker: what made the vectors: digests of the model, pooling and the like.
        graph: a usearch index of the vectors as bytes; None where search is exact.
    """

    vectors: Vectors
    keys: Keys
    maker: dict[str, Any]
    graph: npt.NDArray[np.uint8] | None = None

    def search(self, queries: Vectors, top: int) -> Ranking:
        """The nearest passages of each query by cosine; by the graph if there is one, else exact.

        Args:
            queries: [Q, D], of length 1.
        """
        if self.graph is None:
            return nearest_vectors(queries, self.vectors, top)
        index = _usearch(self.vectors.shape[1])
        index.load(self.graph.tobytes())
        places = np.full((len(queries), top), NOBODY, dtype=np.int64)
        scores = np.full((len(queries), top), -np.inf)
        for number, query in enumerate(queries):
            found = index.search(query, top)
            places[number, : len(found.keys)] = found.keys.astype(np.int64)
            scores[number, : len(found.keys)] = 1.0 - found.distances
        return Ranking(places=places, scores=scores)

    def save(self, path: Path) -> None:
        """Writes the file, atomically."""
        tensors: dict[str, npt.NDArray[Any]] = {"vectors": self.vectors, "keys": self.keys}
        if self.graph is not None:
            tensors["graph"] = self.graph
        with atomic_file(path) as file:
            file.write(save(tensors, metadata={"kind": _NAME, "maker": json.dumps(self.maker, sort_keys=True)}))

    @staticmethod
    def load(path: Path) -> "PassageIndex":
        """The index in a file.

        Raises:
            InputError: the file is damaged or holds something else.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise InputError(
                expected=f"passage vectors in '{path}'",
                found=f"another or a damaged file ({error})",
                fix="name another file for the index",
            ) from None
        if about.get("kind") != _NAME:
            raise InputError(
                expected=f"passage vectors in '{path}'", found="another file", fix="name another file for the index"
            )
        return PassageIndex(
            vectors=tensors["vectors"],
            keys=tensors["keys"],
            maker=json.loads(about["maker"]),
            graph=tensors.get("graph"),
        )


def index_passages(
    texts: Sequence[str],
    embedder: Embedder,
    *,
    change: VectorChange | None = None,
    path: Path | None = None,
    approximate: bool = False,
) -> PassageIndex:
    """The index of passages: from its file where that holds their vectors, computed and written where it does not.

    Args:
        texts: P texts.
        embedder: makes the vectors; they are scaled to length 1.
        change: is made to the vectors before.
        path: the file; None keeps nothing.
        approximate: search by a graph (needs usearch).

    Raises:
        InputError: the file holds vectors of another model or other settings, or something else; or the change was
            fitted on vectors of another width.
        ConfigError: usearch is asked for and not installed.
    """
    if approximate:
        _usearch(embedder.width)
    if change is not None:
        change.require_width(embedder.width)
    keys = _keys(texts)
    maker = _maker(embedder, change)
    before = PassageIndex.load(path) if path is not None and path.exists() else None
    if before is not None and before.maker != maker:
        other = [name for name in {**maker, **before.maker} if before.maker.get(name) != maker.get(name)]
        raise InputError(
            expected=f"vectors of this model and these settings in '{path}'",
            found=f"others ({', '.join(other)})",
            fix="name another file with --index, or remove this one to have it made anew",
        )
    if before is not None and np.array_equal(before.keys, keys) and (before.graph is not None or not approximate):
        return before if approximate else dataclasses.replace(before, graph=None)
    vectors = _vectors(texts, keys, embedder, change, before)
    made = PassageIndex(vectors=vectors, keys=keys, maker=maker, graph=_graph(vectors) if approximate else None)
    if path is not None:
        made.save(path)
        tell(f"index: {path} ({counted(len(texts), 'vector')} of width {vectors.shape[1]})")
    return made


def query_vectors(queries: Sequence[str], embedder: Embedder, change: VectorChange | None = None) -> Vectors:
    """The vectors of queries at length 1, float32 [Q, D]; how many are too long to be read whole is told."""
    cut_before = embedder.cut_texts, embedder.cut_tokens
    vectors = _directions(queries, embedder, change)
    _warn_of_cuts("queries", embedder, *cut_before)
    return vectors


def tell_crowded(index: PassageIndex, *, is_changed: bool) -> None:
    """Says on stderr that the vectors of the passages crowd around one direction, where they do, and what helps.

    Args:
        is_changed: the vectors were changed already, so whitening is no advice.
    """
    if len(index.vectors) < _FEWEST:
        return
    mean = float(random_cosines(index.vectors[sample_rows(len(index.vectors), _SAMPLED)], pairs=_PAIRS).mean())
    if mean >= CROWDED:
        whiten = "" if is_changed else ", or --changes from `bertsmith vectors --whiten --save-changes`"
        warn(
            f"the passages have a mean cosine of {mean:.2f} with one another: nearly all vectors point the same way, "
            f"so the order by cosine says little; what helps: --bm25, --hybrid, a sentence model{whiten}"
        )


def _directions(texts: Sequence[str], embedder: Embedder, change: VectorChange | None) -> Vectors:
    vectors = embedder.embed(texts)
    return unit(vectors if change is None else change.apply(vectors))


def _vectors(
    texts: Sequence[str], keys: Keys, embedder: Embedder, change: VectorChange | None, before: PassageIndex | None
) -> Vectors:
    """The vectors of all texts; those whose key is known are taken over."""
    known = {} if before is None else {key.tobytes(): row for row, key in enumerate(before.keys)}
    rows = np.array([known.get(key.tobytes(), -1) for key in keys], dtype=np.int64)
    missing = np.flatnonzero(rows < 0)
    width = embedder.width if change is None else change.width
    vectors = np.empty((len(texts), width), dtype=np.float32)
    if before is not None:
        vectors[rows >= 0] = before.vectors[rows[rows >= 0]]
    if not len(missing):
        return vectors
    if before is not None:
        tell(f"{len(missing):,} of {counted(len(texts), 'passage')} new or changed, whose vectors are computed")
    cut_before = embedder.cut_texts, embedder.cut_tokens
    how = embedder.encoder.runtime.precision
    with Progress("vectors of passages", total=len(missing), unit="passages", how=how) as progress:
        for start in range(0, len(missing), BLOCK):
            part = missing[start : start + BLOCK]
            vectors[part] = _directions([texts[place] for place in part], embedder, change)
            progress.advance(len(part))
    _warn_of_cuts("passages", embedder, *cut_before)
    return vectors


def _warn_of_cuts(what: str, embedder: Embedder, texts_before: int, tokens_before: int) -> None:
    """Says on stderr what was cut since the counts were these."""
    if cut := embedder.cut_texts - texts_before:
        warn(
            f"{what} longer than the {embedder.max_length} tokens that are read: {cut:,}, "
            f"{counted(embedder.cut_tokens - tokens_before, 'token')} cut"
        )


def _keys(texts: Sequence[str]) -> Keys:
    digests = b"".join(hashlib.blake2b(text.encode("utf-8"), digest_size=_KEY_BYTES).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, _KEY_BYTES)


def _maker(embedder: Embedder, change: VectorChange | None) -> dict[str, Any]:
    """All that decides the direction of a vector, as it comes back from JSON."""
    said = dict(embedder.settings)
    normalized = said.pop("normalize")
    if change is not None:  # what is taken away from a vector weighs more where it is short
        said |= {"changes": change.digest, "normalize": normalized}
    return dict(json.loads(json.dumps(said)))


def _graph(vectors: Vectors) -> npt.NDArray[np.uint8]:
    index = _usearch(vectors.shape[1])
    index.add(np.arange(len(vectors)), vectors)
    return np.frombuffer(index.save(), dtype=np.uint8)


def _usearch(width: int) -> Any:
    """An empty graph for vectors of a width.

    Raises:
        ConfigError: usearch is not installed.
    """
    try:
        module = importlib.import_module("usearch.index")
    except ImportError:
        raise ConfigError(
            expected="the package usearch, for approximate search",
            found="none",
            fix="install it (pip install 'bertsmith[index]') or search exactly",
        ) from None
    return module.Index(ndim=width, metric="cos", dtype="f32")
