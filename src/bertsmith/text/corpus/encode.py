"""Blocks of text to blocks of ids, in one or several processes, in order.

The result does not depend on which process encodes a block: a block is parsed and encoded from its own bytes alone.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CorpusError, InputError
from bertsmith.base.machine.processor import available_cores
from bertsmith.base.processes.workers import worker_pool
from bertsmith.text.corpus import duplicates
from bertsmith.text.corpus.hashing import sentence_key
from bertsmith.text.corpus.shards import Words, token_type
from bertsmith.text.corpus.text_words import words_of_text
from bertsmith.text.documents.parsing import BlockCounts, TextBlock, parse
from bertsmith.text.documents.readers import FileRead
from bertsmith.text.documents.sources import BLOCK_BYTES, Skipped
from bertsmith.text.tokenizers.encoded import offsets_of
from bertsmith.text.tokenizers.tokenizer import Tokenizer

_WAITING_PER_WORKER = 3


@dataclasses.dataclass(frozen=True)
class EncodedPart:
    """The ids of one document, or of the part of it in one block.

    Args:
        tokens: unsigned [T].
        key: the sum of the checksums of its sentences; determines which documents are held out.
        words: the words of its text, see `text_words`, if requested.
        bands: the band hashes of these words, uint32 [BANDS], if requested and there are ids.
        url: the URL of the document, in the part with which it begins; "" if it has none.
    """

    source: str
    tokens: npt.NDArray[Any]
    sentence_lengths: npt.NDArray[np.uint32]
    key: int
    ends: bool
    words: Words | None = None
    bands: duplicates.Band | None = None
    url: str = ""


@dataclasses.dataclass(frozen=True)
class EncodedBlock:
    """The result for one block; `failure` holds the three parts of the error if it could not be parsed.

    Characters that are not white space and [UNK] are counted if the block has a language.
    """

    source: str
    parts: list[EncodedPart]
    counts: BlockCounts
    words: int = 0
    sentences_without_tokens: int = 0
    read_bytes: int = 0
    failure: tuple[str, str, str] | None = None
    language: str = ""
    characters: int = 0
    unknown: int = 0


Item = EncodedBlock | FileRead | Skipped


class BlockEncoder:
    """Turns blocks of text into blocks of ids; sentences without tokens are dropped and counted."""

    def __init__(self, tokenizer: Tokenizer, *, words: bool = False, fingerprints: bool = False) -> None:
        self.tokenizer, self.words, self.fingerprints = tokenizer, words, fingerprints

    def __call__(self, block: TextBlock) -> EncodedBlock:
        """The ids of a block."""
        encoded = _encode_block(block, self.tokenizer, self.words)
        filled = [part.words[0] for part in encoded.parts if part.words is not None and len(part.tokens)]
        if not (filled and self.fingerprints):
            return encoded
        hashes = iter(duplicates.band_hashes(np.concatenate(filled), offsets_of([len(words) for words in filled])).T)
        parts = [dataclasses.replace(part, bands=next(hashes)) if len(part.tokens) else part for part in encoded.parts]
        return dataclasses.replace(encoded, parts=parts)


def _encode_block(block: TextBlock, tokenizer: Tokenizer, with_words: bool) -> EncodedBlock:
    try:
        parts, counts = parse(block)
    except InputError as error:
        # An exception with keyword-only arguments cannot be passed between processes.
        return EncodedBlock(block.source, [], BlockCounts(), failure=(error.expected, error.found, error.fix))
    sentences = [sentence for part in parts for sentence in part.sentences]
    encoded = tokenizer.encode_batch(sentences)
    tokens = encoded.ids.astype(token_type(len(tokenizer.vocabulary)))
    lengths = encoded.lengths
    keys = [sentence_key(sentence) for sentence in sentences]
    if with_words:
        filled = [sentence for sentence, length in zip(sentences, lengths.tolist(), strict=True) if length]
        words, counts_of_words = words_of_text(filled, lowercase=tokenizer.rules.lowercase)
        # Where the sentences with tokens begin, and of each where its words begin.
        places, word_edges = offsets_of((lengths > 0).astype(np.int64)), offsets_of(counts_of_words)
    result = []
    first = 0
    for part in parts:
        last = first + len(part.sentences)
        inside = lengths[first:last]
        part_words = None
        if with_words:
            begin, end = places[first], places[last]
            part_words = words[word_edges[begin] : word_edges[end]], counts_of_words[begin:end]
        result.append(
            EncodedPart(
                source=part.source,
                tokens=tokens[encoded.offsets[first] : encoded.offsets[last]],
                sentence_lengths=inside[inside > 0].astype(np.uint32),
                key=sum(keys[first:last]),
                ends=part.ends,
                words=part_words,
                url=part.url,
            )
        )
        first = last
    chunks = " ".join(sentences).split()
    encoded_block = EncodedBlock(block.source, result, counts, len(chunks), int((lengths == 0).sum()), block.read_bytes)
    if not block.language:
        return encoded_block
    return dataclasses.replace(
        encoded_block,
        language=block.language,
        characters=sum(map(len, chunks)),
        unknown=int(np.count_nonzero(tokens == tokenizer.vocabulary.unk_id)),
    )


def encode_blocks(
    items: Iterable[TextBlock | FileRead | Skipped],
    tokenizer: Tokenizer,
    *,
    workers: int,
    words: bool = False,
    fingerprints: bool = False,
) -> Iterator[Item]:
    """Every item in order, with blocks encoded by `workers` processes (1: in this process)."""
    encoder = BlockEncoder(tokenizer, words=words, fingerprints=fingerprints)
    if workers <= 1:
        for item in items:
            yield _checked(encoder(item) if isinstance(item, TextBlock) else item)
        return
    waiting: collections.deque[Future[EncodedBlock] | FileRead | Skipped] = collections.deque()
    with worker_pool(workers, CorpusError, _start_worker, encoder) as pool:
        for item in items:
            waiting.append(pool.submit(_encode_here, item) if isinstance(item, TextBlock) else item)
            while len(waiting) > _WAITING_PER_WORKER * workers:
                yield _checked(_done(waiting.popleft()))
        while waiting:
            yield _checked(_done(waiting.popleft()))


def default_workers(total_bytes: int) -> int:
    """One process per core, but only one for a text so small that starting more takes longer than the work."""
    return min(available_cores(), 1 + total_bytes // (16 * BLOCK_BYTES))


def _done(item: "Future[EncodedBlock] | FileRead | Skipped") -> Item:
    return item.result() if isinstance(item, Future) else item


def _checked(item: Item) -> Item:
    if isinstance(item, EncodedBlock) and item.failure is not None:
        expected, actual, fix = item.failure
        raise InputError(expected=expected, found=actual, fix=fix)
    return item


# The encoder of a worker process, received once when the process starts.
_ENCODERS: list[BlockEncoder] = []


def _start_worker(encoder: BlockEncoder) -> None:
    _ENCODERS[:] = [encoder]


def _encode_here(block: TextBlock) -> EncodedBlock:
    return _ENCODERS[0](block)
