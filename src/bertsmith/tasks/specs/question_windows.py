"""Questions and contexts as windows, and the position of the answer in each window.

Letters: E questions, N windows, T tokens of all windows, W words and P pieces of one context.

Source: `read_squad_examples`, `convert_examples_to_features` and `_improve_answer_span` in the original run_squad.py.
"""

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.datasets.examples import Answer, QuestionExample
from bertsmith.tasks.encoding.units import PER_ROW, EncodedExamples, Ints
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.text.tokenizers.characters import PYTHON
from bertsmith.text.tokenizers.encoded import Encoded, Ids, places_of
from bertsmith.text.tokenizers.pack import PackedRows, pack_rows
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.windows import Windows, windows

_WORD = re.compile(r"[^ \t\r\n\u202f]+")
NOWHERE = (-1, -1)


@dataclasses.dataclass(frozen=True)
class Context:
    """The words and pieces of a context."""

    words: Ints  # int64 [W, 2], the characters (start, end) of each word
    first_pieces: Ints  # int64 [W + 1], the first piece of each word; a word of removed characters only has no piece
    ids: Ids  # int32 [P]

    @functools.cached_property
    def word_of_piece(self) -> Ints:
        """The word that each piece belongs to, int64 [P]."""
        return np.repeat(np.arange(len(self.words)), np.diff(self.first_pieces))

    def words_of(self, start: int, end: int) -> tuple[int, int]:
        """The first and last word of an answer, given its character span; the context must have words."""
        ends = np.searchsorted(self.words[:, 0], [start, end - 1], side="right") - 1
        first, last = np.maximum(ends, 0).tolist()
        return first, last

    def pieces_of(self, start: int, end: int, answer_ids: Ids, before: int = 0) -> tuple[int, int]:
        """The first and last piece of an answer, or `NOWHERE` if its words have no pieces.

        These cover the answer's words, or, if possible, only the part of them that equals the answer's pieces: `1895`
        in the word `(1895-1943)`.

        Args:
            start, end: the characters of the answer, end one past the last.
            answer_ids: the pieces of the answer encoded alone.
            before: how many pieces of its words precede it; if several parts match, the nearest is taken.
        """
        if not len(self.words):
            return NOWHERE
        first_word, last_word = self.words_of(start, end)
        first, past = int(self.first_pieces[first_word]), int(self.first_pieces[last_word + 1])
        context_ids, wanted = self.ids[first:past].tolist(), answer_ids.tolist()
        begins = range(len(context_ids) - len(wanted) + 1) if wanted else ()
        equal = (begin for begin in begins if context_ids[begin : begin + len(wanted)] == wanted)
        nearest = min(equal, key=lambda begin: abs(begin - before), default=None)
        if nearest is not None:
            return first + nearest, first + nearest + len(wanted) - 1
        return (first, past - 1) if past > first else NOWHERE


def read_questions(questions: Sequence[QuestionExample], tokenizer: Tokenizer) -> tuple[Encoded, list[Context]]:
    """The pieces of the questions, and their contexts, split at white space into words, and the words into pieces.

    Questions about the same text share its context.
    """
    numbers: dict[str, int] = {}
    of_questions = [numbers.setdefault(question.context, len(numbers)) for question in questions]
    places = [[match.span() for match in _WORD.finditer(text)] for text in numbers]
    if not all(question.pieces for question in questions):
        encoded = tokenizer.encode_batch([question.question for question in questions])
        words = [text[start:end] for text, spans in zip(numbers, places, strict=True) for start, end in spans]
        spaced = [start > 0 for spans in places for start, _ in spans]
        parts = dict(enumerate(tokenizer.encode_words(words, spaced).split(map(len, places))))
    else:
        both = [question.pieces.split([1, len(question.pieces) - 1]) for question in questions if question.pieces]
        encoded = Encoded.joined([alone for alone, _ in both])
        parts = {number: words for number, (_, words) in zip(of_questions, both, strict=True)}
    contexts = [
        Context(np.array(spans, dtype=np.int64).reshape(-1, 2), parts[number].offsets, parts[number].ids)
        for number, spans in enumerate(places)
    ]
    return encoded, [contexts[number] for number in of_questions]


def with_read(questions: Sequence[QuestionExample], tokenizer: Tokenizer) -> list[QuestionExample]:
    """The questions with the pieces of their texts, as `read_questions` reads them."""
    encoded, contexts = read_questions(questions, tokenizer)
    parts = [Encoded(context.ids, context.first_pieces) for context in contexts]
    return [
        dataclasses.replace(question, pieces=Encoded.joined([alone, words]))
        for question, alone, words in zip(questions, encoded.split([1] * len(questions)), parts, strict=True)
    ]


