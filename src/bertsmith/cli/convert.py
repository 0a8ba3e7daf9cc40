"""Commands on checkpoints: from one format to another, what is inside one, which ones were published."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.cli.finetuning import evaluate_settings
from bertsmith.cli.options import JsonOption, given, print_json, print_table

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SRC", help="model folder, run folder, Google checkpoint (folder, prefix or file) or hub id"
    ),
]
UnknownOption = Annotated[bool, typer.Option("--allow-unknown", help="leave out tensors whose names mean nothing here")]


def convert_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `convert`: a labelled file is read as `evaluate` reads it."""
    return evaluate_settings()


def convert(
    source: SourceArgument,
    destination: Annotated[Path, typer.Argument(metavar="DST", help="a folder that does not exist yet")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="huggingface, google or onnx")],
    int8: Annotated[
        bool, typer.Option("--int8", help="with --to onnx: write model_int8.onnx too, with weights of 8 bits")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="labelled examples of the model's task to compare on; texts, one a line, for a model without a task "
            "[sentences that come with bertsmith]",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", help="with --data: the form of the file [that of the model's task]"),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="most that outputs may differ, in units of their spread [0.0001]; with --int8: most that the score "
            "on FILE may lose [0.004], without FILE the mean difference of outputs [0.2]",
        ),
    ] = None,
    cased: Annotated[
        bool | None,
        typer.Option("--cased/--uncased", help="whether text keeps its capitals [what SRC says]", show_default=False),
    ] = None,
    allow_unknown: UnknownOption = False,
    replace: Annotated[bool, typer.Option("--replace", help="write over DST")] = False,
    **values: Any,
) -> None:
    """Write a model in another format, if it says there what it says here.

    The weights are read back and are equal bit for bit. The model is then run on examples beside the source: in
    onnxruntime, in transformers (where it is installed), or as it was read back from Google's format. If outputs differ
    by more than the limit, or the score on labelled examples falls by more than 0.001 (one changed answer is let pass),
    DST is not written and the exit code is 1. DST/export.json tells what was compared.
    """
    from bertsmith.library.formats import convert as write_converted

    converted = write_converted(
        source,
        destination,
        to=to,
        int8=int8,
        data=data,
        task=task,
        limit=limit,
        cased=cased,
        allow_unknown=allow_unknown,
        replace=replace,
        **given(values),
    )
    for line in converted.lines():
        typer.echo(line)


def inspect(
    source: SourceArgument,
    names: Annotated[bool, typer.Option("--names", help="list every tensor: mapped, skipped or unknown")] = False,
    json: JsonOption = False,
) -> None:
    """Print what a checkpoint holds, and what becomes of each of its tensors here; nothing is written."""
    from bertsmith.library.formats import inspect as inspect_checkpoint

    report = inspect_checkpoint(source)
    if json:
        print_json(report.to_dict())
        return
    for line in report.lines():
        typer.echo(line)
    if names:
        rows = [(name, "mapped", ours) for name, ours in report.mapped.items()]
        rows += [(name, "skipped", reason) for name, reason in report.skipped.items()]
        rows += [(name, "unknown", "-") for name in report.unknown]
        print_table(("tensor", "is", "name here, or reason"), sorted(rows))


def models(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="DIR", help="folders to look for them")] = None,
    json: JsonOption = False,
) -> None:
    """Print the published checkpoints, and which of them lie on this machine; nothing is fetched."""
    from bertsmith.checkpoints.published_models import CATALOGUE, local_copies

    copies = local_copies(*(folders or []))
    if json:
        for model in CATALOGUE:
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
            for model in CATALOGUE
        ],
    )
