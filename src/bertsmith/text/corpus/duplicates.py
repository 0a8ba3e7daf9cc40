"""Documents that repeat an earlier one: exact copies, and near-duplicates found by MinHash over runs of words.

Texts are compared, not ids: see `text_words` for what makes two texts equal.

Two documents are near-duplicates if their sets of runs of `SHINGLE` words agree by at least `SIMILARITY` (Jaccard:
common runs as a fraction of all). Locality-sensitive hashing finds the candidates: each document has `BANDS` hashes of
`ROWS` minima each, and two documents are compared if one of these hashes is equal. The comparison itself is exact, so
texts that are merely similar are never removed. A pair with a similarity of 0.8 is missed with a probability of 0.2 %,
one of 0.9 with less than one in a million.

Memory: about 200 bytes for each document, and a few hundred megabytes for one batch of tokens. The result depends on
the documents and their order alone.

Source: Lee et al. (2022), "Deduplicating training data makes language models better", section 4.2 and appendix A, with
an exact comparison in place of the edit distance; Broder (1997), "On the resemblance and containment of documents".

D documents, S shingles, W words, P permutations.
"""

import collections
import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.progress import Progress
from bertsmith.base.core.randomness import GOLDEN, generator, mix
from bertsmith.text.corpus.hashing import Hashes, first_places, gram_hashes, run_hashes
from bertsmith.text.corpus.shards import Corpus, Ints

SHINGLE = 5
"""Words of a run."""
SIMILARITY = 0.8
BANDS, ROWS = 20, 6
MOST_IN_BUCKET = 16
"""Kept documents to which a document with the same band hash is compared; the later ones have other bands."""

_BLOCK = 2**15  # shingles whose minima are taken at once: small enough for the cache of a processor
_CACHED_SHINGLES = 2**22  # of documents whose shingles are kept in memory
_LARGEST = np.uint32(2**32 - 1)

Bools = npt.NDArray[np.bool_]
Band = npt.NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Duplicates:
    """The document that each document repeats.

    Args:
        of: int64 [D], the kept earlier document that it repeats; -1 if it is kept.
        similarity: float64 [D], the fraction of common runs of words with that document; 1 for a copy.
        exact: bool [D], whether it is an exact copy of an earlier document, sentence by sentence.
    """

    of: Ints
    similarity: npt.NDArray[np.float64]
    exact: Bools


def exact_duplicates(corpus: Corpus) -> Duplicates:
    """The documents with the text of an earlier one, sentence by sentence."""
    parts = [np.empty(0, dtype=np.uint64)]
    with Progress("looking for copies", corpus.num_tokens, "tokens") as progress:
        for batch in corpus.batches:
            sentences = run_hashes(batch.words, batch.word_counts)
            parts.append(run_hashes(sentences, np.diff(batch.sentence_offsets)))
            progress.advance(len(batch.tokens))
    hashes = np.concatenate(parts)
    first_of = first_equal(hashes)
    of = np.where(first_of == np.arange(len(hashes)), -1, first_of)
    for document in np.flatnonzero(of >= 0).tolist():  # two hashes may be equal by chance
        if not equal_documents(corpus, document, int(of[document])):
            of[document] = -1
    return Duplicates(of, (of >= 0).astype(np.float64), of >= 0)


def first_equal(*keys: npt.NDArray[np.uint64]) -> Ints:
    """The first place with the same keys, for each place, int64 [D].

    >>> first_equal(np.array([7, 5, 7, 5], np.uint64), np.array([1, 1, 1, 2], np.uint64)).tolist()
    [0, 1, 0, 3]
    """
    order = np.lexsort(keys)
    differs = np.any([key[order[1:]] != key[order[:-1]] for key in keys], axis=0)
    firsts = np.flatnonzero(np.concatenate([[True], differs])[: len(order)])
    first_of = np.empty(len(order), dtype=np.int64)
    first_of[order] = np.repeat(order[firsts], np.diff(firsts, append=len(order)))
    return first_of


def near_duplicates(corpus: Corpus, bands: Band | None = None) -> Duplicates:
    """The documents that are equal or nearly equal to an earlier one that is kept."""
    copies = exact_duplicates(corpus)
    of, similarity = copies.of.copy(), copies.similarity.copy()
    shingles = _ShinglesOf(corpus)
    if bands is None:
        bands = _bands(corpus)
    kept: dict[int, list[int]] = {}
    for document, groups in _candidates(bands, np.flatnonzero(of < 0)):
        for other in sorted({member for group in groups for member in kept.get(group, ())}):
            share = _jaccard(shingles[document], shingles[other])
            if share >= SIMILARITY:
                of[document], similarity[document] = other, share
                break
        else:
            for group in groups:
                inside = kept.setdefault(group, [])
                if len(inside) < MOST_IN_BUCKET:
                    inside.append(document)
    # A copy of a document that is itself removed repeats what that one repeats.
    for document in np.flatnonzero(copies.exact).tolist():
        first = int(copies.of[document])
        if of[first] >= 0:
            of[document], similarity[document] = of[first], similarity[first]
    return Duplicates(of, similarity, copies.exact)