def encode_questions(
    questions: Sequence[QuestionExample], tokenizer: Tokenizer, settings: TaskSettings, *, training: bool
) -> EncodedExamples:
    """Each window as a unit; its targets are the row positions where the first answer starts and ends.

    Both targets are 0, the position of [CLS], if the window does not hold the whole answer or there is none. If any
    question has no gold, there are no targets. For decoding, `extra` has:

    - `contexts`: the `Context` of each question; questions about the same text share one object.
    - `window_starts`: int64 [N], the first piece of the context in each window.
    - `first_positions`: int64 [N], the position of that piece in the row.
    - `has_max_context`: bool [T], see `text.tokenizers.windows`.
    """
    encoded, contexts = read_questions(questions, tokenizer)
    layout = _layout(encoded, contexts, tokenizer, settings)
    targets = None
    if questions and all(question.answers or question.is_impossible for question in questions):
        answer = _answer_pieces(questions, contexts, tokenizer)[layout.example_of_row]
        inside = (answer[:, 0] >= layout.starts) & (answer[:, 1] < layout.ends)
        targets = np.where(inside[:, None], answer + (layout.first_positions - layout.starts)[:, None], 0)
    extra: dict[str, object] = {}
    if not training:
        extra = {
            "contexts": contexts,
            "window_starts": layout.starts,
            "first_positions": layout.first_positions,
            "has_max_context": layout.has_max_context,
        }
    return EncodedExamples(
        rows=layout.rows,
        rows_per_unit=np.ones(len(layout.starts), dtype=np.int64),
        example_of_row=layout.example_of_row,
        read=None,
        targets=targets,
        targets_per=PER_ROW,
        extra=extra,
    )


class _Layout(NamedTuple):
    """The windows of all questions; see `encode_questions` and `text.tokenizers.windows.Windows`."""

    rows: PackedRows
    example_of_row: Ints
    starts: Ints
    ends: Ints
    first_positions: Ints
    has_max_context: npt.NDArray[np.bool_]


def _layout(questions: Encoded, contexts: Sequence[Context], tokenizer: Tokenizer, settings: TaskSettings) -> _Layout:
    """The windows of all questions; only contexts too long for one window are processed individually."""
    template = tokenizer.template
    room = settings.max_length - template.num_special(2)
    kept = [ids[: settings.max_question] for ids in questions]
    cut: dict[int, Windows] = {}
    for number, (ids, context) in enumerate(zip(kept, contexts, strict=True)):
        if len(ids) + len(context.ids) > room:
            cut[number] = windows(
                ids,
                context.ids,
                template=tokenizer.template,
                max_length=settings.max_length,
                stride=settings.stride,
                max_question=settings.max_question,
            )
    counts = np.array([len(cut[number]) if number in cut else 1 for number in range(len(kept))], dtype=np.int64)
    example_of_row = np.repeat(np.arange(len(kept)), counts)
    first_rows = np.cumsum(counts) - counts
    starts = np.zeros(len(example_of_row), dtype=np.int64)
    ends = np.array([len(context.ids) for context in contexts], dtype=np.int64)[example_of_row]
    for number, cuts in cut.items():
        rows_of = slice(first_rows[number], first_rows[number] + len(cuts))
        starts[rows_of], ends[rows_of] = cuts.starts, cuts.ends
    places = zip(example_of_row.tolist(), starts.tolist(), ends.tolist(), strict=True)
    rows = pack_rows(
        [kept[number] for number in example_of_row.tolist()],
        [contexts[number].ids[start:end] for number, start, end in places],
        template=tokenizer.template,
        max_length=settings.max_length,
    )
    kept_lengths = np.array([len(ids) for ids in kept], dtype=np.int64)
    lost = (questions.lengths - kept_lengths)[example_of_row]
    first_positions = (template.second_text(0) + kept_lengths)[example_of_row]
    has_max_context = np.zeros(len(rows.token_ids), dtype=np.bool_)
    has_max_context[places_of(rows.offsets[:-1] + first_positions, ends - starts)] = True
    for number, cuts in cut.items():
        begin = rows.offsets[first_rows[number]]
        has_max_context[begin : begin + len(cuts.has_max_context)] = cuts.has_max_context
    return _Layout(
        rows=dataclasses.replace(rows, cut_by_row=lost.astype(np.int32)),
        example_of_row=example_of_row,
        starts=starts,
        ends=ends,
        first_positions=first_positions,
        has_max_context=has_max_context,
    )


def _answer_pieces(questions: Sequence[QuestionExample], contexts: Sequence[Context], tokenizer: Tokenizer) -> Ints:
    """The first and last piece of the first answer to each question, int64 [E, 2]."""
    answers = [None if question.is_impossible else question.answers[0] for question in questions]
    encoded = tokenizer.encode_batch(["" if answer is None else answer.text for answer in answers])
    pieces = [
        NOWHERE
        if answer is None
        else context.pieces_of(
            answer.start,
            answer.start + len(answer.text),
            ids,
            _pieces_before(answer, question.context, context, tokenizer),
        )
        for question, answer, context, ids in zip(questions, answers, contexts, encoded, strict=True)
    ]
    return np.array(pieces, dtype=np.int64).reshape(-1, 2)


def _pieces_before(answer: Answer, text: str, context: Context, tokenizer: Tokenizer) -> int:
    """How many pieces of an answer's words precede it.

    0 if none of their characters is Chinese, so that the first match is used, as in the original code. A text without
    spaces is one long word, in which an answer such as a number may occur many times.
    """
    if not len(context.words):
        return 0
    first, last = context.words_of(answer.start, answer.start + len(answer.text))
    begin, end = int(context.words[first, 0]), int(context.words[last, 1])
    if text[begin:end].isascii() or not any(map(PYTHON.is_cjk, text[begin:end])):
        return 0
    return len(tokenizer.encode(text[begin : answer.start]))
