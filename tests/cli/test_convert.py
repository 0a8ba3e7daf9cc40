"""convert, inspect and models as a user types them."""

import json
from pathlib import Path

import pytest
import torch
import transformers

from bertsmith.models.checkpoints.huggingface import read_model_folder
from bertsmith.text.tokenizers.normalize import TextRules
from export.export_models import write_task
from tasks.task_samples import TOKENIZER, examples_of
from written_files import file_with


def test_a_model_goes_to_google_and_back_bit_for_bit(run, tmp_path: Path, model: Path) -> None:
    there, back = tmp_path / "google", tmp_path / "back"
    run("convert", model, there, "--to", "google").succeeds()
    assert {path.name for path in there.iterdir()} >= {"bert_model.ckpt.index", "bert_config.json", "vocab.txt"}
    run("convert", there, back, "--to", "huggingface").succeeds()
    before, after = read_model_folder(model), read_model_folder(back)
    assert before.config == after.config
    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(tensor, after.tensors[name]) for name, tensor in before.tensors.items())
    assert (model / "vocab.txt").read_bytes() == (back / "vocab.txt").read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to", "tflite"], "unknown format 'tflite'"),
        (["--to", "gogle"], "did you mean 'google'?"),
    ],
)
def test_an_unknown_format_is_refused(run, tmp_path: Path, model: Path, options: list[str], words: str) -> None:
    run("convert", model, tmp_path / "out", *options).refuses(words)
    assert not (tmp_path / "out").exists()


def test_a_model_goes_to_onnx_and_the_comparison_is_printed(run, tmp_path: Path, model: Path) -> None:
    pytest.importorskip("onnx", reason="needs the extra export")
    pytest.importorskip("onnxruntime", reason="needs the extra export")
    result = run("convert", model, tmp_path / "out", "--to", "onnx", "--int8").succeeds()
    assert "model.onnx: logits differ by" in result.out
    assert "model_int8.onnx: logits differ by" in result.out
    assert json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))["format"] == "onnx"
    refused = run("convert", model, tmp_path / "other", "--to", "onnx", "--int8", "--limit", 0)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines()[-1].startswith("bertsmith: expected logits of model_int8.onnx within 0 ")
    assert not (tmp_path / "other").exists()


def test_a_google_checkpoint_is_run_and_the_comparison_is_printed(run, tmp_path: Path, model: Path) -> None:
    result = run("convert", model, tmp_path / "out", "--to", "google", "--limit", 0).succeeds()
    assert "compared on sentences that come with bertsmith (96 rows)" in result.out
    assert "read back and run: logits differ by at most 0 of their spread" in result.out
    assert json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))["limits"] == {"largest": 0}


def test_a_labelled_file_is_read_with_the_options_of_evaluate(run, tmp_path: Path) -> None:
    source = write_task(tmp_path / "model", "single")
    rows = [{"id": 7, "body": example.first, "verdict": example.label} for example in examples_of("single", 12)]
    data = file_with(tmp_path / "dev.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    run("convert", source, tmp_path / "out", "--to", "google", "--data", data).refuses("name it with --label-column")
    options = ["--data", data, "--task", "classification", "--text-column", "body", "--label-column", "verdict"]
    run("convert", source, tmp_path / "out", "--to", "google", *options).succeeds()
    result = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))["read_back"]["metric"]
    scored = json.loads(run("evaluate", "--model", source, *options, "--json").out)
    assert (result["library"], result["examples"]) == (pytest.approx(scored["scores"]["accuracy"]), 12)


def test_a_model_of_another_tool_is_scored_as_evaluate_scores_it(run, tmp_path: Path) -> None:
    """Its own score would be the accuracy; the official one of the task is named by --task."""
    write_task(tmp_path / "model", "single")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.vocabulary.save(tmp_path / "theirs" / "vocab.txt")
    rows = [f"x\t{int(example.label == 'positive')}\t\t{example.first}\n" for example in examples_of("single", 12)]
    (tmp_path / "dev.tsv").write_text("".join(rows), encoding="utf-8")
    options = ["--data", tmp_path / "dev.tsv", "--task", "cola"]
    run("convert", tmp_path / "theirs", tmp_path / "out", "--to", "huggingface", *options).succeeds()
    result = json.loads((tmp_path / "out" / "export.json").read_text(encoding="utf-8"))["transformers"]["metric"]
    scores = json.loads(run("evaluate", "--model", tmp_path / "theirs", *options, "--json").out)["scores"]
    assert result["name"] in scores
    assert result["name"] != "accuracy"
    assert result["library"] == pytest.approx(scores[result["name"]])


