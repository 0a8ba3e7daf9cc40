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
    from bertsmith.corpus.words import count_files
    from bertsmith.text.normalize import TextRules
    from bertsmith.vocabularies.learn import learn_vocabulary
    from bertsmith.vocabularies.report import vocabulary_report
    from bertsmith.vocabularies.word_counts import WordCounts

    for place in (out, report):
        if place is not None:
            require_file_place(place)
    rules = TextRules(lowercase=not cased)
    counts, notes = count_files(texts, rules, column)
    for note in notes:
        typer.echo(f"bertsmith: {note}", err=True)
    vocabulary = learn_vocabulary(
        WordCounts.merged(counts.values()), size, max_word_characters=rules.max_word_characters
    )
    vocabulary.save(out)
    figures = vocabulary_report(vocabulary, counts, max_word_characters=rules.max_word_characters)
    if report is not None:
        write_json(report, dataclasses.asdict(figures))
    for line in figures.lines():
        typer.echo(line)
