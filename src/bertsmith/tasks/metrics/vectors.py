"""The distribution of vectors: whether they fill the space or concentrate in one direction.

The vectors of a pre-trained encoder crowd: any two texts have a high cosine, so cosines say little.

Letters: E vectors, D their width, P pairs.

Source: Mu and Viswanath, "All-but-the-top" (2018); Ethayarajh, "How contextual are contextualized
word representations?" (2019); Roy and Vetterli, "The effective rank" (2007).
"""

import dataclasses
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.models.heads.vector_forms import BY_COSINE, BY_EUCLIDEAN, BY_MANHATTAN

Vectors = npt.NDArray[np.floating[Any]]
Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", bound=np.floating[Any])

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS = 50  # of the histogram, equally wide from -1 to 1
MOST_PAIRS, MOST_ROWS = 50_000, 20_000
_BLOCK = 4096
CROWDED = 0.5  # mean cosine at and above which vectors crowd around one direction
_FEWEST_PASSAGES, _SAMPLED_PASSAGES, _PAIRS_OF_PASSAGES = 5, 1000, 10_000  # for their crowding
_ORDERS = {BY_MANHATTAN: 1, BY_EUCLIDEAN: 2}  # of the norms of differences
_LEANING = 0.2  # mean cosine
_FEW = 30  # fewer vectors than this get no favorable verdict


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorReport:
    """Statistics of a set of vectors."""

    count: int
    width: int
    zeros: int  # the number of vectors of length 0; their cosine with anything is 0
    sampled: int  # the number of vectors behind the figures below: all, or a random sample
    mean_length: float
    mean_cosine: float  # of random pairs; 0 for vectors that point in all directions equally
    deviation: float  # standard deviation of these cosines
    quantiles: dict[float, float]  # of these cosines, by fraction
    histogram: tuple[int, ...]  # the number of these cosines in each of BINS equal parts of [-1, 1]
    # min Z(c) / max Z(c) over the directions c of the uncentered second moments, with Z(c) = sum of exp(c . v) over all
    # vectors; 1 if no direction is special. It depends on the lengths of the vectors, as in the paper
    partition_ratio: float
    # squared length of the mean vector, divided by the mean squared length of the vectors: the part that all vectors
    # have in common
    shared: float
    top_shares: dict[int, float]  # fractions of the variance around the mean in the first 1, 3 and 10 directions
    # exp of the entropy of the singular values around the mean: the equivalent number of equally used directions. At
    # most D, and less than the number of vectors
    effective_rank: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)


def describe(vectors: Vectors, *, seed: int = 0, pairs: int = MOST_PAIRS, rows: int = MOST_ROWS) -> VectorReport:
    """The report on vectors [E, D], which may be memory-mapped; of more than `rows` vectors a random sample is read."""
    _require_vectors(vectors)
    count, width = vectors.shape
    chosen = sample_rows(count, rows, seed)
    sample = np.empty((len(chosen), width), dtype=np.float64)
    for start in range(0, len(chosen), _BLOCK):
        sample[start : start + _BLOCK] = vectors[chosen[start : start + _BLOCK]]
    _require_finite(sample, chosen)
    cosines = random_cosines(sample, pairs=pairs, seed=seed)
    lengths = np.linalg.norm(sample, axis=1)
    mean = sample.mean(axis=0)
    power = float((lengths**2).mean())
    variances = np.maximum(np.linalg.eigvalsh(np.cov(sample, rowvar=False).reshape(width, width))[::-1], 0.0)
    total = float(variances.sum())
    return VectorReport(
        count=count,
        width=width,
        zeros=int(np.count_nonzero(lengths == 0)),
        sampled=len(chosen),
        mean_length=float(lengths.mean()),
        mean_cosine=float(cosines.mean()),
        deviation=float(cosines.std()),
        quantiles={share: float(np.quantile(cosines, share)) for share in QUANTILES},
        histogram=tuple(np.histogram(np.clip(cosines, -1, 1), bins=BINS, range=(-1, 1))[0].tolist()),
        partition_ratio=partition_ratio(sample),
        shared=float(mean @ mean) / power if power else 0.0,
        top_shares={top: float(variances[:top].sum()) / total if total else 0.0 for top in (1, 3, 10)},
        effective_rank=_effective_rank(np.sqrt(variances)),
    )


