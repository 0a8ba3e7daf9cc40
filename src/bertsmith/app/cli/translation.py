"""Commands for translation: training on pairs of texts, and translating lines."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertsmith.app.cli.options import JsonOption, note, print_json, say
from bertsmith.app.cli.text import stdin_lines
from bertsmith.base.core.progress import counted
from bertsmith.base.core.requests import call

if TYPE_CHECKING:
    from bertsmith.recipes.translation.request import TrainTranslationRequest, TranslateRequest


def train_translation(request: "TrainTranslationRequest") -> None:
    """Train a Transformer or an LSTM on pairs of texts; give one of --steps, --tokens and --minutes.

    What is not given comes from the recipe of the Transformer's paper. Ctrl-C finishes the step, writes a checkpoint
    and exits with code 130; --resume continues from there.
    """
    from bertsmith.recipes.translation.run import train_translation as run_training

    result = call(run_training, request)
    say(counted(result.steps, "step"), *(f"{name}: {value:.4f}" for name, value in result.scores.items()))
    say(f"model: {Path(request.out) / 'model'}")


def translate(request: "TranslateRequest", json: JsonOption = False) -> None:
    """Translate each line of stdin; an empty line stays empty.

    A translation that the model did not end is printed as far as it goes, and their number is written to stderr.
    """
    from bertsmith.app.library.translation import translated_lines

    unended = 0
    for translation in translated_lines(request, stdin_lines(request)):
        unended += not translation.has_ended
        if json:
            print_json({"text": translation.text, "score": translation.score, "has_ended": translation.has_ended})
        else:
            say(translation.text)
    if unended:
        note(f"{counted(unended, 'translation')} not ended by the model, and cut at the greatest length")
