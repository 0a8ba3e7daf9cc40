"""Passage vectors, cached in a file so that the next search does not recompute them.

The file is .safetensors: normalized vectors, one key per passage (the digest of its text), and cells for approximate
search. Its metadata records the model and the settings. Vectors of new or changed passages are computed, all others are
looked up by key; vectors of another model are rejected.

Letters: P passages, Q queries, D width of the vectors.
"""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted, tell, warn
from bertsmith.base.storage.files import FORMAT, atomic_file, require_format
from bertsmith.base.storage.locks import locked_file
from bertsmith.inference.search.cells import LEAST_ROWS, Cells, cells_as_bytes, require_faiss
from bertsmith.inference.search.inverted_index import InvertedIndex
from bertsmith.inference.search.rankings import Ranking, nearest_vectors
from bertsmith.inference.search.request import DENSE, SPARSE, TOKENS
from bertsmith.inference.vectors.changes import VectorChange
from bertsmith.inference.vectors.embedder import BLOCK, EitherVectors, Embedder
from bertsmith.inference.vectors.token_embedder import TokenEmbedder
from bertsmith.models.heads.vector_forms import BY_EUCLIDEAN, BY_MANHATTAN
from bertsmith.tasks.metrics.vectors import unit
from bertsmith.text.tokenizers.pack import truncation_note

Vectors = npt.NDArray[np.float32]
Keys = npt.NDArray[np.uint8]

_NAME = "passage vectors"
_KEY_BYTES = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassageIndex:
    """A searchable index of passages.

    Attributes:
        vectors: float32 [P, D], normalized.
        keys: uint8 [P, 16], the digests of the texts.
        maker: how the vectors were made: digest of the model, pooling and other settings.
        cells: for approximate search, as bytes, see `cells`; None if search is exact.
        probes: how many cells a search reads.
    """

    vectors: Vectors
    keys: Keys
    maker: dict[str, Any]
    cells: npt.NDArray[np.uint8] | None = None
    probes: int = 0

    def search(self, queries: Vectors, top: int) -> Ranking:
        """The nearest passages of each query by cosine: approximate if there are cells, otherwise exact.

        Args:
            queries: [Q, D], normalized.
        """
        if self.cells is None:
            return nearest_vectors(queries, self.vectors, top)
        return Cells.of_bytes(self.cells, self.vectors).search(queries, top, self.probes)

    def save(self, path: Path) -> None:
        """Writes the file atomically."""
        tensors: dict[str, npt.NDArray[Any]] = {"vectors": self.vectors, "keys": self.keys}
        if self.cells is not None:
            tensors["cells"] = self.cells
        about = {"maker": json.dumps(self.maker, sort_keys=True), "probes": str(self.probes)}
        with atomic_file(path) as file:
            file.write(save(tensors, metadata={"kind": _NAME, "format": str(FORMAT), **about}))

    @staticmethod
    def load(path: Path) -> "PassageIndex":
        """The index in a file."""
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise InputError(
                expected=f"passage vectors in '{path}'",
                found=f"a damaged file or another format ({error})",
                fix="name another file for the index",
            ) from None
        if about.get("kind") != _NAME:
            raise InputError(
                expected=f"passage vectors in '{path}'", found="another file", fix="name another file for the index"
            )
        require_format(about, path)
        return PassageIndex(
            vectors=tensors["vectors"],
            keys=tensors["keys"],
            maker=json.loads(about["maker"]),
            cells=tensors.get("cells"),
            probes=int(about.get("probes", 0)),
        )


def index_passages(
    texts: Sequence[str],
    embedder: Embedder,
    *,
    change: VectorChange | None = None,
    path: Path | None = None,
    approximate: bool = False,
) -> PassageIndex:
    """The index of passages: vectors are read from its file if they are there, otherwise computed and added to it.

    Args:
        embedder: computes the vectors; they are normalized if it compares by the cosine.
        change: applied to the vectors before they are normalized.
        path: the index file; if None, nothing is saved.
        approximate: search the cells of 20,000 passages or more (needs faiss).
    """
    if approximate:
        require_faiss()
    approximate = approximate and len(texts) >= LEAST_ROWS
    if embedder.similarity in (BY_EUCLIDEAN, BY_MANHATTAN):
        embedder.require_units("a search")
    if approximate:
        embedder.require_units("--approximate")
    if change is not None:
        embedder.require_units("--changes")
        change.require_width(embedder.width)
    keys = _keys(texts)
    maker = maker_of(embedder, change)
    before = PassageIndex.load(path) if path is not None and path.exists() else None
    if before is not None and before.maker != maker:
        other = [name for name in {**maker, **before.maker} if before.maker.get(name) != maker.get(name)]
        raise InputError(
            expected=f"vectors of this model and these settings in '{path}'",
            found=f"others ({', '.join(other)})",
            fix="name another file with --index, or remove this one to rebuild it",
        )
    if before is not None and np.array_equal(before.keys, keys) and (before.cells is not None or not approximate):
        return before if approximate else dataclasses.replace(before, cells=None)
    with contextlib.nullcontext() if path is None else locked_file(path):
        vectors = _vectors(texts, keys, embedder, change, before)
        made = PassageIndex(vectors=vectors, keys=keys, maker=maker)
        if approximate:
            cells, probes = cells_as_bytes(vectors)
            made = dataclasses.replace(made, cells=cells, probes=probes)
        if path is not None:
            made.save(path)
    if path is not None:
        tell(f"index: {path} ({counted(len(texts), 'vector')} of width {vectors.shape[1]})")
    return made


