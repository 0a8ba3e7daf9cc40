"""finetune, evaluate and predict as a user types them, with one-line errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bertsmith.base.machine.processor import packs_bf16
from bertsmith.models.checkpoints.assembly import save_pretrained, untrained
from bertsmith.models.model_files.metadata import ModelMetadata
from bertsmith.recipes.finetuning.job import FinetuningJob
from bertsmith.tasks.specs import named_tasks
from cli.conftest import HAM, SPAM
from processors import pretend
from tasks.task_samples import CONFIG, TOKENIZER
from written_files import file_with

pytestmark = pytest.mark.usefixtures("drawn_charts")


@pytest.fixture
def tuned(run, model: Path, mails: Path, tmp_path: Path) -> Path:
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", mails, "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 40, "--learning-rate", 0.01, "--batch-size", 8, "--dropout", 0,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "accuracy: 1.0000" in result.out
    return tmp_path / "run"


def test_a_spam_filter_is_trained_evaluated_and_used(run, tuned: Path, mails: Path) -> None:
    assert (tuned / "report.html").is_file()
    assert json.loads((tuned / "report.json").read_text())["scores"]["accuracy"]["mean"] == 1.0
    scored = run("evaluate", "--model", tuned / "model", "--data", mails, "--json")
    assert json.loads(scored.out)["scores"]["accuracy"] == 1.0
    assert f"'{mails}' is the training file of this model" in scored.err
    others = file_with(mails.with_name("others.csv"), mails.read_text() + f"{SPAM},Spam\n")
    on_others = run("evaluate", "--model", tuned / "model", "--data", others).succeeds()
    assert "training file" not in on_others.err
    answer = run("predict", "--model", tuned / "model", stdin=f"{SPAM}\n{HAM}\n".encode())
    first, second = answer.out.splitlines()
    assert first.startswith("Spam\t")
    assert second.startswith("Not Spam\t")
    shares = [int(part.split("%")[0]) for part in first.split("\t")[1].split(", ")]
    assert sum(shares) == 100
    objects = run("predict", "--model", tuned / "model", "--json", stdin=json.dumps({"id": "x", "text": SPAM}).encode())
    assert json.loads(objects.out)["id"] == "x"
    assert json.loads(objects.out)["label"] == "Spam"


def test_a_training_that_diverged_says_what_to_change(run, model: Path, mails: Path, tmp_path: Path) -> None:
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--out", tmp_path / "run",
        "--seeds", 1, "--epochs", 1, "--learning-rate", 1e38, "--precision", "fp32", "--batch-size", 11,
    )  # fmt: skip
    assert result.code == 1
    assert "expected numbers from the trained model; found NaN or infinity; lower the learning rate, or" in result.err
    assert "damaged" not in result.err


def test_pre_training_continues_on_text_first(run, model: Path, mails: Path, tmp_path: Path) -> None:
    command = (
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--out", tmp_path / "run",
        "--seeds", 1, "--epochs", 1, "--max-length", 16,
    )  # fmt: skip
    alone = run(*command, "--continue-minutes", 1)
    errors = [line for line in alone.err.splitlines() if not line.startswith("warning: ")]
    assert (alone.code, alone.out, len(errors)) == (1, "", 1)
    text = file_with(tmp_path / "text.txt", f"{SPAM} . {HAM} .\n\n{HAM} . {SPAM} .\n" * 4)
    run(*command, "--continue-on", text, "--continue-steps", 2).succeeds()
    assert json.loads((tmp_path / "run" / "report.json").read_text())["pretraining"]["steps"] == 2
    assert (tmp_path / "run" / "continued" / "run" / "report.html").is_file()


def test_pre_training_continues_from_a_model_without_a_pooler(run, mails: Path, tmp_path: Path) -> None:
    """What the head reads, and so whether it can have a linear start, is known only after that."""
    metadata = ModelMetadata(task="pretraining", objective="mlm")
    save_pretrained(tmp_path / "bare", untrained(CONFIG, seed=3), TOKENIZER, metadata, trained=("mlm",))
    text = file_with(tmp_path / "text.txt", "the film was good .\n\nanna was in rome .\n" * 8)
    result = run(
        "finetune", "--model", tmp_path / "bare", "--task", "classification", "--train", mails, "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 1, "--max-length", 16, "--continue-on", text, "--continue-steps", 2,
    )  # fmt: skip
    assert result.code == 0, result.err
    assert (
        json.loads((tmp_path / "run" / "seed-1" / "settings.json").read_text())["settings"]["run"]["start"] == "linear"
    )


def test_the_precision_that_is_used_is_reported(run, tuned: Path, mails: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU with neither bf16 nor int8, and on one with bf16."""
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    command, lines = ["predict", "--model", tuned / "model", "--precision"], f"{SPAM}\n{HAM}\n".encode()
    score = ["evaluate", "--model", tuned / "model", "--data", mails, "--json", "--precision"]
    exact = run(*command, "fp32", stdin=lines)
    pretend(monkeypatch)
    for precision in ("bf16", "int8"):
        result = run(*command, precision, "--device", "cpu", stdin=lines)
        assert (result.code, result.out) == (0, exact.out)
        told = [line for line in result.err.splitlines() if not line.startswith("predicting: ")]
        assert result.err.splitlines()[-1].startswith("predicting: 2 texts in ")
        assert result.err.endswith(" s, fp32\n")
        assert len(told) == 1
        assert f"{precision} would be emulated" in told[0]
        assert "fp32 is used" in told[0]
    result = run(*score, "auto", "--device", "cpu")
    assert json.loads(result.out)["precision"] == "fp32"
    assert "precision" not in result.err.replace(str(mails), "")
    pretend(monkeypatch, "avx512_bf16")
    with_packed = packs_bf16()
    result = run(*score, "auto", "--device", "cpu")
    assert json.loads(result.out)["precision"] == "bf16"
    # Without products of oneDNN in bf16, a line about them takes its place.
    assert result.err.splitlines().count("precision auto: bf16") == with_packed
    assert "precision" not in run(*score, "bf16", "--device", "cpu").err.replace(str(mails), "")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"one\ttwo\n", "expected one text, without a tab, in line 1 of stdin; found 2 parts"),
        (b"the man\n{}\n", "expected a text as 'text' in line 2 of stdin; found no such key"),
        (b"{broken\n", "expected JSON in line 1 of stdin"),
        (b'{"words": ["a"]}\n', "expected a text as 'text' in line 1 of stdin; found no such key"),
    ],
)
def test_a_wrong_line_is_named(run, tuned: Path, line: bytes, message: str) -> None:
    result = run("predict", "--model", tuned / "model", stdin=line)
    assert result.code == 1
    assert message in result.err
    assert result.out.count("\n") == line.startswith(b"the man"), "what stands before it is answered"
    assert len(result.err.strip().splitlines()) == 1


