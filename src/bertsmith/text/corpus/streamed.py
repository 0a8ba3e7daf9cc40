"""A corpus at an address, with only its index on a local disk: documents are fetched when they are needed.

::

    CACHE/1f0c.../              named after the digest of the manifest
        corpus.json, vocab.txt  as at the address, with what is next to them
        held_out/               the held-out documents, a corpus of its own
        lengths, places, sentences, ...   the index, plain numbers, memory-mapped
        index.json              written last

The index says where each document is and where its sentences end, so rows are planned without the network. It is made
once for each machine, in one pass over the shards, of which one at a time is on the disk; that pass also verifies their
digests. Then the tokens of whole documents are fetched, all those of a step at a time, and the latest ones are kept in
memory up to a limit. The rows of a step are those of the same corpus on a local disk, whatever the limit.
"""

import contextlib
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bertsmith.base.core.progress import Progress
from bertsmith.base.storage.files import digest_bytes, remove_partials, write_json
from bertsmith.base.storage.locks import locked_folder
from bertsmith.base.storage.remote import open_address, read_ranges
from bertsmith.text.corpus.manifest import HELD_OUT, MANIFEST, PIPELINE, VOCABULARY, read_manifest
from bertsmith.text.corpus.shards import Corpus, Ints, batches_of, require_shard, token_type
from bertsmith.text.tokenizers.encoded import offsets_of
from bertsmith.text.tokenizers.vocabulary import Vocabulary

INDEX = "index.json"
# Columns of the index with a number for each document (sentences: for each sentence), in the order of the corpus.
_COLUMNS: Mapping[str, type[np.generic]] = {
    "lengths": np.int64,  # tokens
    "sentence_counts": np.int64,
    "shards": np.int32,
    "places": np.int64,  # the first byte of its tokens in the shard
    "sentences": np.uint32,  # tokens
}
_COUNTS = "counts"  # how often each piece occurs


class StreamedCorpus(Corpus):
    """A corpus at an address; use `StreamedCorpus.open_at`.

    Attributes:
        limit: bytes of tokens that are kept in memory.
        fetched: bytes that were fetched so far.
    """

    def __init__(
        self, folder: Path, manifest: dict[str, Any], vocabulary: Vocabulary, address: str, limit: int
    ) -> None:
        super().__init__(folder, manifest, vocabulary, [])
        self.address, self.limit, self.fetched = address, limit, 0
        columns = {name: _mapped(folder / name, kind) for name, kind in _COLUMNS.items()}
        self.document_lengths, self.sentence_counts = columns["lengths"], columns["sentence_counts"]
        self._shards, self._places = columns["shards"], columns["places"]
        self._sentences, self._first_sentences = columns["sentences"], offsets_of(columns["sentence_counts"])
        self._type = np.dtype(token_type(len(vocabulary)))
        self._files: list[str] = [f"{address}/{shard['file']}" for shard in manifest["shards"]]
        self._kept: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()

    @staticmethod
    def open_at(address: str, cache: Path, *, limit: int) -> "StreamedCorpus":
        """The corpus at an address, after its index was made, or found in the cache."""
        address = address.rstrip("/")
        with open_address(f"{address}/{MANIFEST}") as file:
            folder = cache / digest_bytes(file.read()).removeprefix("sha256:")[:16]
        with locked_folder(folder):
            if not (folder / INDEX).is_file():
                _make_index(address, folder)
        opened = Corpus.opened_without_shards(folder)
        return StreamedCorpus(folder, opened.manifest, opened.vocabulary, address, limit)

    def token_counts(self) -> Ints:
        """See `Corpus.token_counts`; they are in the index."""
        return np.array(_mapped(self.folder / _COUNTS, np.int64))

    def prefetch(self, documents: npt.NDArray[np.integer]) -> None:
        """Fetches the tokens of documents together, as many as are kept."""
        with self._lock:
            wanted = [document for document in dict.fromkeys(documents.tolist()) if document >= 0]
            for document in wanted:
                if document in self._kept:
                    self._kept.move_to_end(document)
            missing = [document for document in wanted if document not in self._kept]
            sizes = np.cumsum(self.document_lengths[missing]) * self._type.itemsize
            self._fetch(missing[: max(1, int(np.searchsorted(sizes, self.limit, side="right")))])

    def document_tokens(self, index: int, /) -> npt.NDArray[Any]:
        """See `Corpus.document_tokens`."""
        self._require(index)
        with self._lock:
            result = self._kept.get(index)
            return self._fetch([index])[0] if result is None else result

    def document_sentences(self, index: int, /) -> Ints:
        """See `Corpus.document_sentences`."""
        self._require(index)
        return offsets_of(self._sentences[self._first_sentences[index] : self._first_sentences[index + 1]])

    def document_source(self, index: int, /) -> str:
        """The address of its shard."""
        self._require(index)
        return self._files[int(self._shards[index])]

    def _require(self, index: int) -> None:
        if not 0 <= index < self.num_documents:
            raise IndexError(f"document {index} of {self.num_documents}")

    def _fetch(self, documents: list[int]) -> list[npt.NDArray[Any]]:
        """The tokens of documents that are not kept, which are then kept as long as there is room."""
        begins = self._places[documents].tolist()
        sizes = (self.document_lengths[documents] * self._type.itemsize).tolist()
        files = [self._files[shard] for shard in self._shards[documents].tolist()]
        ranges = [(file, begin, begin + size) for file, begin, size in zip(files, begins, sizes, strict=True)]
        result = [np.frombuffer(data, self._type) for data in read_ranges(ranges)] if ranges else []
        self.fetched += sum(sizes)
        for document, tokens in zip(documents, result, strict=True):
            self._kept[document] = tokens
            self._bytes += tokens.nbytes
        while self._bytes > self.limit and self._kept:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return result


