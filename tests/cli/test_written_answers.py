"""ask --writer: answers in words, the passages that they come from, and SQuAD files that train such a model."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertsmith import ask_document, load
from bertsmith.app.library.documents import PASSAGE
from bertsmith.recipes.results.comparison import paired
from bertsmith.recipes.results.resampling import example_lines, intervals
from bertsmith.tasks.datasets.sequences import read_sequences, source_of_question
from bertsmith.tasks.metrics.answers import squad_scores
from bertsmith.tasks.metrics.texts import text_scores
from bertsmith.tasks.metrics.uncertainty import proportion_interval
from bertsmith.tasks.specs.kinds import task_for
from bertsmith.tasks.specs.named_tasks import with_metric
from bertsmith.tasks.specs.predictions import TextPrediction
from cli.test_predicting import write_model
from tasks.task_samples import SPECS
from written_files import file_with

PARAGRAPHS = ["The plot of Anna's film ,\nin Rome .", "Bert was  great , and", "Carl was it ; good film , bad plot ."]
LONG = " ".join(["anna was in rome"] * 150)
QUESTION = "where was Anna ?"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    return file_with(tmp_path / "document.txt", "\n \n".join([*PARAGRAPHS, LONG]) + "\n")


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
    result = run("ask", reader, document, QUESTION, "who ?", *options).succeeds()
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
    assert example.source == "question: Where was Anna? passage: Anna was in Rome."
    assert example.targets == ("Rome", "in Rome")
    assert [reason for _, reason in file.skipped] == ["no answer in its passage"]
    unlabelled = read_sequences(path, gold=False).examples
    assert [example.targets for example in unlabelled] == [(), ()]


def squad(path: Path, answers: Sequence[Sequence[str]]) -> Path:
    """A file of SQuAD 1.1 with a question for each list of right answers, all in one passage."""
    passage = "Anna was in Rome , and Bert was in Oslo ."
    of_questions = [[{"text": text, "answer_start": passage.find(text)} for text in texts] for texts in answers]
    questions = [{"id": str(n), "question": "who ?", "answers": of_one} for n, of_one in enumerate(of_questions)]
    content = {"data": [{"title": "t", "paragraphs": [{"context": passage, "qas": questions}]}]}
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


GOLDS = [["Rome", "in Rome"], ["Anna"], ["Bert was in Oslo"], ["Oslo ."], ["Anna", "Bert"], ["Rome"]]
WROTE = ["the Rome!", "bert", "in Oslo", "oslo", "anna, Bert", ""]


def test_written_answers_to_a_file_of_squad_have_the_scores_of_squad(tmp_path: Path) -> None:
    examples = read_sequences(squad(tmp_path / "dev.json", GOLDS)).examples
    predictions = [TextPrediction(text=text, score=0.0, answers=((text, 0.0),)) for text in WROTE]
    task = task_for(SPECS["text to write"])
    scores = task.score(examples, predictions)
    numbered = {str(number): texts for number, texts in enumerate(GOLDS)}
    official = squad_scores(numbered, {str(number): text for number, text in enumerate(WROTE)})
    assert scores["answer_exact"] == pytest.approx(official["exact"] / 100) == pytest.approx(2 / 6)
    f1 = [1, 0, 2 * (2 / 2) * (2 / 4) / (2 / 2 + 2 / 4), 1, 2 / 3, 0]
    assert scores["answer_f1"] == pytest.approx(official["f1"] / 100) == pytest.approx(sum(f1) / 6)
    assert [*scores][:4] == [*task.spec.metrics]
    lines = list(example_lines(task, examples, predictions))
    both_ends = intervals(task.spec.kind, scores, lines)
    assert both_ends["answer_exact"] == pytest.approx(proportion_interval(2, 6))
    assert both_ends["answer_f1"][0] < scores["answer_f1"] < both_ends["answer_f1"][1]
    plain = [dataclasses.replace(example, is_answer=False) for example in examples]
    assert [*task.score(plain, predictions)] == [*task.spec.metrics], "other texts are not answers"
    assert [*task.score([], [])] == [*task.spec.metrics], "nor are none"


def test_two_writers_are_compared_by_the_answers_that_they_write(tmp_path: Path) -> None:
    examples = read_sequences(squad(tmp_path / "dev.json", GOLDS * 4)).examples
    task = task_for(with_metric(SPECS["text to write"], "answer_f1"))
    right = [texts[-1] for texts in GOLDS]
    ours, theirs = (
        [[*example_lines(task, examples, [TextPrediction(text=text, score=0.0, answers=()) for text in texts * 4])]]
        for texts in (right, WROTE)
    )
    _, test = paired(task.spec.kind, task.spec.metric, "", ours, theirs)
    assert test.difference == pytest.approx(1 - sum([1, 0, 2 / 3, 1, 2 / 3, 0]) / 6)
    assert test.p_value < 0.05


def test_evaluate_prints_the_scores_of_answers(run, writer: Path, tmp_path: Path) -> None:
    data = squad(tmp_path / "dev.json", GOLDS)
    lines = run("evaluate", "--model", writer, "--data", data).out.splitlines()
    assert [line.partition(":")[0] for line in lines][-2:] == ["answer_exact", "answer_f1"]
    scores = json.loads(run("evaluate", "--model", writer, "--data", data, "--json").out)["scores"]
    written = [answer.text for answer in load(writer).generate([text.source for text in read_sequences(data).examples])]
    assert scores["answer_f1"] == pytest.approx(text_scores(["answer_f1"], written, GOLDS)["answer_f1"])