def word_shingles(words: Hashes, offsets: Ints) -> tuple[Hashes, Ints]:
    """The hashes of the runs of words in documents, uint64 [S], and the document of each, ascending, int64 [S].

    A document shorter than a run has one hash, of all its words.

    Args:
        words: uint64 [W].
        offsets: int64 [D + 1], where the words of each document begin, then where the last document ends; no document
            is empty.
    """
    counts = np.diff(offsets)
    hashes, documents = gram_hashes(words, counts, SHINGLE)
    short = np.flatnonzero(counts < SHINGLE)
    if len(short):
        inside = np.repeat(counts < SHINGLE, counts)
        hashes = np.concatenate([hashes, run_hashes(words[inside], counts[short])])
        documents = np.concatenate([documents, short])
        order = np.argsort(documents, kind="stable")
        hashes, documents = hashes[order], documents[order]
    return hashes, documents


def band_hashes(words: Hashes, offsets: Ints) -> Band:
    """The band hashes of documents, uint32 [BANDS, D]; near-duplicates share at least one, see above."""
    hashes, documents = word_shingles(words, offsets)
    lowest = minima(hashes, documents, len(offsets) - 1)
    joined = np.zeros((BANDS, lowest.shape[1]), dtype=np.uint64)
    for row in range(ROWS):
        joined = mix(joined + GOLDEN + lowest[row::ROWS])
    return (joined >> np.uint64(32)).astype(np.uint32)


def minima(hashes: Hashes, documents: Ints, count: int) -> Band:
    """The smallest value of each document under each permutation, uint32 [P, D].

    A permutation is an affine map modulo 2**32 of the upper half of a hash.

    Args:
        hashes: uint64 [S].
        documents: the document of each, ascending, int64 [S]; each has at least one.
    """
    numbers = generator(0, "minhash").integers(2**32, size=(2, BANDS * ROWS), dtype=np.uint32)
    factors, terms = numbers[0] | np.uint32(1), numbers[1]
    result = np.full((BANDS * ROWS, count), _LARGEST, dtype=np.uint32)
    values = (hashes >> np.uint64(32)).astype(np.uint32)
    for begin in range(0, len(values), _BLOCK):
        part, inside = values[begin : begin + _BLOCK], documents[begin : begin + _BLOCK]
        firsts = np.concatenate([[0], np.flatnonzero(inside[1:] != inside[:-1]) + 1])
        rows = slice(int(inside[0]), int(inside[-1]) + 1)
        for position in range(BANDS * ROWS):
            moved = part * factors[position]
            moved += terms[position]
            lowest = np.minimum.reduceat(moved, firsts) if len(firsts) > 1 else moved.min(keepdims=True)
            np.minimum(result[position, rows], lowest, out=result[position, rows])
    return result


class _ShinglesOf:
    """The distinct runs of words of single documents, sorted; the latest documents stay in memory."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._cached: collections.OrderedDict[int, Hashes] = collections.OrderedDict()
        self._size = 0

    def __getitem__(self, document: int) -> Hashes:
        if document in self._cached:
            self._cached.move_to_end(document)
            return self._cached[document]
        words, _ = self.corpus.document_words(document)
        shingles = np.sort(word_shingles(words, np.array([0, len(words)]))[0])
        result = shingles[first_places(shingles)]
        self._cached[document] = result
        self._size += len(result)
        while self._size > _CACHED_SHINGLES and len(self._cached) > 2:
            self._size -= len(self._cached.popitem(last=False)[1])
        return result


def _bands(corpus: Corpus) -> Band:
    """The band hashes of all documents, uint32 [BANDS, D]."""
    result = [np.empty((BANDS, 0), dtype=np.uint32)]
    with Progress("looking for near-duplicates", corpus.num_tokens, "tokens") as progress:
        for batch in corpus.batches:
            result.append(band_hashes(batch.words, batch.word_offsets))
            progress.advance(len(batch.tokens))
    return np.concatenate(result, axis=1)


def _candidates(bands: Band, documents: Ints) -> Iterator[tuple[int, list[int]]]:
    """The documents that share a band hash with another, in order, each with the numbers of the groups it is in."""
    members, groups = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    total = 0
    for band in bands:
        values = band[documents]
        order = np.argsort(values, kind="stable")
        values = values[order]
        same = np.concatenate([[False], values[1:] == values[:-1]])[: len(values)]
        inside = same | np.append(same[1:], False)[: len(values)]
        numbers = total + np.cumsum(inside & ~same)
        members.append(documents[order[inside]])
        groups.append(numbers[inside])
        total = int(numbers[-1]) if len(numbers) else total
    member, group = np.concatenate(members), np.concatenate(groups)
    order = np.lexsort((group, member))
    member, group = member[order], group[order]
    edges = np.flatnonzero(np.diff(member, prepend=-1, append=-1))
    for begin, end in itertools.pairwise(edges.tolist()):
        yield int(member[begin]), group[begin:end].tolist()


def _jaccard(first: Hashes, second: Hashes) -> float:
    """Common elements as a fraction of all, of two sorted sets."""
    fewer, more = sorted((len(first), len(second)))
    if fewer < SIMILARITY * more:  # the similarity is at most that fraction
        return 0.0
    both = len(np.intersect1d(first, second, assume_unique=True))
    return both / (fewer + more - both)


def equal_documents(corpus: Corpus, first: int, second: int) -> bool:
    """Whether two documents have the same text, sentence by sentence."""
    ours, theirs = corpus.document_words(first), corpus.document_words(second)
    return np.array_equal(ours[0], theirs[0]) and np.array_equal(ours[1], theirs[1])
