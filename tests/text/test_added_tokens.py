"""Added tokens of WordPieces, against the package `tokenizers`; caches with a bound; the notice."""

import json
import pickle
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.errors import VocabularyError
from bertsmith.models.model_files.tokenizer_writing import tokenizer_json
from bertsmith.text.tokenizers import tokenizer as tokenizer_module
from bertsmith.text.tokenizers.added_tokens import AddedToken, special_tokens_of
from bertsmith.text.tokenizers.encoded import BoundedCache
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.tokenizer import Tokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer

PIECES = [*SPECIAL_PIECES, *"abcdehlorwvi19-[].", "hello", "world", "covid", "##s", "##l", "##19", "中", "é", "the"]
CONTENTS = ["[WORLD]", "covid-19", "Hello", "the wo", "wo", "é", "中", "l", " b", "helloo"]
FLAGS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
)
TOKENS = st.lists(st.tuples(st.sampled_from(CONTENTS), FLAGS), max_size=4, unique_by=lambda token: token[0])
TEXTS = st.lists(
    st.sampled_from(
        [*CONTENTS, *"abhello wv19-[]中É \t\n.", "COVID-19", "\u0301", "the WO", "[SEP]", "_", "İ", "\u200b"]
    ),
    max_size=14,
).map("".join)


def ours(tokens: list[tuple[str, dict[str, bool]]], rules: TextRules) -> WordPieceTokenizer:
    plain = Vocabulary(PIECES)
    pieces, added = list(PIECES), list(special_tokens_of(plain))
    for content, flags in tokens:
        if content not in pieces:
            pieces.append(content)
        added.append(AddedToken(content=content, id=pieces.index(content), **flags))
    return WordPieceTokenizer(Vocabulary(pieces, whole=len(pieces) - len(PIECES)), rules, added=added)


@given(tokens=TOKENS, text=TEXTS, lowercase=st.booleans(), accents=st.sampled_from([None, True, False]))
def test_ids_and_spans_are_those_of_the_package(
    tokens: list[tuple[str, dict[str, bool]]], text: str, lowercase: bool, accents: bool | None
) -> None:
    tokenizer = ours(tokens, TextRules(lowercase=lowercase, strip_accents=accents))
    description = tokenizer_json(tokenizer)
    for special in (True, False):
        # Ordinary text becomes every added token but the special pieces of BERT.
        for entry in description["added_tokens"]:
            entry["special"] = entry["special"] and (special or entry["content"] in SPECIAL_PIECES)
        peer = tokenizers.Tokenizer.from_str(json.dumps(description))
        peer.encode_special_tokens = not special
        expected = peer.encode(text, add_special_tokens=False)
        assert tokenizer.encode(text, special_tokens=special).tolist() == expected.ids
        pieces = tokenizer.encode_with_offsets(text, special_tokens=special)
        assert pieces.ids.tolist() == expected.ids
        ids_of_added = {token.id for token in tokenizer.added}
        spans = zip(expected.ids, expected.offsets, pieces.starts.tolist(), pieces.ends.tolist(), strict=True)
        for id, (start, end), first, last in spans:
            if id in ids_of_added:  # the white space that a token strips is not part of its span here
                assert start <= first <= last <= end


@given(tokens=TOKENS, texts=st.lists(TEXTS, min_size=1, max_size=6))
def test_many_texts_are_the_texts_one_by_one(tokens: list[tuple[str, dict[str, bool]]], texts: list[str]) -> None:
    tokenizer = ours(tokens, TextRules())
    many = [*texts, "hello world " * 2000, *texts]  # long enough for the fast path
    for special in (False, "own"):
        alone = [tokenizer.encode(text, special_tokens=special).tolist() for text in many]
        assert [row.tolist() for row in tokenizer.encode_batch(many, special_tokens=special)] == alone
    encoded, starts, ends = tokenizer.encode_batch_with_offsets(many)
    rows = [tokenizer.encode_with_offsets(text) for text in many]
    assert encoded.ids.tolist() == np.concatenate([row.ids for row in rows]).tolist()
    assert starts.tolist() == np.concatenate([row.starts for row in rows]).tolist()
    assert ends.tolist() == np.concatenate([row.ends for row in rows]).tolist()


