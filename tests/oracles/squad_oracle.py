"""Question answering in the slowest, most obvious way: windows, labels and answers, one position at a time.

It uses nothing from the package, so that a mistake there is not repeated here. Texts are split by functions that are
passed in: `tokenize` returns the pieces of a text, `basic` its basic tokens.
"""

import unicodedata
from collections.abc import Callable
from typing import NamedTuple

from oracles.wordpiece_oracle import _is_chinese

Cut = Callable[[str], list[str]]


class Window(NamedTuple):
    tokens: list[str]
    piece_at: dict[int, int]  # position in the row -> piece of the context
    best: set[int]  # positions whose piece has the most context here
    label: tuple[int, int]


def words_of(context: str) -> list[tuple[int, str]]:
    """(first character, word) of every word."""
    words, open_word = [], False
    for position, character in enumerate(context):
        if character in " \t\r\n\u202f":
            open_word = False
        elif open_word:
            words[-1] = (words[-1][0], words[-1][1] + character)
        else:
            words.append((position, character))
            open_word = True
    return words


def pieces_of(context: str, tokenize: Cut) -> list[tuple[str, int]]:
    """(piece, index of its word) of every piece."""
    return [(piece, number) for number, (_, word) in enumerate(words_of(context)) for piece in tokenize(word)]


def answer_pieces(context: str, answer: str, start: int, tokenize: Cut) -> tuple[int, int] | None:
    """The first and last piece of an answer: all pieces of its words, or the first span that is exactly the answer.

    Unlike in the original, if there are several such spans in words with Chinese characters, the nearest one is used.
    """
    words, pieces = words_of(context), pieces_of(context, tokenize)
    touched = set()
    for position in (start, start + len(answer) - 1):
        before = [number for number, (first, _) in enumerate(words) if first <= position]
        touched.add(before[-1] if before else 0)
    inside = [index for index, (_, word) in enumerate(pieces) if min(touched) <= word <= max(touched)]
    if not inside:
        return None
    wanted = " ".join(tokenize(answer))
    result = [
        (first, last)
        for first in range(inside[0], inside[-1] + 1)
        for last in range(inside[-1], first - 1, -1)
        if " ".join(piece for piece, _ in pieces[first : last + 1]) == wanted
    ]
    if not result:
        return inside[0], inside[-1]
    if any(_is_chinese(ord(character)) for _, word in words[min(touched) : max(touched) + 1] for character in word):
        expected = inside[0] + len(tokenize(context[words[min(touched)][0] : start]))
        return min(result, key=lambda span: abs(span[0] - expected))
    return result[0]


def windows_of(
    question: str,
    context: str,
    answer: tuple[str, int] | None,
    tokenize: Cut,
    *,
    max_length: int,
    stride: int,
    max_question: int,
) -> list[Window]:
    asked = tokenize(question)[:max_question]
    pieces = [piece for piece, _ in pieces_of(context, tokenize)]
    room = max_length - len(asked) - 3
    spans, start = [], 0
    while True:
        size = min(room, len(pieces) - start)
        spans.append((start, size))
        if start + size >= len(pieces):
            break
        start += min(size, stride)
    gold = None if answer is None else answer_pieces(context, *answer, tokenize)
    result = []
    for number, (start, size) in enumerate(spans):
        before = len(asked) + 2
        piece_at = {before + step: start + step for step in range(size)}
        best = {index for index, piece in piece_at.items() if _best_window(spans, piece) == number}
        label = (0, 0)
        if gold is not None and start <= gold[0] and gold[1] < start + size:
            label = (gold[0] - start + before, gold[1] - start + before)
        tokens = ["[CLS]", *asked, "[SEP]", *pieces[start : start + size], "[SEP]"]
        result.append(Window(tokens, piece_at, best, label))
    return result


def _best_window(spans: list[tuple[int, int]], piece: int) -> int:
    scores = {
        number: min(piece - start, start + size - 1 - piece) + 0.01 * size
        for number, (start, size) in enumerate(spans)
        if start <= piece < start + size
    }
    return max(scores, key=scores.__getitem__)


def answers_of(
    context: str,
    windows: list[Window],
    logits: list[list[tuple[float, float]]],
    tokenize: Cut,
    basic: Cut,
    *,
    n_best: int,
    max_answer: int,
    unanswerable: bool,
) -> tuple[list[tuple[str, float]], float | None]:
    """((answer, score) in descending order, score of no answer minus that of the best answer)."""
    null = min(row[0][0] + row[0][1] for row in logits)
    # Unlike in the original, only positions where an answer may start or end are among the best.
    spans = _spans(windows, logits, n_best, max_answer) or _spans(windows, logits, None, max_answer)
    if unanswerable:
        spans.append((null, None, 0, 0))
    spans.sort(key=lambda span: -span[0])
    words, pieces = words_of(context), pieces_of(context, tokenize)
    answers = {}
    for score, window, start, end in spans:
        if len(answers) == n_best:
            break
        text = ""
        if window is not None:
            first, last = pieces[window.piece_at[start]][1], pieces[window.piece_at[end]][1]
            original = " ".join(word for _, word in words[first : last + 1])
            text = final_text(window.tokens[start : end + 1], original, basic, whole_words=True)
        answers.setdefault(text, score)
    if unanswerable:
        answers.setdefault("", null)
    ranked = list(answers.items())
    if not unanswerable:
        return ranked, None
    return ranked, null - next((score for text, score in ranked if text), 0.0)


def _spans(
    windows: list[Window], logits: list[list[tuple[float, float]]], n_best: int | None, max_answer: int
) -> list[tuple[float, Window | None, int, int]]:
    """(score, window, start, end) of the valid spans of the best starts and ends of each window; None: of all."""
    spans = []
    for window, row in zip(windows, logits, strict=True):
        starts = sorted(window.best, key=lambda index: (-row[index][0], index))[:n_best]
        ends = sorted(window.piece_at, key=lambda index: (-row[index][1], index))[:n_best]
        spans += [
            (row[start][0] + row[end][1], window, start, end)
            for start in starts
            for end in ends
            if start <= end < start + max_answer
        ]
    return spans


def final_text(pieces: list[str], original: str, basic: Cut, *, whole_words: bool = False) -> str:
    predicted = " ".join(" ".join(pieces).replace(" ##", "").replace("##", "").split())
    tokens = " ".join(basic(original))
    begin = tokens.find(predicted)
    if begin == -1 or not predicted:
        return original
    numbered = [position for position, character in enumerate(tokens) if character != " "]
    originals = [position for position, character in enumerate(original) if character != " "]
    if len(numbered) != len(originals):
        return original
    first = originals[numbered.index(begin)]
    last = originals[numbered.index(begin + len(predicted) - 1)]
    if whole_words:  # unlike in the original
        while first > 0 and _is_letter(original[first - 1]) and _is_letter(original[first]):
            first -= 1
        while last + 1 < len(original) and _is_letter(original[last]) and _is_letter(original[last + 1]):
            last += 1
    return original[first : last + 1]


def _is_letter(character: str) -> bool:
    scripts = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "HANGUL", "THAI", "LAO", "KHMER", "MYANMAR")
    if unicodedata.name(character, "").startswith(scripts):
        return False
    return character.isalnum() or unicodedata.category(character)[0] == "M"
