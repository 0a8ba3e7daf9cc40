"""One-line messages for usage errors: what was expected, what was found, what to type.

typer prints three lines of usage that do not name the options a command needs. Its exceptions are identified by class
name, because some of its versions raise click's classes and others its own.
"""

import difflib
import re
from collections.abc import Sequence
from typing import Any

import typer

from bertsmith.base.core.settings import require
from bertsmith.base.machine.runtime import Rank

# The base class of all usage errors; typer only exports its subclass BadParameter.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_LONGEST_HELP = 90  # characters of the help of a missing option that a message repeats
_CLOSE = 0.7  # minimum similarity for a suggestion, from 0 to 1
# Option names of other tools, with their possible names here.
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
# Commands of other tools, with their names here.
_SYNONYMS = {
    "train": "finetune` or `bertsmith pretrain",
    "fine-tune": "finetune",
    "infer": "predict",
    "info": "inspect",
    "show": "inspect",
    "encode": "embed",
    "export": "convert",
    "eval": "evaluate",
    "test": "evaluate",
    "generate": "predict` or `bertsmith complete",
    "summarize": "predict",
    "coreference": "finetune --task coreference",
}
# The length of a training: commands count it in steps or in epochs.
_COUNTS = {
    **dict.fromkeys(("--steps", "--max-steps", "--num-steps"), "epochs"),
    **dict.fromkeys(("--epochs", "--num-epochs", "--num-train-epochs"), "steps"),
}
# Common names for input files; a command here takes them as an option, as an argument or on stdin.
_FILES = {
    **dict.fromkeys(("--file", "--input", "--data", "--texts", "--text", "--train", "--dev"), ("--data", "--train")),
    "--test": ("--data",),
}
# The value of an option that is not a number, or is out of range.
_NUMBER = re.compile(
    r"Invalid value for '(?P<name>[^']*)'[^:]*: (?P<found>.*) is not "
    r"(?:a valid (?P<kind>int|integer|float)(?: range)?|in the range (?P<range>.*?))\.?"
)


