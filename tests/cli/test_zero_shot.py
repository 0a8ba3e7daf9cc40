"""The command classify."""

import json
from pathlib import Path

import bertsmith
from inference.test_zero_shot import LABELS, TEXTS, encoder
from written_files import file_with

__all__ = ["encoder"]  # a fixture


def test_lines_and_tables_are_answered_as_by_the_library(run, encoder: str, tmp_path: Path) -> None:
    answers = bertsmith.classify(TEXTS, LABELS, model=encoder, device="cpu")
    texts, labels = tmp_path / "texts.txt", tmp_path / "labels.csv"
    texts.write_text("\n".join(TEXTS) + "\n")
    labels.write_text("name\n" + "\n".join(LABELS) + "\n")
    options = ("--model", encoder, "--device", "cpu")
    shown = run("classify", texts, "--labels", ",".join(LABELS), *options)
    assert shown.out.splitlines() == [answer.line() for answer in answers], shown.err
    records = run("classify", texts, "--labels", labels, "--json", *options).out.splitlines()
    assert [json.loads(record)["label"] for record in records] == [answer.label for answer in answers]
    table, out = tmp_path / "texts.csv", tmp_path / "out.csv"
    table.write_text("text;note\n" + "".join(f"{text};é\n" for text in TEXTS), encoding="utf-8")
    run("classify", table, "--labels", labels, "--out", out, *options).succeeds()
    lines = out.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "text;note;prediction;probability"
    assert lines[1] == f"{TEXTS[0]};é;{answers[0].label};{answers[0].probability:.4f}"


def test_what_cannot_be_answered_is_refused_in_one_line(run, encoder: str, tmp_path: Path) -> None:
    texts = file_with(tmp_path / "texts.txt", "film\n\nplot\n")
    refused = run("classify", texts, "--labels", "film,rome", "--model", encoder, "--device", "cpu")
    assert refused.code == 1
    assert "expected a text in line 2 of" in refused.err
    assert refused.out.count("\n") == 1
    refused = run("classify", texts, "--labels", "film,rome", "--out", tmp_path / "x.csv", "--model", encoder)
    refused.refuses("expected a table with --out")
    texts.rename(tmp_path / "texts.csv")
    refused = run("classify", tmp_path / "texts.csv", "--labels", "a,b", "--out", tmp_path / "x.json")
    assert "use '.csv'" in refused.err  # before the model is loaded
    options = ("-", "--labels", "film,rome", "--model", encoder, "--device", "cpu")
    refused = run("classify", *options, stdin=b'{"text": "film"}\n')
    assert "convert it to JSON lines, one record {...} per line, and set --text-column" in refused.err
    read = run("classify", *options, "--text-column", "text", "--json", stdin=b'{"text": "film"}\n\n{"text": "rome"}\n')
    assert [json.loads(line)["id"] for line in read.out.splitlines()] == ["1", "2"]
