"""The command that learns a vocabulary, with its quality report, a line for each file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli.options import CasedOption, TextArguments
from bertsmith.files import require_file_place, write_json


def vocab(
    texts: TextArguments,
    out: Annotated[Path, typer.Option(metavar="FILE", help="where the vocabulary goes; an old one is replaced")],
    size: Annotated[int, typer.Option(help="pieces, the five special ones included")] = 30522,
    cased: CasedOption = False,
    column: Annotated[str, typer.Option(help="column of .jsonl and .parquet files with the text; default: found")] = "",
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="write the report there too, as JSON")] = None,
) -> None:
    """Learn a WordPiece vocabulary of exactly --size pieces and print its quality report.

    The report says, for each file, how many pieces a word takes, which share of the words is unknown, which share of
    the characters is covered, and which share of the words is one piece.
    """
    from bertsmith.library.vocabulary import learn_vocabulary

    for place in (out, report):
        if place is not None:
            require_file_place(place)
    learned = learn_vocabulary(texts, size, cased=cased, column=column)
    for note in learned.notes:
        typer.echo(f"bertsmith: {note}", err=True)
    learned.tokenizer.vocabulary.save(out)
    if report is not None:
        write_json(report, dataclasses.asdict(learned.report))
    for line in learned.report.lines():
        typer.echo(line)
