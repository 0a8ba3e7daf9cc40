"""Completion scripts: what bash completes with one, and that fish gets the same words."""

import shutil
import subprocess

import pytest

CASES = {
    "bertsmith fin": {"finetune"},
    "bertsmith vectors tr": {"train"},
    "bertsmith vectors train --wi": {"--width", "--window"},
    "bertsmith finetune --task sst": {"sst-2"},
    "bertsmith finetune --pati": {"--patience"},
    "bertsmith finetune --keep ": {"best", "last"},
    "bertsmith corpus my-": {"my-text"},
    "bertsmith predict --model my-": {"my-text"},
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_of_two_words_options_choices_and_paths(run, tmp_path) -> None:
    (tmp_path / "my-text").mkdir()
    (tmp_path / "bertsmith.bash").write_text(run("--show-completion", "bash").out)
    lines = ["source ./bertsmith.bash"]
    for line in CASES:
        words = " ".join(f"'{word}'" for word in line.split(" "))
        lines.append(f'COMP_WORDS=({words}); COMP_CWORD={line.count(" ")}; _bertsmith; echo "${{COMPREPLY[*]}}"')
    shell = ["bash", "--norc", "-c", "\n".join(lines)]
    answer = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stderr == ""
    assert [set(line.split()) for line in answer.stdout.splitlines()] == list(CASES.values())


def test_fish_and_zsh_get_the_same_commands_and_an_unknown_shell_is_refused(run) -> None:
    fish = run("--show-completion", "fish").out
    assert "-l patience -r" in fish
    assert "-a train -d" in fish
    zsh = run("--show-completion", "zsh").out
    assert zsh.startswith("autoload")
    assert zsh.endswith(run("--show-completion", "bash").out)
    refused = run("--show-completion", "bsh")
    assert (refused.code, refused.err) == (1, "bertsmith: unknown shell 'bsh'; did you mean 'bash'?\n")
