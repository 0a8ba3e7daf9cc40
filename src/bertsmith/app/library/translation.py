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
from bertsmith.tasks.datasets.blocks import named_blocks

LINES = 256  # translated together


def translated_lines(
    request: TranslateRequest, blocks: Iterable[Sequence[str]], name: str = "line {:,} of stdin"
) -> Iterator[Translation]:
    """The translation of each line, in order; warns at the end if some are empty though their lines are not.

    Args:
        blocks, name: see `named_blocks`.
    """
    loaded, tokenizer = read_translation_model(request.model)
    loaded = loaded.to(choose(request.device, "fp32").torch_device)
    search = request.part(SearchSettings)
    empty = 0
    for lines, names in named_blocks(blocks, LINES, name):
        translations = search_translations(loaded, tokenizer, lines, search, names=names)
        for line, translation in zip(lines, translations, strict=True):
            empty += bool(line.strip()) and not translation.text
            yield translation
    if empty:
        warn(f"{counted(empty, 'line')} with text got an empty translation; are their characters in the vocabulary?")


@takes(TranslateRequest)
def translate(request: TranslateRequest) -> list[Translation]:
    """The translation of each text: `text`, `score` (log probability) and `has_ended`; "" for a text without words.

    The model is read at each call.

    Raises:
        BertsmithError: there is no such model, a text is too long for it, or a setting is invalid.
    """
    return list(translated_lines(request, [checked_texts(request.texts)], name="text {:,}"))
