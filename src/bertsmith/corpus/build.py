"""Text to a corpus folder: read, encode, write shards, hold out some documents for evaluation.

The same text, vocabulary and settings give the same bytes for any number of processes.
"""

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import bertsmith
from bertsmith.corpus.encode import EncodedBlock, Item, default_workers, encode_blocks
from bertsmith.corpus.hashing import DRAWS, draw_of
from bertsmith.corpus.readers import (
    MOST_SENTENCES,
    Document,
    FileRead,
    ReadReport,
    document_blocks,
    read_blocks,
)
from bertsmith.corpus.removal import Removal, RemovalSettings
from bertsmith.corpus.shards import (
    FORMAT,
    FORMAT_VERSION,
    HELD_OUT,
    INPUTS,
    MANIFEST,
    SHARD_BYTES,
    VOCABULARY,
    ShardWriter,
    read_shard,
)
from bertsmith.corpus.sources import STDIN, Skipped, total_bytes
from bertsmith.corpus.weights import Weights
from bertsmith.errors import InputError
from bertsmith.files import FolderKind, atomic_folder, digest_file, require_outside, write_json
from bertsmith.progress import Progress, counted
from bertsmith.settings import help_field, require, require_limits, require_number, to_dict
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import Vocabulary

MOST_WORKERS = 1024  # processes; each needs memory of its own
CORPUS_FOLDER = FolderKind("a corpus", ((MANIFEST,),))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSettings(RemovalSettings):
    """How a corpus is built from text."""

    held_out: float = help_field(0.01, "fraction of the documents held out for evaluation; at least one document")
    shard_bytes: int = help_field(SHARD_BYTES, "maximum bytes of tokens per shard", most=2**40)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_limits(self)
        require(
            0 <= self.held_out < 1,
            expected="a held-out fraction of at least 0 and below 1",
            found=self.held_out,
            fix="try 0.01",
        )
        require(self.shard_bytes > 0, expected="a positive shard size", found=self.shard_bytes, fix="leave it out")


