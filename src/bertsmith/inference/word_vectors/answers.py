"""Queries on word vectors: nearest words, analogies, similarities; and scores on files of questions.

All by the cosine. Opposites such as hot and cold occur in the same contexts, so they are near each other too: a high
similarity says that two words are used alike, not that they mean the same.

V words, D width, Q questions.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertsmith.base.core.errors import InputError
from bertsmith.base.core.progress import Progress, counted
from bertsmith.base.storage.files import require_file
from bertsmith.inference.word_vectors.request import MOST_FREQUENT
from bertsmith.inference.word_vectors.word_vectors import Floats, WordVectors
from bertsmith.tasks.metrics.numbers import spearman

_BLOCK = 256


class Neighbor(NamedTuple):
    """A word and its cosine with the query."""

    word: str
    cosine: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnalogyScore:
    """The accuracy on a section of analogy questions."""

    name: str
    correct: int
    asked: int  # questions of which all four words have a vector (and are frequent enough)
    left_out: int

    @property
    def accuracy(self) -> float | None:
        """Of the questions that were asked; None if there are none."""
        return self.correct / self.asked if self.asked else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimilarityScore:
    """The rank correlation with judged pairs; `left_out` counts pairs of which a word has no vector."""

    spearman: float
    pairs: int
    left_out: int


def neighbors(vectors: WordVectors, word: str, count: int = 10) -> list[Neighbor]:
    """The `count` words with the highest cosine with a word, itself excluded, highest first.

    Raises:
        InputError: the word has no vector.
    """
    row = vectors.rows([word])[0]
    return _nearest(vectors, vectors.units[row], count, without=[row])


def analogy(
    vectors: WordVectors, a: str, b: str, c: str, count: int = 1, *, most_frequent: int = MOST_FREQUENT
) -> list[Neighbor]:
    """The words that are to c as b is to a, by the cosine with b - a + c; none of the three itself.

    Args:
        count: the number of words that are returned.
        most_frequent: the number of most frequent words that may answer; 0 for all.

    Raises:
        InputError: a word has no vector.
    """
    rows = vectors.rows([a, b, c])
    first, second, third = vectors.units[rows]
    return _nearest(vectors, second - first + third, count, without=rows, most_frequent=most_frequent)


def similarity(vectors: WordVectors, a: str, b: str) -> float:
    """The cosine of two words, from -1 to 1."""
    first, second = vectors.units[vectors.rows([a, b])]
    return float(first @ second)


def score_analogies(
    vectors: WordVectors, path: Path | str, *, most_frequent: int = MOST_FREQUENT
) -> list[AnalogyScore]:
    """The accuracy on each section of a file of analogies, and on all of them, "total", at the end.

    Args:
        path: four words per line, `Athens Greece Oslo Norway`; a line `: name` starts a section.
        most_frequent: the number of most frequent words that may answer; questions with others are left out. 0 for all.
    """
    sections = _read_questions(Path(path))
    last = most_frequent if most_frequent else len(vectors.words)
    scores = []
    with Progress("answering analogies", sum(len(asked) for _, asked in sections), "questions") as progress:
        for name, questions in sections:
            rows = [[vectors.row(word) for word in question] for question in questions]
            known = np.array(
                [row for row in rows if all(index is not None and index < last for index in row)], dtype=np.int64
            ).reshape(-1, 4)
            correct = 0
            for start in range(0, len(known), _BLOCK):
                part = known[start : start + _BLOCK]
                correct += _correct(vectors, part, last)
                progress.advance(len(part))
            progress.advance(len(questions) - len(known))
            left_out = len(questions) - len(known)
            scores.append(AnalogyScore(name=name, correct=correct, asked=len(known), left_out=left_out))
    total = {key: sum(getattr(score, key) for score in scores) for key in ("correct", "asked", "left_out")}
    if not total["asked"]:
        raise InputError(
            expected=f"vectors of all four words of a question in '{path}'",
            found=f"none for {counted(total['left_out'], 'question')}",
            fix="use vectors of more words, --lowercase, or another --most-frequent",
        )
    return [*scores, AnalogyScore(name="total", **total)]


def score_similarities(vectors: WordVectors, path: Path | str) -> SimilarityScore:
    """The rank correlation (Spearman) of cosines with the scores of a file of judged pairs.

    Args:
        path: `word word score` per line, with tabs, commas or spaces between; a first line without a score is a header,
            and a line that starts with # a comment.
    """
    pairs = _read_pairs(Path(path))
    gold, cosines = [], []
    for first, second, score in pairs:
        rows = vectors.row(first), vectors.row(second)
        if rows[0] is not None and rows[1] is not None:
            gold.append(score)
            cosines.append(float(vectors.units[rows[0]] @ vectors.units[rows[1]]))
    if len(gold) < 2:
        raise InputError(
            expected=f"vectors of both words of at least two pairs in '{path}'",
            found=f"{len(gold)} of {len(pairs):,}",
            fix="use vectors of more words, or --lowercase",
        )
    return SimilarityScore(spearman=spearman(gold, cosines), pairs=len(gold), left_out=len(pairs) - len(gold))


def text_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a file of questions that are not blank, with their numbers from 1."""
    require_file(path, "a file of questions")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(expected=f"UTF-8 in '{path}'", found="other bytes", fix="save it as UTF-8") from None
    return [(number, line.strip()) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _nearest(
    vectors: WordVectors, wanted: Floats, count: int, *, without: Sequence[int], most_frequent: int = 0
) -> list[Neighbor]:
    among = vectors.units[: most_frequent or None]
    length = float(np.linalg.norm(wanted))
    cosines = among @ (wanted / length if length else wanted)
    cosines[[row for row in without if row < len(cosines)]] = -np.inf
    count = min(count, len(cosines) - len({row for row in without if row < len(cosines)}))
    chosen = np.argsort(-cosines, kind="stable")[: max(count, 0)]
    return [Neighbor(vectors.words[row], float(cosines[row])) for row in chosen.tolist()]


def _correct(vectors: WordVectors, questions: "np.ndarray[tuple[int, int], np.dtype[np.int64]]", last: int) -> int:
    """How many questions [Q, 4] get the right answer among the first `last` words."""
    a, b, c, right = questions.T
    units = vectors.units
    cosines = (units[b] - units[a] + units[c]) @ units[:last].T  # [Q, last]; the length of the left side is no matter
    places = np.arange(len(questions))
    for rows in (a, b, c):
        cosines[places, rows] = -np.inf
    return int((cosines.argmax(axis=1) == right).sum())


def _read_questions(path: Path) -> list[tuple[str, list[list[str]]]]:
    sections: list[tuple[str, list[list[str]]]] = []
    for number, line in text_lines(path):
        if line.startswith(":"):
            sections.append((line[1:].strip(), []))
            continue
        words = line.split()
        if len(words) != 4:
            raise InputError(
                expected=f"four words in line {number:,} of '{path}'", found=f"{len(words)}", fix="correct the line"
            )
        if not sections:
            sections.append(("questions", []))
        sections[-1][1].append(words)
    return sections


def _read_pairs(path: Path) -> list[tuple[str, str, float]]:
    pairs: list[tuple[str, str, float]] = []
    is_first = True
    for number, line in text_lines(path):
        if line.startswith("#"):
            continue
        separator = "\t" if "\t" in line else "," if "," in line else None
        parts = [part.strip() for part in line.split(separator)]
        try:
            first, second, score = parts[0], parts[1], float(parts[2])
        except (IndexError, ValueError):
            if is_first:  # names of columns
                is_first = False
                continue
            raise InputError(
                expected=f"two words and a score in line {number:,} of '{path}'",
                found=repr(line[:40]),
                fix="correct it",
            ) from None
        is_first = False
        pairs.append((first, second, score))
    return pairs
