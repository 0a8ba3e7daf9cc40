"""Jobs that turn text files into vector files: read and written block by block, resumable after a crash.

Memory holds one block, whatever the size of the file.
"""

import contextlib
import dataclasses
import errno
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertsmith.base.core.errors import ConfigError, InputError, NotFiniteError, RunError
from bertsmith.base.core.progress import Progress, amount, short_repr
from bertsmith.base.storage.locks import locked_file
from bertsmith.inference.vectors.embedder import Embedder
from bertsmith.inference.vectors.files import VectorFile, require_place
from bertsmith.inference.vectors.loading import load_embedder, load_token_features
from bertsmith.inference.vectors.token_features import TokenFeatures
from bertsmith.inference.vectors.writers import SPARSE_SUFFIX, SUFFIXES, Columns, Vectors, writer_for
from bertsmith.tasks.datasets.blocks import text_blocks
from bertsmith.tasks.datasets.text_lines import RunningDigest, TextLines
from bertsmith.text.tokenizers.pack import truncation_note

TEXTS = 2048  # per block; a block is sorted by length and committed as a whole
TOKEN_TEXTS = 512  # per block for vectors of words or pieces


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSummary:
    """The result of writing a vector file.

    Attributes:
        texts: lines read, in this run and before.
        counts: truncated texts, tokens cut from them, empty texts and so on.
        notes: what the user should know about these counts, one sentence each.
        seconds: duration of this run; 0 if nothing was left to do.
    """

    out: Path
    texts: int
    rows: int
    width: int
    counts: Mapping[str, int]
    notes: tuple[str, ...]
    seconds: float

    __repr__ = short_repr

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "out": str(self.out),
            "texts": self.texts,
            "rows": self.rows,
            "width": self.width,
            **self.counts,
            "seconds": round(self.seconds, 3),
        }


class VectorJob(ABC):
    """Computes the vectors of a block of texts."""

    block = TEXTS
    index = False
    is_sparse = False  # whether vectors are matrices of scipy

    @property
    @abstractmethod
    def width(self) -> int:
        """Numbers in a vector."""

    @property
    @abstractmethod
    def made_of(self) -> dict[str, Any]:
        """The settings that the vectors depend on."""

    @abstractmethod
    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Any, Columns]]:
        """Yields vectors of the texts with their columns, in parts; `first` is the number of the first text."""

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """The counts over all calls."""

    @abstractmethod
    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """A remark on the counts for the user."""


class TextVectors(VectorJob):
    """One vector per text."""

    def __init__(self, embedder: Embedder, *, text: bool = False) -> None:
        self.embedder, self.text, self.is_sparse = embedder, text, embedder.is_sparse

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.embedder.width

    @property
    def made_of(self) -> dict[str, Any]:
        """See `VectorJob`."""
        return {**self.embedder.settings, "text": self.text}

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Any, Columns]]:
        """See `VectorJob`."""
        vectors = self.embedder.embed_sparse(texts)[0] if self.is_sparse else self.embedder.embed(texts)
        yield vectors, {"text": pa.array(texts, pa.large_string())} if self.text else {}

    def counts(self) -> dict[str, int]:
        """See `VectorJob`."""
        embedder = self.embedder
        return {
            "cut_texts": embedder.cut_texts,
            "cut_tokens": embedder.cut_tokens,
            "empty_texts": embedder.empty_texts,
        }

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """See `VectorJob`."""
        notes = []
        if counts["cut_texts"]:
            cut = counts["cut_texts"], counts["cut_tokens"]
            notes.append(truncation_note("texts", self.embedder.max_length, *cut))
        if counts["empty_texts"]:
            alone = "the prompt alone" if self.embedder.prompt else "special tokens only"
            notes.append(f"empty texts, embedded as {alone}: {counts['empty_texts']:,}")
        return notes


