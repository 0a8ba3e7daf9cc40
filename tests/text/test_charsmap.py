"""The table of normalization of SentencePiece: entries, grapheme clusters, places of characters, damage."""

import base64

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import CheckpointError
from bertsmith.text.tokenizers.charsmap import Charsmap, normalized, normalized_with_places, steps_of
from oracles.double_array import packed

TABLE = {"a": "b", "ab": "c", "ﬁ": "fi", "e\u0301": "é", "\u0301": "'", "\r\n": "|", "\u1100\u1161": "가", "x": ""}
STEP = {"type": "Precompiled", "precompiled_charsmap": packed(TABLE)}
PIECES = "abeﬁx\u0301\u0323\r\n \u1100\u1161\u0915\u093f\u200d😀\u0600"


def peer(text: str) -> str:
    return tokenizers.normalizers.Precompiled(base64.b64decode(packed(TABLE))).normalize_str(text)


@given(st.text(st.sampled_from(PIECES) | st.characters(codec="utf-8"), max_size=20))
def test_a_text_becomes_what_the_package_makes_of_it(text: str) -> None:
    steps = steps_of(STEP, "here")
    assert normalized(text, steps) == peer(text)


@pytest.mark.parametrize(
    ("text", "result", "places"),
    [
        ("aﬁ", "bfi", [(0, 1), (1, 2), (1, 2)]),
        ("ab", "bb", [(0, 1), (1, 2)]),  # an entry is only looked up for a cluster
        ("xe\u0301b", "éb", [(1, 3), (3, 4)]),
        ("\r\na", "|b", [(0, 2), (2, 3)]),
        ("", "", []),
    ],
)
def test_each_character_of_the_result_has_its_place(text: str, result: str, places: list[tuple[int, int]]) -> None:
    steps = steps_of(STEP, "here")
    assert normalized_with_places(text, steps) == (result, places)


@given(
    st.text(st.sampled_from("aÅé\u0301\u0323가각\u1100\u1161\u11a8ﬁ½ ह") | st.characters(codec="utf-8"), max_size=20)
)
@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_the_forms_of_unicode_are_divided_into_units_that_do_not_depend_on_each_other(form: str, text: str) -> None:
    import unicodedata

    steps = steps_of({"type": form}, "here")
    assert normalized(text, steps) == unicodedata.normalize(form, text)


def test_spaces_are_stripped_and_collapsed_with_their_places() -> None:
    several = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    steps = steps_of({"type": "Sequence", "normalizers": [several, strip]}, "here")
    assert normalized_with_places("a   b  ", steps) == ("a b", [(0, 1), (1, 4), (4, 5)])


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0abc", b"\0\0\0\0", b"\x03\0\0\0abcdef"])
def test_a_damaged_table_is_one_line(content: bytes) -> None:
    with pytest.raises(CheckpointError, match="a complete table of normalization in 'a file'"):
        Charsmap(content, "'a file'")


def test_a_table_that_is_not_base64_is_one_line() -> None:
    with pytest.raises(CheckpointError, match="in base64 in 'a file'"):
        steps_of({"type": "Precompiled", "precompiled_charsmap": "%%%"}, "'a file'")
