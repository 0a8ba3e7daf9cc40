"""Typed lines as examples: plain, JSON and invalid lines, for every kind of task."""

import dataclasses
import json
import re

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import ChoiceExample, Example, QuestionExample, TaggedExample, TextExample
from bertsmith.tasks.task_data.typed_examples import example_of_line
from tasks.task_samples import SPECS

PLACE = "line 7 of stdin"
WORDS = TaggedExample(
    id="7", words=("Anna", ",", "Rome"), offsets=((0, 4), (4, 5), (6, 10)), document=7, location=PLACE
)  # fmt: skip
EITHER = dataclasses.replace(SPECS["single"], pair=None)

GOOD: list[tuple[str, str, Example]] = [
    ("single", "a film", TextExample(id="7", first="a film", location=PLACE)),
    ("single", "", TextExample(id="7", first="", location=PLACE)),
    ("number", " \t ", TextExample(id="7", first=" \t ", location=PLACE)),
    ("either", "", TextExample(id="7", first="", location=PLACE)),
    ("pair", "\t", TextExample(id="7", first="", second="", location=PLACE)),
    ("several labels", "a film", TextExample(id="7", first="a film", location=PLACE)),
    ("number", "a film", TextExample(id="7", first="a film", location=PLACE)),
    ("single", '{"text": "a\\tfilm", "id": 3}', TextExample(id="3", first="a\tfilm", location=PLACE)),
    ("single", '{"text": "a\\ud83d film"}', TextExample(id="7", first="a\ufffd film", location=PLACE)),
    ("pair", "a\tb", TextExample(id="7", first="a", second="b", location=PLACE)),
    ("pair", '{"text": "a", "pair": "b"}', TextExample(id="7", first="a", second="b", location=PLACE)),
    ("either", "a", TextExample(id="7", first="a", location=PLACE)),
    ("either", "a\tb", TextExample(id="7", first="a", second="b", location=PLACE)),
    ("either", '{"text": "a"}', TextExample(id="7", first="a", location=PLACE)),
    ("either", '{"text": "a", "pair": "b"}', TextExample(id="7", first="a", second="b", location=PLACE)),
    ("tags", "Anna, Rome", WORDS),
    ("tags", '{"text": "Anna, Rome"}', WORDS),
    ("tags", "", TaggedExample(id="7", words=(), offsets=(), document=7, location=PLACE)),
    ("tags", " \r", TaggedExample(id="7", words=(), offsets=(), document=7, location=PLACE)),
    (
        "tags",
        '{"words": ["Anna,", "Rome"]}',
        TaggedExample(id="7", words=("Anna,", "Rome"), document=7, location=PLACE),
    ),
    ("choice", "a\tb\tc", ChoiceExample(id="7", context="a", endings=("b", "c"), location=PLACE)),
    (
        "choice",
        '{"context": "a", "endings": ["b", "c"]}',
        ChoiceExample(id="7", context="a", endings=("b", "c"), location=PLACE),
    ),
    ("answer", "who ?\tAnna", QuestionExample(id="7", question="who ?", context="Anna", location=PLACE)),
    (
        "answer or none",
        '{"question": "who ?", "context": "Anna\\t."}',
        QuestionExample(id="7", question="who ?", context="Anna\t.", location=PLACE),
    ),
]

WRONG = [
    ("pair", " ", "expected two texts with a tab between them, in line 7 of stdin; found an empty line; remove"),
    (
        "tags",
        '{"words": ["John", ""]}',
        "non-empty words in line 7 of stdin; found '' as word 2 of 2",
    ),
    ("tags", '{"words": [" "]}', "expected non-empty words in line 7 of stdin; found ' ' as word 1 of 1"),
    (
        "choice",
        "\r",
        "expected a context and at least two endings, with tabs between them, in line 7 of stdin; found an",
    ),
    ("answer", "", "expected a question, a tab and a context, in line 7 of stdin; found an empty line"),
    ("single", "a\tb", "expected one text, without a tab, in line 7 of stdin; found 2 parts"),
    ("single", '{"text": "a", "pair": "b"}', "found a pair; remove pair"),
    (
        "single",
        '{"txt": "a"}',
        "expected a text as 'text' in line 7 of stdin; found no such key, only 'txt'; add 'text'",
    ),
    ("single", '{"text": 5}', "expected a text as 'text' in line 7 of stdin; found 5; correct the line"),
    ("single", '{"text": "a"', "expected JSON in line 7 of stdin"),
    ("pair", "a", "expected two texts with a tab between them, in line 7 of stdin; found 1 part;"),
    ("pair", '{"text": "a"}', "expected a text as 'pair' in line 7 of stdin; found no such key"),
    ("tags", '{"words": "Anna"}', "expected a list of words in line 7 of stdin; found 'Anna'"),
    ("tags", '{"words": [1]}', "expected a list of words in line 7 of stdin; found [1]"),
    (
        "tags",
        json.dumps(dict.fromkeys("abcdef", 1)),
        "found no such key, only 'a', 'b', 'c', 'd', 'e', …; add 'text'",
    ),
    (
        "tags",
        json.dumps(dict.fromkeys("abcde", 1)),
        "found no such key, only 'a', 'b', 'c', 'd', 'e'; add 'text'",
    ),
    ("tags", "{}", "expected a text as 'text' in line 7 of stdin; found no such key; add 'text'"),
    ("choice", "a\tb", "expected a context and at least two endings, with tabs between them, in line 7 of stdin"),
    ("choice", '{"context": "a", "endings": ["b"]}', "expected a list of at least two texts as 'endings' in line 7"),
    ("choice", '{"endings": ["b", "c"]}', "expected a text as 'context' in line 7 of stdin"),
    ("answer", "who ?", "expected a question, a tab and a context, in line 7 of stdin; found 1 part;"),
    ("answer", "who ?\tAnna\t.", "expected a question, a tab and a context, in line 7 of stdin; found 3 parts"),
    ("answer", '{"question": "who ?"}', "expected a text as 'context' in line 7 of stdin; found no such key"),
]


@pytest.mark.parametrize(("kind", "line", "expected"), GOOD)
def test_a_line_is_an_example(kind: str, line: str, expected: Example) -> None:
    assert example_of_line({**SPECS, "either": EITHER}[kind], line, 7) == expected


@pytest.mark.parametrize(("kind", "line", "message"), WRONG)
def test_an_invalid_line_is_one_clear_error(kind: str, line: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        example_of_line(SPECS[kind], line, 7)


def test_an_example_names_the_source_of_its_line() -> None:
    example = example_of_line(SPECS["single"], json.dumps({"text": "a"}), 2, where="'lines.txt'")
    assert (example.id, example.location) == ("2", "line 2 of 'lines.txt'")
