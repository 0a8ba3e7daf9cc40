"""Scripts without spaces between words are split, equally by every path and by the package tokenizers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.models.model_files.tokenizer_writing import tokenizer_json
from bertsmith.text.tokenizers.normalize import TextRules, basic_tokens, basic_tokens_with_offsets
from bertsmith.text.tokenizers.unspaced import LONGEST_RUN, parts_of_words
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary
from bertsmith.text.tokenizers.wordpiece import WordPieceTokenizer
from oracles import unspaced_oracle

CASED = TextRules(lowercase=False, split_unspaced=True)
BLOCKS = [range(0x0E00, 0x0F00), range(0x1000, 0x10A0), range(0x1780, 0x1800), range(0x3040, 0x3100)]
characters = st.one_of(
    *(st.sampled_from([chr(code) for code in block]) for block in BLOCKS), st.sampled_from("aB1 .中한é\u200b")
)
texts = st.lists(characters, max_size=30).map("".join) | st.one_of(
    *(st.text(st.sampled_from([chr(code) for code in block]), max_size=30) for block in BLOCKS)
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ประเทศไทยสวยงาม", "ประ เทศ ไทยสวยงาม"),
        ("ເມືອງລາວ", "ເມືອງລາວ"),
        ("ບໍ່ແມ່ນ", "ບໍ່ ແມ່ນ"),
        ("ព្រះរាជាណាចក្រកម្ពុជា", "ព្រះ រា ជា ណា ច ក្រ ក ម្ពុ ជា"),
        ("မြန်မာနိုင်ငံ", "မြန် မာ နိုင် ငံ"),
        ("コンピューターはすごい", "コンピューター はすごい"),
        ("東京タワーへ", "東 京 タワー へ"),
        ("나는 학교에", "나는 학교에"),
        ("iPhoneของฉัน15", "iPhone ของฉัน 15"),
        ("", ""),
    ],
)
def test_words_are_split_where_the_script_shows_a_border(text: str, parts: str) -> None:
    assert basic_tokens(text, CASED) == parts.split()


@given(text=texts)
def test_the_parts_are_those_of_the_obvious_loop_and_lose_nothing(text: str) -> None:
    words = text.split()
    result = parts_of_words(words)
    assert result == [part for word in words for part in unspaced_oracle.parts(word)]
    assert "".join(result) == "".join(words)


def test_a_long_run_is_cut_between_letters_with_their_marks() -> None:
    parts = basic_tokens("กี่" * 200, CASED)
    assert set(parts[:-1]) == {"กี่" * LONGEST_RUN}
    assert len(basic_tokens("กี่" * 200, TextRules(lowercase=False))) == 1


@given(text=texts, lowercase=st.booleans())
def test_the_package_tokenizers_gives_the_same_pieces_from_our_description(text: str, lowercase: bool) -> None:
    ours, theirs = PATHS[lowercase]
    pieces = ours.tokenize(text)
    assert theirs.encode(text, add_special_tokens=False).tokens == pieces
    # Many texts take the fast path, whose result does not depend on the number of texts.
    assert ours._fast_encoder().encode([text, text]).ids.tolist() == 2 * ours.encode(text).tolist()
    assert ours.encode_with_offsets(text).ids.tolist() == ours.encode(text).tolist()


@given(text=texts)
def test_offsets_lead_to_the_characters_of_a_part(text: str) -> None:
    for token in basic_tokens_with_offsets(text, CASED):
        assert "".join(text[start:end] for start, end in zip(token.starts, token.ends, strict=True)) == token.text


def test_one_unknown_letter_costs_a_part_and_not_a_phrase() -> None:
    vocabulary = Vocabulary(
        [*SPECIAL_PIECES, *(form for letter in sorted(set("ประเทศไทยสวง")) for form in (letter, f"##{letter}"))]
    )
    text = "ประเทศไทยสวยเงฆ"
    assert WordPieceTokenizer(vocabulary, TextRules(lowercase=False)).tokenize(text) == ["[UNK]"]
    pieces = WordPieceTokenizer(vocabulary, CASED).tokenize(text)
    assert (pieces[-1], pieces.count("[UNK]"), len(pieces)) == ("[UNK]", 1, 13)


def _paths(lowercase: bool):
    tokenizers = pytest.importorskip("tokenizers")
    letters = [chr(code) for block in BLOCKS for code in block] + [*"aBb1.中한é"]
    vocabulary = Vocabulary([*SPECIAL_PIECES, *(form for letter in letters for form in (letter, f"##{letter}"))])
    ours = WordPieceTokenizer(vocabulary, TextRules(lowercase=lowercase, split_unspaced=True))
    return ours, tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(ours)))


PATHS = {lowercase: _paths(lowercase) for lowercase in (False, True)}
