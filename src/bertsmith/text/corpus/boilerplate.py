"""Sentences that repeat in many documents, such as license headers and menus.

Two sentences are equal if their texts are, see `text_words`.
Only sentences of at least `SHORTEST` tokens count, because shorter ones, such as "Yes, of course.", occur everywhere by
chance; and repeats inside one document do not count, because a refrain belongs to its text.

Memory: 40 bytes for each distinct sentence, at most `MOST_COUNTED` of them at a time; a larger corpus is read several
times.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.progress import Progress
from bertsmith.text.corpus.hashing import MOST_COUNTED, HashCounts, Hashes, HashSet, run_hashes
from bertsmith.text.corpus.overlap import SHORTEST
from bertsmith.text.corpus.shards import Corpus, DocumentBatch, Ints, Words

LEAST_DOCUMENTS = 10
ONE_IN = 1000
"""Of a large corpus, a sentence must be in one document of that many."""


@dataclasses.dataclass
class Boilerplate:
    """The boilerplate of a corpus.

    Args:
        times: int64 [B], how often each occurs; counted while documents are cleaned.
        texts: the tokens of each that has occurred, by its place in `hashes`.
    """

    hashes: HashSet
    documents: Ints
    times: Ints
    texts: dict[int, npt.NDArray[Any]]

    def documents_without(
        self, batch: DocumentBatch
    ) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.uint32], Words]]:
        """The tokens, sentence lengths and words of each document of a batch without boilerplate; all may be empty."""
        positions = self.hashes.places(run_hashes(batch.words, batch.word_counts))
        positions[batch.sentence_lengths < SHORTEST] = -1
        ends = np.cumsum(batch.sentence_lengths, dtype=np.int64)
        dropped = np.flatnonzero(positions >= 0)
        self.times += np.bincount(positions[dropped], minlength=len(self.times))
        for position, first in zip(*np.unique(positions[dropped], return_index=True), strict=True):
            if int(position) not in self.texts:
                sentence = dropped[first]
                begin = ends[sentence] - batch.sentence_lengths[sentence]
                self.texts[int(position)] = np.array(batch.tokens[begin : ends[sentence]])
        stays = positions < 0
        token_stays, word_stays = np.repeat(stays, batch.sentence_lengths), np.repeat(stays, batch.word_counts)
        for number in range(len(batch.token_offsets) - 1):
            tokens = slice(batch.token_offsets[number], batch.token_offsets[number + 1])
            sentences = slice(batch.sentence_offsets[number], batch.sentence_offsets[number + 1])
            words = slice(batch.word_offsets[number], batch.word_offsets[number + 1])
            yield (
                batch.tokens[tokens][token_stays[tokens]],
                batch.sentence_lengths[sentences][stays[sentences]],
                (batch.words[words][word_stays[words]], batch.word_counts[sentences][stays[sentences]]),
            )


def least_documents(documents: int) -> int:
    """The number of documents in which a sentence of a corpus must occur to count as boilerplate.

    >>> least_documents(100), least_documents(6_000_000)
    (10, 6000)
    """
    return max(LEAST_DOCUMENTS, documents // ONE_IN)


def find_boilerplate(corpus: Corpus, least: int) -> Boilerplate:
    """The sentences that occur in at least `least` documents of a corpus."""
    parts = 1 + corpus.num_sentences // MOST_COUNTED
    repeated: list[tuple[Hashes, Ints]] = []
    with Progress("looking for boilerplate", parts * corpus.num_tokens, "tokens") as progress:
        for part in range(parts):
            counts = HashCounts(0)
            for batch in corpus.batches:
                hashes = _once_per_document(batch)
                counts.add(hashes[hashes % np.uint64(parts) == part])
                progress.advance(len(batch.tokens))
            hashes, numbers = counts.finish()
            repeated.append((hashes[numbers >= least], numbers[numbers >= least]))
    hashes = np.concatenate([hashes_of_part for hashes_of_part, _ in repeated])
    numbers = np.concatenate([counts_of_part for _, counts_of_part in repeated])[np.argsort(hashes)]
    return Boilerplate(HashSet(hashes), numbers, np.zeros_like(numbers), {})


def _once_per_document(batch: DocumentBatch) -> Hashes:
    """The hashes of the sentences that are long enough, each once for every document that it occurs in."""
    long = batch.sentence_lengths >= SHORTEST
    hashes = run_hashes(batch.words, batch.word_counts)[long]
    counts = np.diff(batch.sentence_offsets)
    documents = np.repeat(np.arange(len(counts)), counts)[long]
    order = np.lexsort((hashes, documents))
    hashes, documents = hashes[order], documents[order]
    is_new = np.ones(len(hashes), dtype=np.bool_)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | (documents[1:] != documents[:-1])
    return hashes[is_new]
