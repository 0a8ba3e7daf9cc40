"""Transformations of vectors: centring, removal of common directions, whitening, normalization.

The parameters of a change (mean, directions, variances) are fitted on one set of vectors and applied to any other of
the same width. All but the last step form one affine map, y = (x - mean) M, stored as a mean [D] and a matrix [D, K].

Letters: E vectors, D their width, K the width after the change.

Source: Mu and Viswanath, "All-but-the-top" (2018), algorithm 1; Su et al., "Whitening sentence representations for
better semantics and faster retrieval" (2021), section 3.
"""

import dataclasses
import functools
import json
import tempfile
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import from_dict, to_dict
from bertsmith.base.storage.files import atomic_file, digest_bytes
from bertsmith.inference.vectors.request import ChangeSettings
from bertsmith.inference.vectors.writers import VECTOR, npy_header
from bertsmith.tasks.metrics.vectors import VectorReport, unit

Vectors = npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]

_BLOCK = 4096  # vectors
_NAME = "vector changes"
# A variance below this fraction of the largest is rounding noise around 0.
_FLAT = 1e-7


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorChange:
    """A fitted change.

    Attributes:
        mean: float64 [D], subtracted first; zeros if nothing is subtracted.
        matrix: float64 [D, K], or None if no direction changes.
        fitted_on: the number of vectors it was fitted on.
    """

    settings: ChangeSettings
    mean: Floats
    matrix: Floats | None
    fitted_on: int

    @property
    def width(self) -> int:
        """K."""
        return len(self.mean) if self.matrix is None else self.matrix.shape[1]

    @property
    def warning(self) -> str:
        """A warning for users of this change, or "". D or fewer centered vectors do not span D directions."""
        if self.matrix is None or self.fitted_on > len(self.mean):
            return ""
        return (
            f"the change was fitted on {counted(self.fitted_on, 'vector')} of width {len(self.mean)}, so it will not "
            f"suit other vectors; fit it on more than {len(self.mean)}, preferably thousands (`vectors --fit-on`)"
        )

    @property
    def digest(self) -> str:
        """The digest of everything that determines the direction of a changed vector."""
        matrix = b"" if self.matrix is None else self.matrix.astype("<f8").tobytes()
        return digest_bytes(self.mean.astype("<f8").tobytes() + matrix)

    def require_width(self, width: int) -> None:
        """Refuses vectors whose width differs from those the change was fitted on."""
        if width != len(self.mean):
            raise InputError(
                expected=f"vectors of width {len(self.mean)}, as in fitting the change",
                found=f"width {width}",
                fix="fit it on vectors of the same model",
            )

    def apply(self, vectors: Vectors) -> Float32s:
        """The changed vectors, float32 [E, K], from [E, D]."""
        return np.concatenate([np.empty((0, self.width), np.float32), *self.stream(vectors)])

    def stream(self, vectors: Vectors) -> Iterator[Float32s]:
        """The changed vectors in blocks, so that neither input nor output has to fit into memory."""
        _require_matrix(vectors)
        self.require_width(vectors.shape[1])
        for block in _blocks(vectors):
            changed = block - self.mean
            if self.matrix is not None:
                changed = changed @ self.matrix
            if self.settings.normalize:
                changed = unit(changed)
            yield changed.astype(np.float32)

    def save(self, path: Path) -> None:
        """Writes the change as one .safetensors file, with the settings in its metadata."""
        tensors = {"mean": self.mean} | ({} if self.matrix is None else {"matrix": np.ascontiguousarray(self.matrix)})
        about = {"kind": _NAME, "settings": json.dumps(to_dict(self.settings)), "fitted_on": str(self.fitted_on)}
        with atomic_file(path) as file:
            file.write(save(tensors, metadata=about))

    @staticmethod
    def load(path: Path) -> "VectorChange":
        """The change in a file."""
        try:
            with safe_open(path, framework="numpy") as file:
                about = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, FileNotFoundError) as error:
            raise InputError(
                expected=f"saved vector changes at '{path}'",
                found=f"no such file, or a damaged one ({error})",
                fix="name a file written by --save-changes",
            ) from None
        if about.get("kind") != _NAME or "mean" not in tensors:
            raise InputError(
                expected=f"saved vector changes in '{path}'",
                found=f"tensors {', '.join(tensors) or 'without names'}",
                fix="name a file written by --save-changes",
            )
        try:
            settings, fitted_on = json.loads(about["settings"]), int(about["fitted_on"])
        except (KeyError, ValueError) as error:
            raise InputError(
                expected=f"saved vector changes in '{path}'", found=f"a damaged file ({error})", fix="fit them again"
            ) from None
        return VectorChange(
            settings=from_dict(ChangeSettings, settings, str(path)),
            mean=tensors["mean"],
            matrix=tensors.get("matrix"),
            fitted_on=fitted_on,
        )


