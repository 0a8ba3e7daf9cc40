"""The command-line application: how a command is found and run, and error handling.

Exit codes: 0 success; 1 an error that the user can fix, explained in one line; 2 wrong usage; 130 stopped by Ctrl-C.
"""

import errno
import os
import sys
from collections.abc import MutableMapping
from typing import Any, NoReturn

import typer

from bertsmith.app.cli.commands import COMMANDS
from bertsmith.app.cli.help import (
    AllCommands,
    Commands,
    FullHelpCommand,
    ShortHelpCommand,
    with_one_name,
    without_all,
)
from bertsmith.app.cli.options import note
from bertsmith.app.cli.request_options import REQUESTS, with_request
from bertsmith.app.cli.usage import UsageError, require_one_process, usage_line
from bertsmith.base.core.errors import BertsmithError
from bertsmith.base.core.version import __version__
from bertsmith.base.storage.remote import require_host

# Rounds that a waiting thread of torch spins before it sleeps: about 25 microseconds, as long as the pauses between the
# products of a forward pass. benchmarks/busy_machine.py --spins compares other values.
SPINS = "1000"


def application(chosen: str | None = None, *, shows_all: bool = False) -> typer.Typer:
    """The command-line application.

    Args:
        chosen: the only command that is sure to have the options from its settings.
        shows_all: whether the help shows every command and option.
    """
    application = typer.Typer(
        cls=AllCommands if shows_all else Commands,
        help="BERT from raw text to a served model: learn a vocabulary, build a corpus, pre-train, fine-tune, compute "
        "vectors, search, export and serve.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    for command in COMMANDS:
        function = command.function
        if command.name in REQUESTS:
            function = with_request(function, REQUESTS[command.name] if command.name == chosen else None)
        # The control character \b keeps the example from being wrapped.
        shape = FullHelpCommand if shows_all else ShortHelpCommand
        application.command(command.name, cls=shape, epilog=f"\b\nExample:\n  {command.example}")(function)

    @application.callback(invoke_without_command=True)
    def options(
        context: typer.Context,
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
        show_completion: str | None = typer.Option(
            None, metavar="SHELL", help="Print a completion script for bash, zsh or fish and exit."
        ),
    ) -> None:
        if version:
            typer.echo(__version__)
            raise typer.Exit
        if show_completion is not None:
            from bertsmith.app.cli.completion import script

            typer.echo(
                script(show_completion, {command.name: full_command(command.name) for command in COMMANDS}), nl=False
            )
            raise typer.Exit

    return application


def full_command(name: str) -> Any:
    """The command of click with this name and all of its options."""
    group: Any = typer.main.get_command(application(name, shows_all=True))
    return group.commands[name]


READER_GONE = 141  # 128 and the number of SIGPIPE, as shells report it


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Limits how long the threads of torch spin while they wait for each other; a setting of the user is kept.

    The OpenMP runtime reads it when torch is imported. By default its threads spin for milliseconds at the end of every
    matrix product, which on a busy machine takes the processor from the thread they wait for (docs/decisions/0018).
    """
    if not any(name in environment for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")):
        environment["GOMP_SPINCOUNT"] = SPINS


def main() -> None:
    """Runs the command line of this process and exits with its code."""
    wait_briefly(os.environ)
    arguments, shows_all = without_all(sys.argv[1:])
    words = [argument for argument in arguments if not argument.startswith("-")]
    chosen = next(iter(with_one_name(words, [command.name for command in COMMANDS])), None)
    called = next((command for command in COMMANDS if command.name == chosen), None)
    try:
        for argument in sys.argv[1:]:
            require_host(argument.rpartition("=")[2])  # what is wrong with one cannot be seen in a `Path`
        require_one_process(chosen, [command.name for command in COMMANDS if command.trains])
        code = application(chosen, shows_all=shows_all)(arguments, prog_name="bertsmith", standalone_mode=False)
    except SystemExit:
        # What typer leaves behind when the reader of stdout has closed it, as in `| head -1`; its exit code is 1.
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            sys.exit(READER_GONE)
        raise
    except BertsmithError as error:
        _fail(str(error))
    except ModuleNotFoundError as error:
        # An installation for ONNX folders alone lacks torch, and much else that only training and reports need.
        package = (error.name or "").partition(".")[0]
        if package in ("", "bertsmith"):
            raise
        _fail(
            f"this command needs the package {package}, which is not installed; install bertsmith with all its "
            "dependencies (pip install . in the checkout); "
            "requirements/light.txt is enough for predict, embed, fill and serve with ONNX folders"
        )
    except OSError as error:
        resumes = called is not None and called.resumes
        _fail(_system_error(error, resumes=resumes))
    except ValueError as error:
        # Python's error for a path with NUL, which a damaged file may name; any other one is a mistake of ours.
        if "embedded null" not in str(error):
            raise
        _fail("expected names of files without a NUL character; found one; restore the file that has it")
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(str(error), err=True)  # the help
            sys.exit(2)
        _fail(usage_line(error, called.example, called.misplaced) if called else usage_line(error), 2)
    sys.exit(code or 0)


def _system_error(error: OSError, *, resumes: bool) -> str:
    """One line about an error of the operating system, in a command that has --resume or not."""
    file = f"'{error.filename}'" if error.filename else "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        again = "the same command again" + (", with --resume if its output has begun" if resumes else "")
        return f"expected space on the disk; found none left for {file}; free some and run {again}"
    reason = error.strerror or str(error) or type(error).__name__
    return f"expected to read or write {file}; found: {reason}; check the path, its permissions and the disk"


def _fail(line: str, code: int = 1) -> NoReturn:
    sys.stdout.flush()
    note(line)
    sys.exit(code)
