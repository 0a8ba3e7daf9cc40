"""Text to a corpus folder: read, encode, write shards, hold out some documents for evaluation.

The same text, vocabulary and settings give the same bytes for any number of processes.
"""

import dataclasses
import hashlib
import json
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.core.requests import takes
from bertsmith.base.core.settings import require, require_number, to_dict
from bertsmith.base.core.version import __version__
from bertsmith.base.storage.files import FORMAT, FolderKind, atomic_folder, digest_file, require_outside, write_json
from bertsmith.text.corpus.document_urls import DocumentUrl
from bertsmith.text.corpus.encode import EncodedBlock, Item, default_workers, encode_blocks
from bertsmith.text.corpus.hashing import DRAWS, draw_of
from bertsmith.text.corpus.language_sampling import LanguageSampler
from bertsmith.text.corpus.manifest import HELD_OUT, INPUTS, KIND, MANIFEST, PIPELINE, VOCABULARY
from bertsmith.text.corpus.removal import Removal
from bertsmith.text.corpus.request import BuildRequest, CorpusSettings
from bertsmith.text.corpus.shards import ShardWriter
from bertsmith.text.corpus.split import SplitWriter
from bertsmith.text.corpus.weights import Weights
from bertsmith.text.documents.languages import SamplingSettings, read_languages
from bertsmith.text.documents.readers import (
    MOST_SENTENCES,
    Document,
    FileRead,
    ReadReport,
    document_blocks,
    read_blocks,
)
from bertsmith.text.documents.sources import STDIN, Skipped, total_bytes
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.text.tokenizers.wordpiece import ADDED_TOKENS

_ANY_WORD = "a"
MOST_WORKERS = 1024  # processes; each needs memory of its own
CORPUS_FOLDER = FolderKind("a corpus", ((MANIFEST,),))


@takes(BuildRequest)
def build_corpus(request: BuildRequest) -> dict[str, Any]:
    """The manifest of the corpus built in the folder `out`.

    With `replace`, an existing corpus is replaced once the new one is complete; other folders never are.

    Raises:
        InputError: a file cannot be read, there is no text at all, or `out` exists or contains one of the inputs.
        ConfigError: `workers` is not positive, or the tokenizer does not fit a corpus: it has no pieces for the start
            and the end of a row, or the ids of a sentence depend on the space before it.
    """
    out, tokenizer, workers, weights = Path(request.out), request.tokenizer, request.workers, request.weights
    settings, sampling = request.part(CorpusSettings), request.part(SamplingSettings)
    require_fit(tokenizer)
    require(workers is None or workers > 0, expected="at least one worker", found=workers, fix="leave it out")
    require_number("workers", workers or 1, most=MOST_WORKERS)
    by_language = sampling if sampling.languages else None
    require(
        by_language is None or not weights,
        expected="either languages, whose shares follow from their sizes, or weights of sources",
        found="both",
        fix="leave one out",
    )
    require(
        by_language is None or not settings.files_continue,
        expected="documents that end with their file (with languages)",
        found="files_continue",
        fix="leave --files-continue out",
    )
    texts = request.texts
    sources = list(texts) if not isinstance(texts, Iterator) else texts
    if isinstance(sources, list):
        require_outside(out, [text for text in sources if not isinstance(text, Document) and str(text) != STDIN])
    with atomic_folder(out, replace=CORPUS_FOLDER if request.replace else False) as folder:
        if isinstance(sources, list) and not any(isinstance(text, Document) for text in sources):
            paths = [text for text in sources if not isinstance(text, Document)]
            total = total_bytes(paths)
            read = read_blocks if by_language is None else read_languages
            items: Iterator[Any] = read(paths, settings, url_column=settings.compared_urls)
            unit = "bytes"
        else:
            require(
                by_language is None,
                expected="folders of languages (with languages)",
                found="documents that have already been read",
                fix="name the folders, or leave languages out",
            )
            paths = []
            total = sum(map(_size, sources)) if isinstance(sources, list) else None
            items, unit = _documents(sources), "characters"
        workers = workers or default_workers(DRAWS if total is None else total)
        with (
            open(folder / INPUTS, "w", encoding="utf-8", newline="\n") as inputs,
            Progress("building the corpus", total, unit) as progress,
        ):
            sampler = None
            if by_language is not None:
                sampler = LanguageSampler(folder, paths, tokenizer, by_language, settings.held_out)
            build = _Build(folder, tokenizer, settings, inputs, sampler, Weights(weights) if weights else None)
            if request.encode is None:
                encoded = encode_blocks(
                    items, tokenizer, workers=workers, words=settings.removes, fingerprints=settings.fingerprints
                )
            else:
                encoded = request.encode(paths)
            for item in encoded:
                build.take(item)
                progress.advance(item.read_bytes if isinstance(item, EncodedBlock) else 0)
            return build.finish()


