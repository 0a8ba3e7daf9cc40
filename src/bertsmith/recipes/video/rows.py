"""Rows of texts with codes: which segments a step reads, in which of three regimes, joined, sub-sampled, misaligned.

Everything about a row is drawn from the generator of its step and its number in it.

N rows of a step.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import generator
from bertsmith.recipes.video.growth import CodePieces
from bertsmith.recipes.video.segments import Segment
from bertsmith.recipes.video.settings import VideoSettings
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.training.pretraining.stream import Rows

ALIGNED, MISALIGNED, NO_LABEL = 0, 1, -1
Ids = npt.NDArray[np.int32]
NOTHING: Ids = np.zeros(0, dtype=np.int32)


class VideoRow(NamedTuple):
    """What is in a row; without codes it has no `[>]`.

    Attributes:
        label: whether text and codes belong together, see `ALIGNED`; `NO_LABEL` where there are not both.
        key: the random key of its masks.
    """

    text: Ids
    codes: Ids
    label: int
    key: int


class EncodedSegments:
    """Segments as ids, in their order.

    Args:
        segments: each with a text or a code that the model knows.
    """

    def __init__(self, segments: Sequence[Segment], tokenizer: Tokenizer, codes: CodePieces) -> None:
        encoded = tokenizer.encode_batch([segment.text for segment in segments])
        ids = [codes.ids(segment.codes) for segment in segments]
        kept = [number for number, codes_of in enumerate(ids) if len(codes_of) or len(encoded[number])]
        self.segments = [segments[number] for number in kept]
        self.texts: list[Ids] = [encoded[number] for number in kept]
        self.codes: list[Ids] = [ids[number] for number in kept]
        self.with_codes = np.array([number for number, row in enumerate(self.codes) if len(row)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.texts)

    def longer_than(self, tokens: int, *, joined: bool = False) -> int:
        """The segments whose row of text and codes, joined with the next segment or not, would have more tokens."""
        special = 3  # [CLS], [>] and [SEP]
        lengths = [len(text) + len(codes) for text, codes in zip(self.texts, self.codes, strict=True)]
        if joined:
            following = [(number, self.next_of(number)) for number in range(len(self))]
            lengths = [lengths[number] + lengths[other] for number, other in following if other is not None]
        return sum(length + special > tokens for length in lengths)

    def next_of(self, number: int) -> int | None:
        """The next segment of the same subject."""
        following = number + 1
        if following < len(self) and self.segments[following].subject == self.segments[number].subject:
            return following
        return None

    def other(self, number: int, source: np.random.Generator, count: int = 20) -> Ids | None:
        """The codes of another segment, which differ from those of this one; None if none is drawn `count` times."""
        for _ in range(count if len(self.with_codes) else 0):
            drawn = int(self.with_codes[source.integers(len(self.with_codes))])
            if drawn != number and not np.array_equal(self.codes[drawn], self.codes[number]):
                return self.codes[drawn]
        return None


class RowDrawer:
    """Draws the rows of steps."""

    def __init__(self, segments: EncodedSegments, settings: VideoSettings, seed: int) -> None:
        self.segments, self.settings, self.seed = segments, settings, seed
        self._order = functools.lru_cache(maxsize=2)(self._order_of_epoch)

    def step_rows(self, step: int) -> list[VideoRow]:
        """The rows of a step; a pure function of the step."""
        size = self.settings.rows_per_step
        epochs, within = np.divmod(np.arange(step * size, (step + 1) * size), len(self.segments))
        return [
            self._row(int(self._order(int(epoch))[index]), generator(self.seed, "row of a segment", step, row))
            for row, (epoch, index) in enumerate(zip(epochs, within, strict=True))
        ]

    def _row(self, number: int, source: np.random.Generator) -> VideoRow:
        segments, settings = self.segments, self.settings
        regime, joins, swaps, rate = source.random(), source.random(), source.random(), source.random()
        key = int(source.integers(2**63))
        text, codes = segments.texts[number], segments.codes[number]
        if joins < settings.join and (following := segments.next_of(number)) is not None:
            text = np.concatenate([text, segments.texts[following]])
            codes = np.concatenate([codes, segments.codes[following]])
        if len(text) and (regime < settings.text_only or not len(codes)):
            return VideoRow(text, NOTHING, NO_LABEL, key)
        label = NO_LABEL
        if len(text) and regime >= settings.text_only + settings.codes_only:
            label = ALIGNED
            if swaps < settings.misaligned and (other := segments.other(number, source)) is not None:
                label, codes = MISALIGNED, other
        step = 1 + int(rate * settings.subsample)
        start = int(source.integers(min(step, len(codes))))
        return VideoRow(NOTHING if label == NO_LABEL else text, codes[start::step], label, key)

    def _order_of_epoch(self, epoch: int) -> npt.NDArray[np.int64]:
        return generator(self.seed, "order of segments", epoch).permutation(len(self.segments))


def held_out_rows(segments: EncodedSegments, most: int, seed: int) -> dict[str, list[VideoRow]]:
    """The rows of an evaluation: texts with their codes, with other codes, and alone."""
    rows: dict[str, list[VideoRow]] = {"aligned": [], "misaligned": [], "alone": []}
    for number in range(min(most, len(segments))):
        text, codes = segments.texts[number], segments.codes[number]
        source = generator(seed, "held-out rows", number)
        key = int(source.integers(2**63))
        if not (len(text) and len(codes)):
            continue
        rows["aligned"].append(VideoRow(text, codes, ALIGNED, key))
        rows["alone"].append(VideoRow(text, NOTHING, NO_LABEL, key))
        if (other := segments.other(number, source)) is not None:
            rows["misaligned"].append(VideoRow(text, other, MISALIGNED, key))
    return {name: of_name for name, of_name in rows.items() if of_name}


def packed(
    rows: Sequence[VideoRow], tokenizer: Tokenizer, codes: CodePieces, max_length: int, model_limit: int
) -> tuple[PackedRows, list[int]]:
    """The rows with special tokens, first those with codes, and the index of each of them."""
    order = sorted(range(len(rows)), key=lambda number: not len(rows[number].codes))
    split = sum(len(row.codes) > 0 for row in rows)
    parts: list[PackedRows] = []
    for chosen, template in ((order[:split], codes.template), (order[split:], tokenizer.template)):
        if chosen:
            texts = Encoded.from_rows([rows[number].text for number in chosen])
            second = Encoded.from_rows([rows[number].codes for number in chosen]) if not parts and split else None
            parts.append(pack_rows(texts, second, template=template, max_length=max_length, model_limit=model_limit))
    return _joined(parts), order


def training_rows(
    rows: Sequence[VideoRow], tokenizer: Tokenizer, codes: CodePieces, max_length: int, model_limit: int
) -> Rows:
    """Rows ready to be masked."""
    flat, order = packed(rows, tokenizer, codes, max_length, model_limit)
    return Rows(
        token_ids=flat.token_ids,
        segment_ids=flat.segment_ids,
        lengths=flat.lengths.astype(np.int64),
        labels=np.array([rows[number].label for number in order], dtype=np.int64),
        keys=np.array([rows[number].key for number in order], dtype=np.uint64),
    )


def _joined(parts: Iterable[PackedRows]) -> PackedRows:
    listed = list(parts)
    names = ("token_ids", "segment_ids", "lengths", "cut_by_row")
    return PackedRows(*(np.concatenate([getattr(part, name) for part in listed]) for name in names))
