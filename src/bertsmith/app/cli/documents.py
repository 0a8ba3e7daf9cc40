"""Commands that read a whole document: ask it questions, and rank its sentences by a label."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    DeviceOption,
    EncodingOption,
    JsonOption,
    PrecisionOption,
    ProductsOption,
    given,
    note,
    note_cut,
    print_json,
    print_table,
    say,
)
from bertsmith.text.documents.forms import FORMS

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="fine-tuned model: folder, run folder or hub id")]


def ask(
    model: ModelArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="a text file (also .gz, .zst)")],
    questions: Annotated[list[str], typer.Argument(metavar="QUESTION...", help="one or more questions")],
    top: Annotated[int, typer.Option(min=1, help="maximum number of answers to a question")] = 1,
    encoding: EncodingOption = "utf-8",
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
) -> None:
    """Answer questions from a document of any length, with the place of each answer.

    MODEL was fine-tuned on questions (--task squad or squad2). Long documents are read in overlapping windows. Lines
    and characters are counted from 1, and no two answers overlap. A model for SQuAD 2.0 may find no answer, which is
    printed; --json still lists the withheld ones.
    """
    from bertsmith.app.library.documents import ask_document

    answered = ask_document(
        model, file, questions, top=top, encoding=encoding, device=device, precision=precision, products=products
    )
    for question in answered:
        if json:
            print_json(question.to_dict())
        else:
            if len(answered) > 1:
                say(question.question)
            for line in question.lines():
                say(line)
        if question.cut_tokens:
            note(f"tokens truncated from {question.question[:40]!r}: {question.cut_tokens}")


def rank(
    model: ModelArgument,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help=".txt, .jsonl or .parquet (also .gz, .zst), a folder, or - for stdin"),
    ],
    label: Annotated[str | None, typer.Option(metavar="NAME", help="the label to rank by; see MODEL's card")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="maximum number of sentences [all]")] = None,
    form: Annotated[
        str, typer.Option(help=f"layout of .txt files, as in `corpus`: {', '.join(FORMS[:-1])} or {FORMS[-1]}")
    ] = "auto",
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Print the sentences of a document by the probability of a label, highest first.

    With a model fine-tuned on --task claim, `--label Claim` lists what is worth checking in an article. The probability
    says how claim-like a sentence is, never whether it is true. Columns: probability, number of the sentence, sentence.
    """
    from bertsmith.app.library.documents import rank_sentences

    ranked = rank_sentences(
        model, file, label, form=form, device=device, precision=precision, products=products, **given(values)
    )
    if json:
        for sentence in ranked[:top]:
            print_json(sentence.to_dict())
    else:
        rows = [(f"{sentence.probability:.4f}", sentence.sentence, sentence.text) for sentence in ranked[:top]]
        print_table(("probability", "number", "sentence"), rows)
    cut = [sentence.cut_tokens for sentence in ranked if sentence.cut_tokens]
    note_cut(len(cut), sum(cut), "sentence")
