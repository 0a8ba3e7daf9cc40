"""Writes docs/commands.md from the program itself; with --check, says whether the page is up to date.

The example of every command is a console block, so `make docs` runs it, in the order of the page.
"""

import os
import sys
from pathlib import Path

# The help is laid out for the width of the terminal; the page has one width.
os.environ["COLUMNS"] = "100"
os.environ["NO_COLOR"] = "1"

from typer.testing import CliRunner

from bertsmith.cli.app import COMMANDS, application

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
HEAD = """# Commands

This page is written by `tools/command_reference.py` from the program; `make check` fails when it is out of date, and
`make docs` runs the examples, in this order, in a folder that holds a small `my-text/`.

Everywhere: results go to stdout, progress and warnings to stderr. Exit code 0 means done, 1 a mistake that one line
explains (what was expected, what was found, what to do), 2 wrong usage, 130 stopped by Ctrl-C.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for command in COMMANDS:
        result = CliRunner().invoke(
            application(command.name), [command.name, "--help"], prog_name="bertsmith", catch_exceptions=False
        )
        if result.exit_code:
            sys.exit(f"bertsmith {command.name} --help failed:\n{result.output}")
        help_text = "\n".join(line.rstrip() for line in result.output.split("\n  Example:")[0].strip().splitlines())
        mark = f"<!-- not run: {command.not_run} -->\n" if command.not_run else ""
        parts.append(
            f"## bertsmith {command.name}\n\n{mark}```console\n$ {command.example}\n```\n\n```text\n{help_text}\n```\n"
        )
    return "\n".join(parts)


def main() -> None:
    """Writes or checks the page."""
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("expected docs/commands.md as the program has it; found another text; run make format")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
