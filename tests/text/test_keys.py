"""Tables from short byte strings to numbers, against a dictionary."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.tokenizers import keys
from bertsmith.text.tokenizers.keys import LONGEST, PADDING, WIDTHS, KeyTable
from bertsmith.text.tokenizers.longest_match import BatchSegmenter, Segmenter
from text.vocabularies import MIXED_VOCABULARY

# Few different bytes, so that strings share prefixes; no zero bytes.
strings = st.lists(st.binary(min_size=1, max_size=LONGEST).map(lambda b: bytes(1 + x % 3 for x in b)), unique=True)


def of_width(some: list[bytes], width: int) -> list[bytes]:
    return [string for string in some if len(string) <= 8 * width]


@given(strings, strings, st.sampled_from(WIDTHS))
def test_a_table_finds_what_was_inserted_and_nothing_else(inside: list[bytes], others: list[bytes], width: int) -> None:
    inside, others = of_width(inside, width), of_width(others, width)
    table = KeyTable(width)
    half = len(inside) // 2
    for begin, end in ((0, half), (half, len(inside))):
        left_out = table.insert(keys.keys_of(inside[begin:end], width), np.arange(begin, end, dtype=np.int32))
        assert left_out == 0
    wanted = inside + others
    values, missing = table.find(keys.keys_of(wanted, width))
    known = {string: number for number, string in enumerate(inside)}
    assert missing.tolist() == [position for position, string in enumerate(wanted) if string not in known]
    assert all(values[position] == known[string] for position, string in enumerate(wanted) if string in known)


def test_colliding_hashes_cost_slots_but_never_give_wrong_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "hash_keys", lambda words: np.full(len(words[0]), 7, dtype=np.uint64))
    some = [f"s{number}".encode() for number in range(200)]
    table = KeyTable(1)
    left_out = table.insert(keys.keys_of(some, 1), np.arange(200, dtype=np.int32))
    values, missing = table.find(keys.keys_of(some, 1))
    assert len(missing) == left_out == 200 - 24
    result = np.setdiff1d(np.arange(200), missing)
    assert values[result].tolist() == result.tolist()


@given(strings, st.sampled_from(WIDTHS))
def test_keys_are_the_bytes_at_any_position(some: list[bytes], width: int) -> None:
    some = of_width(some, width)
    buffer = np.frombuffer(b"".join(some) + b"\0" * PADDING, dtype=np.uint8)
    lengths = np.array([len(string) for string in some], dtype=np.int64)
    result = keys.keys_at(keys.windows_of(buffer), np.cumsum(lengths) - lengths, lengths, width)
    assert keys.strings_of(result) == some
    assert keys.lengths_of(result).tolist() == lengths.tolist()
    assert [words.tolist() for words in result] == [words.tolist() for words in keys.keys_of(some, width)]


@given(st.lists(st.sampled_from([b"a", b"ab", b"abcdefgh", b"abcdefghi", b"b"])))
def test_distinct_keys_represent_all_keys(some: list[bytes]) -> None:
    chosen, number = keys.distinct(keys.keys_of(some, 2))
    assert [some[index] for index in chosen[number]] == some
    assert len({some[index] for index in chosen}) == len(chosen)


short_words = st.text("abcdefg0", min_size=1, max_size=LONGEST) | st.text("abéςσ\u0301가αβ博", min_size=1, max_size=10)


@given(st.lists(short_words), st.sampled_from([3, 20, 100]))
def test_words_split_in_a_batch_equal_words_split_alone(words: list[str], limit: int) -> None:
    together = BatchSegmenter(MIXED_VOCABULARY, max_word_characters=limit)
    alone = Segmenter(MIXED_VOCABULARY, max_word_characters=limit)
    assert together.is_usable
    ids, counts = together.segment(keys.keys_of([word.encode() for word in words], WIDTHS[-1]))
    assert counts.tolist() == [len(alone.ids(word)) for word in words]
    assert ids.tolist() == [id for word in words for id in alone.ids(word)]
