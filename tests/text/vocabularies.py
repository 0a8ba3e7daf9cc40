"""Small vocabularies, rules and strategies shared by the tests of text."""

from hypothesis import strategies as st

from bertsmith.text.tokenizers.normalize import TextRules
from bertsmith.text.tokenizers.vocabulary import SPECIAL_PIECES, Vocabulary

PUBLISHED = [
    "[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ",", "[PAD]", "[MASK]",
]  # fmt: skip
# Pieces that overlap, so that the longest match is not always the obvious one; long ones for every key width.
MIXED = [
    *SPECIAL_PIECES, *"abcdefgxyz0123.,!?'-[]#$", *(f"##{c}" for c in "abcdefg0123éßςσ\u0301가"),
    "the", "un", "una", "##aff", "##able", "##ab", "##bl", "abcdefgh", "abcdefghi", "##cdefgabcd",
    "##efgabcdefgabcdefgab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "Ab", "##AB", "The", "é", "e\u0301", "ß", "ς",
    "σ", "##αβ", "ου", "한", "가", "\u1112\u1161\u11ab", "##\u1161", "博", "推", "か", "が", "😀", "’", "“", "…",
    "\u2028", "mask", "MASK",
]  # fmt: skip
MIXED_VOCABULARY = Vocabulary(MIXED)

ODD_CHARACTERS = [
    *"abcdefgABCDEFGxyz0123456789.,!?'-[]#$éÉßſıİςσΣαΑβ가한博推か゛がﬁ😀𝒜𠀀’“…。、",
    *"\x00\x01\x05\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u0300\u0301\u0345\u037e\u0387\u1161\u11a8\u1680\u1fef\u2003\u200b",
    *"\u200d\u2028\u2029\u2126\u302e\u3000\ue000\ufeff\ufffd\U000e0041\U00010ead", *"        \n\r\t",
    *"ไทเกี่ກຄໄကမ္ဘာန်កម្ពុជាカーहिन्दीক়\u0e48\u0e38\u3099\u09c7\u09be\u1112\u11ab",
    "the ", "un", "able", "[MASK]", "[SEP]", "abcdefgh", "aaaaaaaa",
]  # fmt: skip
odd_texts = st.lists(st.sampled_from(ODD_CHARACTERS), max_size=40).map("".join)
all_texts = odd_texts | st.text(st.characters(exclude_categories=()), max_size=30) | st.text(max_size=30)
all_rules = st.builds(
    TextRules,
    lowercase=st.booleans(),
    strip_accents=st.sampled_from([None, True, False]),
    split_cjk=st.booleans(),
    control_rule=st.sampled_from(["huggingface", "google"]),
    max_word_characters=st.sampled_from([1, 3, 8, 20, 100]),
    split_unspaced=st.booleans(),
    keep_letter_marks=st.booleans(),
)
