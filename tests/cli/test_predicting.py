"""evaluate and predict with untrained models of each kind: what is printed, with character offsets."""

import json
import re
from pathlib import Path

import pytest
import torch

from bertsmith import load
from bertsmith.base.machine.runtime import BATCH_TOLERANCE
from bertsmith.models.checkpoints.architectures import new_encoder
from bertsmith.models.checkpoints.assembly import save_pretrained
from bertsmith.models.heads.encoder_with_head import EncoderForTask
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.tasks.specs.kinds import task_for
from tasks.task_samples import CONFIG, SPECS, TOKENIZER
from written_files import file_with


def write_model(path: Path, kind: str, bias: tuple[float, ...] = (), *, ours: bool = True) -> Path:
    """An untrained model of a sample task; `bias` is added to its outputs. One that is not `ours` has no metadata."""
    spec = SPECS[kind]
    task = task_for(spec)
    model = EncoderForTask(new_encoder(CONFIG), task.head, seed=4)
    if bias:
        with torch.no_grad():
            model.output_layer.bias.copy_(torch.tensor(bias))
    info = {"task": spec.kind, "labels": list(spec.labels), "spec": spec.to_dict()}
    save_pretrained(
        path,
        model,
        TOKENIZER,
        ModelMetadata.from_dict(info),
        trained=(task.head.part, *(["pooler"] if task.head.pooled else [])),
    )
    if not ours:
        (path / "bertsmith.json").unlink()
    return path


def test_the_characters_of_entities_are_those_of_the_line(run, tmp_path: Path) -> None:
    """The model tags every word as a person, so each word is an entity."""
    model = write_model(tmp_path / "model", "tags", (0.0, 50.0, 0.0))
    text = "  Anna, \tin Oslo."
    answer = run("predict", "--model", model, "--json", stdin=f"{json.dumps({'text': text})}\n".encode()).succeeds()
    entities = json.loads(answer.out)["entities"]
    assert [entity["text"] for entity in entities] == ["Anna", ",", "in", "Oslo", "."]
    for entity in entities:
        start, end = entity["characters"]
        assert text[start:end] == entity["text"]


def test_lines_in_another_encoding_are_predicted_as_their_text(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "tags", (0.0, 50.0, 0.0))
    text = "Anna, \tin caf\xe9.\nOslo\n"
    wanted = run("predict", "--model", model, "--json", stdin=text.encode())
    coded = run("predict", "--model", model, "--json", "--encoding", "cp1252", stdin=text.encode("cp1252"))
    assert (coded.code, coded.out) == (0, wanted.out)
    dropped = run("predict", "--model", model, "--json", "--bad-bytes", "drop", stdin=text.encode("cp1252"))
    assert "dropped: 1, the first in line 1" in dropped.err
    refused = run("predict", "--model", model, "--json", stdin=b"Anna\n" + text.encode("cp1252"))
    assert (refused.code, refused.out.count("\n")) == (1, 1)
    assert "found the byte 0xe9 in line 2, not UTF-8" in refused.err
    refused = run("predict", "--model", model, "--data", tmp_path / "x.csv", "--bad-bytes", "drop")
    assert "expected texts on stdin with --bad-bytes; found --data" in refused.err


def test_the_characters_of_answers_are_those_of_the_context(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "answer")
    context = "The  plot of Anna's film, (Rome) and it was good."
    line = json.dumps({"question": "who ?", "context": context})
    answer = run("predict", "--model", model, "--json", stdin=f"{line}\n".encode()).succeeds()
    result = json.loads(answer.out)
    assert result["text"]
    assert len(result["n_best"]) > 5
    for record in (result, *result["n_best"]):
        # The words of an answer have one space between them, whatever the context has.
        assert " ".join(context[record["start"] : record["end"]].split()) == record["text"]


