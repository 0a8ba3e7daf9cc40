"""Requests that name one input: `COMMAND INPUT --out RUN`, which `COMMAND --resume --out RUN` resumes without it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from bertsmith.base.core.requests import Request, require_path
from bertsmith.base.core.settings import from_dict, help_field, require, to_dict
from bertsmith.training.loop.settings import BUDGETS, TrainSettings

Asked = TypeVar("Asked", bound=Request)


def input_field(name: str, help: str, resumed: str) -> Any:
    """The field of the input, a file.

    Args:
        resumed: what it is without one.
    """
    library = f"{help}; None with `resume`: {resumed} of the run, with its settings"
    return help_field(None, help, library=library, flag=name.upper(), path=name, kind=Path)


def out_field() -> Any:
    """The field of the run folder."""
    about = "the run folder; the model is saved in RUN/model/"
    return help_field("", about, metavar="RUN", path="the run folder", kind=Path, required=True)


def resume_field() -> Any:
    """The field that resumes a run."""
    return help_field(False, "resume RUN with its files and settings")


def require_input(request: Any, name: str, command: str) -> None:
    """Checks that there is a run folder, and an input or nothing but a run to resume.

    Args:
        name: the field of the input.
    """
    require_path(request.out, "the run folder")
    if getattr(request, name) is None:
        fix = f"name it: {command} {name.upper()}"
        require(request.resume, expected=f"a file of {name}", found="none", fix=fix)
        require(
            request.given <= {name, "out", "resume"},
            expected="--resume with --out alone",
            found="other arguments",
            fix="leave them out; RUN has its own",
        )


def training_of(request: Request, steps: int, evaluations: int = 0) -> TrainSettings:
    """The settings of a training of that many steps: what was given, and for the rest what is usual in the command.

    Args:
        evaluations: how often the model is evaluated, unless that was given.
    """
    values, usual = request.values(TrainSettings), dict(request.usual)
    if values.keys().isdisjoint(BUDGETS):
        usual["steps"] = max(2, steps)
    if evaluations and (budget := values.get("steps", usual.get("steps"))):
        usual["evaluate_every"] = max(1, int(budget) // evaluations)
    return TrainSettings(**{**usual, **values})


def request_of_run(
    kind: type[Asked],
    run: Path | str,
    *,
    name: str,
    task: str,
    command: str,
    settings: type[Any],
    also: Sequence[str] = (),
) -> Asked:
    """The request that resumes a run, with its files and settings.

    Args:
        name: the field of the input.
        task: what such a run records.
        settings: the part of the request that it records next to `TrainSettings`.
        also: further fields that it records under their names.

    Raises:
        RunError: there is no run in the folder, or one of another command.
    """
    from bertsmith.training.loop.run_folder import RunFolder

    record, where = RunFolder.open(Path(run)).record["settings"], f"{run}/settings.json"
    require(
        record.get("task") == task,
        expected=f"a run of {command} in '{run}'",
        found=f"task {record.get('task')!r}",
        fix="name another folder",
    )
    run_settings = from_dict(settings, record.get("run", {}), where)
    training = from_dict(TrainSettings, record["train"], where)
    files = {name: str(record.get(name, ""))} | {field: record.get(field) for field in also}
    files |= {"dev": record["dev"]} if "dev" in record else {}
    return kind(**files, out=run, resume=True, **to_dict(run_settings), **to_dict(training))
