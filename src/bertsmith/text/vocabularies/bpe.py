"""Learns a vocabulary by byte-pair encoding: the most frequent pair of neighboring pieces is merged, repeatedly.

A word is its characters, the last one with a mark for the end of the word; each merge joins two neighboring pieces
everywhere. New text is split by the same merges in the same order. So the pieces are chosen for another rule of use
than in `learn.py`, and by counts alone, and the search there cannot find them: the merges are learned by the
package `tokenizers`, from the words and counts from which WordPieces are learned.

Source: Sennrich, Haddow and Birch (2016), "Neural machine translation of rare words with subword units", section 3.2;
Radford et al. (2018), section 4.1, who use 40,000 merges.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bertsmith.base.core.errors import VocabularyError
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import END_OF_WORD, SPECIAL_PIECES
from bertsmith.text.vocabularies.learn import CHARACTER_COVERAGE, usable_words, with_known_characters
from bertsmith.text.vocabularies.word_counts import WordCounts

FEWEST_USES = 2  # of a pair that is joined; the default of Sennrich et al.
_WORDS_AT_ONCE = 1 << 14


class BytePairs(NamedTuple):
    """The result of byte-pair encoding.

    Attributes:
        ids: each piece and its id: the special pieces, `[unused]` ones, characters by code point, characters at the end
            of a word, then the pieces in the order of their merges.
        merges: the pairs that are joined, in order; the two pieces are separated by a space.
    """

    ids: dict[str, int]
    merges: tuple[str, ...]


def learn_byte_pairs(
    word_counts: Mapping[str, int],
    size: int,
    *,
    special: Sequence[str] = SPECIAL_PIECES,
    max_word_characters: int = TextRules.max_word_characters,
    character_coverage: float = CHARACTER_COVERAGE,
    notes: list[str] | None = None,
) -> BytePairs:
    """A vocabulary of exactly `size` pieces, learned by merging the most frequent pairs in the words.

    The result depends on the counts alone. As for WordPieces, rare characters are left out if they would take more than
    half of the room, and `[unused]` pieces fill a vocabulary for which the words have too few pairs.

    Args:
        character_coverage, notes: as for WordPieces, see `learn_vocabulary`.

    >>> learned = learn_byte_pairs({"low": 5, "lowest": 2, "newer": 6, "wider": 3}, 24)
    >>> learned.merges
    ('e r</w>', 'l o', 'e w', 'n ew', 'new er</w>', 'lo w</w>')
    """
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    except ImportError:
        raise VocabularyError(
            expected="the package tokenizers, which learns byte pairs",
            found="none",
            fix="install it: pip install 'bertsmith[tokenizers]', or learn WordPieces (--method wordpiece)",
        ) from None
    room = size - len(special)
    usable = with_known_characters(
        usable_words(WordCounts.of(word_counts), max_word_characters, notes),
        room,
        size,
        marks_end=True,
        coverage=character_coverage,
    )
    characters = sorted(set("".join(usable.words)))
    endings = sorted({word[-1] for word in usable.words})
    if len(characters) + len(endings) > room:
        needed = len(characters) + len(endings)
        raise VocabularyError(
            expected=f"room for {needed} characters, inside and at the end of words",
            found=f"{size} pieces, of which {max(room, 0)} are free",
            fix=f"request at least {size - room + needed} pieces, ideally several times as many",
        )
    # Pieces that are named in advance keep their order; the package would order the others by a random hash.
    first = [*special, *characters, *(ending + END_OF_WORD for ending in endings)]
    learner = Tokenizer(models.BPE(unk_token=special[1], end_of_word_suffix=END_OF_WORD))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=FEWEST_USES,
        special_tokens=first,
        end_of_word_suffix=END_OF_WORD,
        show_progress=False,
    )
    learner.train_from_iterator(_repeated(usable.words, usable.counts.tolist()), trainer)
    learned = json.loads(learner.to_str())["model"]
    merges = tuple(merge if isinstance(merge, str) else " ".join(merge) for merge in learned["merges"])
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    spare = [f"[unused{number}]" for number in range(size - len(pieces))]
    ordered = [*special, *spare, *pieces[len(special) :]]
    return BytePairs({piece: id for id, piece in enumerate(ordered)}, merges)


def _repeated(words: Sequence[str], counts: Sequence[int]) -> Iterator[str]:
    """Texts in which each word occurs as often as it was counted."""
    for word, count in zip(words, counts, strict=True):
        for begin in range(0, count, _WORDS_AT_ONCE):
            yield " ".join([word] * min(_WORDS_AT_ONCE, count - begin))
