"""Token counts of rows before truncation, [CLS] and [SEP] included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.text.tokenizer import SpecialTokens, Tokenizer


def tokens_of_texts(
    texts: Sequence[tuple[str, str | None]], tokenizer: Tokenizer, prompt: str, specials: SpecialTokens
) -> list[int]:
    """The number of tokens of [CLS] text [SEP], or of [CLS] text [SEP] text [SEP].

    Args:
        texts: a first text, and a second one or None.
        tokenizer: of the model.
        prompt: prefix of every text.
        specials: parse special pieces in a text as special tokens, not as ordinary characters.
    """
    flat = [prompt + part for pair in texts for part in pair if part is not None]
    counts = [1 if second is None else 2 for _, second in texts]
    pieces = _sums(tokenizer.encode_batch(flat, special_tokens=specials).lengths, counts)
    return [found + tokenizer.template.num_special(count) for found, count in zip(pieces, counts, strict=True)]


def tokens_of_words(sentences: Sequence[Sequence[str]], tokenizer: Tokenizer) -> list[int]:
    """The number of tokens of [CLS] words [SEP]; a word that normalization leaves empty counts as one, [UNK]."""
    words = [word for sentence in sentences for word in sentence]
    lengths = np.maximum(tokenizer.encode_words(words).lengths, 1)
    special = tokenizer.template.num_special(1)
    return [found + special for found in _sums(lengths, [len(sentence) for sentence in sentences])]


def _sums(values: npt.NDArray[np.integer[Any]], counts: Sequence[int]) -> list[int]:
    """The sums of consecutive groups of values, of the given sizes."""
    before = np.concatenate([[0], np.cumsum(values)])
    sums: list[int] = np.diff(before[np.cumsum([0, *counts])]).tolist()
    return sums
