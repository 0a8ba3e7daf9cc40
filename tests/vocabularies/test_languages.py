"""Shares of languages, and vocabularies of text in which each language has its share."""

import pytest

from bertsmith.base.core.errors import ConfigError
from bertsmith.text.vocabularies.languages import num_characters, smoothed_shares, weighted_counts
from bertsmith.text.vocabularies.learn import learn_vocabulary
from bertsmith.text.vocabularies.word_counts import WordCounts, count_words
from text.corpora import random_words


def test_the_shares_are_powers_of_the_fractions() -> None:
    assert smoothed_shares([2, 1, 1], 1.0) == [0.5, 0.25, 0.25]
    assert smoothed_shares([2, 1, 1], 0.0) == pytest.approx([1 / 3] * 3)
    powers = [0.5**0.7, 0.25**0.7, 0.25**0.7]
    assert smoothed_shares([2, 1, 1], 0.7) == pytest.approx([power / sum(powers) for power in powers])


def test_a_thousand_to_one_becomes_about_a_hundred_to_one() -> None:
    """English and Icelandic, in the description of the multilingual model."""
    large, small = smoothed_shares([10**9, 10**6], 0.7)
    assert large / small == pytest.approx(1000**0.7)
    assert 100 < large / small < 130


@pytest.mark.parametrize("exponent", [-0.1, 1.1, float("nan")])
def test_an_exponent_outside_0_to_1_is_refused(exponent: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        smoothed_shares([1, 2], exponent)


def other_alphabet(counts: dict[str, int]) -> dict[str, int]:
    """The same words in other letters."""
    return {"".join(chr(ord(letter) + 0x400) for letter in word): count for word, count in counts.items()}


def languages() -> dict[str, WordCounts]:
    large = {word: 50 * count for word, count in random_words(1).items()}
    return {"large": WordCounts.of(large), "small": WordCounts.of(other_alphabet(random_words(2)))}


def weighted(exponent: float) -> WordCounts:
    read = languages()
    shares = smoothed_shares([num_characters(counts) for counts in read.values()], exponent)
    return weighted_counts(read, dict(zip(read, shares, strict=True)))


def test_the_weighted_counts_have_the_shares_and_the_total_of_the_text() -> None:
    read, counts = languages(), weighted(0.7)
    total = sum(map(num_characters, read.values()))
    assert num_characters(counts) == pytest.approx(total, rel=0.01)
    small = sum(count * len(word) for word, count in counts.items() if ord(word[0]) >= 0x400)
    share = smoothed_shares([num_characters(counts) for counts in read.values()], 0.7)[1]
    assert small / num_characters(counts) == pytest.approx(share, rel=0.01)


def test_a_small_language_gets_more_pieces_as_the_exponent_falls() -> None:
    pieces = []
    for exponent in (1.0, 0.7, 0.3, 0.0):
        result = learn_vocabulary(weighted(exponent), 160).pieces
        pieces.append(sum(ord(piece.removeprefix("##")[0]) >= 0x400 for piece in result))
    assert pieces == sorted(pieces)
    assert pieces[0] < pieces[1] < pieces[-1]


def test_a_single_occurrence_does_not_become_a_piece_by_weight() -> None:
    """A word that was seen once says nothing about new text, whatever its language weighs."""
    small = {"zyxwvu": 1, "abab": 9, "cdcd": 9}
    read = {"large": WordCounts.of(random_words(1)), "small": WordCounts.of(other_alphabet(small))}
    pieces = learn_vocabulary(weighted_counts(read, {"large": 0.01, "small": 0.99}), 200).pieces
    once, often = list(other_alphabet({"zyxwvu": 1})), list(other_alphabet({"abab": 1, "cdcd": 1}))
    assert set(often) <= set(pieces)
    assert not any(once[0][:length] in pieces for length in range(2, 7))


def test_one_language_alone_keeps_its_counts() -> None:
    counts = count_words(["the boat and the sea", "a boat"])
    assert dict(weighted_counts({"en": counts}, {"en": 1.0})) == dict(counts)
