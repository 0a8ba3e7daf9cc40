"""What several commands share: options about what they print, values of options, checks, and lines of output.

All other options are the fields of requests, see `request_options.py`.
"""

import contextlib
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.errors import InputError, nearest_path
from bertsmith.base.core.progress import counted, visible
from bertsmith.base.core.requests import AS_IT_IS
from bertsmith.base.core.settings import require
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.downloads import local_copy
from bertsmith.base.storage.files import read_json, require_local

if TYPE_CHECKING:
    from bertsmith.models.heads.own_head import OwnHead

# What a terminal obeys and json.dumps leaves as it is: see `progress.visible`.
_JSON_KEEPS = re.compile("[\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

JsonOption = Annotated[bool, typer.Option("--json", help="one JSON object per line instead of text")]
ReplaceOutOption = Annotated[bool, typer.Option("--replace", help="overwrite the file of --out")]
# The parameters of commands that name a model; a command with one of them has the option --verify.
MODEL_PARAMETERS = ("model", "also", "rerank", "init", "teacher", "fill_with", "pair_model", "writer", "old", "new")
VERIFY = typer.Option("--verify", help="first compare every file of the model with its digest in bertsmith.json")


def on_this_machine(name: str, value: Any, treatment: str | None) -> Any:
    """The value of a parameter, with a local copy in place of an address where one is read.

    Args:
        treatment: `AS_IT_IS`, `COPIED` or None, which refuses the address of a `Path`.

    Raises:
        BertsmithError: an address is refused, or cannot be copied.
    """
    if isinstance(value, list):
        return [on_this_machine(name, item, treatment) for item in value]
    if treatment == AS_IT_IS or not isinstance(value, str | Path):
        return value
    if treatment is None:
        if isinstance(value, Path):
            require_local(value, f"a path for {name.replace('_', ' ')}")
        return value
    if address_of(value) is not None:
        return type(value)(local_copy(value))
    name_before, _, source = str(value).partition("=")  # of a server's model: NAME=DIR
    return value if address_of(source) is None else f"{name_before}={local_copy(source)}"


def verify_models(models: Iterable[Any]) -> None:
    """Compares the files of all models that a command was given with their digests.

    Raises:
        CheckpointError: a file differs, or a model has no digests.
    """
    from bertsmith.app.library.inspection import verify_model
    from bertsmith.app.library.loading import name_and_source

    for model in models:
        if isinstance(model, list):  # of a server, whose models may have names: NAME=DIR
            for named in model:
                verify_model(name_and_source(named)[1])
        elif model is not None:
            verify_model(model)


def own_head(location: str | None) -> "type[OwnHead] | None":
    """The class that --head names; None if the option was not given.

    Raises:
        ConfigError, InputError: there is no such class or file.
    """
    if location is None:
        return None
    from bertsmith.app.library.own_heads import head_from_file

    return head_from_file(location)


def require_inputs(models: Iterable[str], paths: Iterable[Path | str]) -> None:
    """Returns if models and files are there, as far as this machine knows.

    Args:
        models: each may have a name, as NAME=DIR.

    Raises:
        InputError: one is missing.
    """
    from bertsmith.models.checkpoints.hub import require_source

    for model in models:
        require_source(model if Path(model).exists() else os.path.expanduser(model.rpartition("=")[2]))
    for path in paths:
        if str(path) != "-" and not address_of(path) and not Path(path).exists():
            fix = nearest_path(Path(path)) or "check the path"
            raise InputError(expected=f"a file or folder at '{path}'", found="nothing there", fix=fix)


class _BeforeTorch:
    """A finder of modules that finds none, but calls a function before torch is imported for the first time."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check, self._is_done = check, False

    def find_spec(self, name: str, *_: Any) -> None:
        """Called for each module that is not imported yet."""
        if name == "torch" and not self._is_done:
            self._is_done = True
            self._check()


@contextlib.contextmanager
def before_torch(check: Callable[[], None]) -> Iterator[None]:
    """A context in which a check precedes the import of torch, which takes seconds; without that it is not called.

    What a command refuses sooner than that, it says sooner.
    """
    finder = _BeforeTorch(check)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def label_map(pairs: Sequence[str] | None) -> dict[str, str] | None:
    """The new names of labels from LABEL=NAME; the first `=` separates. None if the option was not given.

    >>> label_map(["1=Claim", "0=Not Claim"])
    {'1': 'Claim', '0': 'Not Claim'}

    Raises:
        ConfigError: a part is missing, or a label occurs twice.
    """
    if not pairs:
        return None
    names: dict[str, str] = {}
    for pair in pairs:
        label, equals, name = (part.strip() for part in pair.partition("="))
        require(
            bool(label and equals and name),
            expected="--map with LABEL=NAME",
            found=repr(pair),
            fix="write --map 1=Claim; quote a name with a space",
        )
        require(
            label not in names, expected="one name for each label of --map", found=f"{label!r} twice", fix="remove one"
        )
        names[label] = name
    return names


def class_weights(value: str) -> str | dict[str, float]:
    """The weights of labels from LABEL=W,LABEL=W; the name of a rule for them as it is.

    >>> class_weights("Spam=2, Not Spam=0.5"), class_weights("balanced")
    ({'Spam': 2.0, 'Not Spam': 0.5}, 'balanced')
    """
    pairs = [pair.strip() for pair in value.split(",")]
    option = "--class-weights with LABEL=W,LABEL=W, once for each label"
    return named_weights(pairs, option, "write --class-weights Spam=2,Ham=0.5") if "=" in value else value


def text_weights(pairs: Sequence[str]) -> dict[str, float]:
    """The weights by file or folder, from TEXT=W.

    >>> text_weights(["wiki=0.5", "a=b.txt=2"])
    {'wiki': 0.5, 'a=b.txt': 2.0}
    """
    return named_weights(pairs, "--weight with TEXT=W, once for each text", "write --weight my-text=2")


def named_weights(pairs: Sequence[str], expected: str, fix: str) -> dict[str, float]:
    """Weights by name, from NAME=W; the last `=` separates.

    Raises:
        ConfigError: a part is missing, or W is not a number.
    """
    weights: dict[str, float] = {}
    for pair in pairs:
        text, _, weight = pair.rpartition("=")
        try:
            number = float(weight)
        except ValueError:
            number = math.nan
        require(
            bool(text) and math.isfinite(number) and text not in weights,
            expected=expected,
            found=repr(pair),
            fix=fix,
        )
        weights[text] = number
    return weights


def vocabulary_size(config: Path) -> int:
    """The number of pieces of the model with a config.json."""
    from bertsmith.models.checkpoints.architectures import read_config

    return read_config(read_json(config)).vocab_size


def number_or_auto(value: str) -> int | None:
    """The value of --clusters; None for auto."""
    if not (value == "auto" or value.isdecimal()):
        raise Refused(f"expected a number or auto for --clusters; found {value!r}", "use one of the two")
    return None if value == "auto" else int(value)


def names(listed: str) -> list[str]:
    """The parts of a list with commas.

    >>> names("tf-idf, bert"), names("bert,"), names("")
    (['tf-idf', 'bert'], ['bert', ''], [])
    """
    return [part.strip() for part in listed.split(",")] if listed.strip() else []


def print_json(value: Any) -> None:
    """Writes `value` to stdout as one line of JSON: control characters as escapes, numbers that JSON lacks as null."""
    try:
        line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        from bertsmith.base.core.finite import without_nan

        line = json.dumps(without_nan(value), ensure_ascii=False, allow_nan=False)
    typer.echo(_JSON_KEEPS.sub(lambda match: f"\\u{ord(match[0]):04x}", line), color=True)


def say(*lines: str) -> None:
    """Writes lines to stdout, with control characters of names and texts as escapes; --json has them exactly."""
    for line in lines:
        # With color=True typer does not remove parts of the line that look like escapes.
        typer.echo(visible(line), color=True)


def show(report: Any, json: bool) -> None:
    """Writes a report to stdout: its `to_dict()` as one line of JSON, or its `lines()`."""
    if json:
        print_json(report.to_dict())
    else:
        say(*report.lines())


def note(line: str) -> None:
    """Writes a line about the work of a command to stderr; control characters are as in `say`."""
    typer.echo(visible(f"bertsmith: {line}"), err=True, color=True)


def note_cut(texts: int, tokens: int, unit: str = "text") -> None:
    """Writes to stderr how many texts were truncated, if any."""
    if texts:
        was = "was" if texts == 1 else "were"
        note(f"{counted(texts, unit)} {was} truncated, {counted(tokens, 'token')} in all")


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Writes rows to stdout in columns; numbers are right-aligned, with commas between thousands."""
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
        say("  ".join(cells).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if isinstance(value, float) else str(value)