@pytest.mark.parametrize("kind", ["single", "windows", "number", "several labels"])
def test_an_empty_line_is_answered_as_in_the_library_and_reported_once(run, tmp_path: Path, kind: str) -> None:
    model = write_model(tmp_path / "model", kind)
    texts = ["a good film", "", "bad", " \t", "", "a good film"]
    answer = run("predict", "--model", model, "--json", stdin="".join(f"{text}\n" for text in texts).encode())
    assert answer.code == 0, answer.err
    result = [json.loads(line) for line in answer.out.splitlines()]
    assert [record.pop("id") for record in result] == ["1", "2", "3", "4", "5", "6"]
    library = load(model, device="cpu")
    wanted = library.score(texts) if kind == "number" else library.classify(texts)
    for record, other in zip(result, json.loads(json.dumps([record.to_dict() for record in wanted])), strict=True):
        assert record.keys() == other.keys()
        for name, value in record.items():
            if isinstance(value, float):
                assert value == pytest.approx(other[name], rel=BATCH_TOLERANCE, abs=BATCH_TOLERANCE)
            elif isinstance(value, dict):
                assert value == pytest.approx(other[name], abs=BATCH_TOLERANCE)
            else:
                assert value == other[name]
    assert result[0] == result[5] != result[1] == result[3] == result[4]
    notes = [line for line in answer.err.splitlines() if "empty" in line]
    assert notes == ["bertsmith: empty texts, predicted from [CLS] [SEP] alone: 3"]


def test_without_empty_lines_there_is_no_warning(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "pair")
    answer = run("predict", "--model", model, stdin=b"a film\t\n\tthe plot\n")
    assert (answer.code, answer.out.count("\n")) == (0, 2)
    assert "empty" not in answer.err


def test_the_help_names_every_shape_of_a_line(run) -> None:
    told = run("predict", "--help-all").out
    assert '{"words": [...]}' in told
    assert "A pair, a question or a choice needs all its parts." in " ".join(told.split())


def test_scores_are_printed_and_counts_are_not(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "answer or none")
    asked = {"id": "1", "question": "who ?", "answers": [{"text": "anna", "answer_start": 4}], "is_impossible": False}
    none = {"id": "2", "question": "where ?", "answers": [], "is_impossible": True}
    data = tmp_path / "dev.json"
    paragraphs = [{"context": "the anna film .", "qas": [asked, none]}]
    data.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
    result = run("evaluate", "--model", model, "--data", data).succeeds()
    assert result.out.splitlines()[0].startswith("squad2: 2 examples, fp32 (")
    names = [line.split(":")[0] for line in result.out.splitlines()[1:]]
    assert {"exact", "f1", "has_ans_f1", "no_ans_f1"} <= set(names)
    assert not [name for name in names if "total" in name]
    assert re.search(r"^exact: [0-9.]+ \(95% interval [0-9.]+ to [0-9.]+\)$", result.out, re.MULTILINE)
    report = json.loads(run("evaluate", "--model", model, "--data", data, "--json").out)
    assert report["scores"]["total"] == 2
    assert set(report["intervals"]) == {"exact", "f1"}
    low, high = report["intervals"]["f1"]
    assert 0 <= low <= report["scores"]["f1"] <= high <= 100


@pytest.mark.parametrize("task", ["mrpc", "squad2"])
def test_a_model_of_another_tool_is_scored_officially_when_its_task_is_named(run, tmp_path: Path, task: str) -> None:
    data = tmp_path / "dev"
    if task == "mrpc":
        model = write_model(tmp_path / "model", "pair", ours=False)
        rows = [f"{number % 2}\t1\t2\tthe film\tthe plot" for number in range(4)]
        data.write_text("\n".join(["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", *rows]) + "\n", encoding="utf-8")
        official = {"f1", "accuracy"}
    else:
        model = write_model(tmp_path / "model", "answer", ours=False)
        none = {"id": "2", "question": "where ?", "answers": [], "is_impossible": True}
        paragraphs = [{"context": "the anna film .", "qas": [none]}]
        data.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}), encoding="utf-8")
        official = {"exact", "f1", "no_ans_f1", "best_f1"}
    result = run("evaluate", "--model", model, "--data", data, "--task", task, "--json").succeeds()
    assert official <= json.loads(result.out)["scores"].keys()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["anna", "", "in rome", " \t", '{"words": []}', ""], [["anna"], [], ["in", "rome"], [], [], []]),
        (["", "", "anna"], [[], [], ["anna"]]),
        ([""], [[]]),
    ],
)
def test_a_tagger_gives_an_empty_answer_to_an_empty_line(
    run, tmp_path: Path, lines: list[str], words: list[list[str]]
) -> None:
    model = write_model(tmp_path / "model", "tags", (0.0, 50.0, 0.0))
    answer = run("predict", "--model", model, "--json", stdin="".join(f"{line}\n" for line in lines).encode())
    assert answer.code == 0, answer.err
    result = [json.loads(line) for line in answer.out.splitlines()]
    assert [(record["id"], record["words"]) for record in result] == [
        (str(number), some) for number, some in enumerate(words, start=1)
    ]
    assert [len(record["entities"]) for record in result] == [len(some) for some in words]
    plain = run("predict", "--model", model, stdin="".join(f"{line}\n" for line in lines).encode())
    assert plain.out.split("\n")[:-1] == [" ".join(f"{word}/B-PER" for word in some) for some in words]


