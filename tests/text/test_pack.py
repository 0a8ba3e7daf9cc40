"""Rows: [CLS] A [SEP] B [SEP], truncation by every rule, against loops like those in the papers' code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError, InputError
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.pack import TRUNCATIONS, PackedRows, pack_rows, pair_cuts, room_for_text
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary

VOCABULARY = Vocabulary(SPECIAL_PIECES)
TEMPLATE = Template.bert(VOCABULARY.cls_id, VOCABULARY.sep_id)
CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id

texts = st.integers(0, 14).map(lambda length: [100 + token for token in range(length)])
pairs = st.lists(st.tuples(texts, texts.map(lambda text: [token + 100 for token in text])), min_size=1, max_size=6)


def rows_of(packed: PackedRows) -> list[list[int]]:
    assert packed.lengths.sum() == len(packed.token_ids) == len(packed.segment_ids)
    return [packed.row(number)[0].tolist() for number in range(len(packed))]


def looped_pair(first: list[int], second: list[int], room: int) -> tuple[list[int], list[int]]:
    """The rule for pairs as a loop: the longer text loses its last token; if both are equally long, the second does."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first.pop()
        else:
            second.pop()
    return first, second


@given(pairs, st.lists(st.integers(0, 5), max_size=12), st.integers(5, 12))
def test_every_row_equals_its_distinct_row(
    given_pairs: list[tuple[list[int], list[int]]], again: list[int], max_length: int
) -> None:
    chosen = [*given_pairs, *(given_pairs[number % len(given_pairs)] for number in again)]
    rows = pack_rows(*zip(*chosen, strict=True), template=TEMPLATE, max_length=max_length)
    different, which = rows.distinct()
    every = [(ids.tolist(), segments.tolist()) for ids, segments in map(rows.row, range(len(rows)))]
    kept = [(ids.tolist(), segments.tolist()) for ids, segments in map(different.row, range(len(different)))]
    assert [kept[number] for number in which.tolist()] == every
    assert kept == [row for number, row in enumerate(every) if row not in every[:number]]


def test_rows_with_equal_tokens_in_other_segments_are_distinct() -> None:
    tokens = np.array([2, 7, 3, 7, 3] * 2, dtype=np.int32)
    segments = np.array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1], dtype=np.int32)
    rows = PackedRows(tokens, segments, np.array([5, 5], np.int32), np.zeros(2, np.int32))
    assert rows.distinct()[1].tolist() == [0, 1]


def test_one_and_two_texts_are_surrounded_by_special_pieces() -> None:
    packed = pack_rows([[7, 8]], template=TEMPLATE, max_length=10)
    assert rows_of(packed) == [[CLS, 7, 8, SEP]]
    assert packed.segment_ids.tolist() == [0, 0, 0, 0]
    two = pack_rows([[7, 8], []], [[9], [10]], template=TEMPLATE, max_length=10)
    assert rows_of(two) == [[CLS, 7, 8, SEP, 9, SEP], [CLS, SEP, 10, SEP]]
    assert two.segment_ids.tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 1, 1]
    assert two.offsets.tolist() == [0, 6, 10]
    assert (two.truncated, two.cut_tokens) == (0, 0)


@given(pairs, st.integers(5, 30))
def test_pairs_are_cut_as_the_loop_cuts_them(rows: list[tuple[list[int], list[int]]], max_length: int) -> None:
    packed = pack_rows(
        [a for a, _ in rows],
        [b for _, b in rows],
        template=TEMPLATE,
        max_length=max_length,
    )
    expected = [looped_pair(a, b, max_length - 3) for a, b in rows]
    assert rows_of(packed) == [[CLS, *a, SEP, *b, SEP] for a, b in expected]
    assert packed.segment_ids.tolist() == [s for a, b in expected for s in [0] * (len(a) + 2) + [1] * (len(b) + 1)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6), st.integers(0, 50))
def test_both_texts_of_a_pair_lose_as_many_tokens_as_in_the_loop(lengths: list[tuple[int, int]], room: int) -> None:
    first, second = (np.array([pair[text] for pair in lengths], dtype=np.int64) for text in (0, 1))
    result = pair_cuts(first, second, room)
    kept = [looped_pair([0] * a, [0] * b, room) for a, b in lengths]
    assert [(first - result[0]).tolist(), (second - result[1]).tolist()] == [
        [len(pair[text]) for pair in kept] for text in (0, 1)
    ]


