"""Commands that compute vectors of texts, words and pieces, and inspect and correct them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.app.cli.options import JsonOption, note, print_json, print_table, say
from bertsmith.app.cli.usage import Refused
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call, path_or_none
from bertsmith.base.storage.addresses import address_of
from bertsmith.base.storage.outputs import PICTURES, VECTOR_CHANGES, VECTORS, require_output
from bertsmith.base.storage.uploads import staged

if TYPE_CHECKING:
    from bertsmith.inference.vectors.jobs import VectorSummary
    from bertsmith.inference.vectors.request import (
        EmbedRequest,
        FeaturesRequest,
        StaticVectorsRequest,
        VectorFileRequest,
        VectorsRequest,
    )

PiecesOption = Annotated[bool, typer.Option("--pieces", help="one vector per piece instead of per word")]


def embed(request: "EmbedRequest", json: JsonOption = False) -> None:
    """Write one vector per line of a file, in order.

    A sentence-transformers folder keeps its own settings. Row i is line i, even if the line is empty. Equal lines
    within 2,048 consecutive ones are computed once. X.json records how the vectors were made. --resume continues after
    Ctrl-C, a crash or a full disk; the result is byte-identical. FILE and X may be addresses such as s3://bucket/x.npy.
    """
    from bertsmith.app.library.vector_files import embed_file

    _write(embed_file, request, json)


def features(request: "FeaturesRequest", pieces: PiecesOption = False, json: JsonOption = False) -> None:
    """Write one vector per word or piece of a file, with its line (from 0) and its character offsets.

    A .parquet file has lines and offsets in columns; with X.npy they go to X.tokens.jsonl, row by row. Long lines are
    read in overlapping windows, so no word is lost. Equal lines in the same batch, of 512 consecutive lines, are
    computed once. --resume continues after Ctrl-C, a crash or a full disk; the result is byte-identical.

    X.jsonl has the format of the original extract_features.py: for each line all pieces with [CLS] and [SEP], and their
    vectors in each of the --layers, counted from the end (-1). A line "A ||| B" is a pair. Long lines are truncated.
    """
    from bertsmith.app.library.vector_files import embed_words_of_file

    _write(embed_words_of_file, request.replaced(unit="pieces") if pieces else request, json)


def _write(function: "Callable[..., VectorSummary]", request: "VectorFileRequest", json: bool) -> None:
    """Writes a vector file, at an address too, and prints the summary."""
    with staged(Path(request.out), replace=request.replace) as path:
        summary = call(function, request.replaced(out=path))
    for line in summary.notes:
        note(line)
    out = address_of(request.out) or str(summary.out)
    if json:
        print_json({**summary.to_dict(), "out": out})
        return
    rows, texts = counted(summary.rows, "vector"), counted(summary.texts, "text")
    say(f"{out}: {rows} of {counted(summary.width, 'number')}, of {texts}")


def vectors(request: "VectorsRequest", json: JsonOption = False) -> None:
    """Report vector geometry, and optionally correct it to make vectors easier to compare.

    Changes are applied in the order of the options. Removing directions and whitening also subtract the mean.
    For vectors of words without context, see `vectors train`, `vectors neighbours`, `vectors analogy` and `vectors
    similarity`.
    """
    from bertsmith.app.library.vector_files import change_vectors
    from bertsmith.inference.vectors.pictures import require_picture
    from bertsmith.inference.vectors.request import ChangeSettings

    picture, is_nothing = path_or_none(request.picture), request.part(ChangeSettings).is_nothing
    if request.changes is not None and (not is_nothing or request.fit_on is not None):
        raise Refused("--changes applies saved changes", "leave the other options of changes out")
    if request.changes is None and is_nothing and request.given & {"out", "save_changes", "fit_on"}:
        raise Refused("expected a change, such as --center or --whiten; found none")
    if picture is not None:
        require_picture(picture)
    read = [path for path in (request.source, request.fit_on, request.changes) if path is not None]
    kinds = (
        (path_or_none(request.out), VECTORS[".npy"]),
        (path_or_none(request.save_changes), VECTOR_CHANGES),
        (picture, PICTURES[".png" if picture is None else picture.suffix.lower()]),
    )
    written = [(path, kind) for path, kind in kinds if path is not None]
    for number, (path, kind) in enumerate(written):
        before = [other for other, _ in written[:number]]
        require_output(path, kind, inputs=read, others=before, replace=request.replace)
    report = change_vectors(request)
    if json:
        print_json(report.to_dict())
    else:
        print_table(("", "vectors") if report.after is None else ("", "before", "after"), report.rows())
        say(*report.lines())
    if picture is not None:
        report.draw(picture)


def static(request: "StaticVectorsRequest", json: JsonOption = False) -> None:
    """Make a model of static vectors from an encoder: one vector per piece, a hundred times as fast.

    Each piece of the vocabulary is read once. The vectors are reduced to their main directions, and those of frequent
    pieces are made shorter. `embed`, `search`, `serve`, `evaluate` and `finetune` read DIR as any model, and
    sentence-transformers loads it as a StaticEmbedding.
    """
    from bertsmith.recipes.sentence_encoders.static import make_static_vectors

    made = call(make_static_vectors, request)
    if json:
        print_json(made.to_dict())
        return
    say(f"{made.out}: {counted(made.pieces, 'piece')}, vectors of {counted(made.width, 'number')}")
