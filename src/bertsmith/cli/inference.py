"""Commands that ask a pre-trained model: what is missing, and what comes next."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from bertsmith.cli.options import DeviceOption, JsonOption, ModelOption, PrecisionOption, print_json
from bertsmith.cli.text import line_blocks

if TYPE_CHECKING:
    from bertsmith.inference.pretraining_heads import Filling, PretrainedPredictor

_LINES = 1024  # of stdin that are answered together


def fill(
    model: ModelOption,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="a text with [MASK] in it, or - for lines on stdin")],
    top: Annotated[int, typer.Option(min=1, help="candidates for each gap")] = 5,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Fill each [MASK] of a text with the likeliest pieces, each with its probability.

    Gaps are filled independently of one another. [MASK] is understood by every model, next to its own spelling of the
    mask (<mask> for RoBERTa).
    """
    from bertsmith.inference.pretraining_heads import PretrainedPredictor

    predictor = PretrainedPredictor.load(model, device=device, precision=precision, needs=["mlm"])
    answers = [(text, predictor.fill(text, top))] if text != "-" else _fill_lines(predictor, top)
    for one, gaps in answers:
        if json:
            masks = [[{"piece": found.piece, "probability": found.probability} for found in gap] for gap in gaps]
            print_json({"text": one, "masks": masks})
            continue
        for number, gap in enumerate(gaps, start=1):
            if len(gaps) > 1:
                typer.echo(f"[MASK] {number} of {len(gaps)}")
            for found in gap:
                typer.echo(f"{found.probability:.4f}  {found.piece}")


def _fill_lines(predictor: "PretrainedPredictor", top: int) -> "Iterator[tuple[str, list[list[Filling]]]]":
    """The lines of stdin with what fills their gaps; what has arrived is answered together."""
    from bertsmith.datasets.blocks import text_blocks

    number = 0
    for arrived in line_blocks(sys.stdin.buffer):
        for lines in text_blocks(arrived, _LINES):
            places = [f"line {number + 1 + place:,} of stdin" for place in range(len(lines))]
            yield from zip(lines, predictor.fill_each(lines, places, top), strict=True)
            number += len(lines)


def next_sentence(
    model: ModelOption,
    first: Annotated[str, typer.Argument(metavar="A", help="a sentence")],
    seconds: Annotated[list[str], typer.Argument(metavar="B", help="what may follow it, one or several")],
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Print the probability that B follows A; of several B, each one's, in their order."""
    from bertsmith.inference.pretraining_heads import PretrainedPredictor

    predictor = PretrainedPredictor.load(model, device=device, precision=precision, needs=["nsp"])
    for found in predictor.next_sentence(first, seconds):
        if json:
            print_json({"first": first, "second": found.text, "probability": found.probability})
        else:
            typer.echo(f"{found.probability:.4f}  {found.text}")
        if found.cut_tokens:
            typer.echo(
                f"bertsmith: tokens of {found.text[:40]!r} and A that do not fit, cut: {found.cut_tokens}", err=True
            )
