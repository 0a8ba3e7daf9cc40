"""How a head that writes texts is asked to write, and its answers as numbers, which travel like the logits of others.

An answer is a text as ids with its score. In a row of the results, each answer takes as many numbers as any other: the
score, whether the model ended the text, the count of its pieces, and their ids, which are below 2^24 and so exact in
fp32.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # the importer has it already; here it would be one more link of the longest chain
    from bertsmith.text.tokenizers.tokenizer import Tokenizer

_FIXED = 3  # numbers of an answer in front of its pieces


class Guide(abc.ABC):
    """What may follow in a text that is being written for one source, by the form of the task's texts.

    It is a value: guides of the same source at the same place are equal.
    """

    @abc.abstractmethod
    def allowed(self, left: int) -> Collection[int]:
        """The ids that may follow, at least one, where `left` pieces are left, the end of the text included."""

    @abc.abstractmethod
    def after(self, id: int) -> "Guide":
        """The guide behind a piece that may follow."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A text as ids, without special pieces.

    Attributes:
        score: its log probability in nats, divided by the length penalty.
        has_ended: whether the model ended it; otherwise it has the maximum length.
    """

    ids: tuple[int, ...]
    score: float
    has_ended: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Writing:
    """How texts are written.

    Attributes:
        start, end: the ids in front of a text and behind it.
        pieces: the number of pieces of the vocabulary.
        never: ids that are not written.
        longest: the most pieces of a text.
        shortest: the least pieces of a text.
        beam: the number of open texts; 1 for greedy search.
        length_penalty: the log probability is divided by ((5 + pieces) / 6) to this power.
        no_repeat_ngram: pieces in a row that do not occur twice in a text; 0 for no limit.
        answers: the number of texts for each source, the best ones.
        on_pieces: receives the pieces so far of the best open text, at each step; for a single source.
    """

    start: int
    end: int
    pieces: int
    never: tuple[int, ...] = ()
    longest: int = 10**6
    shortest: int = 0
    beam: int = 1
    length_penalty: float = 0.0
    no_repeat_ngram: int = 0
    answers: int = 1
    on_pieces: Callable[[Sequence[int]], None] | None = dataclasses.field(default=None, compare=False, repr=False)

    @staticmethod
    def with_pieces_of(tokenizer: "Tokenizer", **how: Any) -> "Writing":
        """Texts of a tokenizer's pieces without special ones; `how` are the other attributes."""
        template, vocabulary = tokenizer.template, tokenizer.vocabulary
        start, end = template.start[0], template.end[0]
        never = tuple(sorted(vocabulary.special_ids - {end}))
        return Writing(start=start, end=end, pieces=len(vocabulary), never=never, **how)

    @property
    def greedy(self) -> "Writing":
        """The same for a quick look: one answer, from the most likely piece at each step."""
        return dataclasses.replace(self, beam=1, answers=1)

    @property
    def width(self) -> int:
        """The numbers for one source."""
        return self.answers * (_FIXED + self.longest)

    def penalty(self, pieces: int) -> float:
        """The divisor of the log probability of a text of `pieces` pieces, the end included."""
        return math.pow((5 + pieces) / 6, self.length_penalty)

    def banned(self, written: Sequence[int]) -> set[int]:
        """The pieces that would repeat a run of `no_repeat_ngram` pieces.

        >>> Writing(start=2, end=3, pieces=9, no_repeat_ngram=2).banned([5, 6, 5])
        {6}
        """
        size = self.no_repeat_ngram
        if not size or len(written) < size:
            return set()
        last = tuple(written[len(written) - size + 1 :])
        starts = range(len(written) - size + 1)
        return {written[start + size - 1] for start in starts if tuple(written[start : start + size - 1]) == last}

    def as_numbers(self, answers: Sequence[Finished]) -> npt.NDArray[np.float32]:
        """The answers to one source, float32 [width]; there may be fewer than `answers`."""
        numbers = np.zeros((self.answers, _FIXED + self.longest), dtype=np.float32)
        numbers[len(answers) :, 2] = -1
        for row, answer in zip(numbers, answers, strict=False):
            row[:_FIXED] = (answer.score, answer.has_ended, len(answer.ids))
            row[_FIXED : _FIXED + len(answer.ids)] = answer.ids
        return numbers.ravel()

    def from_numbers(self, numbers: npt.NDArray[np.float32]) -> list[Finished]:
        """The answers in such a row, the best one first; at least one.

        >>> writing = Writing(start=2, end=3, pieces=9, longest=4, answers=2)
        >>> writing.from_numbers(writing.as_numbers([Finished((5, 6), -0.5, True)]))
        [Finished(ids=(5, 6), score=-0.5, has_ended=True)]
        """
        rows = numbers.reshape(self.answers, _FIXED + self.longest)
        return [
            Finished(tuple(row[_FIXED : _FIXED + int(row[2])].astype(np.int64).tolist()), float(row[0]), bool(row[1]))
            for row in rows
            if row[2] >= 0
        ]
