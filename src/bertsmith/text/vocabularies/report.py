"""How a vocabulary splits texts, computed from their word counts alone: each distinct word is split once."""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizers.encoded import places_of
from bertsmith.text.tokenizers.keys import Integers
from bertsmith.text.tokenizers.longest_match import WordsSegmenter
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, SPECIAL_PIECES, Vocabulary
from bertsmith.text.vocabularies.word_counts import WordCounts

TOTAL = "total"
# With more texts, their rows are in the report file only.
MOST_ROWS = 20
_LISTED = 5
_MANY_SPARE = 0.5  # fraction of a vocabulary that is worth a word of advice
_COLUMNS = ("text", "words", "pieces/chunk", "pieces/word", "unknown", "characters", "whole words", "longest piece")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFigures:
    """How the words of one text are split; all figures count repetitions.

    Args:
        chunks: stretches between white space.
        words: basic tokens: words and punctuation characters.
        whole: words that are a single piece other than [UNK].
        covered: characters that are a piece of their own in the form in which they occur (`a` or `##a`).
        longest: the longest pieces used, longest first.
    """

    name: str
    chunks: int
    words: int
    pieces: int
    unknown: int
    whole: int
    characters: int
    covered: int
    longest: tuple[str, ...]

    @property
    def pieces_per_word(self) -> float:
        """Pieces per basic token."""
        return self.pieces / max(self.words, 1)

    @property
    def pieces_per_chunk(self) -> float:
        """Pieces per stretch between white space."""
        return self.pieces / max(self.chunks, 1)

    @property
    def excess(self) -> float:
        """Pieces in excess of one per basic token, per stretch between white space."""
        return (self.pieces - self.words) / max(self.chunks, 1)

    @property
    def unknown_rate(self) -> float:
        """The fraction of words that are [UNK]."""
        return self.unknown / max(self.words, 1)

    @property
    def covered_rate(self) -> float:
        """The fraction of characters that are covered."""
        return self.covered / max(self.characters, 1)

    @property
    def whole_rate(self) -> float:
        """The fraction of words that are a single piece."""
        return self.whole / max(self.words, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularyReport:
    """The figures of each text and of all texts together, and the unused part of the vocabulary.

    Args:
        never_used: the number of other pieces that no text uses, without the special pieces.
        missing_characters: characters in a form that is not a piece, and their counts; most frequent first.
    """

    texts: tuple[TextFigures, ...]
    total: TextFigures
    size: int
    spare: int
    never_used: int
    missing_characters: dict[str, int]

    def lines(self, file: str = "") -> list[str]:
        """The report as a table and a few sentences."""
        is_short = not file or len(self.texts) <= MOST_ROWS
        rows = [_COLUMNS, *map(_row, self.texts if is_short else ())]
        if len(self.texts) != 1:
            rows.append(_row(self.total))
        widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
        table = ["  ".join(_padded(row, widths)).rstrip() for row in rows]
        if not is_short:
            table.append(f"the figures of each of the {len(self.texts):,} texts: {file}")
        table.append("")
        table.append(f"{self.size} pieces: {self.never_used} never used in these texts, {self.spare} spare [unused]")
        table.append(f"longest pieces: {' '.join(self.total.longest) or 'none'}")
        if self.missing_characters:
            shown = [f"{form} ({count})" for form, count in list(self.missing_characters.items())[:_LISTED]]
            more = len(self.missing_characters) - len(shown)
            tail = f" and {more} more" if more else ""
            table.append(f"characters that are not pieces, so their words may be [UNK]: {' '.join(shown)}{tail}")
        if self.spare > _MANY_SPARE * self.size:
            used = self.size - self.spare
            table.append(
                f"advice: these texts are too short for {self.size:,} pieces, and all but {used:,} are spare; with a "
                "smaller --size, a model is smaller and trains faster"
            )
        return table


def vocabulary_report(
    vocabulary: Vocabulary,
    counts: Mapping[str, Mapping[str, int]],
    *,
    total: WordCounts | None = None,
    max_word_characters: int = TextRules.max_word_characters,
    tokenizer: Tokenizer | None = None,
    end_of_word: str = "",
) -> VocabularyReport:
    """The report on how `vocabulary` splits some texts.

    Args:
        counts: the word counts of each text by its name; only `WordCounts` include chunks, otherwise words are used.

    >>> pieces = [*SPECIAL_PIECES, "[unused0]", "t", "tweet", "##ing", "##s"]
    >>> report = vocabulary_report(Vocabulary(pieces), {"a.txt": {"tweeting": 3, "tweet": 1, "thing": 1}})
    >>> report.total.pieces, report.total.unknown, report.total.pieces_per_word, report.never_used
    (8, 1, 1.6, 2)
    """
    texts = {name: WordCounts.of(words) for name, words in counts.items()}
    all_words = WordCounts.merged(texts.values()) if total is None else total
    if tokenizer is None:
        ids, lengths = WordsSegmenter(vocabulary, max_word_characters=max_word_characters).segment(all_words.words)
    else:
        encoded = tokenizer.encode_words(all_words.words)
        ids, lengths = encoded.ids, encoded.lengths
    cuts = _Cuts(vocabulary, all_words, ids, lengths, end_of_word)
    rows = [cuts.figures(name, words, words.places_in(all_words)) for name, words in texts.items()]
    spare = len(vocabulary.spare_ids)
    is_used = np.zeros(len(vocabulary), dtype=np.bool_)
    is_used[cuts.pieces] = True
    is_used[list(vocabulary.special_ids)] = False
    return VocabularyReport(
        texts=tuple(rows),
        total=cuts.figures(TOTAL, all_words, np.arange(len(all_words))),
        size=len(vocabulary),
        spare=spare,
        never_used=len(vocabulary) - spare - len(SPECIAL_PIECES) - int(np.count_nonzero(is_used)),
        missing_characters=dict(sorted(cuts.missing.items(), key=lambda item: (-item[1], item[0]))),
    )


class _Cuts:
    """Distinct words, each split once."""

    def __init__(
        self, vocabulary: Vocabulary, words: WordCounts, ids: npt.NDArray[Any], lengths: Integers, end_of_word: str
    ) -> None:
        self.pieces, self._lengths = ids.astype(np.int64), lengths
        self._begins = np.cumsum(self._lengths) - self._lengths
        unknown = np.repeat(np.arange(len(words)), lengths)[self.pieces == vocabulary.unk_id]
        self._is_unknown = np.bincount(unknown, minlength=len(words)) > 0
        self._is_whole = (self._lengths == 1) & ~self._is_unknown
        self._characters = np.fromiter(map(len, words.words), np.int64, len(words))
        self._by_length, self._rank = _by_length(vocabulary, end_of_word)
        self.missing, missing_per_word = _missing_forms(vocabulary, words, self._characters, end_of_word)
        self._covered = self._characters - missing_per_word

    def uses(self, words: Integers) -> Integers:
        """The positions in `pieces` of the pieces of some words."""
        lengths = self._lengths[words]
        return places_of(self._begins[words], lengths)

    def figures(self, name: str, counts: WordCounts, words: Integers) -> TextFigures:
        """The figures of a text with `counts` of the words whose indices are `words`."""
        is_used = np.zeros(len(self._by_length) + 1, dtype=np.bool_)  # the last entry is for special pieces
        is_used[self._rank[self.pieces[self.uses(words)]]] = True
        longest = [self._by_length[rank] for rank in np.flatnonzero(is_used[:-1])[:_LISTED].tolist()]
        times = counts.counts
        return TextFigures(
            name=name,
            chunks=counts.chunks,
            words=int(times.sum()),
            pieces=int(times @ self._lengths[words]),
            unknown=int(times @ self._is_unknown[words]),
            whole=int(times @ self._is_whole[words]),
            characters=int(times @ self._characters[words]),
            covered=int(times @ self._covered[words]),
            longest=tuple(longest),
        )


def _by_length(vocabulary: Vocabulary, end_of_word: str) -> tuple[list[str], Integers]:
    """(the pieces, longest first, without the special ones; for each id its place there, past the end if special)."""
    pieces = vocabulary.pieces
    ids = [id for id in sorted(range(len(vocabulary)), key=pieces.__getitem__) if id not in vocabulary.special_ids]
    ids.sort(key=lambda id: -len(_letters(pieces[id], end_of_word)))
    rank = np.full(len(vocabulary), len(ids), dtype=np.int64)
    rank[ids] = np.arange(len(ids))
    return [pieces[id] for id in ids], rank


def _letters(piece: str, end_of_word: str) -> str:
    """A piece without the mark that tells its place in a word."""
    return piece.removesuffix(end_of_word) if end_of_word else piece.removeprefix(CONTINUATION)


def _missing_forms(
    vocabulary: Vocabulary, words: WordCounts, lengths: Integers, end_of_word: str
) -> tuple[dict[str, int], Integers]:
    """(characters in a form that is not a piece, with their counts; the number of them in each word, int64 [W])."""
    if not len(words):
        return {}, lengths
    codes = np.frombuffer("".join(words.words).encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.int64)
    begins = np.cumsum(lengths) - lengths
    # Odd numbers carry the mark of the vocabulary: `##` within a word, or the one for its end.
    is_marked = np.full(len(codes), not end_of_word)
    is_marked[begins + lengths - 1 if end_of_word else begins] = bool(end_of_word)
    codes = 2 * codes + is_marked
    is_met = np.zeros(2 * (sys.maxunicode + 1), dtype=np.bool_)
    is_met[codes] = True
    different, form = np.flatnonzero(is_met), (np.cumsum(is_met) - 1)[codes]
    before, after = ("", end_of_word) if end_of_word else (CONTINUATION, "")
    names = [before * (code % 2) + chr(code // 2) + after * (code % 2) for code in different.tolist()]
    is_missing = np.array([name not in vocabulary.index for name in names])
    counts = np.bincount(form, np.repeat(words.counts, lengths)).astype(np.int64)
    missing = {names[number]: int(counts[number]) for number in np.flatnonzero(is_missing).tolist()}
    return missing, np.add.reduceat(is_missing[form].astype(np.int64), begins)


def _row(figures: TextFigures) -> tuple[str, ...]:
    return (
        figures.name,
        f"{figures.words:,}",
        f"{figures.pieces_per_chunk:.4f}",
        f"{figures.pieces_per_word:.4f}",
        f"{figures.unknown_rate:.4%}",
        f"{figures.covered_rate:.4%}",
        f"{figures.whole_rate:.2%}",
        figures.longest[0] if figures.longest else "",
    )


def _padded(row: tuple[str, ...], widths: list[int]) -> list[str]:
    """The cells of a row, padded; names are left-aligned, numbers right-aligned."""
    last = len(row) - 1
    return [
        cell.ljust(width) if column in (0, last) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
