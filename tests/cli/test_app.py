"""The command line in general: help, usage, errors, exit codes."""

import dataclasses
import errno
import importlib.util
import inspect
import os
import re
import signal
import subprocess
import sys
from collections import ChainMap
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pydantic
import pytest
import typer

from bertsmith.app.cli import app as application
from bertsmith.app.cli.commands import COMMANDS, Command
from bertsmith.app.cli.help import COMMON, GROUPS, grouped
from bertsmith.app.cli.request_options import REQUESTS, with_request
from bertsmith.app.cli.usage import Refused, usage_line
from bertsmith.base.core.requests import Request
from bertsmith.base.core.settings import help_field
from bertsmith.models.parts.config import BertConfig


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help_with_an_example(run, command) -> None:
    run(command.name, "--help").succeeds(command.example)
    assert command.example.count(f"bertsmith {command.name}") == 1


def test_the_help_lists_what_a_person_needs_first_and_the_whole_help_every_command(run) -> None:
    names = {command.name for command in COMMANDS}
    listed = [grouped(group) for group in GROUPS.values()]
    assert sorted(name for group in listed for name, _ in group) == sorted(names)
    first = {name for group in listed for name, is_first in group if is_first}
    assert len(first) <= 15
    for argument, wanted in (("--help", first), ("--help-all", names)):
        result = run(argument)
        shown = {line.strip().split("  ")[0] for line in result.out.splitlines() if re.match(r"  \w.*  ", line)}
        assert result.code == 0
        assert shown & names == wanted
        assert "..." not in result.out.split("Options:")[1]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_the_help_of_a_command_shows_its_common_options_and_the_whole_help_all_by_topic(run, command) -> None:
    def options(shown: str) -> set[str]:
        listed = shown.split("Options:\n")[1]
        return set(re.findall(r"^  (?:-h, )?--([\w-]+)", listed, re.MULTILINE)) - {"help", "help-all"}

    short, whole = (run(command.name, argument).out for argument in ("--help", "--help-all"))
    assert len(short.splitlines()) <= 61  # versions of typer wrap differently
    common = set(COMMON.get(command.name, "").split())
    assert common <= options(whole)
    assert options(short) == (common & options(whole) or options(whole))
    ranks = {name: number for number, name in enumerate(COMMON.get(command.name, "").split())}
    listed = re.split(r"^  --", short.split("Options:\n")[1].split("  -h, --help")[0], flags=re.MULTILINE)[1:]
    order = [("[required]" not in entry, ranks.get(re.split(r"[^\w-]", entry)[0])) for entry in listed]
    assert not ranks or order == sorted(order)
    assert ("--help-all" in short) == (options(short) != options(whole))


@pytest.mark.parametrize("word", ["codes", "memory"])
def test_the_first_word_of_commands_shows_them_in_the_order_of_the_whole_help(run, word) -> None:
    names = [name for group in GROUPS.values() for name, _ in grouped(group) if name.startswith(f"{word} ")]
    result = run(word, "--help").succeeds()
    listed = re.findall(r"^  ([\w-]+)  ", result.out.split("Commands:")[1], re.MULTILINE)
    assert [f"{word} {name}" for name in listed] == names
    unknown = run(word, names[0].removeprefix(f"{word} ")[:-1])
    assert (unknown.code, unknown.out) == (2, "")
    assert "there is no command" in unknown.err


