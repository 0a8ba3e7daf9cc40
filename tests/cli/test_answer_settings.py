"""predict with another search than the one stored with the model: the texts of the library, and what is refused."""

import json
from pathlib import Path

import pytest

from bertsmith import load
from cli.test_predicting import write_model
from written_files import file_with

LINES = ["anna was in rome", "the plot of the film , in oslo", ""]
OPTIONS = {"beam": 3, "answers": 2, "length_penalty": 0.5, "no_repeat_ngram": 2, "min_target_length": 2}
SEARCH = {**OPTIONS, "max_target_length": 5}
TYPED = [word for name, value in SEARCH.items() for word in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture
def writer(tmp_path: Path) -> Path:
    return write_model(tmp_path / "writer", "text to write")


def test_predict_searches_as_the_library_does_for_lines_and_for_a_table(run, writer: Path, tmp_path: Path) -> None:
    expected = [answer.to_dict() for answer in load(writer).generate(LINES, **SEARCH)]
    assert len(expected[0]["answers"]) == 2
    assert expected != [answer.to_dict() for answer in load(writer).generate(LINES)]
    stdin = "".join(line + "\n" for line in LINES).encode()
    result = run("predict", "--model", writer, *TYPED, "--json", stdin=stdin).succeeds()
    written = [json.loads(line) for line in result.out.splitlines()]
    assert [row["text"] for row in written] == [row["text"] for row in expected]
    assert [len(row["answers"]) for row in written] == [2, 2, 1]
    table = file_with(tmp_path / "table.csv", "source\n" + "".join(f'"{line}"\n' for line in LINES[:2]))
    result = run("predict", "--model", writer, "--data", table, *TYPED)
    assert result.out.splitlines() == [" ".join(row["text"].split()) for row in expected[:2]]


def test_a_search_that_a_model_does_not_have_is_refused_in_one_line(run, writer: Path, tmp_path: Path) -> None:
    judge = write_model(tmp_path / "judge", "single")
    for model, options, message in (
        (judge, ["--beam", 2], "expected a model whose answers have the setting beam; found one of"),
        (writer, ["--sentences", 2], "expected a model whose answers have the setting sentences; found one of"),
        (writer, ["--answers", 9, "--beam", 3], "answers must be at most 3, the beam width, not 9; widen it"),
        (writer, ["--max-target-length", 90_000], "max_target_length must be at most"),
        (writer, ["--beam", 2, "--test", tmp_path / "x.tsv"], "for --beam; found --test"),
    ):
        run("predict", "--model", model, *options, stdin=b"anna\n").refuses(message)


def test_predictions_of_another_search_are_not_resumed(run, writer: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    lines = b"anna was in rome\nthe plot\n\xff\n"
    assert run("predict", "--model", writer, "--beam", 2, "--out", out, stdin=lines).code == 1
    result = run("predict", "--model", writer, "--beam", 3, "--out", out, "--resume", stdin=lines)
    result.refuses("the models and options that the predictions in")
