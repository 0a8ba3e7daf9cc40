"""The command that learns a vocabulary and reports its quality on each file."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from bertsmith.cli.options import CasedOption, RulesOption, TextArguments
from bertsmith.files import require_file_place, write_json


def vocab(
    texts: TextArguments,
    out: Annotated[Path, typer.Option(metavar="FILE", help="output file; an existing one is replaced")],
    size: Annotated[int, typer.Option(help="number of pieces, the five special ones included")] = 30522,
    cased: CasedOption = False,
    rules: RulesOption = None,
    column: Annotated[str, typer.Option(help="text column of .jsonl and .parquet files; default: detected")] = "",
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="also write the report to this file, as JSON")
    ] = None,
) -> None:
    """Learn a WordPiece vocabulary of exactly --size pieces and print its quality report.

    For each file the report gives the pieces per word and the fractions of unknown words, of covered characters and
    of words that are a single piece.
    """
    from bertsmith.library.vocabulary import learn_vocabulary

    for place in (out, report):
        if place is not None:
            require_file_place(place)
    learned = learn_vocabulary(texts, size, cased=cased, rules=rules or "huggingface", column=column)
    for note in learned.notes:
        typer.echo(f"bertsmith: {note}", err=True)
    learned.tokenizer.vocabulary.save(out)
    if report is not None:
        write_json(report, dataclasses.asdict(learned.report))
    for line in learned.report.lines():
        typer.echo(line)
