"""Lines of pieces written with whole arrays equal lines joined one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.spelled import SpelledLines

NAMES = ["[PAD]", "a", "##é", "博", "", "##longer than eight"]


@given(st.lists(st.lists(st.integers(0, len(NAMES) - 1), max_size=4), max_size=6))
def test_every_text_is_a_line_of_names_with_spaces_between(rows: list[list[int]]) -> None:
    expected = "".join(" ".join(NAMES[id] for id in row) + "\n" for row in rows)
    assert SpelledLines(NAMES).of(Encoded.from_rows(rows)) == expected.encode()


def test_a_view_of_some_ids_is_spelled_alike() -> None:
    ids = np.array([1, 2, 3, 0, 1], dtype=np.int32)[::2]
    assert SpelledLines(NAMES).of(Encoded(ids, np.array([0, 0, 2, 3, 3]))) == "\na 博\na\n\n".encode()
