"""Token shards: a corpus as a folder of Arrow files, one table row per document.

::

    corpus.json              manifest: digests, counts, settings, versions
    vocab.txt                the vocabulary of the ids
    tokenizer.json           if the pieces are not WordPieces, what splits text into them
    inputs.jsonl             one line for each file that was read or skipped
    removed.jsonl            on request, one line for each document or sentence that was removed
    shard-00000.arrow ...    source: string, tokens: large_list<uint16 or uint32>, sentence_lengths: large_list<uint32>
    held_out/                the same, for the held-out documents

Shards are memory-mapped. Arrays are NumPy views into the files; nothing is copied, and there is no Python object per
document or sentence.
"""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.errors import CorpusError
from bertsmith.base.core.settings import from_dict
from bertsmith.base.storage.files import digest_file, read_json
from bertsmith.text.corpus.manifest import HELD_OUT, MANIFEST, PIPELINE, VOCABULARY, read_manifest
from bertsmith.text.tokenizers.encoded import offsets_of
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SpecialPieces, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

SHARD_BYTES = 64 * 2**20  # of tokens
BATCH_TOKENS = 2**21

Ints = npt.NDArray[np.int64]
_NONE: Ints = np.empty(0, np.int64)
Tokens = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]
# The words of the text of one document: their hashes, uint64 [W], and how many each sentence has, uint32 [S].
Words = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32]]


