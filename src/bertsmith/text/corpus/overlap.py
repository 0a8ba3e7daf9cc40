"""How much of an evaluation set is in a corpus: test data that a model was trained on does not test it.

Two measures: the sentences that occur verbatim in the corpus, and the runs of 13 tokens that do. A corpus has ids, no
text, so [UNK] says nothing: sentences with it are not compared, and no run contains it.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bertsmith.base.core.errors import InputError
from bertsmith.text.corpus.hashing import Hashes, HashSet, gram_hashes, has, run_hashes, without
from bertsmith.text.corpus.shards import Corpus, DocumentBatch
from bertsmith.text.documents.encodings import UTF_8, decoded, encoding_of
from bertsmith.text.documents.names import json_value
from bertsmith.text.documents.sentences import split_sentences
from bertsmith.text.documents.sources import Source, SourceStream, UnreadableError, binary, find_sources
from bertsmith.text.tokenizers.tokenizer import Tokenizer

GRAM = 13
SHORTEST = 8
"""Tokens; shorter sentences, such as "Yes, of course.", occur everywhere by chance."""


@dataclasses.dataclass(frozen=True)
class Overlap:
    """How much of an evaluation set is in the corpus.

    Args:
        unknown_sentences: the number of sentences of at least `SHORTEST` tokens with [UNK], which are not compared.
    """

    name: str
    sentences: int
    known_sentences: int
    grams: int
    known_grams: int
    unknown_sentences: int = 0

    @property
    def share(self) -> float:
        """The larger of the two fractions."""
        return max(self.known_sentences / max(self.sentences, 1), self.known_grams / max(self.grams, 1))


class EvaluationSet:
    """The hashes of an evaluation set, and which of them have been found in the corpus so far."""

    def __init__(self, name: str, sentences: Hashes, grams: Hashes, unknown: int) -> None:
        self.name, self.sentences, self.grams, self._unknown = name, HashSet(sentences), HashSet(grams), unknown
        self._known_sentences = np.zeros(len(self.sentences), dtype=np.bool_)
        self._known_grams = np.zeros(len(self.grams), dtype=np.bool_)

    @classmethod
    def of_texts(cls, name: str, texts: Iterator[str], tokenizer: Tokenizer) -> "EvaluationSet":
        """The evaluation set of the sentences of some texts."""
        encoded = tokenizer.encode_batch([sentence for text in texts for sentence in split_sentences(text)])
        lengths = encoded.lengths[encoded.lengths > 0]
        unk = tokenizer.vocabulary.unk_id
        grams = gram_hashes(*without(encoded.ids, lengths, unk), GRAM)[0]
        sentences, unknown = _long(encoded.ids, lengths, unk)
        return cls(name, sentences, grams, unknown)

    @classmethod
    def of_corpus(cls, name: str, corpus: Corpus) -> "EvaluationSet":
        """The evaluation set of all sentences of a corpus."""
        unk = corpus.vocabulary.unk_id
        sentences, unknown = zip(*(_long(b.tokens, b.sentence_lengths, unk) for b in corpus.batches), strict=True)
        grams = [document_grams(batch, unk) for batch in corpus.batches]
        return cls(name, np.concatenate(sentences), np.concatenate(grams), sum(unknown))

    def meet(self, sentences: Hashes, grams: Hashes) -> None:
        """Marks the hashes that occur in a batch of the corpus."""
        for inside, known, met in (
            (self.sentences, self._known_sentences, sentences),
            (self.grams, self._known_grams, grams),
        ):
            places = inside.places(met)
            known[places[places >= 0]] = True

    def result(self) -> Overlap:
        """The overlap with the batches seen so far."""
        known = int(self._known_sentences.sum()), int(self._known_grams.sum())
        return Overlap(self.name, len(self.sentences), known[0], len(self.grams), known[1], self._unknown)


def document_grams(batch: DocumentBatch, unk: int) -> Hashes:
    """The hashes of all runs of `GRAM` tokens without [UNK] inside the documents of a batch."""
    return gram_hashes(*without(batch.tokens, np.diff(batch.token_offsets), unk), GRAM)[0]


def _long(tokens: npt.NDArray[Any], lengths: npt.NDArray[Any], unk: int) -> tuple[Hashes, int]:
    """The hashes of the sentences that are long enough, and the number of those left out because of [UNK]."""
    is_long, is_unknown = lengths >= SHORTEST, has(tokens, lengths, unk)
    return run_hashes(tokens, lengths)[is_long & ~is_unknown], int((is_long & is_unknown).sum())


def evaluation_texts(path: Path | str) -> Iterator[str]:
    """The texts of an evaluation file: every string in JSON or Parquet, otherwise lines split at tabs."""
    for source in find_sources([path]):
        if isinstance(source, Source):
            try:
                yield from _texts_of(source)
            except (UnreadableError, ValueError, RecursionError) as reason:
                raise InputError(
                    expected=f"an evaluation file at '{source.name}'",
                    found=str(reason),
                    fix="use a file that contains text",
                ) from None


def _texts_of(source: Source) -> Iterator[str]:
    with SourceStream(source) as stream:
        if source.kind == "parquet":
            try:
                for batch in pq.ParquetFile(stream.seekable()).iter_batches(use_threads=False):
                    for row in batch.to_pylist():
                        yield from strings_in(row)
            except pa.ArrowException as error:
                raise UnreadableError(str(error)) from None
            return
        data = b"".join(iter(lambda: stream.read(2**20), b""))
    if encoding_of(data) == UTF_8 and (reason := binary(data)):
        raise UnreadableError(reason)
    text = decoded(data, name=source.shown, content="an evaluation file")
    if source.kind == "jsonl":
        for line in text.split("\n"):
            yield from strings_in(json_value(line)) if line.strip() else ()
    elif Path(source.name).suffix.lower() == ".json":
        yield from strings_in(json_value(text))
    else:
        yield from (column for line in text.splitlines() for column in line.split("\t"))


def strings_in(value: Any) -> list[str]:
    """All strings in a JSON value, in order.

    >>> strings_in({"question": "Who?", "answers": [{"text": "She."}], "id": 7})
    ['Who?', 'She.']
    """
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return list(itertools.chain.from_iterable(map(strings_in, value))) if isinstance(value, list) else []
