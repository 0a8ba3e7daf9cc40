"""Masking of pre-training rows: which positions are predicted, and what replaces the pieces there.

The rule is from `create_masked_lm_predictions` in the original `create_pretraining_data.py`, for all rows of a step
at once. Every draw is counted from the key of its instance (see `counted_draws`), so a row has the same masks whatever
rows are next to it.

N rows, T tokens, M predicted positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.randomness import Words
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, Vocabulary
from bertsmith.training.pretraining.counted_draws import fold, purpose_keys
from bertsmith.training.pretraining.segmented_words import SegmentedWords, segmenter
from bertsmith.training.pretraining.targets import Targets

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

LONGEST = 4096  # positions in a row: masks sort them in 12 bits
# Rows are shuffled by sorting numbers with the position in the low bits and random bits above.
_POSITION = np.uint64(LONGEST - 1)
_NO_UNIT = np.uint64(2**64 - 1)


class MaskSettings(Protocol):
    """The settings that say what is masked; `PretrainingDataSettings` documents and checks them."""

    @property
    def masked_share(self) -> float:
        """Fraction of the tokens of a row to predict."""

    @property
    def most_predictions(self) -> int:
        """Maximum predictions per row."""

    @property
    def mask_share(self) -> float:
        """Fraction of the predicted tokens that become [MASK]."""

    @property
    def keep_share(self) -> float:
        """Fraction that stays unchanged."""

    @property
    def whole_word(self) -> bool:
        """Whether all pieces of a word are masked together."""

    @property
    def segmented(self) -> tuple[str, ...]:
        """Languages whose words are found by a segmenter."""


class Masker:
    """Masks rows according to the settings; holds the data needed from the vocabulary.

    Args:
        fixed: further pieces that are never chosen, next to `[CLS]` and `[SEP]`.
    """

    def __init__(self, vocabulary: Vocabulary, settings: MaskSettings, fixed: Sequence[int] = ()) -> None:
        self.settings = settings
        self._size, self._mask_id = len(vocabulary), vocabulary.mask_id
        self._fixed = np.zeros(len(vocabulary), dtype=np.bool_)
        self._fixed[[vocabulary.cls_id, vocabulary.sep_id, *fixed]] = True
        continues = [settings.whole_word and piece.startswith(CONTINUATION) for piece in vocabulary.pieces]
        self._continues = np.array(continues, dtype=np.bool_)
        segments = {setting: segmenter(setting) for setting in settings.segmented}
        self._words = SegmentedWords(vocabulary, segments) if segments else None

    def mask_rows(self, token_ids: npt.NDArray[np.int32], lengths: Ints, keys: Words) -> Targets:
        """The masked rows, each with round(share * length) predictions, at least 1 and at most `most_predictions`.

        `[CLS]` and `[SEP]` are never chosen, but count in the length. Whether a chosen position becomes `[MASK]`, is
        kept, or becomes a uniform draw from the whole vocabulary is decided for each position, even within a word. A
        row has fewer predictions if its candidates run out or none of the remaining words fits.

        Args:
            token_ids: int32 [T].
            lengths: int64 [N], tokens of each row.
            keys: uint64 [N], the keys of the instances.
        """
        assert lengths.sum() == len(token_ids)
        assert lengths.max(initial=0) <= LONGEST
        rows = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(token_ids)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        # np.rint rounds half to even, as Python's round does in the original.
        wanted = np.maximum(1, np.rint(self.settings.masked_share * lengths).astype(np.int64))
        wanted = np.minimum(self.settings.most_predictions, wanted)

        candidates = np.flatnonzero(~self._fixed[token_ids])
        first = np.diff(rows[candidates], prepend=-1) > 0
        # A unit is chosen as a whole: a position, or the pieces of a word. As in the original, a `##` piece joins the
        # candidate before it even if truncation cut its word and a `[SEP]` is in between.
        continues = self._continues[token_ids]
        if self._words is not None:
            continues = self._words.continues(token_ids, continues)
        begins = first | ~continues[candidates]
        starts = candidates[begins]
        sizes = np.diff(np.append(np.flatnonzero(begins), len(candidates)))
        order = fold(purpose_keys(keys, "mask order")[rows[starts]], within[starts])
        taken = _choose(rows[starts], sizes, order, wanted)
        positions = candidates[np.repeat(taken, sizes)]

        masked = token_ids.copy()
        masked[positions] = self._replacements(token_ids[positions], keys[rows[positions]], within[positions])
        return Targets(
            token_ids=masked,
            positions=positions,
            target_ids=token_ids[positions],
            per_row=np.bincount(rows[positions], minlength=len(lengths)),
        )

    def _replacements(self, originals: npt.NDArray[np.int32], keys: Words, within: Ints) -> npt.NDArray[np.int32]:
        """The new pieces at the chosen positions, int32 [M]."""
        chance = (fold(purpose_keys(keys, "mask way"), within) >> np.uint64(11)) * 2.0**-53
        draws = fold(purpose_keys(keys, "mask piece"), within) >> np.uint64(32)
        pieces = ((draws * np.uint64(self._size)) >> np.uint64(32)).astype(np.int32)
        kept = chance < self.settings.mask_share + self.settings.keep_share
        replaced = np.where(kept, originals, pieces)
        return np.where(chance < self.settings.mask_share, np.int32(self._mask_id), replaced).astype(np.int32)


def _choose(rows: Ints, sizes: Ints, order: Words, wanted: Ints) -> Flags:
    """Which units are chosen, bool [U]: in random order, as long as they fit into the number wanted for their row.

    `rows`, `sizes` and `order` are of the units, `wanted` of the rows.
    """
    per_row = np.bincount(rows, minlength=len(wanted))
    begins = np.cumsum(per_row) - per_row
    column = np.arange(len(rows)) - begins[rows]
    shuffled = np.full((len(wanted), int(per_row.max(initial=0))), _NO_UNIT)
    shuffled[rows, column] = (order & ~_POSITION) | column.astype(np.uint64)
    shuffled.sort(axis=1)
    units = (shuffled & _POSITION).astype(np.int64) + begins[:, None]
    real = np.arange(shuffled.shape[1]) < per_row[:, None]
    left, taken = wanted.copy(), np.zeros(len(rows), dtype=np.bool_)
    for unit, is_real in zip(units.T, real.T, strict=True):
        size = np.where(is_real, sizes[np.where(is_real, unit, 0)], LONGEST + 1)
        fits = size <= left
        left -= np.where(fits, size, 0)
        taken[unit[fits]] = True
        if not left.any():
            break
    return taken