def test_an_added_token_is_no_piece_of_a_word_and_survives_a_copy() -> None:
    flags = {"normalized": True}
    tokenizer = ours([("helloo", {**flags, "single_word": True}), ("[WORLD]", flags)], TextRules())
    again = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - written here
    for copied in (tokenizer, again):
        assert copied.tokenize("helloo helloos [World]") == ["helloo", "[UNK]", "[WORLD]"]
    assert "added_tokens" in tokenizer.settings
    assert "added_tokens" not in WordPieceTokenizer(Vocabulary(PIECES)).settings


def test_a_token_of_which_nothing_remains_is_refused() -> None:
    with pytest.raises(VocabularyError, match="remains after normalization"):
        ours([("\u0301", {"normalized": True})], TextRules())


def test_special_pieces_in_a_text_are_mentioned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(tokenizer_module, "warn", said.append)
    tokenizer = WordPieceTokenizer(Vocabulary([*PIECES, "once"]))
    tokenizer.encode("hello [MASK]", special_tokens=True)
    assert said == []
    tokenizer.encode_batch(["hello [SEP] world", "[CLS]"], special_tokens="own")
    tokenizer.encode_batch(["hello [SEP] world"], special_tokens="own")
    assert said == ["[SEP] in a text: read as special tokens, as in transformers"]


LONG = ["hello world"] * 3000


@pytest.mark.parametrize("is_pipeline", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        lambda tokenizer, text: tokenizer.encode(text),
        lambda tokenizer, text: tokenizer.encode_batch(["hello", text]),
        lambda tokenizer, text: tokenizer.encode_batch([*LONG, text, "hello"]),
        lambda tokenizer, text: tokenizer.encode_batch(pa.array([*LONG, text])),
        lambda tokenizer, text: tokenizer.encode_words(["hello", text]),
        lambda tokenizer, text: tokenizer.encode_with_offsets(text),
        lambda tokenizer, text: tokenizer.encode_batch_with_offsets(["hello", text]),
    ],
)
def test_special_pieces_that_are_read_as_characters_are_mentioned_once(
    read: Callable[[Tokenizer, str], object], is_pipeline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    readings = set[tuple[str, bool]]()
    monkeypatch.setattr(tokenizer_module, "warn", said.append)
    monkeypatch.setattr(tokenizer_module, "_said_of_specials", lambda: readings)
    words = WordPieceTokenizer(Vocabulary(PIECES))
    tokenizer = PipelineTokenizer(tokenizer_json(words), SPECIAL_PIECES, source="a test") if is_pipeline else words
    for text in ("hello [sep] [ SEP ] [world]", "hello world"):
        read(tokenizer, text)
    assert said == []
    for text in ("hello[MASK]world", "hello [CLS]"):
        read(tokenizer, text)
    assert said == ["[MASK] in a text: read as ordinary characters; transformers would read special tokens"]


def test_a_cache_starts_again_when_it_is_full() -> None:
    cache = BoundedCache[str, int](3, 100)
    for number in range(4):
        cache.put(str(number), number, 10)
    assert dict(cache) == {"3": 3}
    cache.put("large", 5, 95)
    assert (dict(cache), cache.bytes) == ({"large": 5}, 95)


def test_the_words_that_are_remembered_take_a_bounded_number_of_bytes() -> None:
    tokenizer = WordPieceTokenizer(Vocabulary(PIECES))
    tokenizer._memo._most_bytes = 10_000
    for number in range(500):
        tokenizer.encode(f"covid{number:b}".replace("0", "9"))
    assert 0 < tokenizer._memo.bytes <= 10_000
    assert tokenizer.encode("hello covid").tolist() == [PIECES.index("hello"), PIECES.index("covid")]
