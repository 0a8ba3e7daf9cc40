"""What several commands share: common options, and options made from settings classes."""

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from bertsmith.errors import InputError
from bertsmith.files import require_file_place, require_outside
from bertsmith.settings import help_lines

if TYPE_CHECKING:
    from bertsmith.model.heads import OwnHead

Settings = TypeVar("Settings")

ModelOption = Annotated[str, typer.Option("--model", metavar="DIR", help="model folder, checkpoint or hub id")]
CasedOption = Annotated[bool, typer.Option("--cased", help="keep capitals and accents")]
WorkersOption = Annotated[int | None, typer.Option(help="processes that work side by side; default: one a core")]
JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object a line instead of text")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N")]
PrecisionOption = Annotated[str, typer.Option(help="auto, fp32, bf16, fp16, fp64 or int8 (processor only)")]
HeadOption = Annotated[
    str | None,
    typer.Option(
        "--head",
        metavar="FILE:CLASS",
        help="your own head: a Python file, which is run, and a subclass of bertsmith.OwnHead in it",
    ),
]
TextArguments = Annotated[
    list[Path],
    typer.Argument(metavar="TEXT", help=".txt, .jsonl or .parquet files (also .gz, .zst), folders, or - for stdin"),
]


def with_settings(
    command: Callable[..., None], classes: Sequence[type], fixed: Sequence[str] = ()
) -> Callable[..., None]:
    """The command with one option for each field of the settings classes.

    The command takes them as `**values`; `settings_from` makes the settings objects of them. Name, type, default
    and help of an option are those of the field. A field that several classes have is one option for all of them.

    Args:
        command: a function; its own parameters stay as they are.
        classes: settings classes, see `bertsmith.settings`; with none the command just loses its `**values`.
        fixed: fields that are no options, because the command sets them itself.
    """

    @functools.wraps(command)
    def wrapper(*arguments: Any, **values: Any) -> None:
        command(*arguments, **values)

    own = [
        parameter
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    taken = {parameter.name for parameter in own} | set(fixed)
    defaults: dict[str, list[Any]] = {}
    for settings in classes:
        for field in dataclasses.fields(settings):
            defaults.setdefault(field.name, []).append(field.default)
    made = {}
    for settings in classes:
        hints, helps = get_type_hints(settings), help_lines(settings)
        for name in helps:
            if name not in taken and name not in made:
                option = _option(name, helps[name], defaults[name])
                made[name] = inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    # None means: not given; the default stays where it is declared.
                    default=None,
                    annotation=Annotated[hints[name] | None, option],
                )
    wrapper.__signature__ = inspect.Signature([*own, *made.values()])  # type: ignore[attr-defined]
    return wrapper


def settings_from(settings: type[Settings], values: Mapping[str, Any], base: Settings | None = None) -> Settings:
    """A settings object from the options that were given; the others are those of `base`, or keep their defaults.

    Raises:
        ConfigError: a value is impossible.
    """
    names = help_lines(settings)
    before = {} if base is None else {name: getattr(base, name) for name in names}
    given = {name: value for name, value in values.items() if name in names and value is not None}
    return settings(**{**before, **given})


def own_head(place: str | None) -> "type[OwnHead] | None":
    """The class that --head names; None where it was not given.

    Raises:
        ConfigError, InputError: there is no such class or file.
    """
    if place is None:
        return None
    from bertsmith.library.own_heads import head_from_file

    return head_from_file(place)


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


def require_new(path: Path, others: Sequence[Path], replace: bool) -> None:
    """Refuses a place that another file of the command has, or that is taken and may not be replaced.

    Raises:
        InputError: the message names it.
    """
    require_outside(path, others, fix="name another file")
    require_file_place(path)
    if path.exists() and not replace:
        raise InputError(
            expected=f"no file at '{path}'", found="one", fix="name another file, or give --replace to write over it"
        )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _option(name: str, help_line: str, defaults: Sequence[Any]) -> Any:
    flag = "--" + name.replace("_", "-")
    default = defaults[0] if all(one == defaults[0] for one in defaults) else None
    if isinstance(default, bool):
        return typer.Option(f"{flag}/--no-{flag[2:]}", help=f"{help_line} [{'yes' if default else 'no'}]")
    shown = "" if default is None or default is dataclasses.MISSING else f" [{default}]"
    return typer.Option(flag, help=help_line + shown)