def test_an_unknown_label_in_the_dev_file_is_named_with_its_row_and_a_miss(
    run, model: Path, mails: Path, tmp_path: Path
) -> None:
    dev = file_with(tmp_path / "dev.csv", f"text,label\n{SPAM},Spam\n{HAM},Not Spam\nthe store,Sapm\nthe store,Sapm\n")
    told = f"unknown to the model, scored as a miss: 'Sapm' (2 times, first in line 4 of '{dev}')"
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", dev, "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 40, "--learning-rate", 0.01, "--batch-size", 8, "--dropout", 0,
        "--calibrate",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert result.err.count(told) == 1
    assert "accuracy: 0.5000" in result.out
    scored = run("evaluate", "--model", tmp_path / "run" / "model", "--data", dev, "--json")
    report = json.loads(scored.out)
    assert report["scores"]["accuracy"] == 0.5
    assert set(report["intervals"]) == {"accuracy", "macro_f1"}
    assert scored.err.count(told) == 1


def test_unknown_labels_of_training_rows_are_refused_all_of_them_named(run, model: Path, tmp_path: Path) -> None:
    path = file_with(tmp_path / "train.csv", "text,label\na,Spam\nb,Not Spam\nc,Sapm\nd,Sapm\ne,Ham\n")
    result = run("finetune", "--model", model, "--task", "spam", "--train", path, "--out", tmp_path / "run")
    assert result.code == 1
    assert result.err.splitlines()[-1].endswith(
        f"expected a known label in line 4 of '{path}'; found 'Sapm' 2 times, 'Ham' once; "
        "did you mean 'Spam'? The labels of spam are fixed: for others, use --task classification"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,label\na b,x\na c,x\n", "expected 2 to 1000 labels"),
        ("one,two\na b,x\na c,y\n", "one"),
        ("", "empty"),
        ("text,label\n,x\n", "none with text"),
    ],
)
def test_a_training_file_without_usable_labels_is_refused(
    run, model: Path, tmp_path: Path, content: str, message: str
) -> None:
    path = file_with(tmp_path / "bad.csv", content)
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", path, "--out", tmp_path / "run"
    )  # fmt: skip
    assert result.code == 1
    assert message in result.err.splitlines()[-1]