def require_fit(tokenizer: Tokenizer, instead: str = ", or a vocab.txt") -> None:
    """Refuses a tokenizer whose ids of single sentences would not be the rows that its model reads."""
    require(
        isinstance(tokenizer, Tokenizer),
        expected="a tokenizer",
        found=type(tokenizer).__name__,
        fix="take that of `bertsmith.learn_vocabulary` or of `bertsmith.load`",
    )
    special, template = tokenizer.vocabulary.special, tokenizer.template
    require(
        ADDED_TOKENS not in tokenizer.settings,
        expected="a tokenizer without added tokens besides its special pieces, for a corpus",
        found="one with others",
        fix=f"name a model without added tokens{instead}",
    )
    require(
        bool(special.cls and special.sep) and bool(template.start and template.end),
        expected="a tokenizer with pieces for the start and the end of a row, for a corpus",
        found="one without",
        fix="learn a vocabulary (`bertsmith vocab`), or name a model that was trained with such pieces",
    )
    require(
        np.array_equal(tokenizer.encode(_ANY_WORD), tokenizer.encode(f" {_ANY_WORD}")),
        expected="a tokenizer for which the space before a sentence makes no difference, for a corpus",
        found="one whose pieces include that space, as those of RoBERTa do",
        fix="learn a vocabulary (`bertsmith vocab --method wordpiece` or bpe), or name a model with WordPieces or "
        "SentencePieces",
    )


def _size(document: Any) -> int:
    return sum(map(len, document.sentences))