@given(pairs, st.integers(5, 40), st.sampled_from([name for name in TRUNCATIONS if name != "error"]), st.booleans())
def test_no_row_is_too_long_and_every_token_is_kept_or_counted(
    rows: list[tuple[list[int], list[int]]], max_length: int, truncation: str, as_pairs: bool
) -> None:
    first, second = [a for a, _ in rows], [b for _, b in rows] if as_pairs else None
    packed = pack_rows(
        first,
        second,
        template=TEMPLATE,
        max_length=max_length,
        truncation=truncation,
    )
    given_tokens = [len(a) + (len(b) if as_pairs else 0) for a, b in rows]
    specials = 3 if as_pairs else 2
    assert packed.lengths.max() <= max_length
    assert (packed.lengths - specials + packed.cut_by_row).tolist() == given_tokens
    assert packed.cut_tokens == sum(max(0, tokens + specials - max_length) for tokens in given_tokens)
    assert packed.truncated == sum(tokens + specials > max_length for tokens in given_tokens)
    # The remaining tokens keep their order.
    for number, (a, b) in enumerate(rows):
        kept = [token for token in packed.row(number)[0].tolist() if token >= 100]
        source = a + b if as_pairs else a
        assert kept == sorted(kept)
        assert set(kept) <= set(source)


def test_head_tail_and_head_tail_keep_the_documented_tokens() -> None:
    long = list(range(1000, 2000))

    def kept(truncation: str, max_length: int = 512) -> list[int]:
        packed = pack_rows(
            [long],
            template=TEMPLATE,
            max_length=max_length,
            truncation=truncation,
        )
        assert packed.cut_tokens == 1002 - max_length
        return packed.token_ids[1:-1].tolist()

    assert kept("head") == kept("longest_first") == long[:510]
    assert kept("tail") == long[-510:]
    assert kept("head_tail") == long[:128] + long[-382:]
    assert kept("head_tail", 257) == long[:64] + long[-191:]


def test_a_text_that_just_fits_is_kept_and_one_more_token_is_cut() -> None:
    packed = pack_rows([[5] * 6, [5] * 7], template=TEMPLATE, max_length=8)
    assert packed.lengths.tolist() == [8, 8]
    assert packed.cut_by_row.tolist() == [0, 1]
    assert (packed.truncated, packed.cut_tokens) == (1, 1)


def test_a_text_that_is_too_long_is_refused_if_truncation_is_an_error() -> None:
    with pytest.raises(InputError, match="at most 6 tokens of text in a row; found 7 in row 1"):
        pack_rows(
            [[5], [5] * 7],
            template=TEMPLATE,
            max_length=8,
            truncation="error",
        )


def test_a_length_above_the_limit_of_the_model_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_length of at most 512, the positions of the model; found 513"):
        pack_rows([[5]], template=TEMPLATE, max_length=513)
    assert len(pack_rows([[5]], template=TEMPLATE, max_length=600, model_limit=1024)) == 1


def test_a_length_without_room_and_an_unknown_truncation_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_length of at least 3 for one text; found 2"):
        room_for_text(2, TEMPLATE, texts=1)
    with pytest.raises(ConfigError, match="max_length of at least 5 for two texts; found 4"):
        room_for_text(4, TEMPLATE, texts=2)
    with pytest.raises(ConfigError, match="found 'middle'"):
        pack_rows([[5]], template=TEMPLATE, max_length=8, truncation="middle")


def test_no_texts_give_no_rows_and_flat_texts_equal_lists() -> None:
    assert len(pack_rows([], template=TEMPLATE, max_length=8)) == 0
    lists = [[7, 8, 9], [], [7]]
    flat = pack_rows(Encoded.from_rows(lists), template=TEMPLATE, max_length=4)
    assert (
        rows_of(flat)
        == rows_of(pack_rows(lists, template=TEMPLATE, max_length=4))
        == [
            [CLS, 7, 8, SEP],
            [CLS, SEP],
            [CLS, 7, SEP],
        ]
    )
    # The input is unchanged.
    assert lists == [[7, 8, 9], [], [7]]
