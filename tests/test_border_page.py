"""The page of borders names only tests that exist, in rows of four cells."""

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "borders.md"
TESTS = Path(__file__).parent
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
TEST = re.compile(r"`([\w/]+\.py)(?:::(test_\w+))?`")


def test_every_test_on_the_page_exists() -> None:
    named = [match for row in ROWS for match in TEST.findall(row.rpartition(" | ")[2])]
    assert len(named) >= len(ROWS) / 2
    for file, test in named:
        text = (TESTS / file).read_text(encoding="utf-8")
        assert not test or re.search(rf"^def {test}\(", text, re.M), f"{file}::{test}"


def test_every_row_says_what_is_read_and_which_test_holds_it() -> None:
    for row in ROWS:
        format, read, refused, held = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
        if format.startswith("**"):
            assert (read, refused, held) == ("", "", ""), f"a heading: {row}"
        else:
            assert read, row
            assert TEST.search(held), row
            assert not TEST.sub("", held).strip(" ,"), f"only tests: {row}"
