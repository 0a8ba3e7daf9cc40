"""Byte pairs: the merges of a slow obvious version, exactly the size that was asked for, refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import VocabularyError
from bertsmith.text.vocabularies.bpe import learn_byte_pairs
from oracles.byte_pairs_oracle import learned_merges

WORDS = st.dictionaries(st.text("abcd", min_size=1, max_size=6), st.integers(1, 9), min_size=1, max_size=12)


@given(WORDS, st.integers(14, 30))
def test_merges_are_those_of_the_slow_version(words: dict[str, int], size: int) -> None:
    result = learn_byte_pairs(words, size)
    letters = sorted(set("".join(words)))
    first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *sorted({f"{word[-1]}</w>" for word in words})]
    assert list(result.merges) == learned_merges(words, first, size)
    assert list(result.ids.values()) == list(range(size))
    spare = sum(piece.startswith("[unused") for piece in result.ids)
    assert [piece for piece in result.ids if not piece.startswith("[unused")][: len(first)] == first
    assert len(result.merges) >= size - len(first) - spare


def test_rare_characters_are_left_out_if_they_would_take_more_than_half_of_the_room() -> None:
    words = {"abab": 100_000, "baba": 100_000, **{chr(0x4E00 + number): 1 for number in range(30)}}
    pieces = learn_byte_pairs(words, 25).ids
    assert {"a", "b", "a</w>", "b</w>"} <= set(pieces)
    assert sum(ord(piece[0]) >= 0x4E00 for piece in pieces) == 12, "six of 30, each in two forms"


def test_every_character_is_a_piece_with_full_coverage() -> None:
    words = {"abab": 100_000, "baba": 100_000, **{chr(0x4E00 + number): 1 for number in range(30)}}
    pieces = learn_byte_pairs(words, 70, character_coverage=1.0).ids
    assert {chr(0x4E00 + number) for number in range(30)} <= set(pieces)
    assert len(pieces) == 70


def test_too_little_room_and_no_words_are_refused() -> None:
    with pytest.raises(VocabularyError, match=r"room for .*; found 8 pieces, of which 3 are free; request at least"):
        learn_byte_pairs({"abc": 5, "cab": 5}, 8)
    with pytest.raises(VocabularyError, match="expected words"):
        learn_byte_pairs({}, 20)