def token_type(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest unsigned type that holds every id of a vocabulary.

    >>> token_type(30522).__name__, token_type(65536).__name__, token_type(119547).__name__
    ('uint16', 'uint16', 'uint32')
    """
    return np.uint16 if vocabulary_size <= 2**16 else np.uint32


def schema(dtype: type[np.unsignedinteger[Any]], *, words: bool = False) -> pa.Schema:
    """The columns of a shard with ids of type `dtype`."""
    lengths = pa.large_list(pa.field("item", pa.uint32(), nullable=False))
    tokens = pa.large_list(pa.field("item", pa.from_numpy_dtype(dtype), nullable=False))
    columns = {"source": pa.string(), "tokens": tokens, "sentence_lengths": lengths}
    if words:
        columns |= {"words": pa.large_list(pa.field("item", pa.uint64(), nullable=False)), "word_counts": lengths}
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns.items()])


class ShardWriter:
    """Writes documents, in the order in which they are added, as shards of at most `shard_bytes` of tokens.

    A shard holds at least one document, so a longer document makes a larger shard. Memory is bounded by a few times
    `BATCH_TOKENS`, or a few times the longest document.
    """

    def __init__(
        self, folder: Path, vocabulary_size: int, *, shard_bytes: int = SHARD_BYTES, words: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.dtype = token_type(vocabulary_size)
        self.shards: list[dict[str, Any]] = []
        self._schema = schema(self.dtype, words=words)
        self._shard_tokens = max(1, shard_bytes // np.dtype(self.dtype).itemsize)
        self._rows: list[tuple[Any, ...]] = []
        self._waiting = 0
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(
        self,
        source: str,
        tokens: npt.NDArray[Any],
        sentence_lengths: npt.NDArray[Any],
        words: Words | None = None,
    ) -> tuple[int, int]:
        """The location of a newly added document: (number of the shard, row in the shard).

        Args:
            tokens: its ids, unsigned [tokens].
            sentence_lengths: the number of tokens of each sentence, [sentences]; their sum is the number of tokens.
        """
        if self._writer is None or self.shards[-1]["tokens"] + len(tokens) > self._shard_tokens:
            self._close_shard()
            self._open_shard()
        shard = self.shards[-1]
        location = len(self.shards) - 1, shard["documents"]
        shard["documents"] += 1
        shard["sentences"] += len(sentence_lengths)
        shard["tokens"] += len(tokens)
        self._rows.append((source, tokens, sentence_lengths, *(words or ())))
        self._waiting += len(tokens)
        if self._waiting >= BATCH_TOKENS:
            self._flush()
        return location

    def close(self) -> None:
        """Finishes the last shard. All sizes and digests are known from then on."""
        self._close_shard()

    def totals(self) -> dict[str, int]:
        """Documents, sentences and tokens of all shards."""
        return {name: sum(shard[name] for shard in self.shards) for name in ("documents", "sentences", "tokens")}

    def _open_shard(self) -> None:
        name = f"shard-{len(self.shards):05d}.arrow"
        self.shards.append({"file": name, "documents": 0, "sentences": 0, "tokens": 0})
        self._writer = pa.ipc.new_file(str(self.folder / name), self._schema)

    def _flush(self) -> None:
        if self._rows and self._writer is not None:
            sources, *lists = zip(*self._rows, strict=True)
            types = [self.dtype, np.uint32, np.uint64, np.uint32]
            columns = [
                _lists(rows, dtype, field.type)
                for rows, dtype, field in zip(lists, types, list(self._schema)[1:], strict=False)
            ]
            self._writer.write_batch(pa.record_batch([pa.array(sources, pa.string()), *columns], schema=self._schema))
        self._rows, self._waiting = [], 0

    def _close_shard(self) -> None:
        if self._writer is not None:
            self._flush()
            self._writer.close()
            self._writer = None
            path = self.folder / self.shards[-1]["file"]
            self.shards[-1] |= {"bytes": path.stat().st_size, "digest": digest_file(path)}


def _lists(rows: Sequence[npt.NDArray[Any]], dtype: type[Any], kind: pa.DataType) -> pa.Array:
    offsets = offsets_of([len(row) for row in rows])
    values = np.concatenate(rows).astype(dtype, copy=False)
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values), type=kind)


@dataclasses.dataclass(frozen=True)
class DocumentBatch:
    """Consecutive documents as flat arrays: D documents, S sentences, T tokens. All are views into the file.

    Args:
        tokens: unsigned [T].
        token_offsets: int64 [D + 1], where the tokens of each document begin, then where the last document ends.
        sentence_lengths: uint32 [S], tokens.
        sentence_offsets: int64 [D + 1], where the sentences of each document begin, then where the last document ends.
        sources: Arrow strings [D].
        words: uint64 [W], the hashes of the words of the text, see `text_words`; only while a corpus is built.
        word_offsets: int64 [D + 1], where the words of each document begin, then where the last document ends.
        word_counts: uint32 [S], the words of each sentence.
    """

    tokens: npt.NDArray[Any]
    token_offsets: Ints
    sentence_lengths: npt.NDArray[np.uint32]
    sentence_offsets: Ints
    sources: pa.StringArray
    words: npt.NDArray[np.uint64] = dataclasses.field(default_factory=lambda: np.empty(0, np.uint64))
    word_offsets: Ints = dataclasses.field(default_factory=lambda: np.zeros(1, np.int64))
    word_counts: npt.NDArray[np.uint32] = dataclasses.field(default_factory=lambda: np.empty(0, np.uint32))

    def token_counts(self, vocabulary_size: int) -> Ints:
        """How often each id occurs, int64 [V]."""
        return np.bincount(self.tokens, minlength=vocabulary_size)


class Corpus:
    """A corpus folder, opened for reading; use `Corpus.open`."""

    def __init__(
        self, folder: Path, manifest: dict[str, Any], vocabulary: Vocabulary, batches: list[DocumentBatch]
    ) -> None:
        self.folder, self.manifest, self.vocabulary, self.batches = folder, manifest, vocabulary, batches
        self.document_lengths: Ints = np.concatenate([_NONE, *(np.diff(batch.token_offsets) for batch in batches)])
        self.sentence_counts: Ints = np.concatenate([_NONE, *(np.diff(batch.sentence_offsets) for batch in batches)])
        sizes = [len(batch.token_offsets) - 1 for batch in batches]
        self._firsts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = False, vocabulary: Vocabulary | None = None) -> "Corpus":
        """The corpus in `folder`.

        Args:
            verify: also read every shard and compare its digest; otherwise only presence, size and columns are checked.
            vocabulary: the vocabulary that the corpus must have been built with.

        Raises:
            CorpusError: `folder` is not a corpus, a file is missing, truncated or altered, or `vocabulary` differs.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        recorded = _vocabulary(folder, manifest)
        if vocabulary is not None and vocabulary.digest != recorded.digest:
            raise CorpusError(
                expected=f"the vocabulary that '{folder}' was built with "
                f"({len(recorded)} pieces, {recorded.digest[:19]})",
                found=f"another one ({len(vocabulary)} pieces, {vocabulary.digest[:19]})",
                fix=f"use '{folder / VOCABULARY}' or build the corpus again",
            )
        batches: list[DocumentBatch] = []
        for shard in manifest["shards"]:
            batches += _open_shard(folder / shard["file"], shard, schema(token_type(len(recorded))), verify=verify)
        return cls(folder, manifest, recorded, batches)

    @staticmethod
    def opened_without_shards(folder: Path) -> "Corpus":
        """The corpus in `folder` without any document: its manifest, vocabulary and tokenizer."""
        manifest = read_manifest(folder)
        return Corpus(folder, manifest, _vocabulary(folder, manifest), [])

    def prefetch(self, documents: npt.NDArray[np.integer]) -> None:
        """Fetches what is about to be read; of memory-mapped shards there is nothing to fetch."""

    def held_out(self, *, verify: bool = False) -> "Corpus | None":
        """The held-out documents as a corpus, opened as by `open`; None if there are none."""
        if not self.manifest.get("held_out", {}).get("documents"):
            return None
        return Corpus.open(self.folder / HELD_OUT, verify=verify, vocabulary=self.vocabulary)

    @property
    def rules(self) -> TextRules:
        """The rules by which the text was cleaned and split into words."""
        return from_dict(TextRules, self.manifest["tokenizer"], f"'{self.folder / MANIFEST}'")

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer with which the corpus was encoded."""
        return _pipeline(self.folder, self.manifest) or WordPieceTokenizer(self.vocabulary, self.rules)

    @property
    def num_documents(self) -> int:
        """The number of documents."""
        return len(self.document_lengths)

    @property
    def num_sentences(self) -> int:
        """The number of sentences."""
        return int(self.sentence_counts.sum())

    @property
    def num_tokens(self) -> int:
        """The number of tokens, without [CLS] and [SEP]."""
        return int(self.document_lengths.sum())

    def token_counts(self) -> Ints:
        """How often each piece of the vocabulary occurs, int64 [V]; every shard is read once."""
        counts = np.zeros(len(self.vocabulary), dtype=np.int64)
        for batch in self.batches:
            counts += batch.token_counts(len(counts))
        return counts

    def document_tokens(self, index: int, /) -> npt.NDArray[Any]:
        """The ids of a document, a view, uint16 or uint32 [its tokens]."""
        batch, row = self._place(index)
        return batch.tokens[batch.token_offsets[row] : batch.token_offsets[row + 1]]

    def document_words(self, index: int, /) -> Words:
        """The words of the text of a document, as a batch has them, and how many each sentence has; views."""
        batch, row = self._place(index)
        return (
            batch.words[batch.word_offsets[row] : batch.word_offsets[row + 1]],
            batch.word_counts[batch.sentence_offsets[row] : batch.sentence_offsets[row + 1]],
        )

    def document_sentences(self, index: int, /) -> Ints:
        """Where its sentences start, and where the last one ends: offsets into its tokens, int64 [sentences + 1]."""
        batch, row = self._place(index)
        return offsets_of(batch.sentence_lengths[batch.sentence_offsets[row] : batch.sentence_offsets[row + 1]])

    def document_source(self, index: int, /) -> str:
        """The name of the file (or module) that a document came from."""
        batch, row = self._place(index)
        return str(batch.sources[row])

    def _place(self, index: int) -> tuple[DocumentBatch, int]:
        if not 0 <= index < self.num_documents:
            raise IndexError(f"document {index} of {self.num_documents}")
        number = int(np.searchsorted(self._firsts, index, side="right")) - 1
        return self.batches[number], index - int(self._firsts[number])


def read_shard(path: Path) -> Iterator[DocumentBatch]:
    """The record batches of a shard, memory-mapped."""
    return batches_of(pa.ipc.open_file(pa.memory_map(str(path))))


def batches_of(reader: pa.RecordBatchFileReader) -> Iterator[DocumentBatch]:
    """The record batches of an open shard, as views into what it reads from."""
    for number in range(reader.num_record_batches):
        sources, tokens, lengths, *words = reader.get_batch(number).columns
        more = {}
        if words:
            more = {
                "words": words[0].values.to_numpy(),
                "word_offsets": words[0].offsets.to_numpy(),
                "word_counts": words[1].values.to_numpy(),
            }
        yield DocumentBatch(
            tokens=tokens.values.to_numpy(),
            token_offsets=tokens.offsets.to_numpy(),
            sentence_lengths=lengths.values.to_numpy(),
            sentence_offsets=lengths.offsets.to_numpy(),
            sources=sources,
            **more,
        )


def require_shard(path: Path, entry: dict[str, Any], pieces: int) -> None:
    """Checks that a file is the shard that an entry of the manifest describes."""
    _open_shard(path, entry, schema(token_type(pieces)), verify=True)


def _pipeline(folder: Path, manifest: dict[str, Any]) -> PipelineTokenizer | None:
    """The tokenizer of a corpus that does not have WordPieces."""
    if "pipeline" not in manifest:
        return None
    path, digest = folder / PIPELINE, manifest["pipeline"]["digest"]
    if not path.is_file() or digest_file(path) != digest:
        raise CorpusError(
            expected=f"'{path}' as it was when the corpus was built ({digest[:19]})",
            found="another file" if path.is_file() else "no such file",
            fix="restore it or build the corpus again",
        )
    return PipelineTokenizer(read_json(path), SpecialPieces(**manifest["pipeline"]["special"]), source=f"'{path}'")


def _vocabulary(folder: Path, manifest: dict[str, Any]) -> Vocabulary:
    path = folder / VOCABULARY
    if not path.is_file():
        raise CorpusError(expected=f"'{path}'", found="no such file", fix="restore it or build the corpus again")
    pipeline = _pipeline(folder, manifest)
    vocabulary = Vocabulary.load(path) if pipeline is None else pipeline.vocabulary
    if vocabulary.digest != manifest["vocabulary"]["digest"]:
        raise CorpusError(
            expected=f"'{path}' as it was when the corpus was built ({manifest['vocabulary']['digest'][:19]})",
            found=f"another vocabulary ({vocabulary.digest[:19]})",
            fix="restore it or build the corpus again",
        )
    return vocabulary


def _open_shard(path: Path, entry: dict[str, Any], columns: pa.Schema, *, verify: bool) -> list[DocumentBatch]:
    def damaged(expected: str, actual: str) -> CorpusError:
        return CorpusError(
            expected=f"{expected} in '{path}'", found=actual, fix="restore that shard or build the corpus again"
        )

    if not path.is_file():
        raise damaged(f"{entry['tokens']} tokens", "no such file")
    if (size := path.stat().st_size) != entry["bytes"]:
        raise damaged(
            f"{entry['bytes']} bytes", f"{size}: it was {'cut short' if size < entry['bytes'] else 'altered'}"
        )
    if verify and (digest := digest_file(path)) != entry["digest"]:
        raise damaged(entry["digest"], f"{digest}: it was altered")
    try:
        with pa.ipc.open_file(pa.memory_map(str(path))) as reader:
            if not reader.schema.equals(columns):
                raise damaged("the columns of a shard", f"{reader.schema.names}, or other types")
        batches = list(read_shard(path))
    except (pa.ArrowException, OSError) as error:
        raise damaged("Arrow data", f"damaged data ({error})") from None
    counts = sum(len(batch.token_offsets) - 1 for batch in batches), sum(len(batch.tokens) for batch in batches)
    if counts != (entry["documents"], entry["tokens"]):
        raise damaged(f"{entry['documents']} documents and {entry['tokens']} tokens", f"{counts[0]} and {counts[1]}")
    return batches
