"""The rules `huggingface` against the Rust library `tokenizers`: every code point, and strings of marks."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bertsmith.text.tokenizers import huggingface_tables as tables
from bertsmith.text.tokenizers.characters import HUGGINGFACE
from bertsmith.text.tokenizers.fast import FastEncoder
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from text.vocabularies import MIXED_VOCABULARY

ALL = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
UNCASED, CASED = TextRules(), TextRules(lowercase=False)
KEEPS_ACCENTS = TextRules(strip_accents=False, split_cjk=False)


def borders() -> list[str]:
    """The characters on both sides of each border between runs of a table, where a mistake of one would show."""
    result = set()
    sets = [tables.DROPPED, tables.SPACES, tables.PUNCTUATION, tables.CHINESE, tables.ACCENTS]
    for table, width in [*((table, 2) for table in sets), (tables.CLASSES, 3)]:
        numbers = list(map(int, table.split()))
        position = 0
        for gap, length in zip(numbers[::width], numbers[1::width], strict=True):
            result |= {position + gap - 1, position + gap, position + gap + length - 1, position + gap + length}
            position += gap + length
    return [chr(code) for code in sorted(result) if 0 <= code < 0x110000 and not 0xD800 <= code <= 0xDFFF]


MARKS = [character for character in ALL if HUGGINGFACE.combining(character)]
# Marks that the removal of accents leaves, so that their order shows.
KEPT_MARKS = [character for character in MARKS if not HUGGINGFACE.is_accent(character)]
BORDERS = borders()


def expected_tokens(text: str, rules: TextRules) -> list[str]:
    normalizer = BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.split_cjk,
        strip_accents=rules.strip_accents,
        lowercase=rules.lowercase,
    )
    return [word for word, _ in BertPreTokenizer().pre_tokenize_str(normalizer.normalize_str(text))]


def difference(texts: list[str], rules: TextRules) -> list[tuple[str, list[str], list[str]]]:
    """The texts that give other tokens than in Rust; they are asked about together, and one by one if that differs."""
    between = " <> "
    joined = between.join(texts)
    if basic_tokens(joined, rules) == expected_tokens(joined, rules):
        return []
    pairs = [(text, basic_tokens(text, rules), expected_tokens(text, rules)) for text in texts]
    return [pair for pair in pairs if pair[1] != pair[2]]


@pytest.mark.parametrize(
    "rules", [UNCASED, pytest.param(CASED, marks=pytest.mark.slow), pytest.param(KEEPS_ACCENTS, marks=pytest.mark.slow)]
)
def test_every_code_point_alone_and_between_letters_gives_the_tokens_of_rust(rules: TextRules) -> None:
    for start in range(0, len(ALL), 1 << 16):
        part = ALL[start : start + (1 << 16)]
        for text in (" ".join(part), " ".join(f"A{character}B" for character in part)):
            if basic_tokens(text, rules) != expected_tokens(text, rules):
                pytest.fail(str(difference(text.split(" "), rules)[:5]))


@pytest.mark.parametrize("rules", [UNCASED, TextRules(lowercase=False, strip_accents=True)])
def test_every_mark_takes_its_place_among_the_marks_that_stay(rules: TextRules) -> None:
    assert len(KEPT_MARKS) > 50
    representatives = list({HUGGINGFACE.combining(character): character for character in KEPT_MARKS}.values())
    assert len(representatives) > 5
    texts = [f"A{mark}{kept}{mark}B" for mark in {*MARKS, *BORDERS} for kept in representatives]
    assert difference(texts, rules) == []


def test_random_strings_give_the_tokens_of_rust_and_the_same_tokens_with_offsets() -> None:
    draws = random.Random(2018)
    pool = [*MARKS, *KEPT_MARKS * 8, *BORDERS, *"aAbBéÉßİıΣσςﬁ한ㄱᄀ각博か \t\u2028.,!?'-" * 40]
    pools = [pool, ALL]
    texts = ["".join(draws.choices(pools[number % 2], k=draws.randint(1, 30))) for number in range(4000)]
    for rules in (UNCASED, CASED, KEEPS_ACCENTS, TextRules(lowercase=False, strip_accents=True)):
        assert difference(texts, rules) == []
        for text in texts:
            result = [token.text for token in basic_tokens_with_offsets(text, rules)]
            assert result == basic_tokens(text, rules), ascii(text)


@given(st.text(st.sampled_from([*KEPT_MARKS, *MARKS[:200], *"aΣ 박.\u0344\u1b06"]), max_size=12))
def test_any_order_of_marks_gives_the_tokens_of_rust(text: str) -> None:
    assert difference([text], UNCASED) == []


@pytest.mark.parametrize("control_rule", ["huggingface", "google"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_fast_path_gives_the_same_ids_at_every_border_of_the_tables(control_rule: str, lowercase: bool) -> None:
    rules = TextRules(control_rule=control_rule, lowercase=lowercase)
    texts = [
        f"the{character}un ab{character}{mark}.{character}" for character in BORDERS for mark in ("", "\u302e", "Σ")
    ]
    fast = FastEncoder(MIXED_VOCABULARY, rules, cache_entries=1000, threads=1).encode(texts)
    plain = WordPieceTokenizer(MIXED_VOCABULARY, rules)
    assert [row.tolist() for row in fast] == [plain._ids(text) for text in texts]