def test_a_command_that_does_not_train_is_refused_as_several_processes(run, monkeypatch) -> None:
    """Each of them would do all of its work, and write to the same place."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    run("sizes").refuses("one of the commands pretrain, finetune, adapt, distill, distill corpus under torchrun")


def test_the_version_is_printed(run) -> None:
    import bertsmith

    assert run("--version") == (0, f"{bertsmith.__version__}\n", "")


# What torch would find in the environment when a command imports it, printed instead of the import.
SPYING = """
import os, sys
class Spy:
    def find_spec(name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"), os.environ.get("OMP_WAIT_POLICY"), flush=True)
            os._exit(0)
sys.argv = ["bertsmith", "sizes"]
import bertsmith.app.cli.app as app
assert "torch" not in sys.modules, "torch reads the environment when it is imported"
sys.meta_path.insert(0, Spy)
try:
    app.main()
except SystemExit as end:
    assert end.code == 0
import torch
"""


@pytest.mark.parametrize(
    ("variables", "variable"),
    [
        ({}, f"{application.SPINS} None"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None ACTIVE"),
        ({"KMP_BLOCKTIME": "0"}, "None None"),
    ],
)
def test_a_command_limits_how_long_threads_spin_before_torch_is_loaded_unless_the_user_chose(
    variables, variable
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOMP_", "KMP_", "OMP_WAIT"))}
    done = subprocess.run(
        [sys.executable, "-c", SPYING], env=kept | variables, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == variable


@pytest.mark.parametrize(
    ("kind", "least", "typed", "message"),
    [
        (int, 0, "many", "--port must be a whole number, not 'many'; see bertsmith -h"),
        (int, 0, "99999", "--port must be a whole number from 0 to 65,535, not 99999; see bertsmith -h"),
        (float, 0.0, "-1", "--port must be a number from 0 to 65,535, not -1.0; see bertsmith -h"),
        (int, None, "99999", "--port must be a whole number (x<=65535), not 99999; see bertsmith -h"),
    ],
)
def test_what_pydantic_says_of_a_number_for_newer_typers_is_said_in_the_same_words(kind, least, typed, message) -> None:
    limits = {"min": least, "max": kind(65535)}
    adapter = pydantic.TypeAdapter(Annotated[kind, pydantic.Field(ge=limits["min"], le=limits["max"])])
    with pytest.raises(pydantic.ValidationError) as caught:
        adapter.validate_python(typed)
    option = SimpleNamespace(opts=["-p", "--port"], param_type_name="option", **limits)
    error = typer.BadParameter("Input should be another number")
    error.param, error.__cause__ = option, caught.value
    error.format_message = lambda: "Invalid value for '--port': Input should be another number"
    assert usage_line(error) == message


# Common typing mistakes, each with a part of its one-line message.
WRONG = {
    "xyzzy": "there is no command 'xyzzy'; see bertsmith -h",
    "serv": "there is no command 'serv'; did you mean 'serve'",
    "sizes --nonsense": "sizes has no option --nonsense; see bertsmith sizes -h",
    "sizes --vocab-size many": "--vocab-size must be a whole number, not 'many'; see bertsmith sizes -h",
    "pretrain corpus --out run --minutes one": "--minutes must be a number, not 'one'; ",
    "serve --model m --port 99999": "--port must be a whole number from 0 to 65,535, not 99999; ",
    "disambiguate t.csv --glosses g.csv --prior -1": "--prior must be a number from 0 to 1,000,000, not -1.0; ",
    "vocab": "vocab needs TEXT (.txt, .jsonl or .parquet files (also .gz, .zst), folders, or - for stdin); "
    "for example: bertsmith vocab my-text",
    "vocab text": "vocab needs --out FILE (output file); for example: bertsmith vocab",
    "tokenize --vocab a b.txt": "takes no further argument 'b.txt'; pass the lines on stdin: bertsmith "
    "tokenize --vocab vocab.txt < FILE",
    "fill --model m a [MASK]": "fill takes no further argument '[MASK]'; quote the text",
    "predict": "predict needs --model DIR (fine-tuned model: folder, run folder or hub id); for example: "
    "echo 'Buy these",
    "predict --model": "--model needs a value; for example: echo 'Buy these pills' | bertsmith",
    "predict lines.txt --model m": "takes no further argument 'lines.txt'; pass the lines on stdin: "
    "bertsmith predict --model DIR < FILE",
    "predict -m m": "predict has no option -m; did you mean --model?",
    "finetune --model m --task spam --out r --batch 8": "has no option --batch; did you mean --batch-size?",
    "finetune --model m --task spam --out r --batch_size 8": "has no option --batch_size; did you mean --batch-size?",
    "finetune --model m --task spam --out r --steps 9": "--steps; bertsmith finetune counts epochs: use --epochs",
    "pretrain c --out r --epochs 1": "--epochs; bertsmith pretrain counts steps: use --steps",
    "finetune --model m --task spam --out r --num-train-epochs 9": "did you mean --epochs?",
    "finetune --model m --task spam --out r --lr 1": "has no option --lr; did you mean --learning-rate?",
    "finetune --model m --task spam --out r --epoch 1": "has no option --epoch; did you mean --epochs?",
    "finetune --model m --task spam --out r a.csv": "takes no further argument 'a.csv'; pass the files "
    "with --train and --dev",
    "finetune --model m --task spam --out r --test a.csv": "has no option --test; pass the files with "
    "--train and --dev",
    "evaluate m a.csv --model m --data a": "takes no further argument 'm a.csv'; pass the file with --data",
    "evaluate --model m --test a.csv": "has no option --test; did you mean --data?",
    "embed a.txt --model m --batch-size 8": "has no option --batch-size; see bertsmith embed -h",
    "embed --file a.txt --model m": "has no option --file; FILE is an argument here: bertsmith embed FILE",
    "search a.txt --model m": "expected either --query or --queries; found neither; for example: bertsmith search "
    "my-text/village.txt",
    "search a.txt gate --model m": "takes no further argument 'gate'; pass the query with --query, and "
    "the passages as the only argument",
    "search a.txt --k 3": "has no option --k; did you mean --top?",
    "serve m --model m": "takes no further argument 'm'; pass each model with --model",
    "train": "there is no command 'train'; use `bertsmith finetune` or `bertsmith pretrain`",
    "generate": "there is no command 'generate'; use `bertsmith predict` or `bertsmith complete`",
    "info x": "there is no command 'info'; use `bertsmith inspect`",
    "ask --model m file Why?": "ask has no option --model; MODEL is an argument here: bertsmith ask MODEL",
    "finetune --model m": "finetune needs --task NAME; for example: bertsmith finetune",
}


@pytest.mark.parametrize("typed", WRONG)
def test_wrong_usage_is_one_line_with_a_fix_and_exit_code_two(run, typed: str) -> None:
    result = run(*typed.split())
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
    assert result.err.startswith("bertsmith: ")
    assert WRONG[typed] in result.err


def test_without_a_command_the_help_is_shown(run) -> None:
    result = run()
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("Usage: bertsmith")
    assert "  predict " in result.err


def test_a_user_error_is_one_line_and_exit_code_one(run, tmp_path: Path) -> None:
    result = run("tokenize", "--vocab", tmp_path / "absent.txt", stdin=b"x\n")
    result.refuses()
    assert result.err.startswith("bertsmith: expected ")
    assert "absent.txt" in result.err


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "run/model"),
            "space on the disk; found none left for 'run/model'",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "vocab.txt"), "'vocab.txt'; found: Permission denied"),
    ],
)
def test_an_operating_system_error_is_one_line(
    run, monkeypatch: pytest.MonkeyPatch, error: OSError, words: str
) -> None:
    _replace_the_command(monkeypatch, error)
    run("fail").refuses(words)


def test_a_full_disk_names_resume_where_the_command_has_it(run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "v.txt")

    def resumable(resume: bool = False) -> None:
        """Fail."""
        raise error

    _replace_the_command(monkeypatch, error)
    assert run("fail").err.endswith("free some and run the same command again\n")
    monkeypatch.setattr(application, "COMMANDS", (Command(resumable, "fail", "bertsmith fail"), *COMMANDS))
    assert run("fail").err.endswith("run the same command again, with --resume if its output has begun\n")


def test_ctrl_c_is_exit_code_130(run, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_the_command(monkeypatch, KeyboardInterrupt())
    assert run("fail").code == 130


def test_internal_errors_keep_their_traceback(run, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_the_command(monkeypatch, ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        run("fail")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_closed_pipe_ends_the_command_quietly(vocabulary: Path) -> None:
    command = (
        f"yes 'the man' | head -n 200000 | {sys.executable} -m bertsmith tokenize --vocab {vocabulary} | head -n 1"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("the man\n", "")


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_while_waiting_for_stdin_leaves_no_traceback(vocabulary: Path) -> None:
    # If the tests run in the background, SIGINT is ignored, and child processes inherit that.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    program += "from bertsmith.app.cli.app import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "tokenize", "--vocab", str(vocabulary)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b"the man\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"the man\n"  # answers before stdin ends
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_options_come_from_the_fields_of_settings(run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @dataclasses.dataclass(frozen=True)
    class ConfigRequest(Request, BertConfig):
        _: dataclasses.KW_ONLY
        name: str = help_field("x", "a name")

    def command(request: ConfigRequest) -> None:
        """Do it."""
        seen.append((request.name, request.part(BertConfig)))

    monkeypatch.setattr(application, "COMMANDS", (Command(command, "fail", "bertsmith fail"), *COMMANDS))
    monkeypatch.setattr(application, "REQUESTS", ChainMap({"fail": ConfigRequest}, REQUESTS))
    run("fail", "--hidden-size", 24, "--num-attention-heads", 2, "--is-causal", "--hidden-act", "relu").succeeds()
    wanted = BertConfig(hidden_size=24, num_attention_heads=2, is_causal=True, hidden_act="relu")
    assert seen == [("x", wanted)]
    assert "width of the hidden states [768]" in run("fail", "--help").out
    run("fail", "--hidden-size", 25).refuses("hidden_size divisible by num_attention_heads")


def test_a_field_of_two_settings_is_one_option_without_a_default_if_they_differ() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class One:
        seed: int = help_field(1, "the seed")
        same: int = help_field(3, "the same")

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Other:
        seed: int = help_field(2, "another seed")
        same: int = help_field(3, "the same")

    @dataclasses.dataclass(frozen=True)
    class Both(Request, One, Other):
        extra: int = help_field(0, "its own")

    def command(request: Both) -> None:
        """Do it."""

    parameters = inspect.signature(with_request(command, Both)).parameters
    assert list(parameters) == ["extra", "seed", "same", "settings", "context"]
    helps = {name: parameters[name].annotation.__metadata__[0].help for name in ("seed", "same")}
    assert helps == {"seed": "the seed", "same": "the same [3]"}


def test_what_serving_lacks_is_named_without_the_extra_which_would_install_torch(run, monkeypatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    result = run("serve", "--model", "model")
    assert result.code == 1
    assert result.err.endswith("found no uvicorn; pip install uvicorn\n")


def _replace_the_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    monkeypatch.setattr(application, "COMMANDS", (Command(fail, "fail", "bertsmith fail"), *COMMANDS))


def test_an_option_with_one_value_warns_if_it_is_given_twice(run) -> None:
    result = run("finetune", "--train", "a.csv", "--train", "b.csv", "--resume", "--resume", "--task", "ner")
    assert result.err.splitlines()[0] == "warning: --train is given 2 times; only the last value is used"
    assert "given" not in "".join(result.err.splitlines()[1:])
    assert "given" not in run("serve", "--model", "a", "--model", "b").err


def test_a_usage_error_shows_an_example_unless_it_says_what_to_do() -> None:
    example = "bertsmith x"
    assert usage_line(Refused("expected one; found 'a; b'"), example) == (
        "expected one; found 'a; b'; for example: bertsmith x"
    )
    assert usage_line(Refused("expected one; found 'a; b'", "use one"), example) == (
        "expected one; found 'a; b'; use one"
    )