def index_weights(texts: Sequence[str], embedder: Embedder) -> InvertedIndex:
    """The index of passages by an embedder with sparse vectors."""
    cut_before = embedder.cut_texts, embedder.cut_tokens
    how = embedder.encoder.runtime.precision
    with Progress("vectors of passages", total=len(texts), unit="passages", how=how) as progress:
        weights = as_compared(embedder.embed_sparse(texts, progress.advance)[0], embedder)
    _warn_of_cuts("passages", embedder, *cut_before)
    return InvertedIndex(weights)


def as_compared(weights: sp.csr_matrix, embedder: Embedder) -> sp.csr_matrix:
    """Sparse vectors whose products are the similarities of the model."""
    if not embedder.compares_units:
        return weights
    lengths = sp.linalg.norm(weights, axis=1)
    return sp.csr_matrix(sp.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ weights)


def query_vectors(queries: Sequence[str], embedder: Embedder, change: VectorChange | None = None) -> EitherVectors:
    """The vectors of queries, [Q, D], whose products with those of passages are the similarities of the model.

    Those of an embedder with sparse vectors are sparse. Warns how many queries were truncated.
    """
    cut_before = embedder.cut_texts, embedder.cut_tokens
    if embedder.is_sparse:
        vectors = as_compared(embedder.embed_sparse(queries)[0], embedder)
    else:
        vectors = _directions(queries, embedder, change)
    _warn_of_cuts("queries", embedder, *cut_before)
    return vectors


def _directions(texts: Sequence[str], embedder: Embedder, change: VectorChange | None) -> Vectors:
    vectors = embedder.embed(texts)
    if not embedder.compares_units:
        return vectors
    return unit(vectors if change is None else change.apply(vectors))


def _vectors(
    texts: Sequence[str], keys: Keys, embedder: Embedder, change: VectorChange | None, before: PassageIndex | None
) -> Vectors:
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
        tell(f"computing vectors of {len(missing):,} of {counted(len(texts), 'passage')}, new or changed")
    cut_before = embedder.cut_texts, embedder.cut_tokens
    how = embedder.encoder.runtime.precision
    with Progress("vectors of passages", total=len(missing), unit="passages", how=how) as progress:
        for start in range(0, len(missing), BLOCK):
            part = missing[start : start + BLOCK]
            vectors[part] = _directions([texts[number] for number in part], embedder, change)
            progress.advance(len(part))
    _warn_of_cuts("passages", embedder, *cut_before)
    return vectors


def _warn_of_cuts(kind: str, embedder: Embedder, texts_before: int, tokens_before: int) -> None:
    """Warns on stderr of texts that were truncated since the given counts."""
    if cut := embedder.cut_texts - texts_before:
        warn(truncation_note(kind, embedder.max_length, cut, embedder.cut_tokens - tokens_before))


def _keys(texts: Sequence[str]) -> Keys:
    digests = b"".join(hashlib.blake2b(text.encode("utf-8"), digest_size=_KEY_BYTES).digest() for text in texts)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, _KEY_BYTES)


def kind_of(embedder: Embedder) -> str:
    """The kind of vectors that an embedder makes."""
    return TOKENS if isinstance(embedder, TokenEmbedder) else SPARSE if embedder.is_sparse else DENSE


def maker_of(embedder: Embedder, change: VectorChange | None = None) -> dict[str, Any]:
    """Everything that determines a vector as it is compared, as read back from JSON."""
    said = dict(embedder.settings)
    normalized = said.pop("normalize")
    if not (embedder.compares_units or embedder.is_sparse):
        said |= {"similarity": embedder.similarity, "normalize": normalized}
    if change is not None:  # subtracting a mean turns short vectors more than long ones
        said |= {"changes": change.digest, "normalize": normalized}
    return dict(json.loads(json.dumps(said)))