def test_an_unknown_task_suggests_the_nearest_name(run, model: Path, tmp_path: Path) -> None:
    run("finetune", "--model", model, "--task", "mprc", "--out", tmp_path / "run").refuses("did you mean 'mrpc'?")


@pytest.mark.parametrize(
    ("dev", "message"),
    [
        ("text,pair,label\nthe man,the store,Spam\n", "expected a single text in line 2 of '{dev}'"),
        ("text,label\n,Spam\n", "expected rows with text in '{dev}'; found 1 row, none with text"),
    ],
)
def test_a_dev_file_of_another_task_is_one_line(
    run, model: Path, mails: Path, tmp_path: Path, dev: str, message: str
) -> None:
    path = file_with(tmp_path / "dev.csv", dev)
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", path, "--out",
        tmp_path / "run",
    )  # fmt: skip
    assert result.code == 1
    errors = [line for line in result.err.splitlines() if not line.startswith("warning:")]
    assert len(errors) == 1
    assert message.format(dev=path) in errors[0]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("option", ["--task", "--submission"])
def test_options_of_a_test_file_need_one(run, tuned: Path, option: str) -> None:
    run("predict", "--model", tuned / "model", option, "mnli", stdin=b"the man\n").refuses(f"{option} needs --test")


def test_a_file_of_another_task_is_refused_when_it_is_scored(run, tuned: Path, tmp_path: Path) -> None:
    result = run("evaluate", "--model", tuned / "model", "--task", "ner", "--data", tmp_path / "tags.conll")
    result.refuses("expected a file for the model's task")


def test_a_model_that_was_only_pre_trained_does_not_predict(run, model: Path) -> None:
    run("predict", "--model", model, stdin=b"the man\n").refuses("fine-tune it first")


def test_a_run_that_exists_is_continued_only_on_request(run, tuned: Path, model: Path, mails: Path) -> None:
    command = [
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", mails, "--out", tuned,
        "--seeds", 1, "--epochs", 40, "--learning-rate", 0.01, "--batch-size", 8, "--dropout", 0,
    ]  # fmt: skip
    before = (tuned / "model" / "model.safetensors").read_bytes()
    run(*command).refuses("--resume")
    run(*command, "--resume").succeeds()
    assert (tuned / "model" / "model.safetensors").read_bytes() == before
    other = run(*command, "--resume", "--weight-decay", 0.1)
    assert other.code == 1
    assert "weight_decay" in other.err


