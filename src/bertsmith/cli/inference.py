"""Commands for the pre-training heads of a model: fill masks, and judge the next sentence."""

from typing import Annotated

import typer

from bertsmith.cli.options import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    note,
    print_json,
    say,
)
from bertsmith.cli.text import line_blocks, stdin_bytes


def fill(
    model: ModelOption,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="a text with [MASK] in it, or - for lines on stdin")],
    top: Annotated[int, typer.Option(min=1, help="candidates for each [MASK]")] = 5,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Print the most probable pieces for each [MASK] of a text, with their probabilities.

    Masks are filled independently of one another. Every model understands [MASK], besides its own spelling of the
    mask (<mask> for RoBERTa).
    """
    from bertsmith.library.lines import fill_lines

    blocks, place = ([[text]], "text {}") if text != "-" else (line_blocks(stdin_bytes()), "line {:,} of stdin")
    for found in fill_lines(model, blocks, top, place=place, device=device, precision=precision):
        if json:
            print_json(found.to_dict())
            continue
        for number, candidates in enumerate(found, start=1):
            if len(found) > 1:
                say(f"[MASK] {number} of {len(found)}")
            for one in candidates:
                say(f"{one.probability:.4f}  {one.piece}")


def next_sentence(
    model: ModelOption,
    first: Annotated[str, typer.Argument(metavar="A", help="a sentence")],
    seconds: Annotated[list[str], typer.Argument(metavar="B", help="one or more possible next sentences")],
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
) -> None:
    """Print the probability that each B follows A, in order.

    For a model that was trained on sentence order, which never saw a random B, it is the probability that A and B,
    taken as neighbors, are in order rather than swapped.
    """
    from bertsmith.library.lines import judge_continuations

    judged = judge_continuations(model, first, seconds, device=device, precision=precision)
    if not json and judged[0].relation != "follows":
        note("a model of sentence order: the probability that A and B are in order, not swapped")
    for found in judged:
        if json:
            print_json(found.to_dict())
        else:
            say(f"{found.probability:.4f}  {found.text}")
        if found.cut_tokens:
            note(f"tokens truncated from A and {found.text[:40]!r}: {found.cut_tokens}")