def build_corpus(
    texts: Iterable[Path | str] | Iterable[Document],
    tokenizer: Tokenizer,
    out: Path | str,
    *,
    settings: CorpusSettings | None = None,
    held_out: float | None = None,
    workers: int | None = None,
    replace: bool = False,
    weights: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The manifest of the corpus built in the folder `out`.

    Args:
        texts: files, folders or `-` for stdin (see `readers`), or documents that have already been read.
        held_out: the fraction of documents to hold out; overrides `settings`.
        workers: the number of processes that parse and encode; None means one per core.
        weights: how often the documents of a file or folder are written, see `weights`; 1 if it has none.
        replace: whether an existing corpus at `out` is replaced once the new one is complete. Other folders never are.

    Raises:
        InputError: a file cannot be read (see `read_documents`), there is no text at all, or `out` exists, or is or
            contains one of the inputs.
        ConfigError: `workers` is not positive, or the tokenizer is not one of WordPieces.
    """
    out = Path(out)
    settings = settings or CorpusSettings()
    if held_out is not None:
        settings = dataclasses.replace(settings, held_out=held_out)
    require(
        tokenizer.settings == to_dict(tokenizer.rules),
        expected="a tokenizer of WordPieces, which a vocabulary and text rules define, for a corpus",
        found=f"a tokenizer of {tokenizer.kind}",
        fix="name a vocab.txt, or a model with one",
    )
    require(workers is None or workers > 0, expected="at least one worker", found=workers, fix="leave it out")
    require_number("workers", workers or 1, most=MOST_WORKERS)
    given = list(texts) if not isinstance(texts, Iterator) else texts
    if isinstance(given, list):
        require_outside(out, [one for one in given if not isinstance(one, Document) and str(one) != STDIN])
    with atomic_folder(out, replace=CORPUS_FOLDER if replace else False) as folder:
        if isinstance(given, list) and not any(isinstance(one, Document) for one in given):
            paths = [one for one in given if not isinstance(one, Document)]
            total = total_bytes(paths)
            items: Iterator[Any] = read_blocks(paths, settings)
            unit = "bytes"
        else:
            total = sum(map(_size, given)) if isinstance(given, list) else None
            items, unit = _documents(given), "characters"
        workers = workers or default_workers(DRAWS if total is None else total)
        with (
            open(folder / INPUTS, "w", encoding="utf-8") as inputs,
            Progress("building the corpus", total, unit) as progress,
        ):
            build = _Build(folder, tokenizer, settings, inputs, Weights(weights) if weights else None)
            for item in encode_blocks(items, tokenizer, workers=workers):
                build.take(item)
                progress.advance(item.read_bytes if isinstance(item, EncodedBlock) else 0)
            return build.finish()


def _size(document: Any) -> int:
    return sum(map(len, document.sentences))


def _documents(documents: Iterable[Any]) -> Iterator[Any]:
    """Blocks of documents, followed by one record for all of them under the name `documents`."""
    digest = hashlib.sha256()
    size = 0
    for block in document_blocks(documents):
        for document in block.data:
            data = "\n".join([document.source, *document.sentences, ""]).encode("utf-8", "surrogatepass")
            digest.update(data)
            size += len(data)
        yield block
    yield FileRead("documents", "documents", size, f"sha256:{digest.hexdigest()}", 0)


class _Build:
    """A corpus folder under construction: joins parts into documents, splits off the held-out ones, keeps counts."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        settings: CorpusSettings,
        inputs: IO[str],
        weights: Weights | None = None,
    ) -> None:
        self._weights = weights
        self.folder, self.tokenizer, self.settings, self.inputs = folder, tokenizer, settings, inputs
        self.vocabulary: Vocabulary = tokenizer.vocabulary
        self.report = ReadReport()
        self.words = self.sentences_without_tokens = self.documents_without_tokens = 0
        size = settings.shard_bytes
        self.main = ShardWriter(folder, len(self.vocabulary), shard_bytes=size)
        self.kept = ShardWriter(folder / HELD_OUT, len(self.vocabulary), shard_bytes=size)
        self._removal = Removal(folder, tokenizer, settings) if settings.removes else None
        self._open: list[Any] = []
        self._open_sentences = self._key = 0
        # The lowest draw so far, whose document would be held out first, and where that document was written.
        self._lowest: tuple[int, tuple[int, int]] | None = None
        self._file: dict[str, int] = {}

    def take(self, item: Item) -> None:
        """Processes the next encoded block or file record."""
        if not isinstance(item, EncodedBlock):
            self.report.add_file(item)
            line = dataclasses.asdict(item) if isinstance(item, Skipped) else dataclasses.asdict(item) | self._file
            self.inputs.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file = {}
            return
        self.report.add_counts(item.counts)
        self.words += item.words
        self.sentences_without_tokens += item.sentences_without_tokens
        for name, count in (("encoding_errors", item.counts.encoding_errors), ("words", item.words)):
            self._file[name] = self._file.get(name, 0) + count
        for part in item.parts:
            self._add(part)

    def finish(self) -> dict[str, Any]:
        """Removes what is to be removed, closes the shards, balances the split, writes the manifests.

        Returns:
            The main manifest.
        """
        self._close_document()
        removed = {} if self._removal is None else self._removal.finish(self._write)
        self.main.close()
        self.kept.close()
        if removed and self._removal is not None:
            self._removal.waiting.remove()
        if not self.main.shards and not self.kept.shards:
            raise InputError(
                expected="text with at least one sentence",
                found=f"none in {counted(self.report.files, 'file')} ({self.report.skipped_files:,} skipped)",
                fix="use files that contain text; in folders, only .txt, .jsonl and .parquet files are read",
            )
        how = self._balance()
        self.vocabulary.save(self.folder / VOCABULARY)
        self.inputs.flush()
        held_out: dict[str, Any] = {"share": self.settings.held_out, "how": how, **self.kept.totals()}
        if self.kept.shards:
            self.vocabulary.save(self.folder / HELD_OUT / VOCABULARY)
            write_json(self.folder / HELD_OUT / MANIFEST, self._manifest(self.kept, {"part": "held out"}))
        else:
            (self.folder / HELD_OUT).rmdir()
        more: dict[str, Any] = {"part": "training", "held_out": held_out, **({"removed": removed} if removed else {})}
        if self._weights is not None:
            more["sources"] = self._weights.record()
        manifest = self._manifest(self.main, more)
        write_json(self.folder / MANIFEST, manifest)
        return manifest

    def _add(self, part: Any) -> None:
        self._open.append(part)
        self._open_sentences += len(part.sentence_lengths)
        self._key += part.key
        if part.ends:
            self._close_document()
        elif self._open_sentences >= MOST_SENTENCES:
            self.report.cut_documents += 1
            self._close_document()

    def _close_document(self) -> None:
        """Writes the open document, or lets it wait until it is known what is removed."""
        parts, key = self._open, self._key
        self._open, self._open_sentences, self._key = [], 0, 0
        lengths: npt.NDArray[Any] = np.concatenate([np.empty(0, np.uint32), *(part.sentence_lengths for part in parts)])
        if not len(lengths):
            self.documents_without_tokens += key > 0
            return
        tokens = parts[0].tokens if len(parts) == 1 else np.concatenate([part.tokens for part in parts])
        draw = draw_of(key)
        lengths = lengths.astype(np.uint32, copy=False)
        if self._removal is None:
            self._write(parts[0].source, tokens, lengths, draw)
        else:
            self._removal.waiting.add(parts[0].source, tokens, lengths, draw)

    def _write(self, source: str, tokens: npt.NDArray[Any], lengths: npt.NDArray[Any], draw: int) -> None:
        """Writes a document to the training or held-out side, depending on its content."""
        is_held_out = draw < self.settings.held_out * DRAWS
        writer = self.kept if is_held_out else self.main
        copies = 1 if is_held_out or self._weights is None else self._weights.copies(source, len(tokens), draw)
        for _ in range(copies):
            place = writer.add(source, tokens, lengths)
        if copies and (self._lowest is None or draw < self._lowest[0]):
            self._lowest = draw, place

    def _balance(self) -> str:
        """A description of the split, after making sure that neither side is empty."""
        if not self.settings.held_out:
            return "nothing is held out"
        if not self.main.shards:
            self.main, self.kept = self._swapped()
        elif self.kept.shards:
            return "documents by the hash of their content"
        # Copies of the document that would be held out instead stay on the main side.
        require(
            self._weights is None,
            expected="enough documents for one of them to be held out by its content, with weights",
            found=counted(self.main.totals()["documents"], "document"),
            fix="raise --held-out, or leave --weight out",
        )
        assert self._lowest is not None
        totals = self.main.totals()
        if totals["documents"] > 1:
            self._move(self._lowest[1], 0)
            return "one document, the one with the lowest content hash"
        if totals["sentences"] > 1:
            moved = min(max(1, round(self.settings.held_out * totals["sentences"])), totals["sentences"] - 1)
            self._move(self._lowest[1], totals["sentences"] - moved)
            return f"the last {counted(moved, 'sentence')} of the only document"
        return "nothing: the corpus is a single sentence"

    def _swapped(self) -> tuple[ShardWriter, ShardWriter]:
        """Turns the held-out side into the main one, if every document was drawn for it."""
        for shard in self.kept.shards:
            (self.kept.folder / shard["file"]).rename(self.main.folder / shard["file"])
        self.main.shards, self.kept.shards = self.kept.shards, self.main.shards
        return self.main, self.kept

    def _move(self, place: tuple[int, int], stays: int) -> None:
        """Moves the document at `place` on the main side, from sentence `stays` on, to the held-out side."""
        entry = self.main.shards[place[0]]
        path = self.folder / entry["file"]
        again = ShardWriter(self.folder / "again", len(self.vocabulary), shard_bytes=2**62)
        row = 0
        for batch in read_shard(path):
            for number, source in enumerate(batch.sources.to_pylist()):
                tokens = batch.tokens[batch.token_offsets[number] : batch.token_offsets[number + 1]]
                lengths = batch.sentence_lengths[batch.sentence_offsets[number] : batch.sentence_offsets[number + 1]]
                if row == place[1]:
                    cut = int(lengths[:stays].sum())
                    self.kept.add(source, tokens[cut:], lengths[stays:])
                    tokens, lengths = tokens[:cut], lengths[:stays]
                if len(lengths):
                    again.add(source, tokens, lengths)
                row += 1
        again.close()
        self.kept.close()
        path.unlink()
        for shard in again.shards:
            (again.folder / shard["file"]).rename(path)
        self.main.shards[place[0] : place[0] + 1] = [shard | {"file": entry["file"]} for shard in again.shards]
        again.folder.rmdir()

    def _manifest(self, writer: ShardWriter, more: dict[str, Any]) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            **more,
            **writer.totals(),
            "token_type": np.dtype(writer.dtype).name,
            "vocabulary": {"file": VOCABULARY, "pieces": len(self.vocabulary), "digest": self.vocabulary.digest},
            "tokenizer": to_dict(self.tokenizer.rules),
            "settings": to_dict(self.settings),
            "read": {
                **dataclasses.asdict(self.report),
                "words": self.words,
                "sentences_without_tokens": self.sentences_without_tokens,
                "documents_without_tokens": self.documents_without_tokens,
            },
            "inputs": {"file": INPUTS, "digest": digest_file(self.folder / INPUTS)},
            "versions": {
                "bertsmith": bertsmith.__version__,
                "numpy": np.__version__,
                "pyarrow": pa.__version__,
                "python": platform.python_version(),
            },
            "shards": writer.shards,
        }
