"""Completion scripts for bash, zsh and fish, which hold every command, option and choice as plain words.

A script starts no process at a key press, so completion takes no time. It is written again after an upgrade.
"""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bertsmith.app.cli.help import first_sentence
from bertsmith.app.cli.request_options import REQUESTS
from bertsmith.base.core.settings import RECIPES, require_known

SHELLS = ("bash", "zsh", "fish")


class Option(NamedTuple):
    """An option as it is typed, its help, the values to choose from, and whether it has a value."""

    name: str
    help: str
    choices: Sequence[str]
    has_value: bool


GLOBAL = (
    Option("--help", "the commands to begin with", (), False),
    Option("--help-all", "all commands", (), False),
    Option("--version", "the version", (), False),
    Option("--show-completion", "a completion script", SHELLS, True),
)
_FIRST = "string match -qr '^(-|$)' -- (__bertsmith_command)"  # in fish: no command is typed yet


def script(shell: str, commands: Mapping[str, Any]) -> str:
    """The completion script of a shell.

    Args:
        commands: the commands of click, with all of their options, by name.
    """
    require_known("shell", shell, SHELLS)
    choices = _choices()
    options = {name: list(_options(command, choices)) for name, command in commands.items()}
    helps = {name: first_sentence(command.help or "") for name, command in commands.items()}
    if shell == "fish":
        return _fish(options, helps)
    loading = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
    return (loading if shell == "zsh" else "") + _bash(options)


def _choices() -> dict[str, Sequence[str]]:
    """The values of options that have a short list of them."""
    from bertsmith.models.checkpoints.architectures import ARCHITECTURES
    from bertsmith.models.checkpoints.packaged import NAMES
    from bertsmith.models.parts.config import NAMED_SIZES
    from bertsmith.recipes.finetuning.settings import KEEPS
    from bertsmith.tasks.specs.named_tasks import TASK_NAMES
    from bertsmith.training.pretraining.objectives import OBJECTIVES

    return {
        "--architecture": tuple(ARCHITECTURES),
        "--device": ("auto", "cpu", "cuda"),
        "--keep": KEEPS,
        "--model": NAMES,
        "--objective": tuple(OBJECTIVES),
        "--precision": ("auto", "fp32", "bf16", "int8"),
        "--recipe": RECIPES,
        "--size": ("auto", *NAMED_SIZES),
        "--task": TASK_NAMES,
    }


def _options(command: Any, choices: Mapping[str, Sequence[str]]) -> Iterable[Option]:
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                help_line = " ".join(str(parameter.help or "").split("[")[0].split(";")[0].split())
                yield Option(name, help_line, choices.get(name, ()), not getattr(parameter, "is_flag", False))
    yield Option("--help", "the common options", (), False)
    yield Option("--help-all", "all options by topic", (), False)


def _bash(options: Mapping[str, Sequence[Option]]) -> str:
    seconds, firsts = _second_words(options), dict.fromkeys(name.split()[0] for name in options)
    pairs = "|".join(f'"{name}"' for name in options if " " in name)
    lines = [
        "_bertsmith() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local command="${COMP_WORDS[1]}" options="" values="" words=""',
        '    if [ "$COMP_CWORD" -gt 2 ]; then',
        '        case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in',
        f'            {pairs}) command="$command ${{COMP_WORDS[2]}}" ;;',
        "        esac",
        "    fi",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        words="{" ".join((*firsts, *(option.name for option in GLOBAL)))}"',
        '        COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "        return",
        "    fi",
        '    case "$command" in',
        *(
            f'        "{name}") options="{" ".join(option.name for option in known)}" ;;'
            for name, known in options.items()
        ),
        "    esac",
        '    case "$before" in',
        *(f'        {name}) values="{" ".join(values)}" ;;' for name, values in _valued(options).items()),
        "    esac",
        '    if [ "$COMP_CWORD" -eq 2 ]; then',
        '        case "$command" in',
        *(f'            {first}) words="{" ".join(second)}" ;;' for first, second in seconds.items()),
        f'            settings) words="{" ".join(dict.fromkeys(name.split()[0] for name in REQUESTS))}" ;;',
        "        esac",
        '    elif [ "$COMP_CWORD" -eq 3 ] && [ "$command" = settings ]; then',
        '        case "${COMP_WORDS[2]}" in',
        *(f'            {first}) words="{" ".join(second)}" ;;' for first, second in _second_words(REQUESTS).items()),
        "        esac",
        "    fi",
        '    case "$word" in',
        '        -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;',
        '        *) COMPREPLY=($(compgen -W "$values $words" -- "$word"))',
        '            if [ "$command" != settings ] && { [ -z "$values" ] || [ "$before" = --model ]; }; then',
        '                COMPREPLY+=($(compgen -f -- "$word"))',
        "            fi ;;",
        "    esac",
        "}",
        "complete -o filenames -F _bertsmith bertsmith",
    ]
    return "\n".join(lines) + "\n"


