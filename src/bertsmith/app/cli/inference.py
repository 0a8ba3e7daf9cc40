"""Commands for the pre-training heads of a model: fill masks, judge the next sentence, complete texts."""

from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    ProductsOption,
    given,
    note,
    print_json,
    say,
    settings_from,
)
from bertsmith.app.cli.text import encoding_settings, text_or_lines
from bertsmith.app.cli.vectors import ColumnOption, FileArgument


def fill(
    model: ModelOption,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="a text with [MASK] in it, or - for lines on stdin")],
    top: Annotated[int, typer.Option(min=1, help="candidates for each [MASK]")] = 5,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Print the most probable pieces for each [MASK] of a text, with their probabilities.

    Masks are filled independently of one another. Every model understands [MASK], besides its own spelling of the
    mask (<mask> for RoBERTa).
    """
    from bertsmith.app.library.lines import fill_lines

    blocks, place = text_or_lines(text, values)
    for found in fill_lines(model, blocks, top, place=place, device=device, precision=precision, products=products):
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
    seconds: Annotated[list[str], typer.Argument(metavar="B...", help="one or more possible next sentences")],
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
) -> None:
    """Print the probability that each B follows A, in order.

    For a model that was trained on sentence order, which never saw a random B, it is the probability that A and B,
    taken as neighbors, are in order rather than swapped.
    """
    from bertsmith.app.library.lines import judge_continuations

    judged = judge_continuations(model, first, seconds, device=device, precision=precision, products=products)
    if not json and judged[0].relation != "follows":
        note("a model of sentence order: the probability that A and B are in order, not swapped")
    for found in judged:
        if json:
            print_json(found.to_dict())
        else:
            say(f"{found.probability:.4f}  {found.text}")
        if found.cut_tokens:
            note(f"tokens truncated from A and {found.text[:40]!r}: {found.cut_tokens}")


def complete_settings() -> list[type]:
    """The settings classes of `bertsmith complete`."""
    from bertsmith.inference.predictors.completion import SamplingSettings

    return [SamplingSettings, *encoding_settings()]


def complete(
    model: ModelOption,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="a text to continue, or - for lines on stdin")],
    top: Annotated[int, typer.Option(min=1, help="candidates for the next piece")] = 5,
    tokens: Annotated[int, typer.Option(min=0, help="also continue the text with up to this many pieces")] = 0,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **settings: Any,
) -> None:
    """Print the most likely next pieces of a text, with their probabilities; with --tokens, continue the text.

    A continuation takes the most likely piece each time, unless --temperature, --top-k or --top-p is given: then pieces
    are drawn, always the same ones for the same --seed. It ends where the model ends the text. A model that reads
    backward predicts the pieces before the text, and continues it at its beginning.
    """
    from bertsmith.app.library.language_models import complete_lines
    from bertsmith.inference.predictors.completion import SamplingSettings

    sampling = settings_from(SamplingSettings, settings)
    blocks, place = text_or_lines(text, settings)
    for found in complete_lines(
        model,
        blocks,
        top,
        tokens,
        sampling=sampling,
        place=place,
        device=device,
        precision=precision,
        products=products,
    ):
        if json:
            print_json(found.to_dict())
        elif tokens:
            for line in found.whole.split("\n"):
                say(line)
        else:
            for one in found.next:
                say(f"{one.probability:.4f}  {one.piece}")


def perplexity(
    file: FileArgument,
    model: ModelOption,
    column: ColumnOption = None,
    json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "fp32",
    products: ProductsOption = "auto",
    **values: Any,
) -> None:
    """Print how well a language model predicts the texts of a file, each line from its own beginning.

    A model that reads backward predicts each piece from those after it, one of two directions (ELMo) does both. The
    perplexity of pieces depends on the vocabulary; that of words and the bits per character can be compared between
    models with different ones.
    """
    from bertsmith.app.library.language_models import perplexity_of_file

    measured = perplexity_of_file(
        file, model, column=column, device=device, precision=precision, products=products, **given(values)
    )
    if json:
        print_json(measured.to_dict())
        return
    for result in (measured, measured.backward):
        if result is None:
            continue
        way = f", {result.direction}" if result.direction == "backward" or measured.backward is not None else ""
        say(f"perplexity of a piece{way}: {result.perplexity:,.2f} ({result.pieces:,} pieces)")
        say(f"perplexity of a word{way}: {result.word_perplexity:,.2f} ({result.words:,} words)")
        say(f"bits per character{way}: {result.bits_per_character:.3f} ({result.characters:,} characters)")
    if measured.unknown:
        note(
            f"{measured.unknown / measured.pieces:.1%} of the pieces stand for unknown words, which are easy to predict"
        )
