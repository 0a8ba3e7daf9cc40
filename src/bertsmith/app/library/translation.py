"""Texts and streams of lines through a translation model."""

from collections.abc import Iterable, Iterator, Sequence

from bertsmith.app.library.inputs import checked_texts
from bertsmith.base.core.progress import counted, warn
from bertsmith.base.core.requests import takes
from bertsmith.base.machine.runtime import choose
from bertsmith.recipes.translation.decoding import Translation
from bertsmith.recipes.translation.decoding import translate as search_translations
from bertsmith.recipes.translation.model_folder import read_translation_model
from bertsmith.recipes.translation.request import TranslateRequest
from bertsmith.recipes.translation.settings import SearchSettings
from bertsmith.tasks.datasets.blocks import text_blocks

LINES = 256  # translated together


def translated_lines(
    request: TranslateRequest, blocks: Iterable[Sequence[str]], place: str = "line {:,} of stdin"
) -> Iterator[Translation]:
    """The translation of each line, in order; warns at the end if some are empty though their lines are not.

    Args:
        blocks: lists of lines; those of one list may be computed together.
        place: a format string that names a line by its number in errors.
    """
    loaded, tokenizer = read_translation_model(request.model)
    loaded = loaded.to(choose(request.device, "fp32").torch_device)
    search = request.part(SearchSettings)
    number = empty = 0
    for arrived in blocks:
        for lines in text_blocks(arrived, LINES):
            places = [place.format(number + 1 + index) for index in range(len(lines))]
            translations = search_translations(loaded, tokenizer, lines, search, places=places)
            for line, translation in zip(lines, translations, strict=True):
                empty += bool(line.strip()) and not translation.text
                yield translation
            number += len(lines)
    if empty:
        warn(f"{counted(empty, 'line')} with text got an empty translation; are their characters in the vocabulary?")


@takes(TranslateRequest)
def translate(request: TranslateRequest) -> list[Translation]:
    """The translation of each text: `text`, `score` (log probability) and `has_ended`; "" for a text without words.

    The model is read at each call.

    Raises:
        BertsmithError: there is no such model, a text is too long for it, or a setting is invalid.
    """
    return list(translated_lines(request, [checked_texts(request.texts)], place="text {:,}"))