def _fish(options: Mapping[str, Sequence[Option]], helps: Mapping[str, str]) -> str:
    pairs = " ".join(shlex.quote(name) for name in options if " " in name)
    lines = [
        "function __bertsmith_command",  # the name of the command, of one or two words
        "    set -l words (commandline -opc)[2..]",
        f'    contains -- "$words[1..2]" {pairs}; and echo "$words[1..2]"; or echo "$words[1]"',
        "end",
    ]
    for option in GLOBAL:
        lines.append(_fish_line(_FIRST, _fish_option(option), option.help))
    for name, known_options in options.items():
        first, _, second = name.partition(" ")
        is_called = f"test (__bertsmith_command) = {shlex.quote(name)}"
        if second:
            is_next = f"test (count (commandline -opc)) -eq 2; and test (__bertsmith_command) = {first}"
            lines.append(_fish_line(is_next, f"-a {second}", helps[name]))
        else:
            lines.append(_fish_line(_FIRST, f"-f -a {first}", helps[name]))
        lines += [_fish_line(is_called, _fish_option(option), option.help) for option in known_options]
    of_settings = "test (__bertsmith_command) = settings; and test (count (commandline -opc)) -eq"
    for name in REQUESTS:
        first, _, second = name.partition(" ")
        if second:
            is_next = f"{of_settings} 3; and test (commandline -opc)[3] = {first}"
            lines.append(_fish_line(is_next, f"-f -a {second}", helps[name]))
        else:
            lines.append(_fish_line(f"{of_settings} 2", f"-f -a {first}", helps[name]))
    return "\n".join(lines) + "\n"


def _fish_option(option: Option) -> str:
    """An option as arguments of `complete`; files are offered as values, but not next to choices."""
    value = "" if not option.has_value else " -r" if not option.choices or option.name == "--model" else " -x"
    choices = f" -a {shlex.quote(' '.join(option.choices))}" if option.choices else ""
    return f"-l {option.name[2:]}{value}{choices}"


def _fish_line(condition: str, rest: str, help_line: str) -> str:
    return f"complete -c bertsmith -n {shlex.quote(condition)} {rest} -d {shlex.quote(help_line)}"


def _second_words(names: Iterable[str]) -> dict[str, list[str]]:
    """The second words of the commands that have two, by the first.

    >>> _second_words(["vectors", "vectors train", "vectors show", "fill"])
    {'vectors': ['train', 'show']}
    """
    seconds: dict[str, list[str]] = {}
    for name in names:
        first, _, second = name.partition(" ")
        if second:
            seconds.setdefault(first, []).append(second)
    return seconds


def _valued(options: Mapping[str, Sequence[Option]]) -> dict[str, Sequence[str]]:
    every = [*GLOBAL, *(option for known in options.values() for option in known)]
    return {option.name: option.choices for option in every if option.choices}