def sample_rows(count: int, rows: int = MOST_ROWS, seed: int = 0) -> npt.NDArray[np.int64]:
    """The indices of at most `rows` random rows of `count`, int64, ascending; all of them if there are no more."""
    if count <= rows:
        return np.arange(count)
    return np.sort(generator(seed, "rows to describe").choice(count, rows, replace=False))


def similarities(first: Vectors, second: Vectors, similarity: str = BY_COSINE) -> Floats:
    """The similarity of each pair of rows, float64 [P], by one of `vector_forms.OF_DENSE_VECTORS`."""
    if similarity == BY_COSINE:
        return cosines(first, second)
    if similarity in _ORDERS:
        return np.asarray(-np.linalg.norm(first.astype(np.float64) - second, ord=_ORDERS[similarity], axis=1))
    return np.asarray(np.einsum("pd,pd->p", first, second, dtype=np.float64))


def all_similarities(first: Vectors, second: Vectors, similarity: str = BY_COSINE) -> Floats:
    """The similarity of every row of the first and of the second, float64 [P, Q]; see `similarities`.

    >>> all_similarities(np.float32([[3, 4]]), np.float32([[0, 0], [3, 0]]), "manhattan").tolist()
    [[-7.0, -4.0]]
    """
    left, right = (np.asarray(side, dtype=np.float64) for side in (first, second))
    if similarity in _ORDERS:
        return np.stack([-np.linalg.norm(right - row, ord=_ORDERS[similarity], axis=1) for row in left])
    if similarity == BY_COSINE:
        left, right = unit(left), unit(right)
    return left @ right.T


def cosines(first: Vectors, second: Vectors) -> Floats:
    """The cosine of each pair of rows, float64 [P]; 0 if one of the two has length 0."""
    left, right = (unit(np.asarray(side, dtype=np.float64)) for side in (first, second))
    return np.asarray(np.einsum("pd,pd->p", left, right))


def unit(vectors: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The vectors [E, D] normalized to length 1, in their dtype; vectors of length 0 stay zero.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():  # the squares are too large for the dtype
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))


