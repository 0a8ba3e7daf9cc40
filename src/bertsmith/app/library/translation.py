"""The commands `train-translation` and `translate` as functions with paths and keyword settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.app.library.inputs import checked_texts
from bertsmith.base.core.requests import require_path
from bertsmith.base.core.settings import split_settings
from bertsmith.recipes.translation.decoding import Translation
from bertsmith.recipes.translation.lines import translated_lines
from bertsmith.recipes.translation.run import train_translation as run_training
from bertsmith.recipes.translation.settings import SearchSettings, settings_from
from bertsmith.training.loop.result import TrainResult


def train_translation(
    pairs: str | Path, out: str | Path, *, dev: str | Path | None = None, resume: bool = False, **settings: Any
) -> TrainResult:
    """The result of training an encoder-decoder on pairs of texts; OUT/model is the model, which `translate` reads.

    Args:
        pairs: a file with a text, a tab and its translation on each line.
        out: the run folder; new, unless `resume`.
        dev: further pairs, for evaluation with BLEU.
        resume: resume the run in `out`, which must have the same files and settings.
        settings: fields of TranslationSettings and TrainSettings by name, such as size="small", architecture="lstm",
            minutes=30; what is not given comes from the recipe of the paper (Vaswani et al., 2017).

    Raises:
        BertsmithError: a file, a setting or the run folder is invalid; the message says which.
    """
    require_path(pairs, "pairs")
    require_path(out, "out")
    if dev is not None:
        require_path(dev, "dev")
    own, training = settings_from(settings)
    return run_training(pairs, out, own, training, dev=dev, resume=resume)


def translate(model: str | Path, texts: Sequence[str], *, device: str = "auto", **settings: Any) -> list[Translation]:
    """The translation of each text: `text`, `score` (log probability) and `has_ended`; "" for a text without words.

    The model is read at each call, so pass all texts at once.

    Args:
        model: the folder of a translation model, or the run that has it.
        device: auto, cpu, cuda or cuda:N.
        settings: fields of SearchSettings by name: beam, length_penalty, longer.

    Raises:
        BertsmithError: there is no such model, a text is too long for it, or a setting is invalid.
    """
    require_path(model, "model")
    search = SearchSettings(**split_settings(settings, [SearchSettings])[SearchSettings])
    return list(translated_lines(model, [checked_texts(texts)], search, device=device, place="text {:,}"))
