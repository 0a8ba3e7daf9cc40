"""Learns a vocabulary: the pieces that split a corpus of words into the fewest pieces.

The pieces are chosen for the rule by which they are used, longest match first, from left to right. The search starts
from single characters and proceeds in rounds. In each round

1. every candidate is scored by what it alone would save, and the best are added, more than there is room for;
2. every chosen piece is scored by what dropping it alone would cost, and the cheapest are dropped, two thirds of the
   excess at a time, until the number is right.

The room grows over the first rounds; the later ones only swap. Both scores are exact for a single piece, since all
words are split again before each choice (`candidates.py`).

The vocabulary is meant for new text, which has two consequences if the counts include their sources (`word_counts.py`).
A word is weighted by its spread, in which repetitions within a source are damped. And a word found in only one source
is a stranger, like most unseen words of new text: neither the whole word nor any part of it that occurs nowhere else is
a candidate.

Sources: Schuster and Nakajima (2012), "Japanese and Korean voice search", for the goal; Lim et al. (2025), "A
partition cover approach to tokenization", for choosing by what a piece saves; Pudil et al. (1994), floating search, for
the rounds; Good (1953) for what words seen once say about unseen words.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.base.core.errors import VocabularyError
from bertsmith.base.core.progress import counted
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import CONTINUATION, SPECIAL_PIECES, Vocabulary, is_unicode
from bertsmith.text.vocabularies.candidates import Candidates, Cut, Flags, Integers, find_candidates, numbered
from bertsmith.text.vocabularies.word_counts import SPREAD_UNIT, WordCounts

# With fewer sources than this, the spread of words over them says nothing, and the plain counts are used.
LEAST_SOURCES = 8
# Candidates are at least as frequent as two words of one source.
LEAST_WEIGHT = 2 * SPREAD_UNIT
# Rounds: the fraction of the room to fill, and how many more pieces are added first, as a fraction of that.
GROWING = ((0.1, 0.5), (0.4, 0.5), (1.0, 0.5))
SWAPPING = (0.3, 0.15, 0.07, 0.03, 0.01)
# This fraction of the excess is dropped at a time, and at least this many pieces.
GIVEN_UP_AT_ONCE = 0.65
FEWEST_GIVEN_UP = 50

# At most this fraction of the room goes to single characters, unless the coverage below needs more.
CHARACTER_SHARE = 0.5
CHARACTER_COVERAGE = 0.9995

_SPLIT = "put spaces between words; for scripts without spaces, such as Thai, use --rules unspaced"


def learn_vocabulary(
    word_counts: Mapping[str, int],
    size: int,
    *,
    unused: int = 0,
    max_word_characters: int = TextRules.max_word_characters,
    max_words: int = 300_000,
    character_coverage: float = CHARACTER_COVERAGE,
    notes: list[str] | None = None,
) -> Vocabulary:
    """A vocabulary of exactly `size` pieces that splits text with such words into few pieces.

    The order is: the five special pieces; `[unused0]` and so on; single characters that begin a word, by code point;
    those within one; longer pieces by decreasing use. The result depends on the counts alone.

    If the corpus is too small to fill the vocabulary, `[unused]` pieces are added. Rare characters are left out if
    characters would take more than half of the room, but the rest always covers at least `character_coverage` of the
    text. `vocabulary_report` shows both.

    Args:
        word_counts: words and their counts; `WordCounts` also include sources, which gives better pieces.
        max_word_characters: longer words are [UNK] to the tokenizer and are ignored here.
        max_words: the maximum number of words to learn longer pieces from, by weight; of equal ones,
            an even sample in alphabetical order. Each takes about 1 kB of memory. Characters come from all words.
        character_coverage: the fraction of the text's characters that are pieces however much room they take; 1: all.
            A word with a character that is not a piece is [UNK].
        notes: receives what is left out of the words, one sentence each.

    >>> learn_vocabulary({"singing": 9, "sing": 8, "wing": 2, "winging": 1}, 13).pieces[5:]
    ('s', 'w', '##g', '##i', '##n', 'singing', 'sing', 'wing')
    """
    room = size - len(SPECIAL_PIECES) - unused
    usable = with_known_characters(
        usable_words(WordCounts.of(word_counts), max_word_characters, notes), room, size, coverage=character_coverage
    )
    characters = sorted(_characters(usable.words), key=_by_form)
    if len(usable.words) > max_words:
        total_words = int(usable.counts.sum()), len(usable.words)
        usable = usable.only(_heaviest(usable.weights, max_words))
        if notes is not None:
            notes.append(
                f"distinct words from which longer pieces are learned: {max_words:,} of {total_words[1]:,}, which are "
                f"{usable.counts.sum() / total_words[0]:.1%} of all words of the text; single characters come from all"
            )
    candidates = find_candidates(usable.words, usable.weights, usable.is_stranger, least_weight=LEAST_WEIGHT)
    # The characters of the words that are left out have their pieces, too.
    is_chosen, cut = _search(candidates, room - (len(characters) - candidates.num_characters))
    is_chosen[: candidates.num_characters] = False
    chosen = np.flatnonzero(is_chosen)
    uses = candidates.uses(cut)
    longer = sorted((-uses[number], candidates.piece(number)) for number in chosen.tolist())
    unused += room - len(characters) - len(longer)
    spare = [f"[unused{number}]" for number in range(unused)]
    return Vocabulary([*SPECIAL_PIECES, *spare, *characters, *(piece for _, piece in longer)])


class Usable(NamedTuple):
    """Words to learn from: the words, their counts, their weights, and which are strangers."""

    words: list[str]
    counts: Integers
    weights: Integers
    is_stranger: Flags

    def only(self, chosen: Integers) -> "Usable":
        """The chosen words."""
        return Usable(
            [self.words[number] for number in chosen.tolist()],
            self.counts[chosen],
            self.weights[chosen],
            self.is_stranger[chosen],
        )


def usable_words(counts: WordCounts, max_word_characters: int, notes: list[str] | None = None) -> Usable:
    """The words that a vocabulary can represent; a word that is too long or has a lone surrogate is [UNK] anyway."""
    knows_sources = counts.num_sources >= LEAST_SOURCES
    usable = Usable(
        list(counts.words),
        counts.counts,
        counts.spread if knows_sources else SPREAD_UNIT * counts.counts,
        counts.sources == 1 if knows_sources else np.zeros(len(counts), dtype=np.bool_),
    )
    is_long = np.fromiter((len(word) > max_word_characters for word in usable.words), np.bool_, len(usable.words))
    too_long, total = usable.counts[is_long], usable.counts.sum()
    is_sound = np.fromiter(map(is_unicode, usable.words), np.bool_, len(usable.words))
    usable = usable.only(np.flatnonzero(is_sound & ~is_long))
    if len(too_long) and notes is not None:
        notes.append(
            f"words of more than {max_word_characters} characters, which are [UNK]: {too_long.sum():,} "
            f"({too_long.sum() / total:.2%} of all words), {len(too_long):,} different; {_SPLIT}"
        )
    # From here on nothing depends on the original order of the words.
    usable = usable.only(np.array(sorted(range(len(usable.words)), key=usable.words.__getitem__), dtype=np.int64))
    if not usable.words and len(too_long):
        raise VocabularyError(
            expected=f"words of at most {max_word_characters} characters to learn a vocabulary from",
            found=f"only longer ones, {counted(len(too_long), 'different word')}",
            fix=_SPLIT,
        )
    if not usable.words:
        raise VocabularyError(
            expected="words to learn a vocabulary from", found="none", fix="use texts that contain words"
        )
    return usable


def with_known_characters(
    usable: Usable, room: int, size: int, *, marks_end: bool = False, coverage: float = CHARACTER_COVERAGE
) -> Usable:
    """The words whose characters all become pieces; these are the most frequent characters that there is room for.

    Args:
        marks_end: pieces tell the last character of a word from the others; otherwise they tell the first.
        coverage: the fraction of the characters of the text that are pieces however much room they take.
    """
    codes = np.frombuffer("".join(usable.words).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    lengths = np.fromiter(map(len, usable.words), np.int64, len(usable.words))
    begins = np.cumsum(lengths) - lengths
    codes *= 2
    codes += 1
    codes[begins + lengths - 1 if marks_end else begins] -= 1
    forms, form = numbered(codes)
    counts = np.bincount(form, np.repeat(usable.counts, lengths))
    order = np.lexsort((forms, -counts))
    covered = np.cumsum(counts[order])
    needed = int(np.searchsorted(covered, coverage * covered[-1])) + 1
    if needed > room:
        raise VocabularyError(
            expected=f"room for the {needed} characters that make up {coverage:.2%} of the text",
            found=f"{size} pieces, of which {max(room, 0)} are free",
            fix=f"request at least {size - room + needed} pieces, ideally several times as many",
        )
    kept = max(needed, int(CHARACTER_SHARE * room))
    if kept >= len(forms):
        return usable
    is_dropped = np.zeros(len(forms), dtype=np.bool_)
    is_dropped[order[kept:]] = True
    return usable.only(np.flatnonzero(~np.logical_or.reduceat(is_dropped[form], begins)))


def _characters(words: Sequence[str]) -> set[str]:
    """The single characters of words, as pieces."""
    inner = set("".join(word[1:] for word in words))
    return {word[0] for word in words} | {CONTINUATION + character for character in inner}


def _heaviest(weights: Integers, count: int) -> Integers:
    """The positions of the `count` largest weights, ascending; of equal ones at the limit, an even sample.

    >>> _heaviest(np.array([1, 9, 1, 1, 1]), 3).tolist()
    [0, 1, 3]
    """
    least = np.partition(weights, len(weights) - count)[len(weights) - count]
    above, equal = np.flatnonzero(weights > least), np.flatnonzero(weights == least)
    missing = count - len(above)
    return np.sort(np.concatenate([above, equal[np.arange(missing) * len(equal) // missing]]))


def _search(candidates: Candidates, room: int) -> tuple[Flags, Cut]:
    """(the chosen candidates, bool [C], at most `room` including the single characters; their segmentation)."""
    is_chosen = np.zeros(len(candidates), dtype=np.bool_)
    is_chosen[: candidates.num_characters] = True
    cut = candidates.cut(is_chosen)
    free = room - candidates.num_characters
    for share, more in [*GROWING, *((1.0, more) for more in SWAPPING)]:
        limit = candidates.num_characters + int(share * free)
        gains = candidates.gains(cut)
        useful = np.flatnonzero((gains > 0) & ~is_chosen)
        wanted = limit + int(more * limit) - int(is_chosen.sum())
        is_chosen[useful[_largest(gains[useful], wanted)]] = True
        cut = candidates.cut(is_chosen)
        while (excess := int(is_chosen.sum()) - limit) > 0:
            chosen = np.flatnonzero(is_chosen)
            losses = candidates.losses(cut)[chosen]
            given_up = max(int(GIVEN_UP_AT_ONCE * excess), min(excess, FEWEST_GIVEN_UP))
            is_chosen[chosen[_largest(-losses, given_up)]] = False
            cut = candidates.cut(is_chosen)
    return is_chosen, cut


def _largest(values: npt.NDArray[Any], count: int) -> Integers:
    """The positions of the `count` largest values, or of all if there are fewer; of equal values the first."""
    if count >= len(values):
        return np.arange(len(values))
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > least)
    return np.concatenate([above, np.flatnonzero(values == least)[: count - len(above)]])


def _by_form(piece: str) -> tuple[bool, str]:
    """A sort key that puts pieces that begin a word before pieces that continue one."""
    return len(piece) > 1, piece
