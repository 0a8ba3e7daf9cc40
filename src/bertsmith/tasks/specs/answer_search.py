"""Answer extraction: the most likely spans of the context, from the logits of all windows.

Letters: E questions, N windows, T tokens of all windows, B best positions of a window, C candidates.

Source: `write_predictions` in the original run_squad.py. Unlike there, the best starts and ends are chosen among the
positions where an answer may start and end, so that a question cannot crowd its context out: with a long question, all
of the best positions of a row may be in it. And an answer that would begin or end inside a word has the whole word.
"""

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from bertsmith.tasks.datasets.examples import QuestionExample
from bertsmith.tasks.encoding.units import EncodedExamples, Ints, Logits
from bertsmith.tasks.specs.question_windows import Context
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.text.tokenizers.characters import PYTHON
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.unspaced import UNSPACED

_ROWS_AT_ONCE = 256
_HANGUL = re.compile("[\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff]")


class Found(NamedTuple):
    """An answer and its character span in the context; the text is empty if there is no answer."""

    text: str
    start: int
    end: int
    score: float


@dataclasses.dataclass(frozen=True)
class Candidates:
    """Candidate spans of all questions, sorted by question, then by descending score."""

    rows: Ints  # int64 [C], the window of each span
    # starts, ends: int64 [C], its first and last position in the row
    starts: Ints
    ends: Ints
    scores: npt.NDArray[np.float64]  # float64 [C], start logit + end logit
    borders: Ints  # int64 [E + 1], where the candidates of each question begin; the last entry is C


def find_answers(
    questions: Sequence[QuestionExample],
    features: EncodedExamples,
    logits: Logits,
    tokenizer: Tokenizer,
    settings: TaskSettings,
    null_scores: npt.NDArray[np.float64] | None,
) -> list[list[Found]]:
    """At most `n_best` distinct answers to each question, by descending score.

    With null scores, each question also has the empty answer; it comes last if it is not among the best.

    Args:
        logits: float32 [T, 2], for start and end.
        null_scores: float64 [E], the no-answer scores; None if every question has an answer.
    """
    contexts = cast("list[Context]", features.extra["contexts"])
    shift = cast("Ints", features.extra["window_starts"]) - cast("Ints", features.extra["first_positions"])
    candidates = candidate_spans(features, logits, len(questions), settings)
    begins = features.rows.offsets[candidates.rows]
    columns = (
        candidates.starts + shift[candidates.rows],
        candidates.ends + shift[candidates.rows],
        begins + candidates.starts,
        candidates.scores,
    )
    token_ids = features.rows.token_ids
    results = []
    for number, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        places = slice(candidates.borders[number], candidates.borders[number + 1])
        words = [question.context[start:end] for start, end in context.words.tolist()]
        word_starts, word_of_piece = context.words[:, 0].tolist(), context.word_of_piece.tolist()
        null = None if null_scores is None else Found("", 0, 0, float(null_scores[number]))
        answers: dict[str, Found] = {}
        for first, last, position, score in zip(*(column[places].tolist() for column in columns), strict=True):
            if len(answers) < settings.n_best and null is not None and score < null.score:
                answers.setdefault("", null)
            if len(answers) >= settings.n_best:
                break
            low, high = word_of_piece[first], word_of_piece[last]
            text = " ".join(words[low : high + 1])
            start, end = 0, len(text)
            if _cuts_a_word(word_of_piece, first, last):
                ids = token_ids[position : position + last - first + 1].tolist()
                ahead = context.ids[context.first_pieces[low] : first].tolist()
                start, end = with_whole_words(text, *tokenizer.locate(ids, text, ahead))
            answer = text[start:end]
            if answer not in answers:
                begin = _character(start, words, word_starts, low)
                past = _character(end - 1, words, word_starts, low) + 1
                answers[answer] = Found(answer, begin, past, score)
        if null is not None:
            answers.setdefault("", null)
        results.append(list(answers.values()))
    return results


def with_whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The span of characters, extended to the ends of the words that it cuts.

    A word is a run of letters, digits and marks. Scripts without spaces between words have a border after every
    character, and so has Korean, whose particles follow a noun without one.

    >>> text = "the fireboxes (1895-1943) of 東京タワー"
    >>> [text[slice(*with_whole_words(text, *span))] for span in ((4, 8), (9, 13), (15, 19), (20, 21), (29, 31))]
    ['fireboxes', 'fireboxes', '1895', '1943', '東京']
    """
    while start > 0 and _joins(text[start - 1]) and _joins(text[start]):
        start -= 1
    while end < len(text) and _joins(text[end - 1]) and _joins(text[end]):
        end += 1
    return start, end


@functools.cache
def _joins(character: str) -> bool:
    """Whether a character belongs to the same word as another such character next to it."""
    if character.isascii():
        return character.isalnum()
    is_part = character.isalnum() or unicodedata.category(character).startswith("M")
    is_apart = PYTHON.is_cjk(character) or UNSPACED.match(character) or _HANGUL.match(character)
    return is_part and not is_apart


def null_scores_of(features: EncodedExamples, logits: Logits, num_questions: int) -> npt.NDArray[np.float64]:
    """The no-answer scores, float64 [E]: start + end logit of [CLS], the minimum over a question's windows."""
    if not num_questions:
        return np.zeros(0)
    of_rows = logits[features.rows.offsets[:-1]].astype(np.float64).sum(axis=1)  # [N]
    first_rows = np.searchsorted(features.example_of_row, np.arange(num_questions))
    return np.asarray(np.minimum.reduceat(of_rows, first_rows))


