"""Learns a vocabulary: the pieces with which a corpus of words is cut into the fewest pieces.

The pieces are chosen for the rule by which they are used, the longest match first, from left to right. The search
starts from single characters and goes in rounds. In each round

1. every candidate is worth what it alone would save, and the best are taken, more than there is room for;
2. every chosen piece is worth what it alone would cost if it were given up, and the worst are given up, two thirds
   of what is too much at a time, until the number is right.

The room grows over the first rounds; the later ones only swap. Both values are exact for one piece, since all words
are cut anew before each choice (`candidates.py`).

The vocabulary is for new text, and two things follow where the counts know their sources (`word_counts.py`). A word
counts with its spread, which is damped inside every source. And a word that only one source has is a stranger, as most
words are that new text brings: it is never offered as a whole, nor is any part of it that occurs nowhere else.

Sources: Schuster and Nakajima (2012), "Japanese and Korean voice search", for the goal; Lim et al. (2025), "A
partition cover approach to tokenization", for choosing by what a piece saves; Pudil et al. (1994), floating search, for
the rounds; Good (1953) for what words met once say about words not met.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bertsmith.errors import VocabularyError
from bertsmith.text.normalize import TextRules
from bertsmith.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.vocabularies.candidates import Candidates, Cut, Flags, Integers, find_candidates, numbered
from bertsmith.vocabularies.word_counts import SPREAD_UNIT, WordCounter, WordCounts, count_words

__all__ = ["WordCounter", "WordCounts", "count_words", "learn_vocabulary"]

# With fewer sources than this, how words spread over them says nothing; then the plain counts are used.
LEAST_SOURCES = 8
# What is rarer than two words of one source is no piece.
LEAST_WEIGHT = 2 * SPREAD_UNIT
# Rounds: the share of the room that is filled, and how many more pieces are taken than that, as a share of it.
GROWING = ((0.1, 0.5), (0.4, 0.5), (1.0, 0.5))
SWAPPING = (0.3, 0.15, 0.07, 0.03, 0.01)
# What is too much is given up by this share at a time, and at least so many pieces.
GIVEN_UP_AT_ONCE = 0.65
FEWEST_GIVEN_UP = 50

# No more characters than this share of the room become pieces, unless the coverage below needs them.
CHARACTER_SHARE = 0.5
CHARACTER_COVERAGE = 0.9995


def learn_vocabulary(
    word_counts: Mapping[str, int],
    size: int,
    *,
    unused: int = 0,
    max_word_characters: int = TextRules.max_word_characters,
    max_words: int = 300_000,
) -> Vocabulary:
    """A vocabulary of exactly `size` pieces that cuts text like that of `word_counts` into few pieces.

    The order is: the five special pieces; `[unused0]` and so on; single characters that begin a word, by code point;
    those that continue one; longer pieces by falling use. The result depends on the counts alone.

    A corpus too small to fill the vocabulary is topped up with `[unused]` pieces. Rare characters are left out where
    they would take more than half of the room, but never so many that the rest covers less than 99.95 % of the text.
    `vocabulary_report` shows both.

    Args:
        word_counts: words and how often each was met; `WordCounts` know their sources too, and give better pieces.
        size: pieces in all.
        unused: `[unused]` pieces for later use.
        max_word_characters: longer words are [UNK] to the tokenizer, and nothing is learned from them.
        max_words: words that pieces are learned from at most, those that count most; each takes about 1 kB of memory.

    Raises:
        VocabularyError: there are no words, or there is no room for their characters.

    >>> learn_vocabulary({"singing": 9, "sing": 8, "wing": 2, "winging": 1}, 13).pieces[5:]
    ('s', 'w', '##g', '##i', '##n', 'singing', 'sing', 'wing')
    """
    room = size - len(SPECIAL_PIECES) - unused
    usable = _with_known_characters(_usable(WordCounts.of(word_counts), max_word_characters), room, size)
    usable = usable.only(np.sort(_largest(usable.weights, max_words)))
    candidates = find_candidates(usable.words, usable.weights, usable.is_stranger, least_weight=LEAST_WEIGHT)
    is_chosen, cut = _search(candidates, room)
    characters = sorted(map(candidates.piece, range(candidates.num_characters)), key=_by_form)
    is_chosen[: candidates.num_characters] = False
    chosen = np.flatnonzero(is_chosen)
    uses = candidates.uses(cut)
    longer = sorted((-uses[number], candidates.piece(number)) for number in chosen.tolist())
    unused += room - len(characters) - len(longer)
    spare = [f"[unused{number}]" for number in range(unused)]
    return Vocabulary([*SPECIAL_PIECES, *spare, *characters, *(piece for _, piece in longer)])


class _Usable(NamedTuple):
    """Words to learn from: the words, how often each was met, what it counts, whether it is a stranger."""

    words: list[str]
    counts: Integers
    weights: Integers
    is_stranger: Flags

    def only(self, chosen: Integers) -> "_Usable":
        return _Usable(
            [self.words[place] for place in chosen.tolist()],
            self.counts[chosen],
            self.weights[chosen],
            self.is_stranger[chosen],
        )


def _usable(counts: WordCounts, max_word_characters: int) -> _Usable:
    """The words that a vocabulary can hold; a word that is too long or half a character is [UNK] anyway."""
    knows_sources = counts.num_sources >= LEAST_SOURCES
    usable = _Usable(
        list(counts.words),
        counts.counts,
        counts.spread if knows_sources else SPREAD_UNIT * counts.counts,
        counts.sources == 1 if knows_sources else np.zeros(len(counts), dtype=np.bool_),
    )
    is_sound = [len(word) <= max_word_characters and _is_unicode(word) for word in usable.words]
    usable = usable.only(np.flatnonzero(is_sound))
    # From here on nothing depends on the order in which the words were met.
    usable = usable.only(np.array(sorted(range(len(usable.words)), key=usable.words.__getitem__), dtype=np.int64))
    if not usable.words:
        raise VocabularyError(
            expected="words to learn a vocabulary from", found="none", fix="give texts that hold some"
        )
    return usable


def _with_known_characters(usable: _Usable, room: int, size: int) -> _Usable:
    """The words whose characters all become pieces: the most frequent ones that there is room for."""
    codes = np.frombuffer("".join(usable.words).encode("utf-32-le"), dtype="<u4").astype(np.int64)
    lengths = np.fromiter(map(len, usable.words), np.int64, len(usable.words))
    begins = np.cumsum(lengths) - lengths
    codes *= 2
    codes += 1
    codes[begins] -= 1
    forms, form = numbered(codes)
    counts = np.bincount(form, np.repeat(usable.counts, lengths))
    order = np.lexsort((forms, -counts))
    covered = np.cumsum(counts[order])
    needed = int(np.searchsorted(covered, CHARACTER_COVERAGE * covered[-1])) + 1
    if needed > room:
        raise VocabularyError(
            expected=f"room for the {needed} characters that {CHARACTER_COVERAGE:.2%} of the text are made of",
            found=f"{size} pieces, of which {max(room, 0)} are free",
            fix=f"ask for at least {size - room + needed}, better several times as many",
        )
    kept = max(needed, int(CHARACTER_SHARE * room))
    if kept >= len(forms):
        return usable
    is_dropped = np.zeros(len(forms), dtype=np.bool_)
    is_dropped[order[kept:]] = True
    return usable.only(np.flatnonzero(~np.logical_or.reduceat(is_dropped[form], begins)))


def _search(candidates: Candidates, room: int) -> tuple[Flags, Cut]:
    """(which candidates are chosen, bool [C]; how they cut all words): at most `room`, with the single characters."""
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
    """Where the `count` largest values are, or all of them if there are fewer; of equal ones the first."""
    if count >= len(values):
        return np.arange(len(values))
    if count <= 0:
        return np.zeros(0, dtype=np.int64)
    least = np.partition(values, len(values) - count)[len(values) - count]
    above = np.flatnonzero(values > least)
    return np.concatenate([above, np.flatnonzero(values == least)[: count - len(above)]])


def _by_form(piece: str) -> tuple[bool, str]:
    """Sorts what begins a word before what continues one."""
    return len(piece) > 1, piece


def _is_unicode(word: str) -> bool:
    """False for half of a surrogate pair, which no file can hold."""
    return word.isascii() or not any("\ud800" <= character <= "\udfff" for character in word)
