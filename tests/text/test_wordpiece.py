"""The tokenizer for single texts: pieces, offsets, special pieces, decoding."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.base.core.settings import to_dict
from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from oracles import wordpiece_oracle
from text.vocabularies import MIXED_VOCABULARY, PUBLISHED, all_rules, all_texts, odd_texts

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "bert_tokenizer.json").read_text(encoding="utf-8"))


def oracle_pieces(text: str, vocabulary: Vocabulary, rules: TextRules) -> list[str]:
    switches = to_dict(rules)
    return wordpiece_oracle.tokenize(text, vocabulary.index, switches.pop("max_word_characters"), **switches)


def test_the_published_example_gives_the_published_ids() -> None:
    tokenizer = WordPieceTokenizer(Vocabulary(PUBLISHED))
    assert tokenizer.tokenize("UNwantéd,running") == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.encode("UNwantéd,running").tolist() == [7, 4, 5, 10, 8, 9]


def test_a_word_that_cannot_be_split_is_one_unknown_piece() -> None:
    vocabulary = Vocabulary([piece for piece in PUBLISHED if piece != ","])
    assert WordPieceTokenizer(vocabulary).tokenize("unwantedX running") == ["[UNK]", "runn", "##ing"]
    assert WordPieceTokenizer(vocabulary).tokenize("") == []


@pytest.mark.parametrize(("word", "pieces"), [("tweeting", ["tweet", "##ing"]), ("xanax", ["xa", "##nax"])])
def test_the_words_of_the_lecture_are_split_as_in_the_lecture(word: str, pieces: list[str]) -> None:
    assert WordPieceTokenizer(Vocabulary([*SPECIAL_PIECES, "tweet", "##ing", "xa", "##nax"])).tokenize(word) == pieces


def test_japanese_and_korean_text_is_encoded() -> None:
    vocabulary = Vocabulary([*SPECIAL_PIECES, "日", "本", "語", "で", "##す", "한국", "##어"])
    tokenizer = WordPieceTokenizer(vocabulary, TextRules(lowercase=False))
    assert tokenizer.tokenize("日本語です 한국어") == ["日", "本", "語", "で", "##す", "한국", "##어"]


def test_a_word_above_the_length_limit_is_one_unknown_piece() -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY)
    assert len(tokenizer.encode("a" * 100)) > 1
    assert tokenizer.tokenize("a" * 101) == ["[UNK]"]
    assert len(WordPieceTokenizer(MIXED_VOCABULARY, TextRules.google()).encode("a" * 200)) > 1
    assert WordPieceTokenizer(MIXED_VOCABULARY, TextRules(max_word_characters=2)).tokenize("the ab") == [
        "[UNK]",
        "a",
        "##b",
    ]


@given(all_texts, all_rules)
def test_pieces_equal_the_oracle(text: str, rules: TextRules) -> None:
    assert WordPieceTokenizer(MIXED_VOCABULARY, rules).tokenize(text) == oracle_pieces(text, MIXED_VOCABULARY, rules)


@pytest.mark.parametrize("name", ["uncased", "cased"])
def test_ids_and_offsets_equal_those_of_transformers(name: str) -> None:
    tokenizer = WordPieceTokenizer(Vocabulary(GOLDEN["vocabulary"]), TextRules(lowercase=name == "uncased"))
    assert len(GOLDEN["cases"]) > 300
    for case in GOLDEN["cases"]:
        pieces = tokenizer.encode_with_offsets(case["text"], special_tokens=True)
        offsets = [list(span) for span in zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True)]
        assert (pieces.ids.tolist(), offsets) == (case[name]["ids"], case[name]["offsets"]), case["text"]


@given(all_texts, all_rules, st.booleans())
def test_offsets_come_with_the_same_ids_and_stay_in_the_text(text: str, rules: TextRules, special: bool) -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, rules)
    pieces = tokenizer.encode_with_offsets(text, special_tokens=special)
    assert pieces.ids.tolist() == tokenizer.encode(text, special_tokens=special).tolist()
    assert (pieces.starts >= 0).all()
    assert (pieces.ends <= len(text)).all()
    assert (pieces.starts < pieces.ends).all()


@given(odd_texts)
def test_the_text_at_the_offsets_of_a_known_word_is_the_word(text: str) -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, TextRules(lowercase=False, control_rule="google"))
    pieces = tokenizer.encode_with_offsets(text)
    for id, start, end in zip(pieces.ids.tolist(), pieces.starts.tolist(), pieces.ends.tolist(), strict=True):
        piece = MIXED_VOCABULARY.pieces[id].removeprefix("##")
        result = "".join(
            c for c in text[start:end] if wordpiece_oracle.basic_tokens(c, lowercase=False, control_rule="google")
        )
        assert id == MIXED_VOCABULARY.unk_id or result == piece


def test_special_pieces_are_protected_only_on_request() -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY)
    text = "the[MASK]ab [SEP]"
    assert tokenizer.tokenize(text, special_tokens=True) == ["the", "[MASK]", "a", "##b", "[SEP]"]
    assert tokenizer.tokenize(text) == ["the", "[", "mask", "]", "a", "##b", "[", "[UNK]", "]"]
    assert not MIXED_VOCABULARY.special_ids - {MIXED_VOCABULARY.unk_id} & set(tokenizer.encode(text).tolist())


@given(st.lists(all_texts, max_size=8))
def test_a_batch_with_special_pieces_equals_its_texts(texts: list[str]) -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY)
    encoded = tokenizer.encode_batch(texts, special_tokens=True)
    assert [row.tolist() for row in encoded] == [tokenizer.encode(t, special_tokens=True).tolist() for t in texts]


@given(odd_texts)
def test_decoded_text_is_encoded_to_the_same_ids(text: str) -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, TextRules(lowercase=False))
    ids = tokenizer.encode(text)
    decoded = tokenizer.decode(ids, skip_special=False)
    assert tokenizer.encode(decoded, special_tokens=True).tolist() == ids.tolist()


def test_decoding_joins_pieces_and_skips_special_ones() -> None:
    tokenizer = WordPieceTokenizer(Vocabulary(PUBLISHED))
    ids = np.array([1, 7, 4, 5, 2, 9], dtype=np.int32)
    assert tokenizer.decode(ids) == "unwanteding"
    assert tokenizer.decode(ids.tolist(), skip_special=False) == "[CLS] unwanted [SEP]ing"
    assert tokenizer.decode([]) == ""


def test_the_number_of_cached_words_is_bounded() -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, cache_entries=10)
    words = [f"a{number}" for number in range(100)]
    first = tokenizer.encode(" ".join(words))
    assert len(tokenizer._memo) <= 10
    assert tokenizer.encode(" ".join(words)).tolist() == first.tolist()


def test_a_tokenizer_can_be_sent_to_another_process() -> None:
    tokenizer = WordPieceTokenizer(MIXED_VOCABULARY, TextRules(lowercase=False), cache_entries=7, threads=1)
    tokenizer.encode_batch(["the"] * 20_000)
    other = pickle.loads(pickle.dumps(tokenizer))  # noqa: S301 - our own bytes, as multiprocessing does it
    assert (other.vocabulary, other.rules, other.cache_entries, other.threads) == (
        MIXED_VOCABULARY,
        tokenizer.rules,
        7,
        1,
    )
    assert other.encode("the ab").tolist() == tokenizer.encode("the ab").tolist()
