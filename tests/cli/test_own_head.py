"""--head: a head from a file of the user's, as the commands take it."""

import json
from pathlib import Path

import pytest

import bertsmith
from bertsmith.app.cli.options import own_head
from bertsmith.app.library.own_heads import head_from_file
from bertsmith.base.storage.files import read_json
from bertsmith.models.checkpoints.load import load_any
from bertsmith.models.checkpoints.rewriting import convert
from cli.conftest import write_mails
from tasks.task_samples import write_base_model
from written_files import file_with

SPAM, HAM = "a good film", "the plot was bad"
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of mails, the file of the head, a base model, and a run with that head."""
    folder = tmp_path_factory.mktemp("own-head")
    write_mails(folder / "mails.csv", SPAM, HAM)
    (folder / "my_head.py").write_text(PROGRAM, encoding="utf-8")
    base = write_base_model(folder / "base")
    head = head_from_file(f"{folder / 'my_head.py'}:MyHead")
    bertsmith.finetune(
        base, "classification", folder / "run", train=folder / "mails.csv", seeds=1, epochs=2, batch_size=8, head=head
    )
    return folder


def test_the_command_trains_what_the_library_trains(run, folder: Path, tmp_path: Path) -> None:
    result = run(
        "finetune", "--model", folder / "base", "--task", "classification", "--train", folder / "mails.csv", "--out",
        tmp_path / "run", "--seeds", 1, "--epochs", 2, "--batch-size", 8, "--head", f"{folder / 'my_head.py'}:MyHead",
    )  # fmt: skip
    assert result.code == 0, result.err
    weights = "model/model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (folder / "run" / weights).read_bytes()


def test_it_is_scored_asked_and_converted(run, folder: Path, tmp_path: Path) -> None:
    tuned, mails, head = folder / "run" / "model", folder / "mails.csv", ("--head", f"{folder / 'my_head.py'}:MyHead")
    scored = run("evaluate", "--model", folder / "run", "--data", mails, "--json", *head)
    assert json.loads(scored.out)["examples"] == 24
    answer = run("predict", "--model", tuned, *head, stdin=f"{SPAM}\n{HAM}\n".encode())
    assert (answer.code, len(answer.out.splitlines())) == (0, 2)
    asked = file_with(tmp_path / "asked.txt", f"{SPAM}\n{HAM}\n")
    run("embed", asked, "--model", tuned, "--out", tmp_path / "vectors.npy").succeeds()

    converted = run("convert", tuned, tmp_path / "copy", "--to", "huggingface")
    assert (converted.code, len(converted.err.splitlines())) == (1, 1)
    assert "it has the user's own head MyHead; use it with bertsmith" in converted.err
    convert(tuned, tmp_path / "copy", to="huggingface")
    assert "own_head.layers.0.weight" in load_any(tmp_path / "copy").tensors
    assert read_json(tmp_path / "copy" / "bertsmith.json")["own_head"] == "MyHead"
    assert run("predict", "--model", tmp_path / "copy", *head, stdin=f"{SPAM}\n{HAM}\n".encode()).out == answer.out
    for form, words in (("google", "whose head Google's code supports"), ("onnx", "whose head bertsmith knows")):
        pytest.importorskip("onnxruntime" if form == "onnx" else "numpy")
        refused = run("convert", tuned, tmp_path / form, "--to", form)
        assert (refused.code, len(refused.err.splitlines())) == (1, 1)
        assert words in refused.err
        assert "found the user's head 'MyHead'" in refused.err
        assert not (tmp_path / form).exists()


def test_without_the_option_each_command_says_in_one_line_what_it_needs(run, folder: Path) -> None:
    for command in (["predict"], ["evaluate", "--data"], ["quantize", "--data"]):
        files = [folder / "mails.csv"] if command[-1] == "--data" else []
        result = run(*command, *files, "--model", folder / "run", stdin=b"a\n")
        assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
        assert "fine-tuned with the user's head 'MyHead'; pass the class with --head FILE:CLASS" in result.err


def test_a_server_has_it_too(folder: Path) -> None:
    pytest.importorskip("uvicorn")
    from bertsmith.app.library.loading import load_models

    head = own_head(f"{folder / 'my_head.py'}:MyHead")
    asked = load_models([f"mails={folder / 'run'}"], device="cpu", head=head)["mails"]
    assert asked.classify([SPAM]) == bertsmith.load(folder / "run", device="cpu", head=head).classify([SPAM])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("absent.py:MyHead", "expected the Python file of a head at 'absent.py'; found no such file or directory"),
        ("{file}:MyHed", "; found none; did you mean 'MyHead'?"),
        ("{file}:NoHead", "expected a subclass of bertsmith.OwnHead as head; found the class NoHead"),
        ("{file}", "expected a head as FILE:CLASS"),
    ],
)
def test_a_head_that_is_none_is_reported_in_one_line(
    run, folder: Path, head: str, message: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    result = run(
        "finetune", "--model", folder / "base", "--task", "classification", "--train", folder / "mails.csv", "--out",
        out, "--head", head.format(file=folder / "my_head.py"),
    )  # fmt: skip
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert message in result.err
    assert not out.exists()
