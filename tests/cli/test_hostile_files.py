"""Files and streams that no one means to give: each is one line, and none aborts the rest or hangs."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file

from bertsmith.app.cli.options import print_json
from bertsmith.base.core.progress import visible
from cli.test_predicting import write_model
from written_files import file_with

pytestmark = pytest.mark.skipif(os.name != "posix", reason="files of POSIX")

TEXT = "the man went to the store\n\nhe bought a man\n" * 3


def one_line(result: tuple[int, str, str], words: str) -> None:
    """Asserts that a command was refused in one line with these words."""
    code, out, err = result
    assert (code, out, err.count("\n")) == (1, "", 1), err
    assert words in err


def test_a_link_to_itself_is_skipped_with_a_line_and_the_rest_is_read(run, tmp_path: Path, vocabulary: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text(TEXT)
    (texts / "b.txt").symlink_to("b.txt")
    result = run("corpus", texts, "--vocab", vocabulary, "--out", tmp_path / "corpus", "--workers", 1).succeeds()
    inputs = (tmp_path / "corpus" / "inputs.jsonl").read_text(encoding="utf-8")
    assert "b.txt" in inputs + result.out
    assert "symbolic links" in inputs + result.out
    one_line(run("vocab", texts / "b.txt", "--out", tmp_path / "v.txt"), "b.txt")


def test_folders_may_be_a_thousand_deep(run, tmp_path: Path, vocabulary: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = os.open(".", os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    file = os.open("a.txt", os.O_WRONLY | os.O_CREAT, dir_fd=here)
    os.write(file, TEXT.encode())
    os.close(file)
    os.close(here)
    result = run("corpus", "d", "--vocab", vocabulary, "--out", "corpus", "--workers", 1)
    subprocess.run(["rm", "-r", "d"], check=True)  # too deep for Python's rmtree, which would warn
    assert result.code == 0, result.err


@pytest.mark.parametrize("typed", ["tokenize --vocab {v}", "fill --model {m} -", "embed - --model {m} --out x.npy"])
def test_a_closed_stdin_is_one_line(model: Path, vocabulary: Path, typed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m bertsmith {typed.format(v=vocabulary, m=model)} <&-"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    one_line((result.returncode, result.stdout, result.stderr), "it is closed")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_command_does_its_work_with_closed_streams(vocabulary: Path, closed: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT * 20)
    for typed in ("vocab a.txt --size 40 --out v.txt", f"corpus a.txt --vocab {vocabulary} --out corpus"):
        command = f"{sys.executable} -m bertsmith {typed} {closed}"
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert (tmp_path / "v.txt").read_text().count("\n") == 40
    assert (tmp_path / "corpus" / "corpus.json").exists()


def test_a_reader_that_is_gone_ends_a_command_as_shells_expect(vocabulary: Path) -> None:
    command = (
        f"yes the man | {sys.executable} -m bertsmith tokenize --vocab {vocabulary} | head -1; echo ${{PIPESTATUS[1]}}"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout.splitlines()[1:], result.stderr) == (["141"], "")


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_configuration_that_never_ends_or_begins_is_refused(run, model: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.json"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    one_line(run("check", tmp_path, "--config", path), "a device or a pipe")
    (model / "config.json").unlink()
    path.rename(model / "config.json")
    one_line(run("fill", "--model", model, "the [MASK]"), "a device or a pipe")


def test_a_device_is_no_vocabulary(run) -> None:
    one_line(run("tokenize", "--vocab", "/dev/zero", stdin=b"x\n"), "a device")


def test_a_name_with_nul_in_a_file_is_one_line(run, model: Path) -> None:
    tensors = load_file(model / "model.safetensors")
    save_file(tensors, model / "a.safetensors")
    (model / "model.safetensors").unlink()
    (model / "bertsmith.json").unlink()
    index = {"weight_map": dict.fromkeys(tensors, "a\0.safetensors")}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    one_line(run("fill", "--model", model, "the [MASK]"), "NUL")


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_two_columns_or_keys_of_one_name_are_refused_wherever_a_table_is_read(run, model, tmp_path, ending) -> None:
    path = tmp_path / f"table{ending}"
    if ending == ".parquet":
        column = pa.array(["the man"])
        pq.write_table(pa.Table.from_arrays([column, column, pa.array(["a"])], names=["text", "text", "label"]), path)
    elif ending == ".jsonl":
        path.write_text('{"text": "the", "text": "man", "label": "a"}\n')
    else:
        cell = "\t" if ending == ".tsv" else ","
        path.write_text("".join(f"{cell.join(row)}\n" for row in (["text", "text", "label"], ["the", "man", "a"])))
    commands = [
        ("embed", path, "--model", model, "--out", tmp_path / "x.npy"),
        ("finetune", "--model", model, "--task", "classification", "--train", path, "--out", tmp_path / "run"),
        ("search", path, "--model", model, "--query", "man"),
    ]
    if ending in (".jsonl", ".parquet"):
        commands.append(("vocab", path, "--size", 40, "--out", tmp_path / "v.txt"))
        commands.append(("corpus", path, "--vocab", model / "vocab.txt", "--out", tmp_path / "corpus"))
    words = "(the key 'text' twice); " if ending == ".jsonl" else "found the column 'text' twice; "
    for command in commands:
        result = run(*command)
        assert result.code == 1, command
        assert words in result.err.splitlines()[-1], command


def test_a_typed_line_with_a_key_twice_is_refused(run, tmp_path: Path) -> None:
    classifier = write_model(tmp_path / "classifier", "single")
    one_line(run("predict", "--model", classifier, stdin=b'{"text": "the", "text": "man"}\n'), "the key 'text' twice")


CLEAR = "\x1b[2J"  # what a terminal would obey
SHOWN = r"\x1b[2J"


def test_controls_in_a_text_are_visible_as_escapes() -> None:
    text = "red \x1b[31m, title \x1b]0;x\x07, csi \x9b2J, back \r, tab\t."
    assert visible(text) == r"red \x1b[31m, title \x1b]0;x\x07, csi \x9b2J, back \x0d, tab" + "\t."
    assert visible("two\nlines\u2028 or \u202eback") == r"two\x0alines\u2028 or \u202eback"


def hostile_command(name: str, model: Path, folder: Path) -> tuple[list[object], bytes]:
    """A command whose output holds the escape of a file, of a label or of its arguments; and its stdin."""
    text = file_with(folder / "text.txt", f"the {CLEAR} man\nhe bought\n")
    if name == "search":
        return ["search", text, "--bm25", "--query", "man"], b""
    if name == "contexts":
        return ["contexts", "man", f"the {CLEAR} man", "he bought a man", "--model", model], b""
    if name == "ask":
        return ["ask", write_model(folder / "reader", "answer"), text, f"who {CLEAR}?", "who ?"], b""
    classifier = write_model(folder / "classifier", "single")
    if name == "rank":
        return ["rank", classifier, text, "--label", "negative", "--form", "lines"], b""
    metadata = json.loads((classifier / "bertsmith.json").read_text())
    labels = [f"{CLEAR}{label}\r\n\x9b2J\u202e" for label in metadata["labels"]]
    metadata["labels"] = metadata["spec"]["labels"] = labels
    (classifier / "bertsmith.json").write_text(json.dumps(metadata))
    return ["predict", "--model", classifier], b"the man\n"


@pytest.mark.parametrize("name", ["search", "contexts", "ask", "rank", "predict"])
def test_escapes_in_an_answer_are_shown_at_a_terminal_and_in_a_pipe(run, model, tmp_path, name: str) -> None:
    command, stdin = hostile_command(name, model, tmp_path)
    shown = run(*command, stdin=stdin, terminal=True).succeeds()
    assert SHOWN in shown.out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown.out + shown.err)
    assert name != "predict" or len(shown.out.splitlines()) == 1
    piped = run(*command, stdin=stdin)
    assert piped.out == shown.out
    exact = run(*command, "--json", stdin=stdin)
    assert any(
        CLEAR in str(json.loads(line)) or r"\x1b[2J" in repr(json.loads(line)) for line in exact.out.splitlines()
    )


def test_json_has_no_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"text": "\x1b[2J \x9b2J \x7f \x85 é"}
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    print_json(value)
    line = stream.getvalue()
    assert json.loads(line) == value
    assert line == '{"text": "' + r"\u001b[2J \u009b2J \u007f \u0085 é" + '"}\n'


def test_an_output_folder_that_is_a_link_to_itself_is_one_line(run, tmp_path: Path, vocabulary: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "loop").symlink_to("loop")
    run("corpus", tmp_path / "a.txt", "--vocab", vocabulary, "--out", tmp_path / "loop").refuses()
    one_line(run("vocab", tmp_path / "loop", "--out", tmp_path / "v.txt"), "loop")