def test_a_search_interrupted_before_the_run_is_resumed(
    run, model: Path, mails: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", mails, "--out",
        tmp_path / "run", "--seeds", 1, "--search", "--trials", 2,
    ]  # fmt: skip
    train_once, calls = FinetuningJob.train_once, []

    def stop_at_the_second(*arguments: Any, **others: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train_once(*arguments, **others)

    with monkeypatch.context() as patch:
        patch.setattr(FinetuningJob, "train_once", stop_at_the_second)
        assert run(*command).code == 130
    assert not (tmp_path / "run").exists()
    again = run(*command, "--resume").succeeds()
    assert again.out.splitlines()[1].split()[:2] == ["trial", "learning"]
    table = json.loads((tmp_path / "run" / "trials.json").read_text())
    assert [row["state"] for row in table].count("complete") == 2
    assert table == json.loads((tmp_path / "run-search" / "trials.json").read_text())
    assert "by epoch" not in again.out
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Tuning trials" in page
    run(*command, "--resume").succeeds()
    mistyped = run(*command[:-3], "--out", tmp_path / "rum", "--resume")
    assert mistyped.code == 1
    assert "no settings.json" in mistyped.err


def test_a_preset_brings_its_examples(run, model: Path, tmp_path: Path) -> None:
    for name in ("spam", "spam4", "sentiment", "claim", "truth"):
        result = run(
            "finetune", "--model", model, "--task", name, "--out", tmp_path / name, "--seeds", 1, "--epochs", 0.5,
        )  # fmt: skip
        assert result.code == 0, result.err
        labels = json.loads((tmp_path / name / "model" / "bertsmith.json").read_text())["labels"]
        assert len(labels) == (4 if name == "spam4" else 2)


def test_prediction_shows_progress(run, tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bertsmith.base.core.progress._silent", 0)
    monkeypatch.setattr("bertsmith.base.core.progress.SECONDS_BETWEEN_PLAIN_LINES", 0)
    monkeypatch.setattr("bertsmith.app.cli.prediction.count_lines", lambda stream: 3)
    answer = run("predict", "--model", tuned / "model", stdin=f"{SPAM}\n{HAM}\n{HAM}\n".encode())
    *_, last, end = answer.err.splitlines()
    assert last.startswith("predicting: 3 of 3 texts (100%), ")
    assert last.endswith(" left")
    assert end.startswith("predicting: 3 texts in ")
    alone = run("predict", "--model", tuned / "model", stdin=f"{SPAM}\n".encode())
    assert alone.err.splitlines()[-1].startswith("predicting: 1 text in ")


def test_help_of_finetune_names_every_task_and_no_precision_that_is_refused(run) -> None:
    told = " ".join(run("finetune", "--help-all").out.split())
    for name in (
        *named_tasks.NLI,
        *named_tasks.QUESTIONS,
        *named_tasks.CHOICES,
        *named_tasks.TAGS,
        *named_tasks.PRESETS,
    ):
        assert re.search(rf"\b{name}\b", told), name
    for command in ("finetune", "pretrain"):
        assert "fp16" not in run(command, "--help-all").out
    assert "fp16 (GPU only)" in " ".join(run("predict", "--help-all").out.split())


def test_a_tagger_learns_marked_spans_with_renamed_types(run, model: Path, tmp_path: Path) -> None:
    """From the export of an annotation tool to the entities of a text; no answer violates the scheme."""
    spans, dev = tmp_path / "spans.jsonl", tmp_path / "tasks.json"
    record = {"text": "the man went to ab cd .", "spans": [[16, 21, "LOC"], [4, 7, "PER"]]}
    spans.write_text(f"{json.dumps(record)}\n" * 8, encoding="utf-8")
    results = [
        {"type": "labels", "value": {"start": start, "end": end, "labels": [label]}}
        for start, end, label in record["spans"]
    ]
    tasks = [{"data": {"text": record["text"]}, "annotations": [{"result": results}]}]
    dev.write_text(json.dumps(tasks), encoding="utf-8")
    names = ("--map", "LOC=Place", "--map", "PER=Human being")
    result = run(
        "finetune", "--model", model, "--task", "ner", "--train", spans, "--dev", dev, "--out", tmp_path / "run",
        "--seeds", 1, "--epochs", 30, "--learning-rate", 0.01, "--batch-size", 4, "--dropout", 0, *names,
    )  # fmt: skip
    assert result.code == 0, result.err
    metadata = json.loads((tmp_path / "run" / "model" / "bertsmith.json").read_text())
    assert metadata["labels"] == ["O", "B-Human being", "B-Place", "I-Place"]
    assert metadata["spec"]["settings"]["constrained_tags"] is True
    scored = run("evaluate", "--model", tmp_path / "run" / "model", "--data", dev, "--json", *names)
    assert json.loads(scored.out)["scores"]["f1"] == 1.0
    answer = run("predict", "--model", tmp_path / "run" / "model", "--json", stdin=record["text"].encode())
    assert [(entity["type"], entity["characters"]) for entity in json.loads(answer.out)["entities"]] == [
        ("Human being", [4, 7]),
        ("Place", [16, 21]),
    ]
    unmapped = run("evaluate", "--model", tmp_path / "run" / "model", "--data", dev, "--json")
    assert json.loads(unmapped.out)["scores"]["f1"] == 0.0
    assert "gold tags are unknown to the model, scored as a miss: 'B-PER'" in unmapped.err
    partly = run("evaluate", "--model", tmp_path / "run" / "model", "--data", dev, *names[:2])
    partly.refuses(f"that the map names in record 1 of '{dev}', one of 'LOC'; found 'PER'")


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (["1"], "expected --map with LABEL=NAME; found '1'; write --map 1=Claim"),
        (["=Claim"], "found '=Claim'"),
        (["1="], "found '1='"),
        (["1=a", "1=b"], "expected one name for each label of --map; found '1' twice"),
    ],
)
def test_a_wrong_map_is_one_line(run, model: Path, mails: Path, tmp_path: Path, pairs: list[str], message: str) -> None:
    options = [part for pair in pairs for part in ("--map", pair)]
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--out", tmp_path / "run", *options
    )
    result.refuses(message)
    assert not (tmp_path / "run").exists()
