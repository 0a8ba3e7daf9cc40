"""Realignment: the characters of the original words for predicted pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.realign import join_pieces, realign
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from oracles import squad_oracle, wordpiece_oracle
from text.vocabularies import MIXED_VOCABULARY, all_texts

UNCASED, CASED = TextRules(), TextRules(lowercase=False)


@pytest.mark.parametrize(
    ("predicted", "words", "expected"),
    [
        ("steve smith", "Steve Smith's", "Steve Smith"),
        ("1895", "(1895-1943)", "1895"),
        ("- 1943", "(1895-1943)", "-1943"),
        ("bronte", "Brontë's", "Brontë"),
        ("steve [UNK]", "Steve Smith's", "Steve Smith's"),
        ("", "Steve", "Steve"),
        # The second word is one character longer than its tokens: the dropped sign between its letters.
        ("one", "one's t\u00adwo", "one's t\u00adwo"),
        # An accent that is a separate character.
        ("bronte", "Bronte\u0308's", "Bronte\u0308's"),
        # The first of two matches.
        ("a", "b-a-a", "a"),
    ],
)
def test_characters_that_were_not_predicted_are_removed(predicted: str, words: str, expected: str) -> None:
    start, end = realign(predicted, words, UNCASED)
    assert words[start:end] == expected


def test_the_first_of_two_matches_is_used() -> None:
    assert realign("a", "b-a-a", UNCASED) == (2, 3)


def test_among_matches_with_the_text_of_the_first_the_nearest_is_used() -> None:
    words = "7年7月7日"
    assert [realign("7", words, UNCASED, before) for before in (0, 2, 4)] == [(0, 1), (2, 3), (4, 5)]
    assert realign("7 日", words, UNCASED) == (4, 6)
    # The text is that of the original code, which takes the first match.
    assert realign("smith", "Smith-smith-Smith", UNCASED, before=6) == (0, 5)
    assert realign("smith", "Smith-smith-Smith", UNCASED, before=12) == (12, 17)


def test_the_case_must_agree_for_a_cased_model() -> None:
    assert realign("smith", "Smith's", CASED) == (0, 7)
    assert realign("Smith", "Smith's", CASED) == (0, 5)


def test_pieces_are_joined_into_words() -> None:
    assert join_pieces(["un", "##want", "##ed", ",", "runn", "##ing"]) == "unwanted, running".replace(",", " ,")
    assert join_pieces([]) == ""
    assert join_pieces(["##ing", "un"]) == "ing un"


@given(all_texts, st.booleans(), st.data())
def test_every_span_of_pieces_equals_the_slow_version(text: str, lowercase: bool, data: st.DataObject) -> None:
    rules = TextRules(lowercase=lowercase)
    pieces = WordPieceTokenizer(MIXED_VOCABULARY, rules).tokenize(text)
    first = data.draw(st.integers(0, len(pieces)))
    chosen = pieces[first : data.draw(st.integers(first, len(pieces)))]
    words = " ".join(word for _, word in squad_oracle.words_of(text))
    start, end = realign(join_pieces(chosen), words, rules)
    expected = squad_oracle.final_text(
        chosen, words, lambda part: wordpiece_oracle.basic_tokens(part, lowercase=lowercase)
    )
    assert words[start:end] == expected


@given(all_texts)
def test_all_tokens_of_the_words_map_to_the_whole_words(text: str) -> None:
    words = " ".join(word for _, word in squad_oracle.words_of(text))
    assert realign(" ".join(basic_tokens(words, UNCASED)), words, UNCASED) == (0, len(words))
