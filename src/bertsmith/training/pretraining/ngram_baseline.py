"""Count-based baselines for masked language models: predictions at masked positions from word counts.

The unigram model knows how often each piece occurs. The bigram model also knows which pieces occur next to each other:
with the pieces l and r to the left and right of a masked position,

    P(w | l, r)  is proportional to  P(w) * (P(w | l) / P(w))**a * (P(w | r) / P(w))**a,

which for a = 1 is exact if l and r are independent given w. P(w | l) is smoothed as by Witten and Bell (1991), in the
interpolated form of Chen and Goodman (1999), section 2.5: a piece that has been followed by T different pieces lends
b * T counts to the unigram model. A neighbor that is masked, or that never occurs in the corpus, has no influence. a
and b are chosen on documents of the corpus that were not counted; then those are counted as well.

Neighbors are read from the rows as a model sees them, masks and random pieces included, so the baseline has no
information that the model lacks.

M predictions, T tokens, V vocabulary.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from bertsmith.base.core.errors import CorpusError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.core.randomness import generator
from bertsmith.text.corpus.frequencies import smoothed_frequencies
from bertsmith.training.pretraining.stream import Documents

Ints = npt.NDArray[np.integer]
Floats = npt.NDArray[np.float64]

EXPONENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # a
STRENGTHS = (0.5, 1.0, 2.0, 4.0)  # b
FITTING_SHARE = 0.05  # of the documents, at least one
FITTING_POSITIONS = 1000

_COUNTED_TOKENS = 2**22  # counted at a time, which bounds the memory
_SCORED_POSITIONS = 512  # scored at a time


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountedScores:
    """Mean loss in nats, and the share of pieces among the `top` most probable; a tie counts as a miss."""

    loss: float
    top: float


class NgramBaseline:
    """The unigram and the bigram model of a corpus; use `NgramBaseline.of`.

    Args:
        pairs: how often each piece is followed by each other piece, float64 [V, V].
        exponent: a, the weight of the neighbors.
        strength: b, how much is lent to the unigram model.
    """

    def __init__(
        self,
        pairs: sp.csr_array,
        counts: Floats,
        *,
        exponent: float = 0.8,
        strength: float = 1.0,
        spare_ids: Sequence[int] = (),
    ) -> None:
        self.pairs, self.counts, self.exponent, self.strength = pairs, counts, exponent, strength
        self.unigram = smoothed_frequencies(counts, spare_ids)
        self._ascending = np.sort(self.unigram)
        self._after = _log_gains(pairs, self.unigram, strength)
        self._before = _log_gains(pairs.T.tocsr(), self.unigram, strength)

    @classmethod
    def of(cls, documents: Documents, num_pieces: int, spare_ids: Sequence[int] = ()) -> "NgramBaseline":
        """The baseline of the documents, with fitted weights if there are at least two documents."""
        order = generator(0, "n-gram fitting documents").permutation(documents.num_documents)
        apart = np.sort(order[: max(1, int(FITTING_SHARE * len(order)))])
        rest = np.setdiff1d(order, apart)
        lengths = np.asarray(documents.document_lengths)
        with Progress("counting neighbors", total=int(lengths.sum()), unit="tokens") as progress:
            counted_rest = _count(_tokens(documents, rest, progress), num_pieces)
            counted_apart = _count(_tokens(documents, apart, progress), num_pieces)
        together = [of_rest + of_apart for of_rest, of_apart in zip(counted_rest, counted_apart, strict=True)]
        if not together[1].any():
            raise CorpusError(
                expected="a corpus with text",
                found=f"{counted(documents.num_documents, 'document')} without tokens",
                fix="build it from files that contain text",
            )
        if not counted_rest[1].any() or not lengths[apart].any():
            return cls(*together, spare_ids=spare_ids)
        exponent, strength = _fitted(*counted_rest, documents, apart, spare_ids)
        return cls(*together, exponent=exponent, strength=strength, spare_ids=spare_ids)

    def unigram_scores(self, target_ids: Ints, top: int = 5) -> CountedScores:
        """The scores of the unigram model."""
        chances = self.unigram[target_ids]
        hits = self._at_least(chances) - 1 < top
        return CountedScores(loss=float(-np.log(chances).mean()), top=float(hits.mean()))

    def bigram_scores(self, token_ids: Ints, positions: Ints, target_ids: Ints, top: int = 5) -> CountedScores:
        """The scores of the bigram model.

        Args:
            token_ids: int [T], rows as a model sees them, one after the other, each with [CLS] and [SEP] at its ends.
            positions: int [M], the masked positions in them; at least one.
            target_ids: int [M], the masked pieces.
        """
        target_ids = np.asarray(target_ids, dtype=np.int64)
        losses, hits = [], []
        for part in _parts(len(positions)):
            loss, hit = self._score(self._gains(token_ids, positions[part]), target_ids[part], self.exponent, top)
            losses.append(loss)
            hits.append(hit)
        return CountedScores(loss=float(np.concatenate(losses).mean()), top=float(np.concatenate(hits).mean()))

    def losses_by_exponent(
        self, token_ids: Ints, positions: Ints, target_ids: Ints, exponents: Sequence[float]
    ) -> list[float]:
        """The loss in nats of the bigram model with each of some exponents; for the arrays see `bigram_scores`."""
        target_ids = np.asarray(target_ids, dtype=np.int64)
        sums = [0.0] * len(exponents)
        for part in _parts(len(positions)):
            gains = self._gains(token_ids, positions[part])
            for number, exponent in enumerate(exponents):
                sums[number] += float(self._score(gains, target_ids[part], exponent, top=1)[0].sum())
        return [total / len(positions) for total in sums]

    def _gains(self, token_ids: Ints, positions: Ints) -> sp.csr_array:
        """The log-probability that each piece gains from the neighbors of each position, before weighting, [M, V]."""
        none = len(self.unigram)  # the empty row of the tables
        padded = np.concatenate([[none], token_ids, [none]]).astype(np.int64)
        return self._after[padded[positions]] + self._before[padded[positions + 2]]

    def _score(
        self, gains: sp.csr_array, targets: Ints, exponent: float, top: int
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """The loss in nats of each prediction, float64 [M], and whether it is among the first `top`, bool [M].

        Only pieces that were seen next to a neighbor gain over their unigram probability; all others keep it, up to
        the normalization. So the work grows with the pairs that were seen.
        """
        rows = np.repeat(np.arange(len(targets)), np.diff(gains.indptr))

        def by_row(values: npt.NDArray[Any]) -> Floats:
            return np.bincount(rows, weights=values, minlength=len(targets)).astype(np.float64)

        usual = self.unigram[gains.indices]
        weights = usual * np.exp(exponent * gains.data)
        is_target = gains.indices == targets[rows]
        gain = exponent * by_row(gains.data * is_target)
        total = 1 + by_row(weights - usual)
        weight = self.unigram[targets] * np.exp(gain)
        better_seen = by_row((weights >= weight[rows]) & ~is_target)
        better_as_usual = by_row((usual >= weight[rows]) & ~is_target)
        better_unseen = self._at_least(weight) - (self.unigram[targets] >= weight) - better_as_usual
        return np.log(total) - np.log(self.unigram[targets]) - gain, better_seen + better_unseen < top

    def _at_least(self, weights: Floats) -> npt.NDArray[np.int64]:
        """The number of pieces whose unigram probability is at least each of the weights."""
        return np.asarray(len(self._ascending) - np.searchsorted(self._ascending, weights, side="left"))


def _log_gains(pairs: sp.csr_array, unigram: Floats, strength: float) -> sp.csr_array:
    """For each neighbor, log(P(w | neighbor) / P(w)) above what unseen pieces get, float64 [V + 1, V].

    The empty last row belongs to a position without a neighbor.
    """
    kinds = np.diff(pairs.indptr)
    lent = strength * np.repeat(kinds, kinds) * unigram[pairs.indices]
    indptr = np.append(pairs.indptr, pairs.indptr[-1])
    shape = (pairs.shape[0] + 1, pairs.shape[1])
    return sp.csr_array((np.log1p(pairs.data / lent), pairs.indices, indptr), shape=shape)


def _tokens(documents: Documents, chosen: Iterable[int], progress: Progress) -> Iterator[Ints]:
    for document in map(int, chosen):
        tokens = documents.document_tokens(document)
        yield tokens
        progress.advance(len(tokens))


def _count(documents: Iterator[Ints], num_pieces: int) -> tuple[sp.csr_array, Floats]:
    """How often each piece follows each other piece in a document, float64 [V, V], and how often each occurs [V]."""
    pairs, counts = sp.csr_array((num_pieces, num_pieces), dtype=np.float64), np.zeros(num_pieces)
    waiting: list[Ints] = []
    for tokens in itertools.chain(documents, [None]):
        if tokens is not None:
            counts += np.bincount(tokens, minlength=num_pieces)
            waiting.append(tokens)
        if waiting and (tokens is None or sum(map(len, waiting)) >= _COUNTED_TOKENS):
            left = np.concatenate([document[:-1] for document in waiting])
            right = np.concatenate([document[1:] for document in waiting])
            counted_pairs = sp.coo_array(
                (np.ones(len(left)), (left.astype(np.int32), right.astype(np.int32))), pairs.shape
            )
            pairs, waiting = pairs + counted_pairs.tocsr(), []  # tocsr adds up equal pairs
    return pairs, counts


def _parts(number: int) -> Iterator[slice]:
    return (slice(start, start + _SCORED_POSITIONS) for start in range(0, number, _SCORED_POSITIONS))


def _fitted(
    pairs: sp.csr_array, counts: Floats, documents: Documents, apart: Ints, spare_ids: Sequence[int]
) -> tuple[float, float]:
    """The weights (a, b) with the lowest loss at random positions of documents that were not counted."""
    tokens = np.concatenate([documents.document_tokens(int(document)) for document in apart])
    rng = generator(0, "n-gram fitting positions")
    positions = rng.choice(len(tokens), size=min(FITTING_POSITIONS, len(tokens)), replace=False)
    result: dict[tuple[float, float], float] = {}
    for strength in STRENGTHS:
        model = NgramBaseline(pairs, counts, strength=strength, spare_ids=spare_ids)
        losses = model.losses_by_exponent(tokens, positions, tokens[positions], EXPONENTS)
        result |= {(exponent, strength): loss for exponent, loss in zip(EXPONENTS, losses, strict=True)}
    return min(result, key=lambda weights: result[weights])
