"""BERT's cleaning and splitting of text, against the published examples and the slow oracle."""

import unicodedata

import pytest
from hypothesis import given
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import Split

from bertsmith.base.core.errors import ConfigError
from bertsmith.base.core.settings import from_dict, to_dict
from bertsmith.text.tokenizers.characters import HUGGINGFACE, PYTHON, Characters
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from oracles.wordpiece_oracle import basic_tokens as oracle
from text.vocabularies import all_rules, all_texts

CASED = TextRules(lowercase=False)


def oracle_tokens(text: str, rules: TextRules) -> list[str]:
    switches = to_dict(rules)
    del switches["max_word_characters"]
    return oracle(text, **switches)


@pytest.mark.parametrize(
    ("text", "lower", "cased"),
    [
        (" \tHeLLo!how  \n Are yoU?  ", "hello ! how are you ?", "HeLLo ! how Are yoU ?"),
        ("Héllo", "hello", "Héllo"),
        ("ah博推zz", "ah 博 推 zz", "ah 博 推 zz"),
        ("John Johanson's,", "john johanson ' s ,", "John Johanson ' s ,"),
        ("[MASK]", "[ mask ]", "[ MASK ]"),
        ("", "", ""),
        (" \t\n ", "", ""),
    ],
)
def test_the_published_examples_are_split_as_published(text: str, lower: str, cased: str) -> None:
    assert basic_tokens(text, TextRules()) == lower.split()
    assert basic_tokens(text, CASED) == cased.split()


@pytest.mark.parametrize("known", [PYTHON, HUGGINGFACE])
def test_the_published_single_characters_are_classed_as_published(known: Characters) -> None:
    assert all(map(known.is_whitespace, " \t\r\n\u00a0"))
    assert not any(map(known.is_whitespace, "A-\u200b\x0b"))
    assert known.is_dropped("\u0005")
    assert not any(map(known.is_dropped, "A \t\r\n\U0001f4a9"))
    assert all(map(known.is_punctuation, "-$`."))
    assert not any(map(known.is_punctuation, "A "))
    assert [known.is_cjk(character) for character in "博㐀豈𠀀かハ한a"] == [True] * 4 + [False] * 4


def test_of_the_characters_as_old_as_both_tables_the_two_rules_drop_others_only_in_private_use_and_surrogates() -> None:
    """Among those of Unicode 3.2, whose categories never changed since."""
    old = unicodedata.ucd_3_2_0
    differing = {
        old.category(character)
        for character in map(chr, range(0x110000))
        if old.category(character) == unicodedata.category(character) != "Cn"
        if HUGGINGFACE.is_dropped(character) != PYTHON.is_dropped(character)
    }
    assert differing == {"Co", "Cs"}
    assert TextRules.google().max_word_characters == 200
    assert TextRules().max_word_characters == 100


def test_accents_and_chinese_characters_have_separate_switches() -> None:
    assert basic_tokens("Été", TextRules(strip_accents=False)) == ["été"]
    assert basic_tokens("Été", TextRules(lowercase=False, strip_accents=True)) == ["Ete"]
    assert basic_tokens("a博b", TextRules(split_cjk=False)) == ["a博b"]


def test_python_white_space_that_bert_treats_as_control_is_dropped() -> None:
    assert basic_tokens("a\x0bb\x0cc\x1cd\x1fe\x85f", TextRules()) == ["abcdef"]
    assert basic_tokens("a\x85é\x1cb", CASED) == ["aéb"]


def test_line_and_paragraph_separators_split_words() -> None:
    assert basic_tokens("a\u2028b\u2029c", TextRules()) == ["a", "b", "c"]


def test_a_sigma_at_the_end_of_a_word_becomes_a_final_sigma_only_where_the_whole_word_is_read() -> None:
    assert basic_tokens("ΟΔΟΣ ΣΑΣ.", TextRules.google()) == ["οδος", "σας", "."]
    assert basic_tokens("ΟΔΟΣ ΣΑΣ.", TextRules()) == ["οδοσ", "σασ", "."]


@given(all_texts, all_rules)
def test_tokens_equal_the_oracle(text: str, rules: TextRules) -> None:
    assert basic_tokens(text, rules) == oracle_tokens(text, rules)


@given(all_texts, all_rules)
def test_tokens_with_offsets_are_the_same_tokens_with_ascending_offsets(text: str, rules: TextRules) -> None:
    tokens = basic_tokens_with_offsets(text, rules)
    assert [token.text for token in tokens] == basic_tokens(text, rules)
    previous = 0
    for token in tokens:
        assert len(token.text) == len(token.starts) == len(token.ends)
        assert previous <= min(token.starts)
        assert all(end == start + 1 <= len(text) for start, end in zip(token.starts, token.ends, strict=True))
        previous = min(token.starts)


@given(all_texts)
def test_without_normalisation_every_character_is_found_at_its_offset(text: str) -> None:
    for token in basic_tokens_with_offsets(text, CASED):
        assert [text[start] for start in token.starts] == list(token.text)


def test_a_character_that_becomes_several_keeps_its_offset() -> None:
    result = basic_tokens_with_offsets("İ한ﬁ e\u0301!", TextRules())
    assert [(token.text, token.starts) for token in result] == [
        ("i\u1112\u1161\u11abﬁ", [0, 1, 1, 1, 2]),
        ("e", [4]),
        ("!", [6]),
    ]


@pytest.mark.parametrize("text", ["a" * 30_000, "É" * 30_000 + "!", "x" * 20_000 + " .." + "ﬁ" * 20_000])
def test_words_of_any_length_give_the_same_tokens_with_offsets(text: str) -> None:
    result = basic_tokens_with_offsets(text, TextRules())
    assert [token.text for token in result] == basic_tokens(text, TextRules())
    assert all(len(token.text) == len(token.starts) == len(token.ends) for token in result)
    origins = [start for token in result for start in token.starts]
    assert origins == [position for position, character in enumerate(text) if character != " "]
    assert all(end == start + 1 for token in result for start, end in zip(token.starts, token.ends, strict=True))


def test_reordered_marks_have_the_offsets_that_the_library_counts() -> None:
    library = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    library.normalizer, library.pre_tokenizer = BertNormalizer(), Split(Regex("."), "isolated")
    text = "a\u302e\U00016ff0"  # spacing marks of classes 224 and 6, which accent stripping leaves
    (token,) = basic_tokens_with_offsets(text, TextRules.google())
    assert (token.text, token.starts) == ("a\U00016ff0\u302e", [0, 1, 2])
    text = "a\u302e\U0001d165"  # of classes 224 and 216; the Rust library does not know U+16FF0
    (token,) = basic_tokens_with_offsets(text, TextRules())
    assert (token.text, token.starts) == ("a\U0001d165\u302e", [0, 1, 2])
    assert token.starts == [start for start, _ in library.encode(text).offsets]
    kept = TextRules(keep_letter_marks=True, max_word_characters=1, split_unspaced=True)
    assert [token.starts for token in basic_tokens_with_offsets("\u0e48\u093c", kept)] == [[0], [1]]


def test_rules_survive_json_and_refuse_nonsense() -> None:
    rules = TextRules(lowercase=False, strip_accents=True, control_rule="google")
    for chosen in (rules, TextRules.named("unspaced")):
        assert from_dict(TextRules, to_dict(chosen), "here") == chosen
    with pytest.raises(ConfigError, match="control_rule 'huggingface' or 'google'; found 'python'"):
        TextRules(control_rule="python")
    with pytest.raises(ConfigError, match="max_word_characters must be at least 1, not 0"):
        TextRules(max_word_characters=0)