def _documents(documents: Iterable[Any]) -> Iterator[Any]:
    """Blocks of documents, followed by one record for all of them under the name `documents`."""
    digest = hashlib.sha256()
    size = 0
    for block in document_blocks(documents):
        for document in block.data:
            url = [document.url] if document.url else []
            data = "\n".join([document.source, *url, *document.sentences, ""]).encode("utf-8", "surrogatepass")
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
        sampler: LanguageSampler | None = None,
        weights: Weights | None = None,
    ) -> None:
        self._weights = weights
        self.folder, self.tokenizer, self.settings, self.inputs = folder, tokenizer, settings, inputs
        self.vocabulary: Vocabulary = tokenizer.vocabulary
        self.report = ReadReport()
        self.words = self.sentences_without_tokens = self.documents_without_tokens = 0
        self.split = SplitWriter(
            folder,
            len(self.vocabulary),
            share=settings.held_out,
            shard_bytes=settings.shard_bytes,
            weights=weights,
        )
        self._removal = Removal(folder, tokenizer, settings) if settings.removes else None
        self._sampler = sampler
        # Where a document goes once it is complete and not removed.
        self._store = self.split.write if sampler is None else sampler.add
        self._open: list[Any] = []
        self._open_sentences = self._key = 0
        self._url, self._number = "", 0  # of the document as it was read, which may be cut into several
        self._part = 0  # the number of its part that is open
        self._file: dict[str, Any] = {}

    def take(self, item: Item) -> None:
        """Processes the next encoded block or file record."""
        if not isinstance(item, EncodedBlock):
            self.report.add_file(item)
            line = dataclasses.asdict(item) if isinstance(item, Skipped) else dataclasses.asdict(item) | self._file
            self.inputs.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._file = {}
            return
        self.report.add_counts(item.counts, item.source)
        self.words += item.words
        self.sentences_without_tokens += item.sentences_without_tokens
        for name, count in (("encoding_errors", item.counts.encoding_errors), ("words", item.words)):
            self._file[name] = self._file.get(name, 0) + count
        if self._sampler is not None:
            self._sampler.count(item)
            self._file["language"] = item.language
        for part in item.parts:
            self._add(part)

    def finish(self) -> dict[str, Any]:
        """Removes what is to be removed, closes the shards, balances the split, writes the manifests."""
        self._close_document()
        removed = {} if self._removal is None else self._removal.finish(self._store)
        languages = {} if self._sampler is None else self._sampler.finish(*self.split.writers)
        self.split.close()
        if removed and self._removal is not None:
            self._removal.waiting.remove()
        if self._weights is not None:
            self._weights.check()
        if self.split.is_empty:
            raise InputError(
                expected="text with at least one sentence",
                found=f"none in {counted(self.report.files, 'file')} ({self.report.skipped_files:,} skipped)",
                fix="use files that contain text; in folders, only .txt, .jsonl and .parquet files are read",
            )
        how = "documents of each language by the hash of their content"
        if self._sampler is None:
            how = self.split.balance()
        self._save_vocabulary(self.folder)
        self.inputs.flush()
        held_out: dict[str, Any] = {"share": self.settings.held_out, "how": how, **self.split.held_out.totals()}
        if self.split.held_out.shards:
            self._save_vocabulary(self.folder / HELD_OUT)
            write_json(self.folder / HELD_OUT / MANIFEST, self._manifest(self.split.held_out, {"part": "held out"}))
        else:
            (self.folder / HELD_OUT).rmdir()
        more: dict[str, Any] = {"part": "training", "held_out": held_out, **({"removed": removed} if removed else {})}
        more |= {"languages": languages} if languages else {}
        if self._weights is not None:
            more["sources"] = self._weights.record()
        manifest = self._manifest(self.split.training, more)
        write_json(self.folder / MANIFEST, manifest)
        return manifest

    def _save_vocabulary(self, folder: Path) -> None:
        """Writes the pieces, and the pipeline that makes them unless it is ours."""
        self.vocabulary.save(folder / VOCABULARY)
        if isinstance(self.tokenizer, PipelineTokenizer):
            write_json(folder / PIPELINE, self.tokenizer.description)

    def _add(self, part: Any) -> None:
        self._open.append(part)
        self._open_sentences += len(part.sentence_lengths)
        self._key += part.key
        self._url = self._url or part.url
        if part.ends:
            self._close_document()
            self._url, self._number, self._part = "", self._number + 1, 0
        elif self._open_sentences >= MOST_SENTENCES:
            self.report.cut_documents += 1
            self._close_document()
            self._part += 1

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
            self._store(parts[0].source, tokens, lengths, draw)
        else:
            # The hashes of a document that is in several parts follow from all of its ids.
            filled = [part.bands for part in parts if len(part.tokens)]
            words, counts = (np.concatenate(arrays) for arrays in zip(*(part.words for part in parts), strict=True))
            self._removal.waiting.add(
                parts[0].source,
                tokens,
                lengths,
                draw,
                words=(words, counts),
                bands=filled[0] if len(filled) == 1 else None,
                url=DocumentUrl(self._url, self._number, self._part),
            )

    def _pipeline(self) -> dict[str, Any]:
        if not isinstance(self.tokenizer, PipelineTokenizer):
            return {}
        special = self.vocabulary.special._asdict()
        return {"pipeline": {"file": PIPELINE, "special": special, "digest": digest_file(self.folder / PIPELINE)}}

    def _manifest(self, writer: ShardWriter, more: dict[str, Any]) -> dict[str, Any]:
        return {
            "format": KIND,
            "version": FORMAT,
            **more,
            **writer.totals(),
            "token_type": np.dtype(writer.dtype).name,
            "vocabulary": {"file": VOCABULARY, "pieces": len(self.vocabulary), "digest": self.vocabulary.digest},
            "tokenizer": to_dict(self.tokenizer.rules),
            **self._pipeline(),
            "settings": to_dict(self.settings),
            "read": {
                **dataclasses.asdict(self.report),
                "words": self.words,
                "sentences_without_tokens": self.sentences_without_tokens,
                "documents_without_tokens": self.documents_without_tokens,
            },
            "inputs": {"file": INPUTS, "digest": digest_file(self.folder / INPUTS)},
            "versions": {
                "bertsmith": __version__,
                "numpy": np.__version__,
                "pyarrow": pa.__version__,
                "python": platform.python_version(),
            },
            "shards": writer.shards,
        }
