"""distill and distill corpus as a user types them, with one-line errors."""

import json
from pathlib import Path

import pytest

from cli.conftest import HAM, SPAM
from written_files import file_with

pytestmark = pytest.mark.usefixtures("drawn_charts")


@pytest.fixture
def teacher(run, model: Path, mails: Path, tmp_path: Path) -> Path:
    result = run(
        "finetune", "--model", model, "--task", "classification", "--train", mails, "--dev", mails, "--out",
        tmp_path / "teacher", "--seeds", 1, "--epochs", 4, "--batch-size", 8, "--no-baselines",
    )  # fmt: skip
    assert result.code == 0, result.err
    return tmp_path / "teacher"


def test_a_student_is_trained_resumed_and_used(run, teacher: Path, mails: Path, tmp_path: Path) -> None:
    lines = file_with(tmp_path / "more.txt", f"{SPAM}\n{HAM}\n")
    command = (
        "distill", "--teacher", teacher, "--train", mails, "--dev", mails, "--unlabelled", lines, "--layers", 1,
        "--seeds", 1, "--epochs", 2, "--no-without-teacher", "--out", tmp_path / "student",
    )  # fmt: skip
    result = run(*command).succeeds()
    header, first, second, *others = result.out.splitlines()
    assert header.split()[:3] == ["system", "parameters", "bytes"]
    assert (first.split()[0], second.split()[0]) == ("teacher", "student")
    assert "of the teacher's accuracy" in others[0]
    assert (tmp_path / "student" / "report.html").is_file()
    answer = run("predict", "--model", tmp_path / "student" / "model", stdin=f"{SPAM}\n".encode())
    assert answer.out.split("\t")[0] in ("Spam", "Not Spam")
    weights = (tmp_path / "student/model/model.safetensors").read_bytes()
    again = run(*command, "--resume", "--json")
    assert json.loads(again.out)["metric"] == "accuracy"
    assert (tmp_path / "student/model/model.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--student", "bilstm", "--layers", 1), "--layers needs a student that has layers of its teacher"),
        (("--temperature", 0), "temperature must be above 0"),
        (("--layers", "9"), "1 to 2 layers"),
        (("--student", "nowhere"), "nowhere"),
    ],
)
def test_a_mistake_is_one_line(
    run, options: tuple[object, ...], message: str, teacher: Path, mails: Path, tmp_path: Path
) -> None:
    result = run("distill", "--teacher", teacher, "--train", mails, "--out", tmp_path / "student", *options)
    assert (result.code, result.out) == (1, "")
    assert message in result.err.splitlines()[-1]
    assert not (tmp_path / "student").exists()


def test_a_student_is_taught_on_a_corpus(run, model: Path, tmp_path: Path) -> None:
    text = file_with(tmp_path / "text.txt", f"{SPAM} . {HAM} .\n\n{HAM} . {SPAM} .\n\n" * 8)
    run("corpus", text, "--model", model, "--out", tmp_path / "corpus").succeeds()
    result = run(
        "distill", "corpus", tmp_path / "corpus", "--teacher", model, "--layers", 1, "--steps", 2, "--max-length", 16,
        "--rows-per-step", 4, "--out", tmp_path / "student",
    )  # fmt: skip
    assert result.code == 0, result.err
    assert "soft_loss" in result.out
    config = json.loads((tmp_path / "student/model/config.json").read_text())
    assert (config["model_type"], config["n_layers"]) == ("distilbert", 1)