class Refused(typer.BadParameter):
    """A usage error that a command finds in its options.

    Args:
        problem: what is wrong.
        fix: what to do; by default an example of the command is shown.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.fix = fix


def usage_line(error: Any, example: str = "", misplaced: str = "") -> str:
    """The message for a usage error; starts with "expected" if the error has enough details.

    Args:
        error: a `UsageError`.
        example: the example of the called command; empty if there is none.
        misplaced: what to do with an extra argument of that command.
    """
    context, kind = getattr(error, "ctx", None), type(error).__name__
    path = context.command_path if context is not None else "bertsmith"
    command = path.removeprefix("bertsmith ")  # the line begins with the name of the program
    listed = f"see {path} -h"
    fix = f"for example: {example}" if example else listed
    message = " ".join(error.format_message().split())
    if kind == "MissingParameter" and getattr(error, "param", None) is not None:
        return f"{command} needs {_described(error.param)}; {fix}"
    if kind == "NoSuchOption":
        known = _options(context)
        option = error.option_name
        nearest = _nearest(option, known)
        other = _COUNTS.get(option.replace("_", "-"), "")
        if f"--{other}" in known and nearest not in ("--steps", "--epochs"):
            fix = f"{path} counts {other}: use --{other}"
        elif nearest:
            fix = f"did you mean {nearest}?"
        elif option in _FILES and misplaced:
            fix = misplaced
        elif option not in _FILES:
            fix = listed
        if argument := _argument(context, option):
            fix = f"{argument} is an argument here: {path} {argument}"
        return f"{command} has no option {option}; {fix}"
    if kind == "BadOptionUsage" and "requires an argument" in message:
        return f"{error.option_name} needs a value; {fix}"
    if extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"{command} takes no further argument {extra[1]!r}; {misplaced or fix}"
    if unknown := re.fullmatch(r"No such command '(.*?)'\.? ?(.*)", message):
        synonym = _SYNONYMS.get(unknown[1], "")
        fix = f"use `bertsmith {synonym}`" if synonym else unknown[2].lower() or listed
        return f"there is no command {unknown[1]!r}; {fix}"
    if getattr(error, "param", None) is not None:
        fix = listed
    if number := _number_wanted(error, message):
        return f"{number}; {fix}"
    message = message.removeprefix("Invalid value: ").rstrip(".")
    # A message that says itself what to do needs no example, which would rarely fit it.
    shown = "" if isinstance(error, Refused) and error.fix else f"; {fix}"
    return f"{message[:1].lower()}{message[1:]}{shown}"


def _number_wanted(error: Any, message: str) -> str:
    """Which numbers an option takes, and what was typed; empty if the error is about something else."""
    if number := _NUMBER.fullmatch(message):
        is_whole = not (number["kind"] or getattr(getattr(error.param, "type", None), "name", "")).startswith("float")
        name, limits, typed = number["name"], number["range"], number["found"]
    elif hasattr(error.__cause__, "errors"):  # those of pydantic, which typer asks from 0.29 on
        first, option = error.__cause__.errors()[0], error.param
        name, limits, typed = max(option.opts, key=len), "", repr(first["input"])
        is_whole = first["type"].startswith("int_")
        if first["type"] in ("greater_than_equal", "less_than_equal"):
            is_whole = isinstance(option.max if option.min is None else option.min, int)
            limits = f"x>={option.min}" if option.max is None else f"{option.min}<=x<={option.max}"
            if option.min is None:
                limits = f"x<={option.max}"
            typed = str((int if is_whole else float)(first["input"]))
        elif not is_whole and first["type"] != "float_parsing":
            return ""
    else:
        return ""
    return f"{name} must be {'a whole number' if is_whole else 'a number'}{_limits(limits)}, not {typed}"


def _described(parameter: Any) -> str:
    """An option or argument as it is typed, with its help."""
    is_option = parameter.param_type_name == "option"
    shown = (parameter.metavar or ("" if is_option else str(parameter.name).upper())).removesuffix("...")
    name = f"{max(parameter.opts, key=len)} {shown}".rstrip() if is_option else shown
    help_line = str(getattr(parameter, "help", None) or "").split(";")[0]
    return f"{name} ({help_line})" if 0 < len(help_line) <= _LONGEST_HELP else name


def _limits(stated: str | None) -> str:
    """The range of click in words.

    >>> _limits("1<=x<=1000"), _limits("0.0<=x<=0.5"), _limits("x>=0"), _limits(None)
    (' from 1 to 1,000', ' from 0 to 0.5', ' of at least 0', '')
    """
    least, _, most = (stated or "").partition("<=x<=")
    if most:
        return f" from {float(least):,.10g} to {float(most):,.10g}"
    return f" of at least {stated[3:]}" if stated and stated.startswith("x>=") else f" ({stated})" if stated else ""


def _argument(context: Any, option: str) -> str | None:
    """The argument of the called command that has the name of an option, such as MODEL for --model."""
    parameters = context.command.params if context is not None else ()
    named = {str(each.name): each for each in parameters if each.param_type_name == "argument"}
    same = named.get(option.lstrip("-").replace("-", "_"), named.get("source") if option == "--model" else None)
    return None if same is None else str(same.metavar or same.name).upper()


def _options(context: Any) -> list[str]:
    """The options of the command that was called."""
    parameters = context.command.params if context is not None else ()
    options = [each for each in parameters if each.param_type_name == "option"]
    return [name for option in options for name in option.opts if name.startswith("--")]


def _nearest(name: str, known: list[str]) -> str:
    """The known option that was probably meant; empty if there is none."""
    name = name.replace("_", "-")
    meant = (*_MEANT.get(name, ()), *_FILES.get(name, ()))
    named = [option for option in (name, *meant) if option in known]
    close = [] if name in _FILES else difflib.get_close_matches(name, known, n=1, cutoff=_CLOSE)
    return (named or close or [""])[0]


def require_one_process(chosen: str | None, trains: Sequence[str]) -> None:
    """Refuses several processes for a command that does not train: each would do all of its work.

    Args:
        chosen: the command; None if none is named.
        trains: the commands that several processes may share.

    Raises:
        ConfigError: there are several.
    """
    require(
        chosen is None or chosen in trains or Rank.from_environment().count == 1,
        expected=f"one of the commands {', '.join(trains)} under torchrun",
        found=str(chosen),
        fix="start it without torchrun",
    )
