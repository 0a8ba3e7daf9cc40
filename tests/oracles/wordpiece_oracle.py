"""BERT's tokenizer in the slowest, most obvious way: one character at a time, straight from the specification.

It uses nothing from the package, so that a mistake there is not repeated here. For the rules `huggingface` the Rust
library `tokenizers` is the specification, so it is asked.
"""

import unicodedata
from collections.abc import Collection

from tokenizers.normalizers import NFC, NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from oracles import unspaced_oracle


def basic_tokens(
    text: str,
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_cjk: bool = True,
    control_rule: str = "huggingface",
    split_unspaced: bool = False,
    keep_letter_marks: bool = False,
) -> list[str]:
    if split_unspaced:
        whole = basic_tokens(
            text,
            lowercase=lowercase,
            strip_accents=strip_accents,
            split_cjk=split_cjk,
            control_rule=control_rule,
            keep_letter_marks=keep_letter_marks,
        )
        return [part for word in whole for part in unspaced_oracle.parts(word)]
    strips = lowercase if strip_accents is None else strip_accents
    keeps = strips and keep_letter_marks
    if control_rule == "huggingface":
        normalizer = BertNormalizer(
            clean_text=True,
            handle_chinese_chars=split_cjk,
            strip_accents=False if keeps else strip_accents,
            lowercase=lowercase,
        )
        # Rust has no surrogates; the first original code dropped them.
        text = "".join(character for character in text if not "\ud800" <= character <= "\udfff")
        text = normalizer.normalize_str(text)
        if keeps:
            text = NFC().normalize_str("".join(c for c in NFD().normalize_str(text) if not is_plain_accent(c)))
        return [word for word, _ in BertPreTokenizer().pre_tokenize_str(text)]
    cleaned = ""
    for character in text:
        if ord(character) == 0 or ord(character) == 0xFFFD or _is_control(character):
            continue
        if _is_whitespace(character):
            cleaned += " "
        elif split_cjk and _is_chinese(ord(character)):
            cleaned += " " + character + " "
        else:
            cleaned += character
    tokens = []
    for word in cleaned.strip().split():
        if lowercase:
            word = word.lower()
        if keeps:
            word = "".join(c for c in unicodedata.normalize("NFD", word) if not is_plain_accent(c))
            word = unicodedata.normalize("NFC", word)
        elif strips:
            word = "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
        tokens += _split_at_punctuation(word)
    return " ".join(tokens).split()


def word_pieces(word: str, vocabulary: Collection[str], max_characters: int = 100) -> list[str]:
    if len(word) > max_characters:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def tokenize(text: str, vocabulary: Collection[str], max_characters: int = 100, **rules: object) -> list[str]:
    pieces = []
    for word in basic_tokens(text, **rules):
        pieces += word_pieces(word, vocabulary, max_characters)
    return pieces


# Blocks of marks for all scripts, and the names of the marks that a script can do without.
_GENERAL = ((0x300, 0x36F), (0x1AB0, 0x1ACE), (0x1DC0, 0x1DFF), (0x20D0, 0x20F0), (0xFE20, 0xFE2F))
_OPTIONAL = (
    *("CYRILLIC", "COMBINING CYRILLIC", "COPTIC COMBINING", "HEBREW", "ARABIC", "SYRIAC", "IDEOGRAPHIC"),
    *("VARIATION SELECTOR", "MONGOLIAN FREE VARIATION SELECTOR"),
)


def is_plain_accent(character: str) -> bool:
    """Whether a mark is not a letter of its script: by its block and its name, rather than from a list."""
    if any(first <= ord(character) <= last for first, last in _GENERAL):
        return unicodedata.category(character) != "Me"
    return unicodedata.category(character) == "Mn" and unicodedata.name(character, "").startswith(_OPTIONAL)


def _is_whitespace(character: str) -> bool:
    return character in (" ", "\t", "\n", "\r") or unicodedata.category(character) == "Zs"


def _is_control(character: str) -> bool:
    if character in ("\t", "\n", "\r"):
        return False
    return unicodedata.category(character) in ("Cc", "Cf")


def _is_punctuation(character: str) -> bool:
    code = ord(character)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(character).startswith("P")


def _is_chinese(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


def _split_at_punctuation(word: str) -> list[str]:
    parts = []
    begins_new = True
    for character in word:
        if _is_punctuation(character):
            parts.append(character)
            begins_new = True
        elif begins_new:
            parts.append(character)
            begins_new = False
        else:
            parts[-1] += character
    return parts
