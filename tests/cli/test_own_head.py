"""--head: a head from a file of the user's, as the commands take it."""

import json
from pathlib import Path

import pytest

from bertsmith.checkpoints.load import load_any
from bertsmith.files import read_json

SPAM, HAM = "he bought the mask a b", "the man went to store c d"
PROGRAM = """
from torch import nn
from bertsmith import OwnHead

class MyHead(OwnHead):
    def __init__(self, config, outputs):
        super().__init__(config, outputs)
        self.layers = nn.Sequential(nn.Linear(config.hidden_size, 16), nn.GELU(), nn.Linear(16, outputs))

    def forward(self, hidden):
        return self.layers(hidden)

class NoHead:
    pass
"""


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    path = tmp_path / "mails.csv"
    rows = [f"{SPAM if number % 2 else HAM},{'Spam' if number % 2 else 'Not Spam'}" for number in range(24)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_head.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def tuned(run, model: Path, mails: Path, file: Path, tmp_path: Path) -> Path:
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", mails, "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 40, "--learning-rate", 0.01, "--batch-size", 8, "--dropout", 0,
        "--head", f"{file}:MyHead",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "accuracy: 1.0000" in result.out
    return tmp_path / "run"


def test_it_is_trained_scored_asked_and_converted(run, tuned: Path, mails: Path, file: Path, tmp_path: Path) -> None:
    folder, head = tuned / "model", ("--head", f"{file}:MyHead")
    scored = run("evaluate", "--model", tuned, "--data", mails, "--json", *head)
    assert json.loads(scored.out)["scores"]["accuracy"] == 1.0
    answer = run("predict", "--model", folder, *head, stdin=f"{SPAM}\n{HAM}\n".encode())
    assert [line.split("\t")[0] for line in answer.out.splitlines()] == ["Spam", "Not Spam"]
    asked = tmp_path / "asked.txt"
    asked.write_text(f"{SPAM}\n{HAM}\n", encoding="utf-8")
    assert run("embed", asked, "--model", folder, "--out", tmp_path / "vectors.npy").code == 0

    converted = run("convert", folder, tmp_path / "copy", "--to", "huggingface")
    assert (converted.code, "the head is the user's own: nothing was run" in converted.out) == (0, True)
    assert "own_head.layers.0.weight" in load_any(tmp_path / "copy").tensors
    assert read_json(tmp_path / "copy" / "bertsmith.json")["own_head"] == "MyHead"
    assert run("predict", "--model", tmp_path / "copy", *head, stdin=f"{SPAM}\n{HAM}\n".encode()).out == answer.out
    compared = run("convert", folder, tmp_path / "more", "--to", "huggingface", "--data", mails)
    assert compared.err.startswith("bertsmith: expected a head that transformers has, to compare on ")
    for form, words in (("google", "whose head Google's code has"), ("onnx", "whose head bertsmith knows")):
        pytest.importorskip("onnxruntime" if form == "onnx" else "numpy")
        refused = run("convert", folder, tmp_path / form, "--to", form)
        assert (refused.code, len(refused.err.splitlines())) == (1, 1)
        assert words in refused.err
        assert "found the head 'MyHead' of the user" in refused.err
        assert not (tmp_path / form).exists()


def test_without_the_option_each_command_says_in_one_line_what_it_needs(run, tuned: Path, mails: Path) -> None:
    for command in (["predict"], ["evaluate", "--data", mails], ["quantize", "--data", mails]):
        result = run(*command, "--model", tuned, stdin=b"a\n")
        assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
        assert "fine-tuned with the head 'MyHead' of the user; give the class: " in result.err


def test_a_server_has_it_too(tuned: Path, file: Path) -> None:
    pytest.importorskip("uvicorn")
    from bertsmith.cli.options import own_head
    from bertsmith.server.process import load_models

    models = load_models([f"mails={tuned}"], device="cpu", head=own_head(f"{file}:MyHead"))
    assert models["mails"].classify([SPAM])[0].label == "Spam"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("absent.py:MyHead", "expected the Python file of a head at 'absent.py'; found no such file or directory"),
        ("{file}:MyHed", "; found none; did you mean 'MyHead'?"),
        ("{file}:NoHead", "expected a subclass of bertsmith.OwnHead as head; found the class NoHead"),
        ("{file}", "expected a head as FILE:CLASS"),
    ],
)
def test_a_head_that_is_none_is_told_in_one_line(
    run, model: Path, mails: Path, file: Path, head: str, message: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--out", out,
        "--head", head.format(file=file),
    )  # fmt: skip
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert message in result.err
    assert not out.exists()
