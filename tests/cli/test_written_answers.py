"""ask --writer: answers in words, the passages that they come from, and SQuAD files that train such a model."""

import json
from pathlib import Path

import pytest

from bertsmith import ask_document, load
from bertsmith.app.library.documents import PASSAGE
from bertsmith.tasks.datasets.sequences import read_sequences, source_of_question
from cli.test_predicting import write_model

PARAGRAPHS = ["The plot of Anna's film ,\nin Rome .", "Bert was  great , and", "Carl was it ; good film , bad plot ."]
LONG = " ".join(["anna was in rome"] * 150)
QUESTION = "where was Anna ?"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "document.txt"
    path.write_text("\n \n".join([*PARAGRAPHS, LONG]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def reader(tmp_path: Path) -> Path:
    return write_model(tmp_path / "reader", "answer")


@pytest.fixture
def writer(tmp_path: Path) -> Path:
    return write_model(tmp_path / "writer", "text to write")


@pytest.mark.filterwarnings("ignore::bertsmith.CutWarning")
def test_an_answer_in_words_is_what_the_writer_makes_of_its_passage(
    run, reader: Path, writer: Path, document: Path
) -> None:
    options = ("--writer", writer, "--passages", 4, "--top", 4, "--json")
    result = run("ask", reader, document, QUESTION, "who ?", *options)
    assert result.code == 0, result.err
    answered = [json.loads(line) for line in result.out.splitlines()]
    text, model = document.read_text(encoding="utf-8"), load(writer)
    for question in answered:
        assert 1 < len(question["written"]) <= 4
        for answer in question["written"]:
            assert text[answer["begin"] : answer["end"]] == answer["passage"] == answer["passage"].strip()
            assert len(answer["passage"]) <= PASSAGE
            assert answer["line"] == text.count("\n", 0, answer["begin"]) + 1
            assert answer["last_line"] - answer["line"] == answer["passage"].count("\n")
            (alone,) = model.generate([source_of_question(question["question"], answer["passage"])])
            assert answer["text"] == alone.text
            assert answer["score"] == pytest.approx(alone.score, abs=1e-4)
        spans = {(answer["begin"], answer["end"]) for answer in question["written"]}
        assert len(spans) == len(question["written"]), "each passage once"
    extractive = run("ask", reader, document, QUESTION, "who ?", "--top", 4, "--json").out.splitlines()
    for question, plain in zip(answered, map(json.loads, extractive), strict=True):
        assert {key: value for key, value in question.items() if key != "written"} == plain
    (python, _) = ask_document(reader, document, [QUESTION, "who ?"], writer=writer, passages=4, top=4)
    assert python.to_dict()["written"] == answered[0]["written"]


def test_people_read_the_written_answer_its_score_its_passage_and_then_the_place(
    run, reader: Path, writer: Path, document: Path
) -> None:
    first, second, *extractive = run("ask", reader, document, QUESTION, "--writer", writer).out.splitlines()
    (answer,) = json.loads(run("ask", reader, document, QUESTION, "--writer", writer, "--json").out)["written"]
    assert first == f"{answer['text']}  (score {answer['score']:.2f})"
    assert second.startswith("  from line")
    assert f", {answer['probability']:.0%}: " in second
    assert extractive == run("ask", reader, document, QUESTION).out.splitlines()


def test_where_no_answer_is_found_none_is_written(run, writer: Path, document: Path, tmp_path: Path) -> None:
    doubter = write_model(tmp_path / "doubter", "answer or none")
    metadata = json.loads((doubter / "bertsmith.json").read_text(encoding="utf-8"))
    metadata["spec"]["threshold"] = -1e9
    (doubter / "bertsmith.json").write_text(json.dumps(metadata), encoding="utf-8")
    assert run("ask", doubter, document, QUESTION, "--writer", writer).out.endswith("(no answer)\n")
    assert json.loads(run("ask", doubter, document, QUESTION, "--writer", writer, "--json").out)["written"] == []


def test_a_writer_that_is_none_is_refused_in_one_line(run, reader: Path, document: Path, tmp_path: Path) -> None:
    judge = write_model(tmp_path / "judge", "single")
    for options, message in (
        (["--writer", judge], "expected a model that writes texts (--task text-to-text); found"),
        (["--writer", tmp_path / "absent"], "absent"),
        (["--passages", 2], "--passages needs --writer"),
    ):
        result = run("ask", reader, document, QUESTION, *options)
        assert (result.code, result.out) == (1, "")
        assert message in result.err.replace("`", "")
        assert result.err.count("\n") == 1


def test_a_file_of_squad_is_read_as_texts_to_write(tmp_path: Path) -> None:
    answers = [{"text": "Rome", "answer_start": 12}, {"text": "Rome", "answer_start": 12}, {"text": "in Rome"}]
    questions = [
        {"id": "a", "question": "Where was Anna?", "answers": answers},
        {"id": "b", "question": "Who was Bert?", "answers": [], "is_impossible": True},
    ]
    path = tmp_path / "squad.json"
    content = {"data": [{"title": "t", "paragraphs": [{"context": "Anna was in Rome.", "qas": questions}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    file = read_sequences(path)
    (example,) = file.examples
    assert example.source == "question: Where was Anna? passage: Anna was in Rome."  # type: ignore[union-attr]
    assert example.targets == ("Rome", "in Rome")  # type: ignore[union-attr]
    assert [reason for _, reason in file.skipped] == ["no answer in its passage"]
    unlabelled = read_sequences(path, gold=False).examples
    assert [example.targets for example in unlabelled] == [(), ()]  # type: ignore[union-attr]
