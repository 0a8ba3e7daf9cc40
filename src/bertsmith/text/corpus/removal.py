"""Removes duplicates and boilerplate while a corpus is built, and records each removal.

All documents are read and encoded first, into shards that are deleted at the end. Then boilerplate sentences go, then
the documents that repeat an earlier one in what is left, and only then is the rest split into training and held-out
documents. So no duplicate of a training document is held out, and the result depends on the documents and their order
alone, not on processes. The folder needs space for two copies of the tokens and of the words meanwhile, and a word
takes 8 bytes.

`removed.jsonl` has a line for each removed document, with the document that it repeats, and for each boilerplate
sentence.
"""

import dataclasses
import itertools
import json
import shutil
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.settings import help_field, require_known, require_number, require_other
from bertsmith.base.storage.files import digest_file
from bertsmith.text.corpus import boilerplate, duplicates
from bertsmith.text.corpus.document_urls import DocumentUrl, DocumentUrls
from bertsmith.text.corpus.overlap import SHORTEST
from bertsmith.text.corpus.shards import Corpus, ShardWriter, Words, read_shard
from bertsmith.text.documents.readers import ReadingSettings
from bertsmith.text.documents.urls import URL_COLUMN
from bertsmith.text.tokenizers.tokenizer import Tokenizer

REMOVED = "removed.jsonl"
REMOVALS = ("none", "exact", "near", "url")
MOST_SHOWN = 10  # boilerplate sentences in the manifest
_SHOWN_TOKENS = 16

