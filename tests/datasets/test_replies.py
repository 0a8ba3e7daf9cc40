"""Conversations and replies: what is read, which candidates are drawn, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.drawn_replies import same, with_drawn, with_negatives
from bertsmith.tasks.datasets.examples import ChoiceExample
from bertsmith.tasks.datasets.replies import read_replies, read_reply_list
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.task_data.task_files import read_task
from written_files import file_of_records, file_with


def conversations(count: int = 30) -> list[dict[str, Any]]:
    """Rows of which every third one has an equal reply, spelled in several ways."""
    thanks = ("Thank you.", "thank  you.", "THANK YOU. ")
    return [
        {"context": [f"turn {n}", "and then"], "response": thanks[n // 3 % 3] if n % 3 == 0 else f"reply {n}"}
        for n in range(count)
    ]


def read(path: Path, **options: Any) -> list[ChoiceExample]:
    return list(read_replies(path, **options).examples)


def right(example: ChoiceExample) -> str:
    return example.endings[example.label or 0]


def test_a_list_of_turns_becomes_the_lines_of_the_context(tmp_path: Path) -> None:
    path = file_of_records(tmp_path / "a.jsonl", [*conversations(3), {"context": "one text", "response": "x"}])
    examples = read(path, training=True)
    assert examples[0].context == "turn 0\nand then"
    assert examples[3].context == "one text"
    assert [example.endings for example in examples[:2]] == [("Thank you.",), ("reply 1",)]


def test_equal_replies_are_never_negatives(tmp_path: Path) -> None:
    examples = read(file_of_records(tmp_path / "a.jsonl", conversations()), candidates=10)
    for example, row in zip(examples, conversations(), strict=True):
        assert same(right(example)) == same(row["response"])
        assert len(example.endings) == 10
        assert len({same(text) for text in example.endings}) == 10
    drawn = with_negatives(read(tmp_path / "a.jsonl", training=True), 4, 0)
    assert all(len({same(text) for text in example.endings}) == 5 for example in drawn)


def test_replies_to_an_equal_context_are_never_negatives(tmp_path: Path) -> None:
    rows = [{"context": "Hello?", "response": f"reply {n}"} for n in range(3)]
    rows += [{"context": f"other {n}", "response": f"other reply {n}"} for n in range(4)]
    for example in read(file_of_records(tmp_path / "a.jsonl", rows), candidates=7)[:3]:
        assert sorted(example.endings) == sorted([right(example), *(f"other reply {n}" for n in range(4))])


def test_candidates_are_drawn_by_row_and_the_right_one_is_anywhere(tmp_path: Path) -> None:
    path = file_of_records(tmp_path / "a.jsonl", conversations())
    first, second = read(path), read(path)
    assert first == second
    assert len({example.label for example in first}) > 5
    assert len({frozenset(example.endings) for example in first}) == len(first)


def test_a_column_of_candidates_is_taken_as_it_is(tmp_path: Path) -> None:
    rows = [{"context": "Hello?", "response": "Hi.", "candidates": ["No.", "hi. ", "Bye."]}]
    (example,) = read(file_of_records(tmp_path / "a.jsonl", rows))
    assert sorted(example.endings) == ["Bye.", "Hi.", "No."]
    assert right(example) == "Hi."
    (unlabelled,) = read(tmp_path / "a.jsonl", gold=False)
    assert (unlabelled.endings, unlabelled.label) == (("No.", "hi. ", "Bye."), None)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "", "response": "x"}, "a text in the column 'context' in line 2 of"),
        ({"context": "x", "response": ""}, "a text in the column 'response' in line 2 of"),
        ({"context": "x", "response": ["a", "b"]}, "found 2 texts"),
        ({"context": ["x", 3], "response": "a"}, "a text, or a list of texts, as 'context' in line 2 of"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = file_of_records(tmp_path / "a.jsonl", [{"context": "good", "response": "fine"}, row])
    with pytest.raises(InputError, match=message):
        read(path)


def test_a_label_is_no_reply_unless_it_is_named(tmp_path: Path) -> None:
    path = file_of_records(tmp_path / "a.jsonl", [{"text": f"good day {n}", "label": f"reply {n}"} for n in range(3)])
    with pytest.raises(InputError, match=r"a column named 'response' for the replies in .*--label-column"):
        read(path)
    assert [right(example) for example in read(path, label_column="label")] == [f"reply {n}" for n in range(3)]


def test_candidates_without_a_second_reply_are_refused(tmp_path: Path) -> None:
    path = file_of_records(tmp_path / "a.jsonl", [{"context": f"{n}", "response": "Yes."} for n in range(3)])
    with pytest.raises(InputError, match="a reply that differs from that of line 1"):
        read(path)
    rows = [{"context": "x", "response": "Yes.", "candidates": ["yes."]}]
    with pytest.raises(InputError, match="at least 2 different candidates in line 1"):
        read(file_of_records(tmp_path / "b.jsonl", rows))


def test_a_list_of_replies_has_each_reply_once(tmp_path: Path) -> None:
    path = file_with(tmp_path / "replies.txt", "Yes.\n\nNo.\nyes. \n")
    assert read_reply_list(path) == ["Yes.", "No."]
    path.write_text("Yes.\nYes.\n", encoding="utf-8")
    with pytest.raises(InputError, match="at least 2 different replies"):
        read_reply_list(path)


def test_a_dev_set_that_is_held_out_gets_candidates(tmp_path: Path) -> None:
    path = file_of_records(tmp_path / "a.jsonl", conversations(200))
    _, data = read_task("response-selection", path, None, settings=TaskSettings())
    assert {len(example.endings) for example in data.train} == {1}
    assert {len(example.endings) for example in data.dev} == {10}


def test_drawing_keeps_candidates_that_are_there() -> None:
    examples = [
        ChoiceExample(id=str(n), context=f"c{n}", endings=(f"r{n}", f"hard {n}"), label=0, location=f"row {n}")
        for n in range(6)
    ]
    for number, example in enumerate(with_drawn(examples, 2)):
        assert {f"r{number}", f"hard {number}"} <= set(example.endings)
        assert len(example.endings) == 4
        assert right(example) == f"r{number}"
