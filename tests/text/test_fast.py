"""The fast path against the plain one: equal ids for every text, for any blocks, threads and cache size."""

import itertools
import threading

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bertsmith.base.core.settings import to_dict
from bertsmith.text.tokenizers import blocks, wordpiece
from bertsmith.text.tokenizers.encoded import Encoded
from bertsmith.text.tokenizers.fast import FastEncoder
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens
from bertsmith.text.tokenizers.units import UnitFinder
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from oracles import wordpiece_oracle
from text.vocabularies import MIXED_VOCABULARY, all_rules, all_texts

# Pieces of text that each take another branch of the fast path.
EVERY_KIND = [
    "",
    "the unable abcdefgabcdefgabcdefg, aaa",
    "a" * 8 + " " + "a" * 9 + " " + "a" * 16 + " " + "a" * 17 + " " + "a" * 32 + " " + "a" * 33 + " " + "a" * 101,
    "ΑΣ’Α ΑΣ.ab Σ ΣΑΣ博ΑΣ !Σ",
    "don’t “the…” a\u00a0b\u3000c\u2028d",
    "a\x00b \x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00 a\x0bb\x85c\x7f",
    "e\u0301 !\u0301a \u0301 한글 ﬁ İ",
    "\ud800a \udfff",
    "a\U0010ffffé \U0010ffff é",
    "",
]


def oracle_ids(text: str, rules: TextRules, vocabulary: Vocabulary = MIXED_VOCABULARY) -> list[int]:
    switches = to_dict(rules)
    pieces = wordpiece_oracle.tokenize(text, vocabulary.index, switches.pop("max_word_characters"), **switches)
    return [vocabulary.index[piece] for piece in pieces]


def fast_encoder(rules: TextRules | None = None, **options: int) -> FastEncoder:
    return FastEncoder(MIXED_VOCABULARY, rules or TextRules(), **{"cache_entries": 1000, "threads": 1, **options})


def rows(encoded: Encoded) -> list[list[int]]:
    assert encoded.ids.dtype == np.int32
    assert encoded.offsets.dtype == np.int64
    assert (encoded.offsets[0], encoded.offsets[-1]) == (0, len(encoded.ids))
    return [row.tolist() for row in encoded]


@given(st.lists(all_texts, max_size=12), all_rules, st.sampled_from([1, 16, 200, 1 << 18]))
@example(EVERY_KIND, TextRules(), 1 << 18)
@example(EVERY_KIND, TextRules(), 16)
@example(EVERY_KIND, TextRules(lowercase=False), 16)
@example(EVERY_KIND, TextRules(split_cjk=False, strip_accents=False), 1 << 18)
def test_ids_equal_the_oracle(texts: list[str], rules: TextRules, block_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        encoded = fast_encoder(rules).encode(texts)
    assert rows(encoded) == [oracle_ids(text, rules) for text in texts]


@given(st.lists(all_texts, max_size=12), all_rules)
def test_units_contain_the_tokens_of_the_text_in_order(texts: list[str], rules: TextRules) -> None:
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    borders = np.cumsum([0, *map(len, parts)])
    units = UnitFinder(rules).find(np.frombuffer(b"".join(parts), dtype=np.uint8), borders[:-1])
    result = []
    for start, reach in zip(units.starts.tolist(), units.reaches.tolist(), strict=True):
        unit = units.buffer[start : start + reach].tobytes().rstrip(b"\0")
        assert b"\0" not in unit
        result += basic_tokens(unit.decode("utf-8", "surrogatepass"), rules)
    assert result == [token for text in texts for token in basic_tokens(text, rules)]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_arrow_arrays_slices_and_nulls_are_read(kind: pa.DataType) -> None:
    texts = ["skipped é", "the unable", None, "", "博 ab", "skipped"]
    array = pa.array(texts).cast(kind) if not pa.types.is_dictionary(kind) else pa.array(texts).dictionary_encode()
    expected = [oracle_ids(text or "", TextRules()) for text in texts[1:5]]
    assert rows(fast_encoder().encode(array[1:5])) == expected
    assert rows(fast_encoder().encode(pa.chunked_array([array[1:3], array[3:5]]))) == expected
    assert rows(WordPieceTokenizer(MIXED_VOCABULARY).encode_batch(array[1:5])) == expected


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""], [" "], ["the"], ["", "the", ""]])
def test_few_or_empty_texts_keep_their_rows(texts: list[str]) -> None:
    expected = [oracle_ids(text, TextRules()) for text in texts]
    assert rows(fast_encoder().encode(texts)) == expected
    assert rows(WordPieceTokenizer(MIXED_VOCABULARY).encode_batch(texts)) == expected
    assert rows(fast_encoder().encode(pa.array(texts, type=pa.string()))) == expected


@pytest.mark.parametrize("cache_entries", [0, 5, 1_000_000])
def test_the_cache_is_bounded_and_does_not_change_results(cache_entries: int) -> None:
    encoder = fast_encoder(cache_entries=cache_entries)
    texts = [f"ab{number} é{number} {'x' * (number % 40)}ab{number}" for number in range(300)]
    expected = [oracle_ids(text, TextRules()) for text in texts]
    for _ in range(3):
        assert rows(encoder.encode(texts)) == expected
    # One call may exceed the limit; the next one starts with only the vocabulary.
    encoder.encode(["the"])
    assert (encoder._remembered == 0) == (cache_entries < 100)


def test_distinct_words_and_one_enormous_word_are_encoded() -> None:
    texts = [
        " ".join("".join(letters) for letters in itertools.product("abcdefg", repeat=5)),
        "ab" * 500_000,
        "é" * 500_000,
    ]
    encoder = fast_encoder()
    encoded = encoder.encode(texts)
    assert encoded[0].tolist() == oracle_ids(texts[0], TextRules())
    assert encoded[1].tolist() == encoded[2].tolist() == [MIXED_VOCABULARY.unk_id]


def test_threads_and_batches_keep_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_BATCH_BYTES", 100)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 30)
    texts = [f"the {'ab ' * (number % 7)}é{number}." for number in range(500)]
    expected = [oracle_ids(text, TextRules()) for text in texts]
    assert rows(fast_encoder(threads=4).encode(texts)) == expected


def test_several_threads_may_share_a_tokenizer() -> None:
    encoder = fast_encoder(threads=2)
    texts = [[f"ab{number}é{thread} the" for number in range(200)] for thread in range(4)]
    results: dict[int, Encoded] = {}
    threads = [
        threading.Thread(target=lambda n=number: results.update({n: encoder.encode(texts[n])})) for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [rows(results[n]) for n in range(4)] == [[oracle_ids(text, TextRules()) for text in part] for part in texts]


def test_small_and_large_batches_take_different_paths_to_the_same_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for text in EVERY_KIND if "\ud800" not in text]
    small = rows(WordPieceTokenizer(MIXED_VOCABULARY).encode_batch(texts))
    monkeypatch.setattr(wordpiece, "_SMALL", 0)
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY)
    assert rows(tokenizer.encode_batch(texts)) == small
    assert [tokenizer.encode(text).tolist() for text in texts] == small
    assert tokenizer._fast is not None


def test_a_vocabulary_with_hardly_any_pieces_makes_every_word_unknown() -> None:
    vocabulary = Vocabulary(SPECIAL_PIECES)
    encoded = FastEncoder(vocabulary, TextRules(), cache_entries=10, threads=1).encode(["The end, é!"])
    assert encoded.ids.tolist() == [vocabulary.unk_id] * 5


def test_a_text_that_is_not_a_string_is_refused() -> None:
    with pytest.raises(TypeError):
        fast_encoder().encode(["the", 5])