def _mapped(path: Path, kind: type[np.generic]) -> npt.NDArray[Any]:
    """A column of the index, memory-mapped."""
    return np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)


def _make_index(address: str, folder: Path) -> None:
    """Downloads what is small, and makes the index of the shards."""
    remove_partials(folder)
    manifest = _download_what_is_small(address, folder)
    if manifest.get("held_out", {}).get("documents"):
        for shard in _download_what_is_small(f"{address}/{HELD_OUT}", folder / HELD_OUT)["shards"]:
            _download(f"{address}/{HELD_OUT}/{shard['file']}", folder / HELD_OUT / shard["file"])
    opened = Corpus.opened_without_shards(folder)
    counts = np.zeros(len(opened.vocabulary), dtype=np.int64)
    total = sum(shard["bytes"] for shard in manifest["shards"])
    with contextlib.ExitStack() as stack:
        files = {name: stack.enter_context(open(folder / name, "wb")) for name in _COLUMNS}
        progress = stack.enter_context(Progress("indexing the corpus", total, "bytes"))
        for number, shard in enumerate(manifest["shards"]):
            path = folder / "shard.partial"
            _download(f"{address}/{shard['file']}", path)
            try:
                require_shard(path, shard, len(opened.vocabulary))
                for columns, of_batch in _columns(path, number, len(counts)):
                    counts += of_batch
                    for name, kind in _COLUMNS.items():
                        files[name].write(np.ascontiguousarray(columns[name], kind).tobytes())
            finally:
                path.unlink()
            progress.advance(shard["bytes"])
    (folder / _COUNTS).write_bytes(counts.tobytes())
    write_json(
        folder / INDEX, {"address": address, "documents": sum(shard["documents"] for shard in manifest["shards"])}
    )


def _download_what_is_small(address: str, folder: Path) -> dict[str, Any]:
    """Downloads the files of a corpus that are not shards, and returns its manifest."""
    _download(f"{address}/{MANIFEST}", folder / MANIFEST)
    manifest = read_manifest(folder)
    for name in (VOCABULARY, *([PIPELINE] if "pipeline" in manifest else ())):
        _download(f"{address}/{name}", folder / name)
    return manifest


def _columns(path: Path, number: int, pieces: int) -> Iterator[tuple[dict[str, Any], Ints]]:
    """The columns of the index, and the counts of the pieces, of each record batch of a shard."""
    data = pa.memory_map(str(path)).read_buffer()
    for batch in batches_of(pa.ipc.open_file(pa.BufferReader(data))):
        size = len(batch.token_offsets) - 1
        # Its arrays are views into the file, so the address of one tells its place there.
        first = batch.tokens.__array_interface__["data"][0] - data.address if len(batch.tokens) else 0
        yield (
            {
                "lengths": np.diff(batch.token_offsets),
                "sentence_counts": np.diff(batch.sentence_offsets),
                "shards": np.full(size, number),
                "places": first + batch.token_offsets[:-1] * batch.tokens.itemsize,
                "sentences": batch.sentence_lengths,
            },
            batch.token_counts(pieces),
        )


def _download(address: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_address(address) as source, open(path, "wb") as target:
        shutil.copyfileobj(source, target, 2**22)