def fit_change(vectors: Vectors, settings: ChangeSettings) -> VectorChange:
    """The change fitted on vectors [E, D], which may be memory-mapped; they are read twice."""
    _require_matrix(vectors)
    count, width = vectors.shape
    if not count:
        raise InputError(expected="vectors to fit on", found="none", fix="provide one row per vector")
    needs_mean = settings.center or settings.whiten or settings.remove_top > 0
    if not needs_mean:
        return VectorChange(settings=settings, mean=np.zeros(width), matrix=None, fitted_on=count)
    mean = sum((block.sum(axis=0) for block in _blocks(vectors)), np.zeros(width)) / count
    matrix = None
    if settings.whiten or settings.remove_top:
        squares = np.zeros((width, width))
        for block in _blocks(vectors):
            centered = block - mean
            squares += centered.T @ centered
        matrix = _matrix(squares / count, settings, count)
    return VectorChange(settings=settings, mean=mean, matrix=matrix, fitted_on=count)


def read_vectors(path: Path) -> Vectors:
    """The vectors [E, D] of a .npy file, memory-mapped, or of the column `vector` of a .parquet file."""
    if path.suffix.lower() == ".parquet":
        return _read_column(path)
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (FileNotFoundError, ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        # NumPy parses the header as Python, so a damaged one raises what Python's tokenizer does.
        reason = "no such file" if isinstance(error, FileNotFoundError) else "none (a damaged file, or another format)"
        raise InputError(
            expected=f"an array in '{path}'", found=reason, fix="name a .npy or .parquet file written by `embed`"
        ) from None
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.floating):
        is_array = isinstance(vectors, np.ndarray)
        raise InputError(
            expected=f"vectors, a two-dimensional array of floating-point numbers, in '{path}'",
            found=f"{vectors.dtype} of shape {list(vectors.shape)}"
            if is_array
            else "several arrays, or sparse vectors",
            fix="provide one row per vector",
        )
    return vectors


def _read_column(path: Path) -> Vectors:
    """The column `vector` of a Parquet file, copied into a temporary file so that it can be memory-mapped."""
    wrong = functools.partial(
        InputError, expected=f"vectors in the column {VECTOR!r} of '{path}'", fix="name a file written by `embed`"
    )
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        if VECTOR not in schema.names:
            raise wrong(found=f"only {', '.join(map(repr, schema.names)) or 'no column'}")
        kind = schema.field(VECTOR).type
        if not is_vector(kind):
            raise wrong(found=f"values of the type {kind}")
        shape, dtype = (file.metadata.num_rows, _width(file, kind)), np.dtype(kind.value_type.to_pandas_dtype())
        with tempfile.TemporaryFile() as copied:
            # Without threads, only one row group at a time is in memory.
            for batch in file.iter_batches(batch_size=_BLOCK, columns=[VECTOR], use_threads=False):
                try:
                    numbers = batch.column(0).cast(pa.list_(kind.value_type, shape[1]))
                except pa.ArrowInvalid:
                    raise wrong(found="lists of different lengths") from None
                if numbers.null_count or numbers.values.null_count:
                    raise wrong(found="rows without one")
                copied.write(np.ascontiguousarray(numbers.flatten().to_numpy()).data)
            copied.flush()
            return np.memmap(copied, dtype, mode="r", shape=shape) if shape[0] else np.empty(shape, dtype)
    except FileNotFoundError:
        raise wrong(found="no such file") from None
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise wrong(found="none (a damaged file, or another format)") from None