def test_lines_before_an_invalid_one_are_answered_even_empty_ones(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "tags")
    answer = run("predict", "--model", model, "--json", stdin=b'anna\n\n{"words": ["John", ""]}\n\nrome\n')
    assert answer.code == 1
    assert [json.loads(line)["id"] for line in answer.out.splitlines()] == ["1", "2"]
    assert "found '' as word 2 of 2" in answer.err


def test_predictions_in_a_file_are_those_that_are_printed_and_the_options_go_together(run, tmp_path: Path) -> None:
    model, out, texts = write_model(tmp_path / "model", "single"), tmp_path / "found.jsonl", b"good\n\nbad\n"
    printed = run("predict", "--model", model, "--json", stdin=texts).out
    answer = run("predict", "--model", model, "--out", out, stdin=texts)
    assert (answer.code, answer.out.strip()) == (0, str(out)), answer.err
    assert out.read_text(encoding="utf-8") == printed
    assert "overwrite it with --replace" in run("predict", "--model", model, "--out", out, stdin=texts).err
    run("predict", "--model", model, "--out", out, "--replace", stdin=b"good\n").succeeds()
    assert [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()] == ["1"]
    assert "--resume needs --out" in run("predict", "--model", model, "--resume", stdin=texts).err
    both = run("predict", "--model", model, "--out", tmp_path / "x.jsonl", "--test", tmp_path / "test.tsv")
    assert "expected texts on stdin for --out" in both.err


def test_chosen_sentences_are_printed_and_json_says_where_they_are(run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "sentences of a text")
    lines = b'anna was good. it was in rome.\n\n{"source": ["a film", "it was bad ."]}\n'
    printed = run("predict", "--model", model, stdin=lines).succeeds()
    answers = [json.loads(line) for line in run("predict", "--model", model, "--json", stdin=lines).out.splitlines()]
    assert printed.out.split("\n")[:-1] == [answer["text"] for answer in answers]
    assert [len(answer["scores"]) for answer in answers] == [2, 0, 2]
    for answer, source in zip(answers, ("anna was good. it was in rome.", "", "a film it was bad ."), strict=True):
        assert [source[row["start"] : row["end"]] for row in answer["sentences"]] == [answer["text"]] * bool(source)
    table = file_with(tmp_path / "sources.csv", "document,year\nanna was good. it was in rome.,1\n")
    run("predict", "--model", model, "--data", table, "--out", tmp_path / "chosen.csv").succeeds()
    assert (tmp_path / "chosen.csv").read_text(encoding="utf-8").splitlines()[1].endswith(f",1,{answers[0]['text']}")
    wrong = run("predict", "--model", model, stdin=b'{"source": ["a film", 3]}\n')
    assert "expected a text as 'source' in line 1 of stdin" in wrong.err


def test_texts_are_printed_one_a_line_and_json_has_all_answers(run, tmp_path: Path) -> None:
    model, lines = write_model(tmp_path / "model", "text to write"), b'anna rome\n\n{"source": "oslo"}\n'
    printed = run("predict", "--model", model, stdin=lines).succeeds()
    answers = [json.loads(line) for line in run("predict", "--model", model, "--json", stdin=lines).out.splitlines()]
    assert printed.out.split("\n")[:-1] == [answer["text"] for answer in answers]
    assert [len(answer["answers"]) for answer in answers] == [2, 1, 2]
    assert answers[1]["text"] == ""
    assert "empty texts" not in printed.err, "the empty text is not written by the model"
    table = file_with(tmp_path / "sources.csv", "document,year\nanna rome,1\noslo,2\n")
    run("predict", "--model", model, "--data", table, "--out", tmp_path / "written.csv").succeeds()
    rows = (tmp_path / "written.csv").read_text(encoding="utf-8").splitlines()
    assert rows == [
        "document,year,prediction",
        f"anna rome,1,{answers[0]['text']}",
        f"oslo,2,{answers[2]['text']}",
    ]
    pairs = file_with(tmp_path / "pairs.tsv", "anna rome\toslo\nbert\trome\n")
    run("predict", "--model", model, "--data", pairs).succeeds()
    refused = run("predict", "--model", model, "--data", pairs, "--out", tmp_path / "other.csv").err
    assert "a first line with the names of the columns" in refused
