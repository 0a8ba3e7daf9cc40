"""Translations of texts, found by the beam search of `tasks/encoding/generation.py`."""

import dataclasses
from collections.abc import Sequence

import torch

from bertsmith.base.core.errors import InputError
from bertsmith.models.parts.encoder_decoder import EncoderDecoder
from bertsmith.recipes.translation.pairs import rows_of
from bertsmith.recipes.translation.settings import SearchSettings
from bertsmith.tasks.encoding.generation import write_texts
from bertsmith.tasks.encoding.writing import Finished, Writing
from bertsmith.text.tokenizers.encoded import Ids
from bertsmith.text.tokenizers.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class Translation:
    """A text in the other language.

    Attributes:
        score: its log probability in nats, divided by the length penalty.
        has_ended: whether the model ended it; otherwise it has the maximum length.
    """

    text: str
    score: float
    has_ended: bool


def translate(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: SearchSettings,
    *,
    names: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
) -> list[Translation]:
    """The best translation of each text that the search finds; a text without words has an empty one.

    Args:
        names: the names of the texts in errors.
    """
    names = names or [f"text {number}" for number in range(1, len(texts) + 1)]
    rows = rows_of(texts, tokenizer)
    most, special = model.config.max_tokens, len(tokenizer.template.start) + len(tokenizer.template.end)
    for row, name in zip(rows, names, strict=True):
        if len(row) > most:
            raise InputError(
                expected=f"at most {most} tokens in {name}", found=str(len(row)), fix="split it into several lines"
            )
    translations = {number: Translation("", 0.0, True) for number, row in enumerate(rows) if len(row) == special}
    numbers = [number for number in range(len(rows)) if number not in translations]
    chosen = search(model, tokenizer, [rows[number] for number in numbers], settings, dtype=dtype)
    for number, text in zip(numbers, chosen, strict=True):
        translations[number] = Translation(tokenizer.decode(text.ids), text.score, text.has_ended)
    return [translations[number] for number in range(len(texts))]


def search(
    model: EncoderDecoder,
    tokenizer: Tokenizer,
    rows: Sequence[Ids],
    settings: SearchSettings,
    *,
    dtype: torch.dtype | None = None,
) -> list[Finished]:
    """The best finished translation of each source row, which has its special tokens."""
    limits = [min(len(row) + settings.longer, model.config.max_tokens - 1) for row in rows]
    device = model.embeddings.word.weight.device
    texts = write_texts(model, rows, limits, writing_of(tokenizer, settings), device=device, dtype=dtype)
    return [of_row[0] for of_row in texts]


def writing_of(tokenizer: Tokenizer, settings: SearchSettings) -> Writing:
    """How translations are written."""
    return Writing.with_pieces_of(tokenizer, beam=settings.beam, length_penalty=settings.length_penalty)