class TokenVectorsOfTexts(VectorJob):
    """One vector for each word or piece of each text."""

    block = TOKEN_TEXTS
    index = True

    def __init__(self, features: TokenFeatures) -> None:
        self.features = features

    @property
    def width(self) -> int:
        """Numbers in a vector."""
        return self.features.width

    @property
    def made_of(self) -> dict[str, Any]:
        """See `VectorJob`."""
        return self.features.settings

    def vectors(self, texts: Sequence[str], first: int) -> Iterator[tuple[Vectors, Columns]]:
        """See `VectorJob`."""
        for block in self.features.read(texts, first):
            yield block.vectors, self._columns(block.line, block.token, block.begin, block.end)
        # Yielded so that even an empty file has its columns.
        nothing = np.empty(0, np.int64)
        yield np.empty((0, self.width), np.float32), self._columns(nothing, [], nothing, nothing)

    def counts(self) -> dict[str, int]:
        """See `VectorJob`."""
        return {"long_texts": self.features.long_texts, "empty_texts": self.features.empty_texts}

    def notes(self, counts: Mapping[str, int]) -> list[str]:
        """See `VectorJob`."""
        notes = []
        if counts["long_texts"]:
            notes.append(
                f"texts longer than {self.features.max_length} tokens, read in windows: {counts['long_texts']:,}"
            )
        if counts["empty_texts"]:
            notes.append(f"texts without tokens, which have no row: {counts['empty_texts']:,}")
        return notes

    def _columns(self, line: Any, token: list[str], begin: Any, end: Any) -> Columns:
        name = "piece" if self.features.unit == "pieces" else "word"
        return {
            "line": pa.array(line, pa.int64()),
            name: pa.array(token, pa.string()),
            "begin": pa.array(begin, pa.int32()),
            "end": pa.array(end, pa.int32()),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobRecipe:
    """A worker's input for computing vectors.

    Attributes:
        model: anything that `load` accepts; every machine has it at the same path.
        of_tokens: one vector per word or piece instead of one per text.
        loading: arguments of `load_embedder` or `load_token_features`.
    """

    model: str
    loading: Mapping[str, Any]
    of_tokens: bool = False
    text: bool = False

    def job(self, characters: int | None = None) -> VectorJob:
        """The job, with the model loaded.

        Args:
            characters: see `load_encoder`.
        """
        if self.of_tokens:
            return TokenVectorsOfTexts(load_token_features(self.model, **self.loading))
        return TextVectors(
            load_embedder(self.model, **self.loading, characters=characters, sparse=True), text=self.text
        )


def write_vectors(
    job: VectorJob,
    source: TextLines,
    out: Path,
    *,
    half: bool = False,
    resume: bool = False,
    replace: bool = False,
) -> VectorSummary:
    """Writes the vectors of all texts of a file to `out`; see `VectorFile` for resuming after a crash.

    A file is first read once to the end, so that a damaged one is rejected before any work is done and the remaining
    time can be estimated. Stdin is read only once.
    """
    sources = [] if source.is_stdin else [source.path]
    require_place(out, inputs=sources, index=job.index, resume=resume, replace=replace)
    if job.is_sparse != writer_for(out).is_sparse:
        raise ConfigError(
            expected=f"an output that ends in {SPARSE_SUFFIX if job.is_sparse else ' or '.join(SUFFIXES)}, as the "
            f"vectors are {'sparse' if job.is_sparse else 'dense'}",
            found=f"'{out.name}'",
            fix="name another file",
        )
    made_of, total = {**job.made_of, "block": job.block, "texts": "those of stdin"}, None
    if not source.is_stdin:
        total, made_of["texts"] = _survey(source)
    with _full_disk_in_words(out), locked_file(out):
        file = VectorFile(out, made_of, job.width, half=half, index=job.index, resume=resume, replace=replace)
        with file:
            before = counts = {**dict.fromkeys(job.counts(), 0), **file.done.get("counts", {})}
            texts = iter(source)
            read = RunningDigest()
            done = _skip(texts, file, read)
            started = time.monotonic()
            if file.is_complete:
                if next(texts, None) is not None:
                    raise _other_texts(out)
            else:
                with Progress(out.name, total, unit="texts", done=done, how=job.made_of["precision"]) as progress:
                    for block in text_blocks(texts, job.block):
                        try:
                            for vectors, columns in job.vectors(block, done):
                                file.append(vectors, columns)
                        except NotFiniteError as error:
                            raise NotFiniteError(done + error.index) from None
                        done += len(block)
                        read.add(block)
                        counts = {name: before[name] + count for name, count in job.counts().items()}
                        file.commit({"texts": done, "digest": str(read), "counts": counts})
                        progress.advance(len(block), f"vectors: {amount(file.rows)}")
                if not source.is_stdin and str(read) != made_of["texts"]:
                    raise RunError(
                        expected=f"the {total:,} texts that '{source.path}' had at the start",
                        found=f"{done:,} different texts, because the file was changed meanwhile",
                        fix="start over with --replace when the file is complete",
                    )
                if not done:
                    raise InputError(expected=f"texts in '{source.path}'", found="none", fix="name a file with texts")
                file.finish()
    return VectorSummary(
        out=out,
        texts=done,
        rows=file.rows,
        width=job.width,
        counts=counts,
        notes=(*source.notes(), *job.notes(counts)),
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _full_disk_in_words(out: Path) -> Iterator[None]:
    """Turns a full disk into an error that says how to resume."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise RunError(
            expected=f"disk space for '{out}'",
            found="none left",
            fix="free some space and resume with --resume; complete blocks, if there are any, are kept",
        ) from None


def _survey(source: TextLines) -> tuple[int, str]:
    read, count = RunningDigest(), 0
    for block in text_blocks(source):
        read.add(block)
        count += len(block)
    return count, str(read)


def _skip(texts: Iterator[str], file: VectorFile, read: RunningDigest) -> int:
    """Skips the texts whose vectors are already written, and returns their number."""
    wanted = int(file.done.get("texts", 0))
    done = 0
    for block in text_blocks(itertools.islice(texts, wanted)):
        read.add(block)
        done += len(block)
    if wanted and (done, str(read)) != (wanted, file.done["digest"]):
        raise _other_texts(file.path)
    return done


def _other_texts(out: Path) -> RunError:
    return RunError(
        expected=f"the texts that '{out}' was started with",
        found="others",
        fix="use the same again, or start over with --replace",
    )
