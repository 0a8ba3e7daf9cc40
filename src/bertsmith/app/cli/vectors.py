"""Commands that compute vectors of texts, words and pieces, and inspect and correct them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertsmith.app.cli.options import (
    DeviceOption,
    EngineOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    ProductsOption,
    given,
    note,
    print_json,
    print_table,
    say,
)
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import AS_IT_IS
from bertsmith.base.core.settings import require
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.outputs import PICTURES, VECTOR_CHANGES, VECTORS, require_output
from bertsmith.base.storage.uploads import staged

if TYPE_CHECKING:
    from bertsmith.inference.vectors.jobs import VectorSummary

FileArgument = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="one text per line; or .csv, .tsv, .jsonl, .parquet (all also .gz, .zst); or - for stdin"
    ),
]
OutOption = Annotated[Path, typer.Option(metavar="X", help="the file to write, .npy or .parquet"), AS_IT_IS]
ColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="column of a table with the texts [detected]; with -, of JSON lines")
]
LayersOption = Annotated[
    str,
    typer.Option(
        help="last, second-to-last, sum-last-4, concat-last-4, sum-all, sum-with-embeddings, embeddings, or "
        "numbers such as -1,-2 (0: embeddings, 1: first layer, -1: last), whose vectors are concatenated"
    ),
]
HalfOption = Annotated[bool, typer.Option("--float16", help="write float16 instead of float32")]
LengthOption = Annotated[int | None, typer.Option(help="maximum tokens per row [the model's limit]")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="resume X; give the same options again")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="overwrite X, or an unfinished X")]


def embed(
    file: FileArgument,
    model: ModelOption,
    out: OutOption,
    pooling: Annotated[
        str | None, typer.Option(help="mean, cls, pooler or max [the folder's setting, else mean]")
    ] = None,
    normalize: Annotated[
        bool | None, typer.Option("--normalize/--no-normalize", help="scale vectors to length 1 [the folder's setting]")
    ] = None,
    layers: LayersOption = "last",
    max_length: LengthOption = None,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="NAME|none", help="prompt of the folder, such as query or document [its default]"),
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="keep the first K numbers of each vector [all]")
    ] = None,
    column: ColumnOption = None,
    float16: HalfOption = False,
    text: Annotated[bool, typer.Option("--text", help="add the texts to a .parquet file, next to the vectors")] = False,
    engine: EngineOption = "local",
    resume: ResumeOption = False,
    replace: ReplaceOption = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Write one vector per line of a file, in order.

    A sentence-transformers folder keeps its own settings. Row i is line i, even if the line is empty. Equal lines
    within 2,048 consecutive ones are computed once. X.json records how the vectors were made. --resume continues after
    Ctrl-C, a crash or a full disk; the result is byte-identical. FILE and X may be addresses such as s3://bucket/x.npy.
    """
    from bertsmith.app.library.vector_files import embed_file

    with staged(out, replace=replace) as place:
        summary = embed_file(
            file,
            model,
            place,
            pooling=pooling,
            normalize=normalize,
            layers=layers,
            max_length=max_length,
            prompt=prompt,
            dimensions=dimensions,
            column=column,
            float16=float16,
            text=text,
            resume=resume,
            replace=replace,
            device=device,
            precision=precision,
            products=products,
            engine=engine,
            **given(values),
        )
    _show(summary, address_of(out), json)