@pytest.mark.parametrize("options", [["--task", "cola"], ["--tag-column", "1"]])
def test_file_options_need_a_file(run, tmp_path: Path, model: Path, options: list[str]) -> None:
    run("convert", model, tmp_path / "out", "--to", "google", *options).refuses(f"{options[0]} needs --data")


def test_an_existing_folder_is_only_overwritten_on_request(run, tmp_path: Path, model: Path) -> None:
    there = tmp_path / "google"
    run("convert", model, there, "--to", "google").succeeds()
    marker = file_with(there / "mine.txt", "keep")
    run("convert", model, there, "--to", "google").refuses()
    assert marker.read_text(encoding="utf-8") == "keep"
    run("convert", model, there, "--to", "google", "--replace").succeeds()
    assert not marker.exists()


def test_neither_the_source_nor_a_folder_of_another_kind_is_replaced(run, tmp_path: Path, model: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("keep", encoding="utf-8")
    weights = (model / "model.safetensors").read_bytes()
    for there, words in ((mine, "bertsmith.json"), (model, "apart from the input"), (tmp_path, "apart from the input")):
        run("convert", model, there, "--to", "google", "--replace").refuses(words)
    assert (mine / "notes.txt").read_text(encoding="utf-8") == "keep"
    assert (model / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(("option", "lowercase"), [("--cased", False), ("--uncased", True)])
def test_the_casing_of_a_model_can_be_set(run, tmp_path: Path, model: Path, option: str, lowercase: bool) -> None:
    run("convert", model, tmp_path / "out", "--to", "huggingface", option).succeeds()
    tokenizer = read_model_folder(tmp_path / "out").tokenizer
    assert tokenizer.rules.lowercase is lowercase
    assert run("tokenize", "--model", tmp_path / "out", stdin=b"The\n").out == ("the\n" if lowercase else "[UNK]\n")


def test_a_google_checkpoint_keeps_the_rules_of_the_original_code_unless_others_are_asked_for(
    run, tmp_path: Path, model: Path
) -> None:
    run("convert", model, tmp_path / "google", "--to", "google").succeeds()
    (tmp_path / "google" / "bertsmith.json").unlink()
    for number, (options, rules) in enumerate(
        (
            ([], TextRules.google()),
            (["--cased"], TextRules.google(lowercase=False)),
            (["--uncased", "--rules", "huggingface"], TextRules()),
        )
    ):
        out = tmp_path / f"out{number}"
        run("convert", tmp_path / "google", out, "--to", "huggingface", *options).succeeds()
        assert read_model_folder(out).tokenizer.rules == rules
    result = run("convert", model, tmp_path / "x", "--to", "huggingface", "--rules", "google")
    result.refuses("--rules google needs --cased or --uncased")


def test_a_checkpoint_is_listed_tensor_by_tensor(run, tmp_path: Path, model: Path) -> None:
    run("convert", model, tmp_path / "google", "--to", "google")
    result = run("inspect", tmp_path / "google", "--names")
    rows = [line.split(maxsplit=2) for line in result.out.splitlines() if " mapped " in line]
    assert ["bert/embeddings/word_embeddings", "mapped", "bert.embeddings.word.weight"] in rows
    report = json.loads(run("inspect", model, "--json").out)
    assert len(report["mapped"]) == len(rows)


def test_a_missing_source_is_one_line(run, tmp_path: Path) -> None:
    run("inspect", tmp_path / "absent").refuses("absent")


def test_the_published_models_are_listed_and_found(run, tmp_path: Path, model: Path) -> None:
    (tmp_path / "shelf").mkdir()
    model.rename(tmp_path / "shelf" / "uncased_L-2_H-128_A-2")
    rows = [json.loads(line) for line in run("models", tmp_path / "shelf", "--json").out.splitlines()]
    result = {row["name"]: row["path"] for row in rows}
    assert result["uncased_L-2_H-128_A-2"] == str(tmp_path / "shelf" / "uncased_L-2_H-128_A-2")
    assert result["uncased_L-12_H-768_A-12"] is None
    assert "google-bert/bert-base-uncased" in run("models").out
    run("models", tmp_path / "nope").refuses("nope")


def test_a_model_brings_its_tokenizer(run, model: Path) -> None:
    result = run("tokenize", "--model", model, stdin=b"The man tweeting\n")
    assert result == (0, "the man tweet ##ing\n", "")
    assert "[CLS]" in run("inputs", "--model", model, "the man").out
