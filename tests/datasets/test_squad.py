"""SQuAD files: questions with answers in their contexts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import InputError
from bertsmith.tasks.datasets.examples import Answer
from bertsmith.tasks.datasets.squad import read_squad
from written_files import file_with

CONTEXT = "In May Ann met Bob; Bob met Ann in June."


def answer(text: str, start: int | None) -> dict[str, Any]:
    return {"text": text, "answer_start": start} if start is not None else {"text": text}


def question(name: str, *answers: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": name, "question": f"Who is {name}?", "answers": list(answers), **fields}


def write(path: Path, *questions: dict[str, Any], context: str = CONTEXT, **fields: Any) -> Path:
    paragraphs = [{"context": context, "qas": list(questions), **fields}]
    path.write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8"
    )
    return path


def test_questions_of_the_first_version_have_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(
        tmp_path / "a.json", question("q1", answer("Ann", 7), answer("Bob", 15)), question("q2", answer("May", 3))
    )
    file = read_squad(path)
    first, second = file.examples
    assert (first.id, first.question, first.context) == ("q1", "Who is q1?", CONTEXT)
    assert first.answers == (Answer("Ann", 7), Answer("Bob", 15))
    assert (first.is_impossible, first.location) == (False, f"question 'q1' of '{path}'")
    assert (second.answers, file.skipped) == ((Answer("May", 3),), ())
    assert capsys.readouterr().err == ""


def test_training_takes_the_first_answer(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", question("q", answer("Ann", 7), answer("Bob", 15)))
    assert read_squad(path, training=True).examples[0].answers == (Answer("Ann", 7),)


def test_questions_of_the_second_version_may_have_no_answer(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.json",
        question("q1", is_impossible=True, plausible_answers=[answer("Ann", 7)]),
        question("q2", answer("Bob", 15), is_impossible=False),
    )
    for training in (False, True):
        examples = read_squad(path, training=training).examples
        assert [(example.is_impossible, len(example.answers)) for example in examples] == [(True, 0), (False, 1)]


def test_a_question_without_gold_is_kept_for_prediction_and_skipped_in_training(tmp_path: Path) -> None:
    bare = {"id": 5, "question": "Who?"}
    path = write(tmp_path / "a.json", bare, question("q2", answer("Bob", 15)))
    assert [(example.id, len(example.answers)) for example in read_squad(path).examples] == [("5", 0), ("q2", 1)]
    file = read_squad(path, training=True)
    assert [example.id for example in file.examples] == ["q2"]
    assert file.skipped == ((f"question '5' of '{path}'", "no answer"),)


@pytest.mark.parametrize(
    ("text", "start", "moved"),
    [
        ("Bob", 16, Answer("Bob", 15)),
        ("Bob", 19, Answer("Bob", 20)),
        ("Ann", 0, Answer("Ann", 7)),
        ("Ann", 400, Answer("Ann", 28)),
        ("Ann", -1, Answer("Ann", 7)),
        ("Ann", None, Answer("Ann", 7)),
        (" met  Bob ", 10, Answer("met Bob", 11)),
    ],
)
def test_an_answer_whose_offset_is_off_is_moved_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, start: int | None, moved: Answer
) -> None:
    file = read_squad(write(tmp_path / "a.json", question("q", answer(text, start))))
    assert (file.examples[0].answers, file.skipped) == ((moved,), ())
    title, listed = capsys.readouterr().err.splitlines()
    assert title.startswith("warning: 1 answer in ")
    assert listed.startswith("warning: question 'q' of '")
    assert listed.endswith(f": {text!r} from {start} to {moved.start}".replace("  ", " "))


@given(st.text("ab ", min_size=1, max_size=12), st.integers(0, 12), st.integers(1, 4), st.integers(-2, 14))
def test_an_answer_is_moved_to_the_nearest_of_its_places(
    tmp_path_factory: pytest.TempPathFactory, context: str, first: int, length: int, start: int
) -> None:
    text = context[first : first + length].strip()
    if not text:
        return
    path = write(tmp_path_factory.mktemp("squad") / "a.json", question("q", answer(text, start)), context=context)
    (result,) = read_squad(path).examples[0].answers
    places = [position for position in range(len(context)) if context.startswith(text, position)]
    assert context[result.start :].startswith(result.text)
    assert abs(result.start - start) <= min(abs(position - start) for position in places)


def test_an_answer_that_is_not_in_its_context_counts_in_scoring_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        tmp_path / "a.json",
        question("q1", answer("Cy", 3)),
        question("q2", answer("", 3)),
        question("q3", answer("Cy", 3), answer("Bob", 15), answer("Ann", 7)),
    )
    reason, places = (
        "its answer does not occur in its context",
        [f"question 'q{number}' of '{path}'" for number in (1, 2, 3)],
    )
    file = read_squad(path)
    assert [example.id for example in file.examples] == ["q1", "q3"]
    assert [example.answers for example in file.examples] == [(), (Answer("Bob", 15), Answer("Ann", 7))]
    assert [example.absent_answers for example in file.examples] == [("Cy",), ("Cy",)]
    assert file.skipped == ((places[1], reason),)
    title, *listed = capsys.readouterr().err.splitlines()
    assert title == f"warning: 2 answers in '{path}' not in the context; they only count in scoring"
    assert listed == [f"warning: {places[0]}: 'Cy'", f"warning: {places[2]}: 'Cy'"]
    trained = read_squad(path, training=True)
    assert [(example.id, example.answers, example.absent_answers) for example in trained.examples] == [
        ("q3", (Answer("Bob", 15),), ())
    ]
    assert trained.skipped == ((places[0], reason), (places[1], reason))
    title, listed = capsys.readouterr().err.splitlines()
    assert title.endswith("; other answers are learned")
    assert listed == f"warning: {places[2]}: 'Cy'"


def test_only_the_first_places_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read_squad(write(tmp_path / "a.json", *(question(f"q{number}", answer("Bob", 16)) for number in range(23))))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + 20 + 1
    assert lines[-1] == "warning: and 3 more"


def test_empty_questions_and_contexts_and_doubled_ids_are_skipped_and_listed(tmp_path: Path) -> None:
    empty = question("q1", answer("Bob", 15)) | {"question": " "}
    path = write(tmp_path / "a.json", empty, question("q2", answer("Bob", 15)), question("q2", answer("Ann", 7)))
    file = read_squad(path)
    assert [(example.id, example.answers) for example in file.examples] == [("q2", (Answer("Bob", 15),))]
    assert [reason for _, reason in file.skipped] == ["an empty question", "a duplicate id"]
    with pytest.raises(InputError, match=r"none usable, 1 skipped, such as question 'q' .*an empty context"):
        read_squad(write(tmp_path / "b.json", question("q", answer("Bob", 15)), context="  "))


def test_halves_of_surrogate_pairs_do_not_move_what_follows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", question("q", answer("Bob", 2)), context="\ud83d Bob \U0001f600")
    (example,) = read_squad(path).examples
    assert (example.context, example.answers) == ("\ufffd Bob \U0001f600", (Answer("Bob", 2),))


BAD_FILES = {
    "a table": ("text,label\na,1\n", "or rows with question and context (JSON lines, Parquet); found 'text,label"),
    "cut off": ('{"data": [{"paragraphs": [', "expected JSON in"),
    "deep": ("[" * 100_000, "expected JSON in"),
    "a list": ("[1, 2]", "'paragraphs' of the SQuAD format in article 0 of 'PATH'; found 1 instead of a record"),
    "other fields": ('{"text": "a", "label": 1}', "found only 'text', 'label'"),
    "data of another kind": ('{"data": {"a": 1}}', "found the value {'a': 1}"),
    "no paragraphs": ('{"data": [{"title": "t"}]}', "'paragraphs' of the SQuAD format in article 0 of"),
    "no context": (
        '{"data": [{"paragraphs": [{"qas": []}]}]}',
        "'context' of the SQuAD format in paragraph 0 of article 0",
    ),
    "no id": (
        '{"data": [{"paragraphs": [{"context": "c", "qas": [{"question": "q"}]}]}]}',
        "'id' of the SQuAD format in",
    ),
    "an answer that is a text": (
        '{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "7", "question": "q", "answers": ["c"]}]}]}]}',
        "'text' of the SQuAD format in question '7' of",
    ),
    "an id with half a surrogate pair": (
        '{"data": [{"paragraphs": [{"context": "c", "qas": [{"id": "\\ud800", "question": "q"}]}]}]}',
        "expected an id of whole characters in question 0 of paragraph 0 of article 0 of 'PATH'",
    ),
    "no questions": ('{"data": []}', "found none usable"),
    "an empty file": ("", "found an empty file"),
    "binary": ("\x00\x01", "found binary data"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    content, result = BAD_FILES[name]
    path = file_with(tmp_path / "a.json", content)
    with pytest.raises(InputError, match=re.escape(result.replace("PATH", str(path)))) as error:
        read_squad(path)
    assert str(path) in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("value", ["false", "true", 0, 1, None, []])
def test_only_true_and_false_say_whether_a_question_is_impossible(tmp_path: Path, value: object) -> None:
    path = write(tmp_path / "a.json", question("q7", answer("Bob", 15), is_impossible=value))
    with pytest.raises(InputError, match=f"'is_impossible' of the SQuAD format in question 'q7' of '{path}'; found"):
        read_squad(path)


@pytest.mark.parametrize("start", ["15", True, 15.0, [15]])
def test_an_offset_that_is_not_a_whole_number_is_refused(tmp_path: Path, start: object) -> None:
    path = write(tmp_path / "a.json", question("q7", {"text": "Bob", "answer_start": start}))
    with pytest.raises(InputError, match=f"'answer_start' of the SQuAD format in question 'q7' of '{path}'; found"):
        read_squad(path)
    bad = write(tmp_path / "b.json", question("q", answer("Bob", 15)) | {"id": True})
    with pytest.raises(InputError, match="'id' of the SQuAD format"):
        read_squad(bad)


def test_real_files_have_their_exact_counts(real_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = real_data / "squad"
    first, second = read_squad(folder / "dev-v1.1.json"), read_squad(folder / "dev-v2.0.json")
    assert [len(file.examples) for file in (first, second)] == [10_570, 11_873]
    assert first.skipped == second.skipped == ()
    assert sum(example.is_impossible for example in second.examples) == 5_945
    assert all(
        example.context.startswith(answer.text, answer.start)
        for example in (*first.examples, *second.examples)
        for answer in example.answers
    )
    train = read_squad(folder / "train-v2.0-first10articles.json", training=True)
    assert (len(train.examples), {len(example.answers) for example in train.examples}) == (4719, {0, 1})
    assert capsys.readouterr().err == ""