def is_vector(kind: pa.DataType) -> bool:
    """Whether the values of a column are lists of floating-point numbers, of a fixed size or not."""
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_list and pa.types.is_floating(kind.value_type))


def _width(file: pq.ParquetFile, kind: pa.DataType) -> int:
    """The length of the lists: that of the type, or else of the first row."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    first = next(file.iter_batches(batch_size=1, columns=[VECTOR]), None)
    return 0 if first is None or not len(first) else len(first.column(0)[0].as_py() or ())


def require_finite(vectors: Vectors, name: str) -> None:
    """Refuses vectors with NaN or infinity."""
    for _ in _blocks(vectors, name):
        pass


def write_npy(path: Path, blocks: Iterable[Float32s], shape: tuple[int, int]) -> None:
    """Writes blocks of vectors atomically to one .npy file of a known shape, float32."""
    with atomic_file(path) as file:
        file.write(npy_header(*shape, np.dtype("<f4")))
        rows = 0
        for block in blocks:
            assert block.shape[1] == shape[1], block.shape
            file.write(np.ascontiguousarray(block, dtype="<f4").tobytes())
            rows += len(block)
        assert rows == shape[0], rows


def report_rows(before: VectorReport, after: VectorReport | None) -> list[tuple[Any, ...]]:
    """Rows of a report table: a name, the value before and, if given, the value after a change."""
    reports = [before] if after is None else [before, after]
    return [
        ("vectors", *(report.count for report in reports)),
        ("width", *(report.width for report in reports)),
        ("mean length", *(report.mean_length for report in reports)),
        ("cosine of random pairs: mean", *(report.mean_cosine for report in reports)),
        ("  standard deviation", *(report.deviation for report in reports)),
        *(
            (f"  {share:.0%} are below", *(report.quantiles[share] for report in reports))
            for share in (0.05, 0.5, 0.95)
        ),
        ("shared component, fraction of the squared length", *(report.shared for report in reports)),
        *((f"variance in the top {top}", *(report.top_shares[top] for report in reports)) for top in before.top_shares),
        ("effective rank", *(report.effective_rank for report in reports)),
        ("partition ratio (1: no special direction)", *(report.partition_ratio for report in reports)),
    ]


def _matrix(covariance: Floats, settings: ChangeSettings, count: int) -> Floats:
    """M [D, K] for a covariance [D, D]."""
    variances, directions = np.linalg.eigh(covariance)
    variances, directions = variances[::-1], directions[:, ::-1]
    usable = int(np.count_nonzero(variances > _FLAT * max(variances[0], 0.0)))
    wanted = settings.remove_top + (settings.dimensions or 1)
    if wanted > usable:
        raise InputError(
            expected=f"vectors that vary in at least {counted(wanted, 'direction')}",
            found=f"{usable}, from {counted(count, 'vector')}",
            fix="fit on more vectors, or request fewer directions",
        )
    if settings.whiten:
        last = usable if settings.dimensions is None else wanted
        kept = slice(settings.remove_top, last)
        return np.asarray(directions[:, kept] / np.sqrt(variances[kept]))
    top = directions[:, : settings.remove_top]
    return np.asarray(np.eye(len(covariance)) - top @ top.T)


def _blocks(vectors: Vectors, name: str = "the vectors") -> Iterator[Floats]:
    """The vectors in blocks, after checking that all numbers are finite."""
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float64)
        finite = np.isfinite(block).all(axis=1)
        if not finite.all():
            raise InputError(
                expected=f"finite numbers in {name}",
                found=f"NaN or infinity in row {start + int(np.argmin(finite)) + 1:,}",
                fix="compute the row again, or remove it",
            )
        yield block


def _require_matrix(vectors: Vectors) -> None:
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise InputError(
            expected="vectors as a two-dimensional array",
            found=f"an array of shape {list(vectors.shape)}",
            fix="provide one row per vector",
        )
