"""Vectors of words or of pieces, from a frozen encoder.

Letters: P pieces of all texts, R output vectors, w words of one sentence, D width of the encoder.

A text longer than a row is read in windows, each starting half a row after the previous one. Every piece is taken from
the window where it has the most context: at least a quarter of a row on each side, or all that the text has. So no word
is lost. A word starts where the tokenizer starts one: at white space and punctuation for WordPiece, at spaces for
byte-level BPE. Equal rows in a chunk are computed once.

Source: Devlin et al. (2019), section 5.3; extract_features.py of the original code, for the vectors of pieces.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import ConfigError, NotFiniteError
from bertsmith.base.core.settings import require
from bertsmith.inference.vectors.request import UNITS
from bertsmith.tasks.encoding.row_encoder import RowEncoder, Vectors
from bertsmith.text.tokenizers.encoded import Encoded, offsets_of, places_of
from bertsmith.text.tokenizers.pack import pack_rows, require_positions, room_for_text
from bertsmith.text.tokenizers.windows import windows

if TYPE_CHECKING:
    from torch import Tensor

CHUNK_BYTES = 2**27  # of piece vectors in memory at once

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenVectors:
    """Consecutive words or pieces, with their vectors.

    Attributes:
        line: int64 [R], the text of each, counted from 0.
        token: the word as written in the text, or the piece of the vocabulary.
        begin: int64 [R], the first character in the text.
        end: int64 [R], one past the last.
        vectors: float32 [R, width].
    """

    line: Ints
    token: list[str]
    begin: Ints
    end: Ints
    vectors: Vectors


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Windows:
    """Windows over the flat pieces, in order, int64 [N]; `own_*` are the pieces whose vectors come from each window."""

    begin: Ints
    end: Ints
    own_begin: Ints
    own_end: Ints


class TokenFeatures:
    """An encoder that computes a vector for each word or piece.

    Args:
        unit: a word's "first" piece, as in fine-tuned taggers; the "mean" of its pieces; or "pieces", one vector each.

    Attributes:
        long_texts: the number of texts read in windows, over all calls.
        empty_texts: the number of texts without pieces, which have no vector.
    """

    def __init__(
        self, encoder: RowEncoder, *, layers: str = "last", unit: str = "first", max_length: int | None = None
    ) -> None:
        if unit not in UNITS:
            raise ConfigError.unknown("unit", unit, UNITS)
        self.encoder, self.unit, self.choice = encoder, unit, encoder.choice(layers)
        self._limit = encoder.model.max_tokens
        self.max_length = self._limit if max_length is None else max_length
        require_positions(self.max_length, self._limit, fix="longer texts are read in windows")
        self._room = room_for_text(self.max_length, encoder.tokenizer.template, texts=1, model_limit=self._limit)
        self.width = self.choice.width(encoder.hidden_size)
        self.long_texts = self.empty_texts = 0

    @property
    def settings(self) -> dict[str, object]:
        """The settings that the vectors depend on, for JSON."""
        return {**self.encoder.settings(self.choice), "unit": self.unit, "max_length": self.max_length}

    def word_vectors(self, sentences: Sequence[Sequence[str]]) -> "list[Tensor]":
        """The word vectors of each sentence, float32 [w, width] on the CPU, one per given word.

        A word that the tokenizer normalizes to nothing is read as [UNK].
        """
        import torch

        require(self.unit != "pieces", expected="words as the unit", found="pieces", fix="choose first or mean")
        words = self.encoder.tokenizer.encode_repeated_words([word for words in sentences for word in words])
        is_first = np.zeros(len(words.ids), dtype=np.bool_)
        is_first[words.offsets[:-1]] = True
        borders = offsets_of([len(words) for words in sentences])
        texts = Encoded(words.ids, words.offsets[borders])
        parts = [vectors for _, vectors in self._vectors(texts, is_first)]
        joined = torch.from_numpy(np.concatenate([np.empty((0, self.width), np.float32), *parts]))
        return [joined[begin:end] for begin, end in itertools.pairwise(borders.tolist())]

    def read(self, texts: Sequence[str], first_line: int = 0) -> Iterator[TokenVectors]:
        """The words or pieces of the texts, in order, in chunks of at most `CHUNK_BYTES`.

        Args:
            first_line: the number of the first text.
        """
        encoded, begin, end = self.encoder.tokenizer.encode_batch_with_offsets(texts)
        self.empty_texts += int(np.count_nonzero(encoded.lengths == 0))
        line = np.repeat(np.arange(len(texts)), encoded.lengths)
        names = self.encoder.tokenizer.vocabulary.pieces
        is_first = self.encoder.tokenizer.starts_of_words(encoded.ids)
        is_first[encoded.offsets[:-1][encoded.lengths > 0]] = True
        if self.unit == "pieces":
            is_first[:] = True
        firsts = np.flatnonzero(is_first)
        if not len(firsts):
            return
        end = np.maximum.reduceat(end, firsts)
        begin = np.minimum.reduceat(begin, firsts)
        for units, vectors in self._vectors(encoded, is_first):
            lines, begins, ends = line[firsts[units]], begin[units], end[units]
            if self.unit == "pieces":
                token = [names[id] for id in encoded.ids[units].tolist()]
            else:
                places = zip(lines.tolist(), begins.tolist(), ends.tolist(), strict=True)
                token = [texts[number][first:last] for number, first, last in places]
            yield TokenVectors(line=lines + first_line, token=token, begin=begins, end=ends, vectors=vectors)

    def _vectors(self, texts: Encoded, is_first: Flags) -> Iterator[tuple[slice, Vectors]]:
        """The vectors of the units of all texts, in chunks, each with the slice of its units.

        Args:
            is_first: bool [P], the first piece of each unit.
        """
        wanted = np.ones(len(is_first), np.bool_) if self.unit == "mean" else is_first
        held, held_vectors = 0, np.empty((0, self.width), np.float32)
        done = 0
        for begin, end, vectors in self._pieces(texts, wanted):
            if self.unit == "mean":
                # A word may continue in the next chunk; its pieces are carried over.
                vectors = np.concatenate([held_vectors, vectors]) if held else vectors
                starts = np.flatnonzero(is_first[begin - held : end])
                continues = end < len(is_first) and not is_first[end]
                held = end - begin + held - starts[-1] if continues else 0
                held_vectors = vectors[len(vectors) - held :].copy()
                vectors, starts = vectors[: len(vectors) - held], starts[:-1] if continues else starts
                if not len(starts):
                    continue
                counts = np.diff(np.append(starts, len(vectors)))[:, None]
                vectors = np.asarray(np.add.reduceat(vectors, starts) / counts, dtype=np.float32)
            yield slice(done, done + len(vectors)), vectors
            done += len(vectors)

    def _pieces(self, texts: Encoded, wanted: Flags) -> Iterator[tuple[int, int, Vectors]]:
        """The vectors of the wanted pieces in [begin, end) of the flat pieces, in consecutive chunks.

        Equal rows of a chunk are computed once.
        """
        rows = self._windows(texts)
        before = np.concatenate([[0], np.cumsum(wanted)])
        counts = before[rows.own_end] - before[rows.own_begin]
        # Rows without a wanted piece are not computed, but their pieces still belong to the chunk.
        used = np.flatnonzero(counts)
        most = max(CHUNK_BYTES // (4 * self.width), 1)
        chunk_of_row = (np.cumsum(counts[used]) - 1) // most
        begin = 0
        for part in np.split(used, np.flatnonzero(np.diff(chunk_of_row)) + 1) if len(used) else ():
            end = int(rows.own_end[part[-1]])
            spans = zip(rows.begin[part].tolist(), rows.end[part].tolist(), strict=True)
            packed = pack_rows(
                [texts.ids[first:last] for first, last in spans],
                template=self.encoder.tokenizer.template,
                max_length=self.max_length,
                model_limit=self._limit,
            )
            num_own = rows.own_end[part] - rows.own_begin[part]
            start = len(self.encoder.tokenizer.template.start)
            pieces = places_of(rows.own_begin[part], num_own)
            places = (pieces + np.repeat(packed.offsets[:-1] + start - rows.begin[part], num_own))[wanted[pieces]]
            try:
                vectors = self.encoder.token_vectors(packed, self.choice, places)
            except NotFiniteError as error:
                text = np.searchsorted(texts.offsets, rows.begin[part[error.index]], side="right") - 1
                raise NotFiniteError(int(text)) from None
            yield begin, end, vectors
            begin = end

    def _windows(self, texts: Encoded) -> _Windows:
        """The windows over all pieces; a text that fits has one."""
        begin, end, own_end = [], [], []
        for offset, ids in zip(texts.offsets.tolist(), texts, strict=False):
            if len(ids) <= self._room:
                if len(ids):
                    begin.append([offset])
                    end.append([offset + len(ids)])
                    own_end.append(end[-1])
                continue
            self.long_texts += 1
            cut = windows(
                None,
                ids,
                template=self.encoder.tokenizer.template,
                max_length=self.max_length,
                stride=max(self._room // 2, 1),
                model_limit=self._limit,
            )
            num_own = np.add.reduceat(cut.has_max_context.astype(np.int64), cut.rows.offsets[:-1])
            begin.append((offset + cut.starts).tolist())
            end.append((offset + cut.ends).tolist())
            own_end.append((offset + np.cumsum(num_own)).tolist())
        flat = [
            np.array([value for text in parts for value in text], dtype=np.int64) for parts in (begin, end, own_end)
        ]
        own_begin = np.concatenate([[0], flat[2][:-1]]) if len(flat[2]) else flat[2]
        return _Windows(begin=flat[0], end=flat[1], own_begin=own_begin, own_end=flat[2])
