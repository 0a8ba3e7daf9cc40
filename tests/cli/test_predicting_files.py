"""predict on a table: rows without labels, and the table with the answers."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith.app.library.prediction_tables import _with_cells
from bertsmith.base.core.errors import InputError
from bertsmith.tasks.baselines.bag_of_words import BagOfWords
from bertsmith.tasks.baselines.linear import LinearModel
from bertsmith.tasks.baselines.n_grams import NGramModel
from bertsmith.tasks.datasets.examples import TextExample
from bertsmith.tasks.specs.settings import TaskSettings
from bertsmith.tasks.specs.task import TaskSpec
from cli.test_predicting import write_model
from written_files import file_with

TABLE = '\ufeffid;body;other\r\n1;"the film; it\r\nwas good";x\r\n2; ;y\r\n3;the plot;z\r\n'


def rows_of(path: Path, separator: str = ",") -> list[list[str]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, delimiter=separator))


def test_a_table_is_written_with_the_answers_next_to_its_columns(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "single", (9.0, 0.0))
    (tmp_path / "in.csv").write_bytes(TABLE.encode())
    asked = ("predict", "--model", model, "--data", tmp_path / "in.csv", "--text-column", "body")
    written = run(*asked, "--out", tmp_path / "out.csv").succeeds()
    assert written.out.strip() == str(tmp_path / "out.csv")
    assert "empty text" in written.err
    header, first, second, third = rows_of(tmp_path / "out.csv", ";")
    assert header == ["id", "body", "other", "prediction", "probability"]
    assert first[:3] == ["1", "the film; it\r\nwas good", "x"]
    assert second == ["2", " ", "y", "", ""]
    printed = [json.loads(line) for line in run(*asked, "--json").out.splitlines()]
    assert [record["id"] for record in printed] == ["1", "3"]
    for row, record in zip((first, third), printed, strict=True):
        assert row[3] == record["label"]
        assert row[4] == f"{record['probabilities'][record['label']]:.4f}"


@pytest.mark.parametrize(
    ("encoding", "mark"), [("utf-8", ""), ("utf-8", "\ufeff"), ("utf-16-le", "\ufeff"), ("utf-16-be", "\ufeff")]
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_keeps_its_form(run, tmp_path: Path, separator: str, end: str, encoding: str, mark: str) -> None:
    lines = (
        ["id", "text", '"a name"'],
        ["1", "the film", '"quoted, though it need not be"'],
        [],
        ["2", f'"a; b, c\td ""e""{end}and two lines"', "x"],
        ["", "", ""],
        ["3", "l'été", "last"],
    )
    table = mark + end.join(separator.join(cells) for cells in lines)
    model = write_model(tmp_path / "model", "single", (9.0, 0.0))
    (tmp_path / "in.csv").write_bytes(table.encode(encoding))
    out = tmp_path / "out.csv"
    written = run("predict", "--model", model, "--data", tmp_path / "in.csv", "--text-column", "text", "--out", out)
    assert written.code == 0, written.err
    rows = out.read_bytes().decode(encoding).removeprefix(mark).split(end)
    before = table.removeprefix(mark).split(end)
    assert out.read_bytes().startswith(mark.encode(encoding))
    answers = [row[len(line) :].split(separator) for row, line in zip(rows, before, strict=True)]
    assert all(row.startswith(line) for row, line in zip(rows, before, strict=True))
    assert answers[0] == ["", "prediction", "probability"]
    assert [number for number, cells in enumerate(answers) if cells == [""]] == [2, 3]  # blank, and half a row
    assert answers[5] == ["", "", ""]
    assert {cells[1] for number, cells in enumerate(answers) if number in (1, 4, 6)} == {"negative"}
    assert "line 6 of" in written.err


def test_predictions_that_the_encoding_of_the_table_lacks_are_refused(tmp_path: Path) -> None:
    table = file_with(tmp_path / "in.csv", "text;a\nl'été;1\n".encode("cp1252"))
    location = f"line 2 of '{table}'"
    form = (table, ["text", "a"], ["prediction"])
    written = _with_cells(*form, {location: {"prediction": "été"}}, "cp1252")
    assert written.decode("cp1252") == "text;a;prediction\nl'été;1;été\n"
    with pytest.raises(InputError, match="save the table as UTF-8"):
        _with_cells(*form, {location: {"prediction": "夏"}}, "cp1252")


def test_a_cell_with_any_line_end_remains_one_cell(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "single")
    texts = ["the\rfilm", "the\nfilm", 'the "film", good']
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run("predict", "--model", model, "--data", tmp_path / "in.jsonl", "--out", tmp_path / "out.csv").succeeds()
    assert [row[0] for row in rows_of(tmp_path / "out.csv")] == ["text", *texts]


def test_several_labels_are_written_also_if_their_probabilities_add_up_to_one(run, tmp_path: Path) -> None:
    bag = BagOfWords([TextExample(id="", first="the film", second=None)], TaskSettings(), 2)
    linear = LinearModel(weight=np.zeros((2, bag.num_columns), np.float32), bias=np.zeros(2, np.float32), penalty=0.0)
    spec = TaskSpec(kind="classification", name="multi-label", labels=("a", "b"), multi_label=True)
    NGramModel(spec=spec, bag=bag, linear=linear).write(tmp_path / "model")
    (tmp_path / "in.csv").write_text("text\nthe film\n")
    asked = ("predict", "--model", tmp_path / "model", "--data", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    run(*asked).succeeds()
    assert rows_of(tmp_path / "out.csv") == [["text", "prediction"], ["the film", "a|b"]]


def test_numbers_have_no_probability(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "number")
    (tmp_path / "in.csv").write_text("text\nthe film\n")
    run("predict", "--model", model, "--data", tmp_path / "in.csv", "--out", tmp_path / "out.csv").succeeds()
    header, row = rows_of(tmp_path / "out.csv")
    assert header == ["text", "prediction"]
    assert float(row[1]) == float(row[1])


def test_what_cannot_be_answered_in_a_table_is_refused_before_anything_is_written(run, tmp_path: Path) -> None:
    model, tagger = write_model(tmp_path / "model", "single"), write_model(tmp_path / "tagger", "tags")
    (tmp_path / "in.csv").write_text("text\nthe film\n")
    (tmp_path / "taken.csv").write_text("text,prediction\nthe film,1\n")
    (tmp_path / "labels.csv").write_text("text,label\nthe film,1\n")
    (tmp_path / "words.conll").write_text("the\nfilm\n")
    out = tmp_path / "out.csv"
    for arguments, said in (
        (("--out", out), "ends in .jsonl"),
        (("--data", tmp_path / "in.csv", "--out", out, "--resume"), "texts on stdin"),
        (("--text-column", "text"), "--text-column needs --data"),
        (("--data", tmp_path / "in.csv", "--out", tmp_path / "in.csv"), "an output apart from the input"),
        (("--data", tmp_path / "taken.csv", "--out", out), "no column 'prediction'"),
        (("--data", tmp_path / "in.csv", "--out", tmp_path / "out.txt"), "ends in .csv"),
        (("--data", tmp_path / "in.csv", "--out", tmp_path / "labels.csv", "--replace"), "no other file is replaced"),
        (("--data", tmp_path / "in.csv", "--task", "mnli-mm"), "--task needs --test"),
        (("--data", tmp_path / "in.csv", "--test", tmp_path / "in.csv"), "a single source of texts"),
        (("--data", tmp_path / "in.csv", "--engine", "ray"), "found --engine ray, which predicts texts on stdin"),
        (("--test", tmp_path / "in.csv", "--engine", "ray"), "found --engine ray with --test; leave one"),
    ):
        refused = run("predict", "--model", model, *arguments)
        refused.refuses(said)
    refused = run("predict", "--model", tagger, "--data", tmp_path / "words.conll", "--out", out)
    refused.refuses("expected a table with --out")
    assert not out.exists()
    assert (tmp_path / "labels.csv").read_text() == "text,label\nthe film,1\n"
    again = ("predict", "--model", model, "--data", tmp_path / "in.csv", "--out", out)
    assert [run(*again).code, run(*again).code, run(*again, "--replace").code] == [0, 1, 0]
