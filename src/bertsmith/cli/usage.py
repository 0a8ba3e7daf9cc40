"""Wrong usage told in one line: what was expected, what was found, what to type.

typer draws three lines of usage, which name no option that a command needs. Which exceptions it raises is told by the
names of their classes, since they belong to click in some of its versions and to itself in others.
"""

import difflib
import re
from typing import Any

import typer

# Every mistake of usage is one of these; BadParameter is the only one that typer gives a name to.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_CLOSE = 0.7  # how alike two options are that may have been mixed up, from 0 to 1
# What other tools call an option, with what it may be called here.
_MEANT = {
    "--batch": ("--batch-size", "--rows-per-step"),
    "--batch-size": ("--rows-per-step",),
    "--lr": ("--learning-rate",),
    "--num-train-epochs": ("--epochs",),
    "--output": ("--out",),
    "--output-dir": ("--out",),
    "-o": ("--out",),
    "-m": ("--model",),
    "--checkpoint": ("--model",),
    "--model-name-or-path": ("--model",),
    "--max-seq-length": ("--max-length",),
    "--k": ("--top",),
    "-k": ("--top",),
    "--top-k": ("--top",),
    "-q": ("--query",),
    "--question": ("--query",),
    "--validation": ("--dev",),
}
# So are files called that a command reads; it has them as an option, as an argument or on stdin.
_FILES = {
    **dict.fromkeys(("--file", "--input", "--data", "--texts", "--text", "--train", "--dev"), ("--data", "--train")),
    "--test": ("--data",),
}


def usage_line(error: Any, example: str = "", misplaced: str = "") -> str:
    """What to tell of a usage error, beginning with "expected" wherever the error says enough.

    Args:
        error: a `UsageError`.
        example: of the command that was called; empty where none was.
        misplaced: where what a command does not take as an argument belongs.
    """
    context, kind = getattr(error, "ctx", None), type(error).__name__
    path = context.command_path if context is not None else "bertsmith"
    listed = f"see {path} -h"
    fix = f"for example: {example}" if example else listed
    message = " ".join(error.format_message().split())
    if kind == "MissingParameter" and getattr(error, "param", None) is not None:
        return f"expected {_described(error.param)}; found none; {fix}"
    if kind == "NoSuchOption":
        known = _options(context)
        found = error.option_name
        nearest = _nearest(found, known)
        if nearest:
            fix = f"did you mean {nearest}?"
        elif found in _FILES and misplaced:
            fix = misplaced
        elif found not in _FILES:
            fix = listed
        return f"expected an option of {path}; found {found}; {fix}"
    if kind == "BadOptionUsage" and "requires an argument" in message:
        return f"expected a value after {error.option_name}; found none; {fix}"
    if extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"expected no further argument of {path}; found {extra[1]!r}; {misplaced or fix}"
    if command := re.fullmatch(r"No such command '(.*?)'\.? ?(.*)", message):
        return f"expected a command; found {command[1]!r}; {command[2].lower() or listed}"
    if getattr(error, "param", None) is not None:
        fix = listed
    message = message.removeprefix("Invalid value: ").rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; {fix}"


def _described(parameter: Any) -> str:
    """An option or argument as one types it, with its help."""
    is_option = parameter.param_type_name == "option"
    shown = parameter.metavar or ("" if is_option else str(parameter.name).upper())
    name = f"{max(parameter.opts, key=len)} {shown}".rstrip() if is_option else shown
    help_line = str(getattr(parameter, "help", None) or "").split(";")[0]
    return f"{name} ({help_line})" if help_line else name


def _options(context: Any) -> list[str]:
    """The options of the command that was called."""
    parameters = context.command.params if context is not None else ()
    return [name for one in parameters if one.param_type_name == "option" for name in one.opts if name.startswith("--")]


def _nearest(name: str, known: list[str]) -> str:
    """The known option that was probably meant; empty if none was."""
    name = name.replace("_", "-")
    meant = (*_MEANT.get(name, ()), *_FILES.get(name, ()))
    named = [option for option in (name, *meant) if option in known]
    close = [] if name in _FILES else difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    return (named or close or [""])[0]