def features(
    file: FileArgument,
    model: ModelOption,
    out: Annotated[Path, typer.Option(metavar="X", help="the file to write, .npy, .parquet or .jsonl"), AS_IT_IS],
    layers: LayersOption = "last",
    words: Annotated[
        str, typer.Option(help="vector of a word: first (that of its first piece) or mean (of all its pieces)")
    ] = "first",
    pieces: Annotated[bool, typer.Option("--pieces", help="one vector per piece instead of per word")] = False,
    float16: HalfOption = False,
    max_length: LengthOption = None,
    column: ColumnOption = None,
    engine: EngineOption = "local",
    resume: ResumeOption = False,
    replace: ReplaceOption = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Write one vector per word or piece of a file, with its line (from 0) and its character offsets.

    A .parquet file has lines and offsets in columns; with X.npy they go to X.tokens.jsonl, row by row. Long lines are
    read in overlapping windows, so no word is lost. Equal lines in the same batch, of 512 consecutive lines, are
    computed once. --resume continues after Ctrl-C, a crash or a full disk; the result is byte-identical.

    X.jsonl has the format of the original extract_features.py: for each line all pieces with [CLS] and [SEP], and their
    vectors in each of the --layers, counted from the end (-1). A line "A ||| B" is a pair. Long lines are truncated.
    """
    from bertsmith.app.library.vector_files import embed_words_of_file

    require(words in ("first", "mean"), expected="--words first or mean", found=repr(words), fix="choose one")
    with staged(out, replace=replace) as place:
        summary = embed_words_of_file(
            file,
            model,
            place,
            unit="pieces" if pieces else words,
            layers=layers,
            max_length=max_length,
            column=column,
            float16=float16,
            resume=resume,
            replace=replace,
            device=device,
            precision=precision,
            products=products,
            engine=engine,
            **given(values),
        )
    _show(summary, address_of(out), json)


def vectors(
    source: Annotated[
        Path, typer.Argument(metavar="X", help="vectors, one per row, as written by `embed`, .npy or .parquet")
    ],
    center: Annotated[bool, typer.Option("--center", help="subtract the mean vector")] = False,
    remove_top: Annotated[
        int, typer.Option(metavar="N", help="remove the mean and the N directions of largest variance")
    ] = 0,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="decorrelate all directions and scale them to equal variance")
    ] = False,
    dimensions: Annotated[int | None, typer.Option(metavar="K", help="with --whiten: keep K dimensions")] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="scale each vector to length 1")] = False,
    fit_on: Annotated[Path | None, typer.Option(metavar="Z", help="fit the changes on these vectors [X]")] = None,
    changes: Annotated[Path | None, typer.Option(metavar="FILE", help="apply saved changes")] = None,
    save_changes: Annotated[
        Path | None, typer.Option(metavar="FILE", help="save the changes for other vectors (.safetensors)")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="Y.npy", help="output file for the changed vectors")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="overwrite existing files")] = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="plot the cosines of random pairs: .png, .svg or .html")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Report vector geometry, and optionally correct it to make vectors easier to compare.

    Changes are applied in the order of the options. Removing directions and whitening also subtract the mean.
    Vectors of words without context are trained and asked by `vectors train` and the commands after it.
    """
    from bertsmith.app.library.vector_files import change_vectors
    from bertsmith.inference.vectors.changes import ChangeSettings
    from bertsmith.inference.vectors.pictures import require_picture

    settings = ChangeSettings(
        center=center, remove_top=remove_top, whiten=whiten, dimensions=dimensions, normalize=normalize
    )
    if changes is not None and (not settings.is_nothing or fit_on is not None):
        raise Refused("--changes applies saved changes", "leave the other options of changes out")
    if changes is None and settings.is_nothing and (out is not None or save_changes is not None or fit_on is not None):
        raise Refused("expected a change, such as --center or --whiten; found none")
    if picture is not None:
        require_picture(picture)
    read = [one for one in (source, fit_on, changes) if one is not None]
    written = [(out, VECTORS[".npy"]), (save_changes, VECTOR_CHANGES)]
    written.append((picture, PICTURES[picture.suffix.lower() if picture is not None else ".png"]))
    for number, (one, kind) in enumerate(written):
        if one is not None:
            before = [path for path, _ in written[:number]]
            require_output(one, kind, inputs=read, others=before, replace=replace)
    found = change_vectors(source, settings, fit_on=fit_on, changes=changes, out=out, save_changes=save_changes)
    if json:
        print_json(found.to_dict())
    else:
        print_table(("", "vectors") if found.after is None else ("", "before", "after"), found.rows())
        for line in found.lines():
            say(line)
    if picture is not None:
        found.draw(picture)


def static(
    model: ModelOption,
    out: Annotated[Path, typer.Option(metavar="DIR", help="the model folder to write")],
    dimensions: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="width of the vectors [256, or that of the model]")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="weight pieces by their frequency in this text [by Zipf's law]"),
    ] = None,
    column: ColumnOption = None,
    layers: LayersOption = "last",
    replace: Annotated[bool, typer.Option("--replace", help="overwrite DIR, if it is a model")] = False,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    **values: Any,
) -> None:
    """Make a model of static vectors from an encoder: one vector per piece, a hundred times as fast.

    Each piece of the vocabulary is read once. The vectors are reduced to their main directions, and those of frequent
    pieces are made shorter. `embed`, `search`, `serve`, `evaluate` and `finetune` read DIR as any model, and
    sentence-transformers loads it as a StaticEmbedding.
    """
    from bertsmith.recipes.sentence_encoders.static import make_static_vectors

    made = make_static_vectors(
        model,
        out,
        dimensions=dimensions,
        text=text,
        column=column,
        layers=layers,
        replace=replace,
        device=device,
        precision=precision,
        **given(values),
    )
    if json:
        print_json(made.to_dict())
        return
    say(f"{made.out}: {counted(made.pieces, 'piece')}, vectors of {counted(made.width, 'number')}")


def _show(summary: "VectorSummary", address: str | None, json: bool) -> None:
    for line in summary.notes:
        note(line)
    out = address or str(summary.out)
    if json:
        print_json({**summary.to_dict(), "out": out})
        return
    rows, texts = counted(summary.rows, "vector"), counted(summary.texts, "text")
    say(f"{out}: {rows} of {counted(summary.width, 'number')}, of {texts}")