Write = Callable[[str, npt.NDArray[Any], npt.NDArray[Any], int], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemovalSettings(ReadingSettings):
    """How text is read, and what is removed from it."""

    remove_duplicates: str = help_field(
        "none",
        "which repeats of earlier documents to remove: none; exact: copies; near: also documents whose runs of "
        f"{duplicates.SHINGLE} words agree by {100 * duplicates.SIMILARITY:.0f} % or more; url: documents with the URL "
        "of an earlier one",
    )
    url_column: str = help_field(
        URL_COLUMN, "with remove_duplicates url: column of .jsonl and .parquet files with the URL of a document"
    )
    remove_boilerplate: bool = help_field(
        False, f"remove sentences of at least {SHORTEST} tokens that repeat in many documents, such as license headers"
    )
    boilerplate_documents: int | None = help_field(
        None,
        "with remove_boilerplate: a sentence is removed if at least this many documents have it "
        f"[{boilerplate.LEAST_DOCUMENTS}, or one in {boilerplate.ONE_IN:,} if that is more]",
        most=2**40,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_known("remove_duplicates", self.remove_duplicates, REMOVALS)
        require_other(
            self.url_column == URL_COLUMN or self.remove_duplicates == "url", "--url-column", "--remove-duplicates url"
        )
        require_other(
            self.boilerplate_documents is None or self.remove_boilerplate,
            "--boilerplate-documents",
            "--remove-boilerplate",
        )
        require_number("boilerplate_documents", self.boilerplate_documents, least=2)

    @property
    def removes(self) -> bool:
        """Whether anything is removed."""
        return self.remove_boilerplate or self.remove_duplicates != "none"

    @property
    def fingerprints(self) -> bool:
        """Whether documents are compared as they are read, so that their band hashes can be computed with their ids."""
        return self.remove_duplicates == "near" and not self.remove_boilerplate

    @property
    def compared_urls(self) -> str | None:
        """The column with the URLs by which documents are compared; None if URLs are not compared, nor read."""
        return self.url_column if self.remove_duplicates == "url" else None


class WaitingDocuments:
    """Encoded documents that wait on disk until all of them are known."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        *,
        words: bool = False,
        fingerprints: bool = False,
        urls: bool = False,
    ) -> None:
        self.folder, self.tokenizer = folder, tokenizer
        self._bands = array("I") if fingerprints else None
        self._writer = ShardWriter(folder, len(tokenizer.vocabulary), words=words)
        self.urls = DocumentUrls(folder / "urls.jsonl") if urls else None
        # For each document: the draw that decides whether it is held out, and its number in its source, from 1.
        self.draws, self.numbers = array("Q"), array("q")
        self._last_source = ""

    @property
    def bands(self) -> duplicates.Band | None:
        """The band hashes of all documents, uint32 [BANDS, D], if they are kept."""
        if self._bands is None:
            return None
        return np.frombuffer(self._bands, dtype=np.uint32).reshape(-1, duplicates.BANDS).T

    def add(
        self,
        source: str,
        tokens: npt.NDArray[Any],
        lengths: npt.NDArray[Any],
        draw: int,
        number: int = 0,
        words: Words | None = None,
        bands: duplicates.Band | None = None,
        url: DocumentUrl | None = None,
    ) -> None:
        """Appends a document; without a number it is the next one of its source."""
        if self.urls is not None:
            assert url is not None
            self.urls.add(url)
        if self._bands is not None:
            if bands is None:
                assert words is not None
                bands = duplicates.band_hashes(words[0], np.array([0, len(words[0])]))[:, 0]
            self._bands.frombytes(np.ascontiguousarray(bands).tobytes())
        if not number:
            number = self.numbers[-1] + 1 if source == self._last_source and self.numbers else 1
        self._last_source = source
        self._writer.add(source, tokens, lengths, words)
        self.draws.append(draw)
        self.numbers.append(number)

    def close(self) -> Corpus:
        """The documents, memory-mapped; no more can be added."""
        self._writer.close()
        batches = [batch for shard in self._writer.shards for batch in read_shard(self.folder / shard["file"])]
        return Corpus(self.folder, {}, self.tokenizer.vocabulary, batches)

    def remove(self) -> None:
        """Deletes the folder."""
        shutil.rmtree(self.folder)


class Removal:
    """The removal of boilerplate and duplicates from the waiting documents of a corpus."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, settings: RemovalSettings) -> None:
        self.folder, self.tokenizer, self.settings = folder, tokenizer, settings
        self.by_url = settings.compared_urls is not None
        self.waiting = WaitingDocuments(
            folder / "waiting", tokenizer, words=True, fingerprints=settings.fingerprints, urls=self.by_url
        )

    def finish(self, write: Write) -> dict[str, Any]:
        """The record of the removals for the manifest, after passing the documents that stay to `write`, in order."""
        if not self.waiting.numbers:
            self.waiting.remove()
            return {}
        if self.waiting.urls is not None:
            _require_urls(self.waiting.urls, len(self.waiting.numbers), self.settings.url_column)
        record: dict[str, Any] = {"file": REMOVED}
        with open(self.folder / REMOVED, "w", encoding="utf-8", newline="\n") as lines:
            if self.settings.remove_boilerplate:
                record["boilerplate"] = self._remove_boilerplate(lines)
            if self.settings.remove_duplicates != "none" and self.waiting.numbers:
                record["duplicates"] = self._remove_duplicates(lines)
            if not self.waiting.numbers:
                raise InputError(
                    expected="text that is not boilerplate",
                    found=f"nothing else: every sentence is in at least {record['boilerplate']['least_documents']} "
                    "documents",
                    fix="leave --remove-boilerplate out, or raise --boilerplate-documents",
                )
        for document in _documents(self.waiting):
            write(document.source, document.tokens, document.lengths, document.draw)
        return {**record, "digest": digest_file(self.folder / REMOVED)}

    def _remove_boilerplate(self, lines: IO[str]) -> dict[str, Any]:
        """Removes boilerplate sentences, and documents that are nothing else."""
        before, corpus = self.waiting, self.waiting.close()
        least = self.settings.boilerplate_documents or boilerplate.least_documents(corpus.num_documents)
        repeated = boilerplate.find_boilerplate(corpus, least)
        after = WaitingDocuments(
            self.folder / "waiting-without-boilerplate", self.tokenizer, words=True, urls=self.by_url
        )
        urls = _urls(before)
        changed = emptied = row = 0
        for batch in corpus.batches:
            counts = np.diff(batch.sentence_offsets)
            for number, (tokens, lengths, words) in enumerate(repeated.documents_without(batch)):
                changed += bool(len(lengths) < counts[number])
                url = next(urls)
                if len(lengths):
                    after.add(
                        str(batch.sources[number]),
                        tokens,
                        lengths,
                        before.draws[row],
                        before.numbers[row],
                        words,
                        url=url,
                    )
                else:
                    emptied += 1
                    _write_line(
                        lines,
                        removed="document",
                        reason="nothing but boilerplate",
                        source=str(batch.sources[number]),
                        document=before.numbers[row],
                        sentences=int(counts[number]),
                        tokens=int(batch.token_offsets[number + 1] - batch.token_offsets[number]),
                    )
                row += 1
        shown: list[dict[str, Any]] = []
        tokens_gone = 0
        for number in np.argsort(-repeated.documents, kind="stable").tolist():
            ids = repeated.texts[number]
            counts_of_text = {"documents": int(repeated.documents[number]), "times": int(repeated.times[number])}
            text = self.tokenizer.decode(ids, skip_special=False)
            tokens_gone += len(ids) * counts_of_text["times"]
            _write_line(lines, removed="sentence", reason="boilerplate", text=text, tokens=len(ids), **counts_of_text)
            if len(shown) < MOST_SHOWN:
                shown.append({"text": text, **counts_of_text})
        before.remove()
        self.waiting = after
        return {
            "least_documents": least,
            "least_tokens": SHORTEST,
            "different_sentences": len(repeated.documents),
            "sentences": int(repeated.times.sum()),
            "tokens": tokens_gone,
            "changed_documents": changed,
            "removed_documents": emptied,
            "most_frequent": shown,
        }

    def _remove_duplicates(self, lines: IO[str]) -> dict[str, Any]:
        """Removes documents that repeat an earlier one."""
        before, corpus = self.waiting, self.waiting.close()
        near = self.settings.remove_duplicates == "near"
        if before.urls is not None:
            repeats = before.urls.duplicates(corpus)
        else:
            repeats = duplicates.near_duplicates(corpus, before.bands) if near else duplicates.exact_duplicates(corpus)
        after = WaitingDocuments(self.folder / "waiting-without-duplicates", self.tokenizer)
        sentences = tokens_gone = 0
        for row, (document, url) in enumerate(zip(_documents(before, corpus), _urls(before), strict=False)):
            first = int(repeats.of[row])
            if first < 0:
                after.add(document.source, document.tokens, document.lengths, document.draw, document.number)
                continue
            sentences += len(document.lengths)
            tokens_gone += len(document.tokens)
            reason = "a copy" if repeats.exact[row] else "a near-duplicate"
            more: dict[str, Any] = {"similarity": round(float(repeats.similarity[row]), 4)}
            if url is not None:
                reason, more = "the same URL", {"url": url.text, "copy": bool(repeats.exact[row])}
            _write_line(
                lines,
                removed="document",
                reason=reason,
                source=document.source,
                document=document.number,
                begins=self.tokenizer.decode(document.tokens[:_SHOWN_TOKENS], skip_special=False),
                sentences=len(document.lengths),
                tokens=len(document.tokens),
                of_source=corpus.document_source(first),
                of_document=before.numbers[first],
                **more,
            )
        before_count, after_count = len(before.numbers), len(after.numbers)
        before.remove()
        self.waiting = after
        record: dict[str, Any] = {
            "documents": before_count - after_count,
            "copies": int(repeats.exact.sum()),
            "sentences": sentences,
            "tokens": tokens_gone,
        }
        if before.urls is not None:
            record["documents_without_url"] = before.urls.num_without_url
        if near:
            record |= {
                "similarity": duplicates.SIMILARITY,
                "words": duplicates.SHINGLE,
                "bands": duplicates.BANDS,
                "rows": duplicates.ROWS,
            }
        return record


class _Waiting(NamedTuple):
    """A waiting document: tokens [T], and the tokens of each sentence [S]."""

    source: str
    tokens: npt.NDArray[Any]
    lengths: npt.NDArray[np.uint32]
    draw: int
    number: int


def _documents(waiting: WaitingDocuments, corpus: Corpus | None = None) -> Iterator[_Waiting]:
    """Each waiting document."""
    row = 0
    for batch in (corpus or waiting.close()).batches:
        for number, source in enumerate(batch.sources.to_pylist()):
            yield _Waiting(
                source,
                batch.tokens[batch.token_offsets[number] : batch.token_offsets[number + 1]],
                batch.sentence_lengths[batch.sentence_offsets[number] : batch.sentence_offsets[number + 1]],
                waiting.draws[row],
                waiting.numbers[row],
            )
            row += 1


def _urls(waiting: WaitingDocuments) -> Iterator[DocumentUrl | None]:
    """The URL of each waiting document; without end None if they are not kept."""
    return itertools.repeat(None) if waiting.urls is None else iter(waiting.urls)


def _require_urls(urls: DocumentUrls, documents: int, column: str) -> None:
    if urls.num_without_url == documents:
        raise InputError(
            expected=f"the URLs of documents, in the column {column!r} of .jsonl and .parquet files or in marks"
            " <doc url=...>, to remove duplicates by them",
            found=f"none in {counted(documents, 'document')}",
            fix="name the column (--url-column), or compare the texts (--remove-duplicates exact or near)",
        )


def _write_line(file: IO[str], **values: Any) -> None:
    file.write(json.dumps(values, ensure_ascii=False) + "\n")
