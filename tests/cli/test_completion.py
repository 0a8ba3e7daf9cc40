"""Completion scripts: what bash completes with one, and that fish gets the same words."""

import os
import shutil
import subprocess

import pytest

CASES = {
    "bertsmith fin": {"finetune"},
    "bertsmith vectors tr": {"train"},
    "bertsmith vectors train --wi": {"--width", "--window"},
    "bertsmith settings fin": {"finetune"},
    "bertsmith settings vectors tr": {"train"},
    "bertsmith settings my-": set(),
    "bertsmith finetune --task sst": {"sst-2"},
    "bertsmith finetune --pati": {"--patience"},
    "bertsmith finetune --keep ": {"auto", "bag", "best", "last"},
    "bertsmith corpus my-": {"my-text"},
    "bertsmith predict --model my-": {"my-text"},
}


def completions() -> list[str]:
    """For each case, the lines of bash that print its words."""
    lines = []
    for line in CASES:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        lines.append(f'COMP_WORDS=({words}); COMP_CWORD={line.count(" ")}; _bertsmith; echo "${{COMPREPLY[*]}}"')
    return lines


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_of_two_words_options_choices_and_paths(run, tmp_path) -> None:
    (tmp_path / "my-text").mkdir()
    (tmp_path / "bertsmith.bash").write_text(run("--show-completion", "bash").out)
    shell = ["bash", "--norc", "-c", "\n".join(["source ./bertsmith.bash", *completions()])]
    answer = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    assert [set(line.split()) for line in answer.stdout.splitlines()] == list(CASES.values())


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
def test_fish_completes_the_same_and_the_command_is_the_first_word(run, tmp_path) -> None:
    (tmp_path / "my-text").mkdir()
    (tmp_path / "bertsmith.fish").write_text(run("--show-completion", "fish").out)
    cases = {line: {f"{word}/" if word == "my-text" else word for word in words} for line, words in CASES.items()}
    cases |= {
        "bertsmith --show-completion ": {"bash", "fish", "zsh"},
        "bertsmith embed check --pool": {"--pooling"},
        "bertsmith distill --out corpus --label-w": {"--label-weight"},
    }
    lines = ["source ./bertsmith.fish", *(f"complete -C '{line}'; echo ==" for line in cases)]
    shell = ["fish", "--no-config", "-c", "\n".join(lines)]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    answer = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    answers = answer.stdout.split("==\n")[:-1]
    assert [{line.split("\t")[0] for line in block.splitlines()} for block in answers] == list(cases.values())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_reads_the_script_and_gets_the_same_words(run, tmp_path) -> None:
    """At a key press zsh itself leaves out the words that do not begin as the typed one."""
    (tmp_path / "my-text").mkdir()
    (tmp_path / "bertsmith.zsh").write_text(run("--show-completion", "zsh").out)
    shell = ["zsh", "-f", "-c", "\n".join(["source ./bertsmith.zsh", "emulate sh", "setopt ksharrays", *completions()])]
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    answer = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    for (line, expected), words in zip(CASES.items(), answer.stdout.splitlines(), strict=True):
        typed = line.rpartition(" ")[2]
        completed = {word for word in words.split() if word.startswith(typed)}
        assert completed - {"my-text", "bertsmith.zsh"} == expected - {"my-text"}
        assert "my-text" not in expected or "my-text" in completed


def test_fish_and_zsh_get_the_same_commands_and_an_unknown_shell_is_refused(run) -> None:
    fish = run("--show-completion", "fish").out
    assert "-l patience -r" in fish
    assert "-a train -d" in fish
    zsh = run("--show-completion", "zsh").out
    assert zsh.startswith("autoload")
    assert zsh.endswith(run("--show-completion", "bash").out)
    refused = run("--show-completion", "bsh")
    assert (refused.code, refused.err) == (1, "bertsmith: unknown shell 'bsh'; did you mean 'bash'?\n")
