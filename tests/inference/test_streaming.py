"""Parts of a text that is being written: together they are the whole text, with any way to decode pieces."""

import numpy as np
import pytest
from tokenizers import decoders

from bertsmith.inference.predictors.streaming import TextStream
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

BYTES = list("abĠĠ.,'ÃĤ©ä¸ĸçķĮðŁĺĢ")  # as byte-level vocabularies spell them, halves of characters among them
WORDS = ["is", "n't", "n", "'", "t", "do", "not", ".", ",", "!", "?", "'s", "##ing", "a", "'ve", "##'", "walk"]


@pytest.mark.parametrize(
    ("decoder", "pieces"),
    [
        (decoders.ByteLevel(), BYTES),
        (decoders.WordPiece(cleanup=True), WORDS),
        (decoders.BPEDecoder(suffix="</w>"), ["a", "b</w>", ".</w>", "'", "n't</w>"]),
        (decoders.Metaspace(), ["▁a", "b", "▁", ".", "▁▁c"]),
    ],
    ids=["byte level", "wordpiece with cleanup", "suffixes", "metaspace"],
)
def test_the_parts_of_any_text_are_the_text(decoder: decoders.Decoder, pieces: list[str]) -> None:
    draw = np.random.default_rng(3)
    sent_early = 0
    for _ in range(300):
        written = [pieces[number] for number in draw.integers(len(pieces), size=int(draw.integers(0, 40)))]
        parts: list[str] = []
        stream = TextStream(parts.append, Tokenizer.unsettled)
        for count in range(1, len(written)):
            stream.grow(decoder.decode(written[:count]))
        sent_early += len(parts)
        stream.end(decoder.decode(written))
        assert "".join(parts) == decoder.decode(written)
        assert all(parts), "no part is empty"
    assert sent_early > 300


def test_a_text_of_wordpiece_is_passed_on_at_once() -> None:
    parts: list[str] = []
    stream = TextStream(parts.append, WordPieceTokenizer.unsettled)
    for text in ("an", "anna", "anna was"):
        stream.grow(text)
    stream.end("anna was")
    assert parts == ["an", "na", " was"]