def candidate_spans(
    features: EncodedExamples, logits: Logits, num_questions: int, settings: TaskSettings
) -> Candidates:
    """The valid spans among the `n_best` best starts and ends of each window.

    A valid span is inside the context, has at most `max_answer` pieces, and its window is the one with the most context
    for its first piece. If no window of a question has one, for example because all of the best ends precede the best
    starts, all of its valid spans are candidates. Ties are broken by the earlier window, then by the better start.
    """
    spans: list[_Spans] = [(*(np.zeros(0, np.int64),) * 3, np.zeros(0))]
    for low in range(0, len(features.lengths), _ROWS_AT_ONCE):
        rows = np.arange(low, len(features.lengths))[:_ROWS_AT_ONCE]
        spans.append(_spans_of_rows(features, logits, rows, settings.n_best, settings.max_answer))
    is_found = np.zeros(num_questions, dtype=np.bool_)
    for part in spans:
        is_found[features.example_of_row[part[0]]] = True
    for row in np.nonzero(~is_found[features.example_of_row])[0]:
        length = int(features.lengths[row])
        spans.append(_spans_of_rows(features, logits, np.array([row]), length, settings.max_answer))
    rows, starts, ends, scores = (np.concatenate(column) for column in zip(*spans, strict=True))
    examples = features.example_of_row[rows]
    order = np.lexsort((-scores, examples))
    borders = np.searchsorted(examples[order], np.arange(num_questions + 1))
    return Candidates(rows[order], starts[order], ends[order], scores[order], borders)


_Spans = tuple[Ints, Ints, Ints, npt.NDArray[np.float64]]
"""Row, start, end and score of spans."""


def _spans_of_rows(features: EncodedExamples, logits: Logits, rows: Ints, count: int, max_answer: int) -> _Spans:
    """The candidates of consecutive rows among their `count` best starts and ends, not sorted by score."""
    first = cast("Ints", features.extra["first_positions"])[rows, None]
    lengths, offsets = features.lengths[rows, None], features.rows.offsets[rows]
    positions = np.arange(lengths.max())
    inside = positions < lengths  # [n, longest]
    flat = slice(offsets[0], offsets[-1] + lengths[-1, 0])
    can_end = (positions >= first) & (positions < lengths - 1)  # the context, between [SEP] and [SEP]
    can_start = can_end.copy()
    can_start[inside] &= cast("npt.NDArray[np.bool_]", features.extra["has_max_context"])[flat]
    starts, start_logits = _best(logits[flat, 0], inside, can_start, count)  # [n, B]
    ends, end_logits = _best(logits[flat, 1], inside, can_end, count)
    size = ends[:, None, :] - starts[:, :, None] + 1  # [n, B, B]
    possible = (size >= 1) & (size <= max_answer)
    # Rows with fewer than B such positions are filled up with others.
    possible &= np.take_along_axis(can_start, starts, axis=1)[:, :, None]
    possible &= np.take_along_axis(can_end, ends, axis=1)[:, None, :]
    row, start, end = np.nonzero(possible)
    return rows[row], starts[row, start], ends[row, end], start_logits[row, start] + end_logits[row, end]


def _best(
    logits: npt.NDArray[np.float32], inside: npt.NDArray[np.bool_], allowed: npt.NDArray[np.bool_], count: int
) -> tuple[Ints, npt.NDArray[np.float64]]:
    """The allowed positions of the highest logits of each row, and those logits, [n, B] each."""
    padded = np.full(inside.shape, -np.inf, dtype=np.float32)
    padded[inside] = logits
    padded[~allowed] = -np.inf
    positions = np.argsort(-padded, axis=1, kind="stable")[:, :count]
    return positions, np.take_along_axis(padded, positions, axis=1).astype(np.float64)


def _cuts_a_word(word_of_piece: list[int], first: int, last: int) -> bool:
    """Whether the first or last word of a span has pieces outside the span."""
    before = first > 0 and word_of_piece[first - 1] == word_of_piece[first]
    return before or (last + 1 < len(word_of_piece) and word_of_piece[last + 1] == word_of_piece[last])


def _character(character: int, words: Sequence[str], word_starts: Sequence[int], word: int) -> int:
    """The character offset in the context of character `character` in the space-joined words from `word` on."""
    while character >= len(words[word]):
        character -= len(words[word]) + 1
        word += 1
    return word_starts[word] + character
