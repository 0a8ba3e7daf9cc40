"""Streams of lines through a translation model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bertsmith.base.core.progress import counted, warn
from bertsmith.base.machine.runtime import choose
from bertsmith.recipes.translation.decoding import Translation, translate
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.settings import SearchSettings
from bertsmith.tasks.datasets.blocks import text_blocks

LINES = 256  # translated together


def translated_lines(
    model: Path | str,
    blocks: Iterable[Sequence[str]],
    settings: SearchSettings | None = None,
    *,
    device: str = "auto",
    place: str = "line {:,} of stdin",
) -> Iterator[Translation]:
    """The translation of each line, in order; warns at the end if some are empty though their lines are not.

    Args:
        model: a folder, or the run that has it.
        blocks: lists of lines; those of one list may be computed together.
        place: a format string that names a line by its number in errors.
    """
    loaded, tokenizer = read_translation_model(model)
    runtime = choose(device, "fp32")
    loaded = loaded.to(runtime.torch_device)
    number = empty = 0
    for arrived in blocks:
        for lines in text_blocks(arrived, LINES):
            places = [place.format(number + 1 + index) for index in range(len(lines))]
            translations = translate(loaded, tokenizer, lines, settings or SearchSettings(), places=places)
            for line, translation in zip(lines, translations, strict=True):
                empty += bool(line.strip()) and not translation.text
                yield translation
            number += len(lines)
    if empty:
        warn(f"{counted(empty, 'line')} with text got an empty translation; are their characters in the vocabulary?")
