"""Commands for checkpoints: convert between formats, inspect, and list the published ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    VERIFY,
    JsonOption,
    given,
    print_json,
    print_table,
    say,
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SRC",
        help="model folder, run folder, Google checkpoint (folder, prefix or file), ELMo of AllenNLP "
        "(folder) or hub id",
    ),
]
UnknownOption = Annotated[bool, typer.Option("--allow-unknown", help="skip tensors with unknown names")]


def convert_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `convert`; labelled files are read as in `evaluate`."""
    from bertsmith.tasks.specs.settings import ColumnSettings

    return (ColumnSettings,)


def convert(
    source: SourceArgument,
    destination: Annotated[Path, typer.Argument(metavar="DST", help="a folder that does not exist yet")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="huggingface, google or onnx")] = "huggingface",
    int8: Annotated[
        bool, typer.Option("--int8", help="with --to onnx: also write model_int8.onnx, with 8-bit weights")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="labelled examples of the model's task to compare on; texts, one per line, for a model without a task "
            "[built-in sentences]",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="with --data: format of the file [that of the model's task]"),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="maximum difference of outputs, in standard deviations [0.0001]; with --int8: maximum loss of score "
            "on FILE [0.004], without FILE maximum mean difference of outputs [0.2]",
        ),
    ] = None,
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="keep or remove upper case [as SRC specifies]", show_default=False),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option("--rules", metavar="NAME", help="text rules huggingface or google, with --cased or --uncased"),
    ] = None,
    allow_unknown: UnknownOption = False,
    verify: Annotated[bool, VERIFY] = False,
    replace: Annotated[bool, typer.Option("--replace", help="overwrite DST")] = False,
    **values: Any,
) -> None:
    """Convert a model to another format, after checking that its outputs stay the same.

    The weights are read back and must be equal bit for bit. Then the converted model and the source run on the same
    examples: in onnxruntime, in transformers (if installed), or as read back from Google's format. If outputs differ by
    more than the limit, or the score on labelled examples drops by more than 0.001 (one changed answer is tolerated),
    DST is not written and the exit code is 1. DST/export.json records the comparison.
    """
    from bertsmith.app.library.formats import convert as write_converted
    from bertsmith.app.library.inspection import verify_model

    if verify:
        verify_model(source)
    converted = write_converted(
        source,
        destination,
        to=to,
        int8=int8,
        data=data,
        task=task,
        limit=limit,
        cased=cased,
        rules=rules,
        allow_unknown=allow_unknown,
        replace=replace,
        **given(values),
    )
    for line in converted.lines():
        say(line)


def inspect(
    source: SourceArgument,
    names: Annotated[bool, typer.Option("--names", help="list every tensor: mapped, skipped or unknown")] = False,
    json: JsonOption = False,
) -> None:
    """Print what a model is, and whether its files are those that were written; nothing is written.

    Architecture, sizes, task, labels, the beginning of its card, number formats, layers that int8 keeps in higher
    precision, files, and how its tensors map to the model. Every file is compared with its digest in bertsmith.json;
    if one differs, the exit code is 1.
    """
    from bertsmith.app.library.inspection import inspect_model

    report = inspect_model(source)
    if json:
        print_json(report.to_dict())
    else:
        for line in report.lines():
            say(line)
    if names and not json:
        tensors = report.tensors
        rows = [(name, "mapped", ours) for name, ours in tensors.mapped.items()]
        rows += [(name, "skipped", reason) for name, reason in tensors.skipped.items()]
        rows += [(name, "unknown", "-") for name in tensors.unknown]
        print_table(("tensor", "status", "name in bertsmith, or reason"), sorted(rows))
    report.require_unaltered()


def models(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR...", help="folders to search for them")] = None,
    json: JsonOption = False,
) -> None:
    """List the published checkpoints, and which of them are on this machine; nothing is downloaded."""
    from bertsmith.models.checkpoints.published_models import PUBLISHED_MODELS, local_copies

    copies = local_copies(*(folders or []))
    if json:
        for model in PUBLISHED_MODELS:
            place = copies.get(model.name)
            values = {"name": model.name, "hub_id": model.hub_id, "parameters": model.num_parameters}
            values |= {"cased": model.cased, "languages": model.languages, "path": place and str(place)}
            print_json(values)
        return
    print_table(
        ("hub id", "parameters", "vocabulary", "casing", "languages", "on this machine"),
        [
            (
                model.hub_id,
                model.num_parameters,
                model.config.vocab_size,
                "cased" if model.cased else "uncased",
                model.languages,
                copies.get(model.name, "-"),
            )
            for model in PUBLISHED_MODELS
        ],
    )
