"""Commands that write vectors of texts, of words and of pieces, look at them and mend them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli.options import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    print_json,
    print_table,
    require_new,
)
from bertsmith.progress import counted
from bertsmith.settings import require

if TYPE_CHECKING:
    from bertsmith.vectors.jobs import VectorSummary

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="a text a line; or .csv, .tsv, .jsonl, .parquet (all also .gz, .zst); or - for stdin"
    ),
]
OutOption = Annotated[Path, typer.Option(metavar="X", help="the file to write, .npy or .parquet")]
ColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="column of a table with the texts [found]; with -, of JSON lines")
]
LayersOption = Annotated[
    str,
    typer.Option(
        help="last, second-to-last, sum-last-4, concat-last-4, sum-all, embeddings, or numbers such as -1,-2 "
        "(0: embeddings, 1: first layer, -1: last), whose vectors stand side by side"
    ),
]
HalfOption = Annotated[bool, typer.Option("--float16", help="numbers of half the size")]
LengthOption = Annotated[int | None, typer.Option(help="most tokens of a row [what the model reads]")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="go on with X; give the same options again")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="write over X, or what was left of it")]


def embed(
    file: FileArgument,
    model: ModelOption,
    out: OutOption,
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls, pooler or max [what the folder says, else mean]")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="vectors of length 1 [what the folder says]")
    ] = None,
    layers: LayersOption = "last",
    max_length: LengthOption = None,
    column: ColumnOption = None,
    float16: HalfOption = False,
    text: Annotated[bool, typer.Option("--text", help="in a .parquet file, put the texts beside the vectors")] = False,
    resume: ResumeOption = False,
    replace: ReplaceOption = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Write one vector for each line of a file, in their order.

    A folder of sentence-transformers is read as it says itself. Row i is line i, also where a line is empty. Equal
    lines among 2,048 that follow one another are computed once. X.json keeps what the vectors are made of. --resume
    goes on after Ctrl-C, a crash or a full disk, with the same bytes in the end.
    """
    from bertsmith.library.vector_files import embed_file

    summary = embed_file(
        file,
        model,
        out,
        pooling=pooling,
        normalize=normalize,
        layers=layers,
        max_length=max_length,
        column=column,
        float16=float16,
        text=text,
        resume=resume,
        replace=replace,
        device=device,
        precision=precision,
    )
    _show(summary, json)


def features(
    file: FileArgument,
    model: ModelOption,
    out: OutOption,
    layers: LayersOption = "last",
    words: Annotated[
        str, typer.Option(help="of a word: first, the vector of its first piece, or mean, of all")
    ] = "first",
    pieces: Annotated[bool, typer.Option("--pieces", help="pieces instead of words")] = False,
    float16: HalfOption = False,
    max_length: LengthOption = None,
    column: ColumnOption = None,
    resume: ResumeOption = False,
    replace: ReplaceOption = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Write a vector for each word or piece of a file, with its line (from 0) and its characters.

    A .parquet file has them in columns. With X.npy they stand in X.tokens.jsonl, row for row. Long lines are read in
    windows that overlap, so that no word is lost. Equal lines that are worked on together, of 512 that follow one
    another, are computed once. --resume goes on after Ctrl-C, a crash or a full disk, with the same bytes in the end.
    """
    from bertsmith.library.vector_files import embed_words_of_file

    require(words in ("first", "mean"), expected="--words first or mean", found=repr(words), fix="choose one")
    summary = embed_words_of_file(
        file,
        model,
        out,
        unit="pieces" if pieces else words,
        layers=layers,
        max_length=max_length,
        column=column,
        float16=float16,
        resume=resume,
        replace=replace,
        device=device,
        precision=precision,
    )
    _show(summary, json)


def vectors(
    source: Annotated[
        Path, typer.Argument(metavar="X", help="vectors, one a row, as `embed` writes them, .npy or .parquet")
    ],
    center: Annotated[bool, typer.Option("--center", help="take the mean vector away")] = False,
    remove_top: Annotated[
        int, typer.Option(metavar="N", help="take the mean and the N directions of the largest variance away")
    ] = 0,
    whiten: Annotated[bool, typer.Option("--whiten", help="make all directions equally wide and uncorrelated")] = False,
    dimensions: Annotated[int | None, typer.Option(metavar="K", help="with --whiten: keep K dimensions")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="scale each vector to length 1")] = False,
    fit_on: Annotated[Path | None, typer.Option(metavar="Z", help="fit the changes on these vectors [X]")] = None,
    changes: Annotated[Path | None, typer.Option(metavar="FILE", help="make changes that were saved")] = None,
    save_changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="keep the changes, for other vectors (.safetensors)")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="Y.npy", help="where the changed vectors go")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="write over what is there already")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="draw the cosines of random pairs: .png, .svg or .html")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say how vectors lie in their space, and mend what makes them hard to compare.

    Changes are made in the order of the options. Removing directions and whitening take the mean away too.
    """
    from bertsmith.library.vector_space import change_vectors
    from bertsmith.reports.pictures import require_picture
    from bertsmith.vectors.changes import ChangeSettings

    settings = ChangeSettings(
        center=center, remove_top=remove_top, whiten=whiten, dimensions=dimensions, normalize=normalize
    )
    if changes is not None and (not settings.is_nothing or fit_on is not None):
        raise typer.BadParameter("--changes names changes that were saved; leave the others out")
    if changes is None and settings.is_nothing and (out is not None or save_changes is not None or fit_on is not None):
        raise typer.BadParameter("name a change, such as --center or --whiten")
    if picture is not None:
        require_picture(picture)
    read = [one for one in (source, fit_on, changes) if one is not None]
    written = [one for one in (out, save_changes, picture) if one is not None]
    for number, one in enumerate(written):
        require_new(one, [*read, *written[:number]], replace)
    found = change_vectors(source, settings, fit_on=fit_on, changes=changes, out=out, save_changes=save_changes)
    if json:
        print_json(found.to_dict())
    else:
        print_table(("", "vectors") if found.after is None else ("", "before", "after"), found.rows())
        for line in found.lines():
            typer.echo(line)
    if picture is not None:
        found.draw(picture)


def _show(summary: "VectorSummary", json: bool) -> None:
    for note in summary.notes:
        typer.echo(f"bertsmith: {note}", err=True)
    if json:
        print_json(summary.to_dict())
        return
    rows, texts = counted(summary.rows, "vector"), counted(summary.texts, "text")
    typer.echo(f"{summary.out}: {rows} of {counted(summary.width, 'number')}, of {texts}")
