"""Marks that are letters of their script stay in lower case, equally by every path and by the package tokenizers."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bertsmith.models.model_files.bpe_json import learned_json
from bertsmith.text.tokenizers.characters import HUGGINGFACE, PYTHON
from bertsmith.text.tokenizers.letter_marks import Placed, composed, is_accent, without_accents
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from bertsmith.text.tokenizers.pipeline import PipelineTokenizer
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES
from oracles import wordpiece_oracle
from text.vocabularies import all_texts

KEEPS, PLAIN = TextRules(keep_letter_marks=True), TextRules()
GOOGLE = TextRules(keep_letter_marks=True, control_rule="google")
ALL = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
WORDS = (
    "ที่นี่ ประเทศไทย ผู้ น้ำ",
    "ເມືອງລາວ ບໍ່",
    "ភាសាខ្មែរ",
    "မြန်မာဘာသာ",
    "हिन्दी क़लम",
    "বাংলাদেশের মুক্তি",
    "தமிழ்",
    "བོད་སྐད",
    "ދިވެހި",
)


@pytest.mark.parametrize("rules", [KEEPS, GOOGLE, TextRules.named("unspaced")])
@pytest.mark.parametrize("text", WORDS)
def test_letters_keep_their_marks(text: str, rules: TextRules) -> None:
    spaced = "".join(
        f" {character} " if PYTHON.is_punctuation(character) else character
        for character in unicodedata.normalize("NFC", text)
    )
    assert "".join(basic_tokens(text, rules)) == "".join(spaced.split())
    assert "".join(basic_tokens(text, PLAIN)) != "".join(spaced.split()), "BERT's rules lose some"


@pytest.mark.parametrize("rules", [KEEPS, GOOGLE])
def test_accents_go_and_syllables_stay_whole(rules: TextRules) -> None:
    text = "Été ÅNGSTRÖM Ρήμα ёлка שָׁלוֹם مُحَمَّد 한국어 ガギグ が İ"
    expected = "ete angstrom ρημα елка שלום محمد 한국어 ガギグ が i"
    assert basic_tokens(text, rules) == expected.split()
    assert basic_tokens(unicodedata.normalize("NFD", text), rules) == expected.split()
    assert basic_tokens("Été ที่", TextRules(lowercase=False, keep_letter_marks=True)) == ["Été", "ที่"]
    assert basic_tokens("Été ที่", TextRules(strip_accents=False, keep_letter_marks=True)) == ["été", "ที่"]


def test_the_list_of_accents_is_that_of_the_names_of_marks() -> None:
    assert [character for character in ALL if is_accent(character) != wordpiece_oracle.is_plain_accent(character)] == []


@given(all_texts, st.sampled_from([KEEPS, GOOGLE]))
def test_tokens_are_those_of_the_oracle_and_have_their_places(text: str, rules: TextRules) -> None:
    tokens = basic_tokens(text, rules)
    assert tokens == wordpiece_oracle.basic_tokens(text, control_rule=rules.control_rule, keep_letter_marks=True)
    placed = basic_tokens_with_offsets(text, rules)
    assert [token.text for token in placed] == tokens
    for token in placed:
        assert all(0 <= start < end <= len(text) for start, end in zip(token.starts, token.ends, strict=True))


def test_a_composed_character_comes_from_all_of_its_parts() -> None:
    (token,) = basic_tokens_with_offsets("x\u30ab\u0301\u3099\u1112\u1161\u11ab", KEEPS)
    assert token == ("xガ한", [0, 1, 4], [1, 4, 7])


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_what_can_be_decomposed_gives_the_tokens_of_the_package_in_either_form(form: str) -> None:
    """Also what only the running Python composes, such as U+11938, of which the tables of the package know nothing."""
    for character in ALL:
        if unicodedata.normalize("NFD", character) == character or 0xAC1C < ord(character) <= 0xD788:
            continue  # Of Korean syllables, those with the first and the last vowel are enough.
        text = unicodedata.normalize(form, character)
        theirs = wordpiece_oracle.basic_tokens(text, keep_letter_marks=True)
        assert basic_tokens(text, KEEPS) == theirs, ascii(text)
        assert [token.text for token in basic_tokens_with_offsets(text, KEEPS)] == theirs, ascii(text)


@pytest.mark.parametrize("known", [PYTHON, HUGGINGFACE])
def test_composition_is_that_of_the_standard(known: object) -> None:
    draws = random.Random(3)
    marks = [
        character
        for character in ALL
        if unicodedata.combining(character) and known.combining(character) == unicodedata.combining(character)
    ]
    pool = [*marks, *"aeo\u09c7\u09be\u0bc6\u0bd7\u1100\u1161\u11a8\u30ab\u304b\u0928" * 20, *"\u3099\u0301\u093c" * 20]
    for _ in range(500):
        text = unicodedata.normalize("NFD", "".join(draws.choices(pool, k=draws.randint(1, 8))))
        parts = [Placed(character, index, index + 1) for index, character in enumerate(text)]
        result = composed(parts, known)
        assert "".join(part.text for part in result) == unicodedata.normalize("NFC", text), ascii(text)
    assert without_accents("a\u0301\u3099") == "a\u3099"


@pytest.mark.slow
def test_every_code_point_alone_and_between_letters_gives_the_tokens_of_the_package() -> None:
    for start in range(0, len(ALL), 1 << 11):  # small parts: one odd character takes a whole text to the slow path
        part = ALL[start : start + (1 << 11)]
        for text in (" ".join(part), " ".join(f"A{character}B" for character in part)):
            theirs = wordpiece_oracle.basic_tokens(text, keep_letter_marks=True)
            assert basic_tokens(text, KEEPS) == theirs


def byte_pairs(*, unspaced: bool = False) -> PipelineTokenizer:
    """Byte pairs without merges: each character of a word is a piece."""
    letters = sorted(set("".join(WORDS) + "etaxガ한"))
    pieces = [*SPECIAL_PIECES, *(form for letter in letters for form in (letter, f"{letter}</w>"))]
    rules = TextRules(keep_letter_marks=True, split_unspaced=unspaced)
    description = learned_json({piece: id for id, piece in enumerate(pieces)}, [], rules)
    return PipelineTokenizer(description, SPECIAL_PIECES, source="a test")


@pytest.mark.parametrize("unspaced", [False, True])
def test_the_rules_of_byte_pairs_are_those_of_their_description(unspaced: bool) -> None:
    rules = byte_pairs(unspaced=unspaced).rules
    assert (rules.lowercase, rules.keeps_letter_marks, rules.split_unspaced) == (True, True, unspaced)


@given(all_texts | st.sampled_from(WORDS), st.booleans())
def test_byte_pairs_have_the_same_words(text: str, unspaced: bool) -> None:
    text = "".join(character for character in text if not "\ud800" <= character <= "\udfff")
    tokenizer = byte_pairs(unspaced=unspaced)
    words = basic_tokens(text, TextRules(keep_letter_marks=True, split_unspaced=unspaced))
    plain: Tokenizer = tokenizer._tokenizer
    words_of_peer = [word for word, _ in plain.pre_tokenizer.pre_tokenize_str(plain.normalizer.normalize_str(text))]
    assert words_of_peer == words
    if text in WORDS:
        assert "[UNK]" not in tokenizer.tokenize(text)
