"""Commands for translation: training on pairs of texts, and translating lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertsmith.app.cli.options import DeviceOption, JsonOption, given, note, print_json, say, settings_from
from bertsmith.app.cli.text import encoding_settings, stdin_lines
from bertsmith.base.core.progress import counted


def train_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `train-translation`."""
    from bertsmith.recipes.translation.settings import TranslationSettings
    from bertsmith.training.loop.settings import TrainSettings

    return (TranslationSettings, TrainSettings)


def train_translation(
    out: Annotated[Path, typer.Option(metavar="RUN", help="the run folder; the model is saved in RUN/model/")],
    pairs: Annotated[
        Path | None,
        typer.Argument(metavar="PAIRS", help="a file with a text, a tab and its translation on each line"),
    ] = None,
    dev: Annotated[Path | None, typer.Option(metavar="FILE", help="further pairs, for evaluation with BLEU")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume RUN with its files and settings")] = False,
    **values: Any,
) -> None:
    """Train a Transformer or an LSTM on pairs of texts; give one of --steps, --tokens and --minutes.

    What is not given comes from the recipe of the Transformer's paper. Ctrl-C finishes the step, writes a checkpoint
    and exits with code 130; --resume continues from there.
    """
    from bertsmith.base.core.settings import require
    from bertsmith.recipes.translation.run import settings_of_run
    from bertsmith.recipes.translation.run import train_translation as run_training
    from bertsmith.recipes.translation.settings import settings_from as translation_settings

    if resume:
        require(
            pairs is None and dev is None and not given(values),
            expected="--resume with --out alone",
            found="other arguments",
            fix="leave them out; RUN has its own",
        )
        source, held_out, settings, training = settings_of_run(out)
    else:
        require(pairs is not None, expected="a file of pairs", found="none", fix="name it: train-translation PAIRS")
        source, held_out = str(pairs), None if dev is None else str(dev)
        settings, training = translation_settings(given(values))
    result = run_training(source, out, settings, training, dev=held_out, resume=resume)
    say(f"{counted(result.steps, 'step')}")
    for name, value in result.scores.items():
        say(f"{name}: {value:.4f}")
    say(f"model: {out / 'model'}")


def translate_settings() -> Sequence[type]:
    """The settings classes whose fields are options of `translate`."""
    from bertsmith.recipes.translation.settings import SearchSettings

    return (SearchSettings, *encoding_settings())


def translate(
    model: Annotated[Path, typer.Option("--model", metavar="DIR", help="a model of `bertsmith train-translation`")],
    json: JsonOption = False,
    device: DeviceOption = "auto",
    **values: Any,
) -> None:
    """Translate each line of stdin; an empty line stays empty.

    A translation that the model did not end is printed as far as it goes, and their number is written to stderr.
    """
    from bertsmith.recipes.translation.lines import translated_lines
    from bertsmith.recipes.translation.settings import SearchSettings

    unended = 0
    for translation in translated_lines(
        model, stdin_lines(values), settings_from(SearchSettings, values), device=device
    ):
        unended += not translation.has_ended
        if json:
            print_json({"text": translation.text, "score": translation.score, "has_ended": translation.has_ended})
        else:
            say(translation.text)
    if unended:
        note(f"{counted(unended, 'translation')} not ended by the model, and cut at the greatest length")