def principal_axes(products: Floats) -> tuple[Floats, Floats]:
    """The eigenvalues [D] of a symmetric matrix [D, D], largest first, and their directions, the columns of [D, D].

    The sign of a direction is arbitrary; the largest number is made positive, so that it does not depend on the solver.

    >>> principal_axes(np.array([[1.0, 0.0], [0.0, 4.0]]))[1].tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    values, directions = np.linalg.eigh(products)
    values, directions = values[::-1], directions[:, ::-1]
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    return values, np.asarray(directions * signs)


def random_cosines(vectors: Vectors, *, pairs: int = MOST_PAIRS, seed: int = 0) -> Floats:
    """Cosines of pairs of different rows of [E, D], float64: random pairs, or all pairs if there are no more."""
    _require_vectors(vectors)
    count = len(vectors)
    if count * (count - 1) // 2 <= pairs:
        first, second = np.triu_indices(count, k=1)
    else:
        source = generator(seed, "random pairs")
        first = source.integers(count, size=pairs)
        second = (first + source.integers(1, count, size=pairs)) % count
    parts = [
        cosines(vectors[first[start : start + _BLOCK]], vectors[second[start : start + _BLOCK]])
        for start in range(0, len(first), _BLOCK)
    ]
    return np.concatenate(parts)


def partition_ratio(vectors: Vectors) -> float:
    """The isotropy of vectors [E, D] by their partition function, from 0 (one direction) to 1 (isotropic).

    Source: the isotropy measure of Mu and Viswanath (2018): c runs over the eigenvectors of V^T V. The sign of an
    eigenvector is arbitrary; both are tried here, so the result does not depend on the solver.
    """
    values = np.asarray(vectors, dtype=np.float64)
    _, directions = np.linalg.eigh(values.T @ values)
    along = values @ directions
    from scipy.special import logsumexp  # the import takes a moment, which computing vectors need not wait for

    logs = np.concatenate([logsumexp(along, axis=0), logsumexp(-along, axis=0)])
    return float(np.exp(logs.min() - logs.max()))


def crowding(vectors: Vectors) -> str:
    """A warning if normalized passage vectors crowd around one direction, and what to compare them with, or "".

    BM25 is suggested because no change of the starter's vectors came close to it (benchmarks/retrieval.py, with
    --changes).
    """
    if len(vectors) < _FEWEST_PASSAGES:
        return ""
    mean = float(random_cosines(vectors[sample_rows(len(vectors), _SAMPLED_PASSAGES)], pairs=_PAIRS_OF_PASSAGES).mean())
    if mean < CROWDED:
        return ""
    return (
        f"the passages have a mean cosine of {mean:.2f} with one another: all vectors point in similar directions, "
        "so a high score says little; compare the ranking with that of `bertsmith search --method bm25`, which needs "
        "no model, and of a sentence model"
    )


def in_words(report: VectorReport, *, may_praise: bool = True) -> list[str]:
    """The conclusions from a report, one sentence each, with the fix.

    Args:
        may_praise: False if the vectors look good in any case, as after a change that was fitted on too few of them.
    """
    mean = f"mean cosine of random pairs {report.mean_cosine:.2f}"
    if report.mean_cosine >= CROWDED:
        lines = [
            f"{mean}: all vectors point in similar directions, so a high cosine says little; "
            "--whiten fixes this, and so does --center --remove-top 3"
        ]
    elif report.mean_cosine >= _LEANING:
        lines = [f"{mean}: the vectors lean to one side; --center removes what they have in common"]
    elif report.sampled < _FEW:
        lines = [f"{mean}: {counted(report.sampled, 'vector')} are too few to judge how such vectors are distributed"]
    elif not may_praise:
        lines = [f"{mean}, which says nothing about other vectors"]
    else:
        lines = [f"{mean}: the vectors point in all directions, so cosines can be compared"]
    if report.top_shares[1] >= 0.3 and report.width > 3:
        lines.append(
            f"one direction holds {report.top_shares[1]:.0%} of the variance and dominates every comparison; "
            "--remove-top 1 removes it"
        )
    if report.effective_rank < report.width / 4 and report.sampled > report.width:
        lines.append(
            f"only about {report.effective_rank:.0f} of {report.width:,} dimensions are in use; "
            "fewer carry the same information (--whiten --dimensions)"
        )
    if report.zeros:
        lines.append(f"{counted(report.zeros, 'vector')} of length 0, equally far from everything")
    return lines


def _effective_rank(singular_values: Floats) -> float:
    shares = singular_values[singular_values > 0]
    if not len(shares):
        return 0.0
    shares = shares / shares.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def _require_vectors(vectors: Vectors) -> None:
    if vectors.ndim != 2 or len(vectors) < 2 or not vectors.shape[1]:
        raise InputError.must_be("the array", "at least two vectors, one per row", list(vectors.shape))


def _require_finite(sample: Floats, rows: npt.NDArray[np.int64]) -> None:
    wrong = np.flatnonzero(~np.isfinite(sample).all(axis=1))
    if len(wrong):
        raise InputError(
            expected="finite numbers in all vectors",
            found=f"a number that is not finite in vector {rows[wrong[0]] + 1:,}",
            fix="find its cause",
        )
