"""Commands for the pre-training heads of a model: fill masks, judge the next sentence, complete texts."""

from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, note, print_json, say
from bertsmith.app.cli.text import text_or_lines

if TYPE_CHECKING:
    from bertsmith.inference.predictors.request import CompleteRequest, FillRequest, NextRequest, PerplexityRequest


def fill(request: "FillRequest", json: JsonOption = False) -> None:
    """Print the most probable pieces for each [MASK] of a text, with their probabilities.

    Masks are filled independently of one another. Every model understands [MASK], besides its own spelling of the
    mask (<mask> for RoBERTa).
    """
    from bertsmith.app.library.lines import fill_lines

    for filled in fill_lines(request, *text_or_lines(request)):
        if json:
            print_json(filled.to_dict())
            continue
        for number, candidates in enumerate(filled, start=1):
            if len(filled) > 1:
                say(f"[MASK] {number} of {len(filled)}")
            for candidate in candidates:
                say(f"{candidate.probability:.4f}  {candidate.piece}")


def next_sentence(request: "NextRequest", json: JsonOption = False) -> None:
    """Print the probability that each B follows A, in order.

    For a model that was trained on sentence order, which never saw a random B, it is the probability that A and B,
    taken as neighbors, are in order rather than swapped.
    """
    from bertsmith.app.library.lines import judge_continuations

    judged = judge_continuations(request)
    if not json and judged[0].relation != "follows":
        note("a model of sentence order: the probability that A and B are in order, not swapped")
    for continuation in judged:
        if json:
            print_json(continuation.to_dict())
        else:
            say(f"{continuation.probability:.4f}  {continuation.text}")
        if continuation.cut_tokens:
            note(f"tokens truncated from A and {continuation.text[:40]!r}: {continuation.cut_tokens}")


def complete(request: "CompleteRequest", json: JsonOption = False) -> None:
    """Print the most likely next pieces of a text, with their probabilities; with --tokens, continue the text.

    A continuation takes the most likely piece each time, unless --temperature, --top-k or --top-p is given: then pieces
    are drawn, always the same ones for the same --seed. It ends where the model ends the text. A model that reads
    backward predicts the pieces before the text, and continues it at its beginning.
    """
    from bertsmith.app.library.language_models import complete_lines

    for completion in complete_lines(request, *text_or_lines(request)):
        if json:
            print_json(completion.to_dict())
        elif request.tokens:
            say(*completion.whole.split("\n"))
        else:
            for candidate in completion.next:
                say(f"{candidate.probability:.4f}  {candidate.piece}")


def perplexity(request: "PerplexityRequest", json: JsonOption = False) -> None:
    """Print how well a language model predicts the texts of a file, each line from its own beginning.

    A model that reads backward predicts each piece from those after it, one of two directions (ELMo) does both. The
    perplexity of pieces depends on the vocabulary; that of words and the bits per character can be compared between
    models with different ones.
    """
    from bertsmith.app.library.language_models import perplexity_of_file

    measured = perplexity_of_file(request)
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
