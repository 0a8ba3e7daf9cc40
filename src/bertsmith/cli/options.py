"""What several commands share: common options, and options made from settings classes."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from bertsmith.settings import help_lines

Settings = TypeVar("Settings")
Function = TypeVar("Function", bound=Callable[..., None])

ModelOption = Annotated[str, typer.Option("--model", metavar="DIR", help="model folder, checkpoint or hub id")]
CasedOption = Annotated[bool, typer.Option("--cased", help="keep capitals and accents")]
WorkersOption = Annotated[int | None, typer.Option(help="processes that work side by side; default: one a core")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object a line instead of text")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]
PrecisionOption = Annotated[str, typer.Option(help="auto, fp32, bf16, fp16 or fp64")]
TextArguments = Annotated[
    list[Path],
    typer.Argument(metavar="TEXT...", help=".txt, .jsonl or .parquet files (also .gz, .zst), folders, or - for stdin"),
]


def settings_options(*classes: type, skip: Sequence[str] = ()) -> Callable[[Function], Function]:
    """A decorator that gives a command one option for each field of the settings classes.

    The command takes them as `**values`; `settings_from` makes the settings objects of them. Name, type, default
    and help of an option are those of the field. A field that two classes share is one option for both.

    Args:
        classes: settings classes, see `bertsmith.settings`.
        skip: fields that are no options, because the command sets them itself.
    """

    def decorate(command: Function) -> Function:
        own = [
            parameter
            for parameter in inspect.signature(command).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        taken = {parameter.name for parameter in own} | set(skip)
        made = {}
        for settings in classes:
            hints, helps = get_type_hints(settings), help_lines(settings)
            for field in dataclasses.fields(settings):
                if field.name not in taken and field.name not in made:
                    made[field.name] = inspect.Parameter(
                        field.name,
                        inspect.Parameter.KEYWORD_ONLY,
                        # None means: not given; the default stays where it is declared.
                        default=None,
                        annotation=Annotated[hints[field.name] | None, _option(field, helps[field.name])],
                    )
        command.__signature__ = inspect.Signature([*own, *made.values()])  # type: ignore[attr-defined]
        return command

    return decorate


def settings_from(settings: type[Settings], values: Mapping[str, Any], **fixed: Any) -> Settings:
    """A settings object from the options that were given; what was not given keeps its default.

    Raises:
        ConfigError: a value is impossible.
    """
    names = set(help_lines(settings))
    given = {name: value for name, value in values.items() if name in names and value is not None}
    return settings(**{**given, **fixed})


def print_json(value: Any) -> None:
    """Writes `value` to stdout as one line of JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes rows to stdout in columns; numbers stand at the right, with commas between thousands."""
    lines = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [
        all(isinstance(row[column], int | float) or row[column] is None for row in rows)
        for column in range(len(header))
    ]
    for line in lines:
        cells = [
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ]
        typer.echo("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _option(field: "dataclasses.Field[Any]", help_line: str) -> Any:
    flag = "--" + field.name.replace("_", "-")
    default = field.default
    if isinstance(default, bool):
        return typer.Option(f"{flag}/--no-{flag[2:]}", help=f"{help_line} [{'yes' if default else 'no'}]")
    shown = "" if default is None or default is dataclasses.MISSING else f" [{default}]"
    return typer.Option(flag, help=help_line + shown)
