"""Windows over a long context, against the loop of the original question answering code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import ConfigError
from bertsmith.text.tokenizers.template import Template
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.windows import windows

VOCABULARY = Vocabulary(SPECIAL_PIECES)
TEMPLATE = Template.bert(VOCABULARY.cls_id, VOCABULARY.sep_id)
CLS, SEP = VOCABULARY.cls_id, VOCABULARY.sep_id


def looped_spans(length: int, room: int, stride: int) -> list[tuple[int, int]]:
    """(start, length) of every window, as in the original code's loop over a non-empty context."""
    spans, start = [], 0
    while start < length:
        size = min(length - start, room)
        spans.append((start, size))
        if start + size == length:
            break
        start += min(size, stride)
    return spans


def is_best_window(spans: list[tuple[int, int]], current: int, position: int) -> bool:
    """Whether the window has the most context for the token at `position`, by the rule of the original code."""
    best_score, best = None, None
    for number, (start, size) in enumerate(spans):
        end = start + size - 1
        if position < start or position > end:
            continue
        score = min(position - start, end - position) + 0.01 * size
        if best_score is None or score > best_score:
            best_score, best = score, number
    return current == best


cases = st.tuples(st.integers(0, 6), st.integers(1, 60), st.integers(12, 30), st.integers(1, 30))


@given(cases)
def test_windows_and_their_best_tokens_equal_the_loops(case: tuple[int, int, int, int]) -> None:
    asked, length, max_length, stride = case
    question, context = [50] * asked, list(range(100, 100 + length))
    result = windows(
        question,
        context,
        template=TEMPLATE,
        max_length=max_length,
        stride=stride,
    )
    spans = looped_spans(length, max_length - 3 - asked, stride)
    assert list(zip(result.starts.tolist(), (result.ends - result.starts).tolist(), strict=True)) == spans
    for number, (start, size) in enumerate(spans):
        tokens, segments = result.rows.row(number)
        assert tokens.tolist() == [CLS, *question, SEP, *context[start : start + size], SEP]
        assert segments.tolist() == [0] * (asked + 2) + [1] * (size + 1)
        begin = result.rows.offsets[number]
        best = result.has_max_context[begin : begin + len(tokens)]
        expected = [is_best_window(spans, number, position) for position in range(start, start + size)]
        assert best.tolist() == [False] * result.first_position + expected + [False]


@given(cases)
def test_every_token_is_in_a_window_and_best_in_exactly_one(case: tuple[int, int, int, int]) -> None:
    asked, length, max_length, stride = case
    context = list(range(100, 100 + length))
    question = [50] * asked if asked else None
    result = windows(
        question,
        context,
        template=TEMPLATE,
        max_length=max_length,
        stride=stride,
    )
    assert sorted(result.rows.token_ids[result.has_max_context].tolist()) == context
    assert result.rows.lengths.max() <= max_length
    assert result.rows.cut_tokens == 0


def test_a_long_question_is_cut_and_counted_in_every_row() -> None:
    result = windows([50] * 70, [7] * 100, template=TEMPLATE, max_length=100, stride=20)
    assert result.rows.cut_by_row.tolist() == [6] * len(result)
    assert result.first_position == 66


def test_an_empty_context_has_one_window() -> None:
    result = windows([50], [], template=TEMPLATE)
    assert result.rows.token_ids.tolist() == [CLS, 50, SEP, SEP]
    assert not result.has_max_context.any()


def test_a_context_that_just_fits_has_one_window_and_one_more_token_makes_two() -> None:
    assert len(windows(None, [7] * 8, template=TEMPLATE, max_length=10, stride=4)) == 1
    two = windows(None, [7] * 9, template=TEMPLATE, max_length=10, stride=4)
    assert (two.starts.tolist(), two.ends.tolist()) == ([0, 4], [8, 9])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 600}, "max_length of at most 512"),
        ({"max_length": 13}, "room for context next to the question; found max_length 13 with 10 tokens"),
        ({"stride": 0}, "stride must be at least 1, not 0"),
        ({"max_question": 0}, "max_question must be at least 1, not 0"),
    ],
)
def test_impossible_windows_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        windows([50] * 10, [7], template=TEMPLATE, **options)


def test_the_arrays_have_the_documented_types() -> None:
    result = windows([50], [7] * 30, template=TEMPLATE, max_length=12, stride=3)
    assert (result.starts.dtype, result.ends.dtype, result.has_max_context.dtype) == (np.int64, np.int64, np.bool_)
    assert result.rows.token_ids.dtype == result.rows.segment_ids.dtype == np.int32
