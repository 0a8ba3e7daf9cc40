"""A corpus as parallel tracks of contiguous text, in the order of its documents, cut into the windows of steps.

All documents, each as `[CLS] text [SEP]`, are one stream of tokens that starts again at its end. B tracks read it from
B places at equal distances; each reads on where it stopped in the step before. Windows vary in length, so that they
begin at other tokens in every pass. Read backward, the stream begins at the end of the last document.

Everything is a function of (seed, step).

Source: `get_batch` and the window lengths of the code of Merity et al. (2018), main.py.
"""

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import CorpusError
from bertsmith.base.core.progress import counted
from bertsmith.base.core.randomness import generator
from bertsmith.text.tokenizers.vocabulary import Vocabulary
from bertsmith.training.pretraining.stream import Documents

Ints = npt.NDArray[np.int64]

_FULL = 0.95  # of the windows have the base length, the others half of it
_SPREAD = 5.0  # tokens, the standard deviation of a window
_SHORTEST = 5  # tokens
_AT_ONCE = 1024  # windows that are drawn together


class Windows:
    """The lengths of the windows of all steps: base with probability 0.95, else half, plus N(0, 5), at least 5.

    >>> Windows(base=70, seed=1).length(3) == Windows(base=70, seed=1).length(3)
    True
    """

    def __init__(self, *, base: int, seed: int, varied: bool = True) -> None:
        self.base, self.seed, self.varied = base, seed, varied
        self._drawn: list[Ints] = []
        self._before: list[int] = [0]  # tokens before each block of windows

    def length(self, step: int) -> int:
        """The tokens that each track reads in a step."""
        return int(self._block(step // _AT_ONCE)[step % _AT_ONCE]) if self.varied else self.base

    def start(self, step: int) -> int:
        """The tokens that each track read before a step."""
        if not self.varied:
            return step * self.base
        block, offset = divmod(step, _AT_ONCE)
        lengths = self._block(block)
        return self._before[block] + int(lengths[:offset].sum())

    def _block(self, block: int) -> Ints:
        while len(self._drawn) <= block:
            rng = generator(self.seed, "windows", len(self._drawn))
            middle = np.where(rng.random(_AT_ONCE) < _FULL, self.base, self.base / 2)
            lengths = np.maximum(_SHORTEST, rng.normal(middle, _SPREAD).astype(np.int64))
            self._drawn.append(lengths)
            self._before.append(self._before[-1] + int(lengths.sum()))
        return self._drawn[block]


class TokenTracks:
    """B tracks over the tokens of documents, each of at least `shortest` tokens."""

    def __init__(
        self, documents: Documents, vocabulary: Vocabulary, *, tracks: int, shortest: int, backward: bool = False
    ) -> None:
        self.documents, self.backward = documents, backward
        self._cls, self._sep = vocabulary.cls_id, vocabulary.sep_id
        lengths = np.asarray(documents.document_lengths, dtype=np.int64)
        self._documents = np.flatnonzero(lengths)
        self._ends = np.cumsum(lengths[self._documents] + 2)
        self.num_tokens = int(self._ends[-1]) if len(self._ends) else 0
        if self.num_tokens < tracks * shortest:
            raise CorpusError(
                expected=f"at least {tracks * shortest:,} tokens, {shortest} for each of {tracks} tracks",
                found=f"{self.num_tokens:,} in {counted(documents.num_documents, 'document')}",
                fix="use fewer tracks (--rows-per-step), shorter windows (--max-length) or more text",
            )
        self._starts = np.arange(tracks) * (self.num_tokens // tracks)

    @property
    def num_tracks(self) -> int:
        """B."""
        return len(self._starts)

    def window(self, start: int, length: int) -> tuple[Ints, Ints]:
        """The tokens of a window of each track and the piece to predict at each, int64 [B, length], in text order.

        The window starts `start` tokens after the beginning of its track. A piece to predict is the following one, or
        the preceding one if the tracks are read backward.
        """
        taken = [self._tokens((begin + start) % self.num_tokens, length + 1) for begin in self._starts.tolist()]
        tokens = np.stack(taken)  # [B, length + 1], in reading order
        read, following = tokens[:, :-1], tokens[:, 1:]
        return (read[:, ::-1], following[:, ::-1]) if self.backward else (read, following)

    def is_open(self, targets: Ints) -> npt.NDArray[np.bool_]:
        """Whether pieces have to be predicted: the first piece of a document is known, because one always follows."""
        return np.not_equal(targets, self._sep if self.backward else self._cls)

    def _tokens(self, position: int, count: int) -> Ints:
        """`count` tokens from a place of the stream on, in reading order; the stream starts again at its end."""
        if not self.backward:
            return self._forward(position, count)
        return self._forward((self.num_tokens - position - count) % self.num_tokens, count)[::-1]

    def _forward(self, position: int, count: int) -> Ints:
        """`count` tokens from a place of the text on, in text order."""
        parts, left = list[Ints](), count
        number = int(np.searchsorted(self._ends, position, side="right"))
        while left:
            document = self._document(number)
            begin = position - (int(self._ends[number]) - len(document))
            part = document[begin : begin + left]
            parts.append(part)
            left -= len(part)
            position = (position + len(part)) % self.num_tokens
            number = (number + 1) % len(self._ends)
        return np.concatenate(parts)

    def _document(self, number: int) -> Ints:
        """The tokens of a document, from [CLS] to [SEP]."""
        text = self.documents.document_tokens(int(self._documents[number]))
        return np.concatenate([[self._cls], text, [self._sep]]).astype(np.int64)
