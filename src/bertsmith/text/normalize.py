"""From text to basic tokens: BERT's cleaning, lower-casing, accent stripping and punctuation splitting.

The steps, in this order: drop control and invalid characters, turn white space into spaces, put spaces around Chinese
characters, lower-case, strip accents, split at punctuation, split at white space. None of them looks across white space
or a Chinese character, so a text may be cut there and processed in parts; `units.py` relies on that.

Python's Unicode tables determine the category of a character. The characters on which the Rust library `tokenizers`
differs (its category tables are older) are listed in docs/decisions/0009-unicode-tables.md.

Source: `BasicTokenizer` in the original tokenization.py, before and after its change of 2019-03-28.
"""

import dataclasses
import re
import unicodedata
from typing import Literal, NamedTuple

from bertsmith.settings import help_field, require

# The blocks that the original code treats as Chinese: ideographs, but neither kana nor Hangul.
CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
# The first code dropped every category C*. The Rust library, which reads our model folders, keeps unassigned ones (Cn).
_DROPPED_CATEGORIES = {"huggingface": ("Cc", "Cf", "Co", "Cs"), "google": ("Cc", "Cf")}
_ASCII_WORD_OR_SIGN = re.compile(r"[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
# Whitespace for Python, control characters for BERT: they are dropped, which joins the characters around them.
_DROPPED_ASCII = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextRules:
    """How text is cleaned and split before its words are looked up.

    The defaults are those of the Hugging Face tokenizers, so that a model folder behaves the same there.

    Raises:
        ConfigError: the control rule is unknown or the word limit is below 1.
    """

    lowercase: bool = help_field(True, "lower-case the text (an uncased model)")
    strip_accents: bool | None = help_field(None, "remove accents; by default only if the text is lower-cased")
    split_cjk: bool = help_field(True, "treat every Chinese character as a separate word")
    control_rule: Literal["huggingface", "google"] = help_field(
        "huggingface", "dropped categories: Cc, Cf, Co and Cs (huggingface) or only Cc and Cf (google, since 2019)"
    )
    max_word_characters: int = help_field(
        100, "a longer word becomes [UNK] (100 in the first release and in Hugging Face, 200 in the later one)"
    )

    def __post_init__(self) -> None:
        require(
            self.control_rule in ("huggingface", "google"),
            expected="control_rule 'huggingface' or 'google'",
            found=repr(self.control_rule),
            fix="use one of the two",
        )
        require(
            self.max_word_characters >= 1,
            expected="max_word_characters of at least 1",
            found=self.max_word_characters,
            fix="use 100, or 200 as the later original code does",
        )

    @property
    def strips_accents(self) -> bool:
        """Whether accents are removed: `strip_accents`, or the same as `lowercase` if that is not set."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    @classmethod
    def google(cls, *, lowercase: bool = True) -> "TextRules":
        """The rules of the final original code: only Cc and Cf are dropped, words may have 200 characters."""
        return cls(lowercase=lowercase, control_rule="google", max_word_characters=200)


class BasicToken(NamedTuple):
    """A basic token with the origin of each of its characters.

    Character k of `text` comes from the characters `starts[k]` to `ends[k]` (exclusive) of the original.
    """

    text: str
    starts: list[int]
    ends: list[int]


def is_whitespace(character: str) -> bool:
    r"""True for space, tab, line feed, carriage return and category Zs.

    >>> is_whitespace("\u00a0"), is_whitespace("\u200b"), is_whitespace("\x0b")
    (True, False, False)
    """
    return character in " \t\n\r" or unicodedata.category(character) == "Zs"


def is_dropped(character: str, rules: TextRules) -> bool:
    r"""True for characters that cleaning removes: U+0000, U+FFFD and control characters by `rules.control_rule`.

    >>> [is_dropped(c, TextRules()) for c in "\x05\ue000a"], is_dropped("\ue000", TextRules.google())
    ([True, True, False], False)
    """
    if character in "\t\n\r":
        return False
    return unicodedata.category(character) in _DROPPED_CATEGORIES[rules.control_rule] or character == "\ufffd"


def is_punctuation(character: str) -> bool:
    """True for ASCII signs (including those that Unicode calls symbols, such as $) and every category P*.

    >>> [is_punctuation(c) for c in "$`-.¿’€a "]
    [True, True, True, True, True, True, False, False, False]
    """
    code = ord(character)
    if code < 128:
        return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return unicodedata.category(character)[0] == "P"


def is_cjk(character: str) -> bool:
    """True for Chinese characters, which do not include kana and Hangul.

    >>> [is_cjk(c) for c in "博か한"]
    [True, False, False]
    """
    code = ord(character)
    return code >= 0x3400 and any(first <= code <= last for first, last in CJK_RANGES)


def basic_tokens(text: str, rules: TextRules) -> list[str]:
    r"""The words and punctuation characters of a text.

    Lower-casing and NFD are applied to the whole text at once: neither looks across white space.

    >>> basic_tokens(" \tHeLLo!how  \n Are yoU?  ", TextRules())
    ['hello', '!', 'how', 'are', 'you', '?']
    >>> basic_tokens("Héllo ah博推zz", TextRules(lowercase=False))
    ['Héllo', 'ah', '博', '推', 'zz']
    """
    if text.isascii():
        text = _DROPPED_ASCII.sub("", text)
        return _ASCII_WORD_OR_SIGN.findall(text.lower() if rules.lowercase else text)
    text = text.translate(_cleaning(rules))
    if rules.lowercase:
        text = text.lower()
    if rules.strips_accents:
        text = unicodedata.normalize("NFD", text)
    return text.translate(_STRIP_AND_SPLIT if rules.strips_accents else _SPLIT).split()


def basic_tokens_with_offsets(text: str, rules: TextRules) -> list[BasicToken]:
    """The same tokens as `basic_tokens`, with the origin of every character.

    Lower-casing and decomposition may turn one character into several, which then all have that origin.

    >>> basic_tokens_with_offsets("İs", TextRules())
    [BasicToken(text='is', starts=[0, 1], ends=[1, 2])]
    """
    cleaning = _cleaning(rules)
    characters: list[str] = []
    origins: list[int] = []
    for position, character in enumerate(text):
        for kept in character.translate(cleaning):
            characters.append(kept)
            origins.append(position)
    if rules.lowercase:
        # The final sigma depends on its neighbours, but they never change how many characters it becomes.
        origins = [o for c, o in zip(characters, origins, strict=True) for _ in c.lower()]
        characters = list("".join(characters).lower())
        assert len(characters) == len(origins)
    if rules.strips_accents:
        characters, origins = _decompose(characters, origins)
    tokens: list[BasicToken] = []
    begin = 0  # of the open word

    def close(end: int) -> None:
        if begin < end:
            starts = origins[begin:end]
            tokens.append(BasicToken("".join(characters[begin:end]), starts, [origin + 1 for origin in starts]))

    for place, character in enumerate(characters):
        is_sign = is_punctuation(character)
        if is_sign or character.isspace():
            close(place)
            if is_sign:
                tokens.append(BasicToken(character, [origins[place]], [origins[place] + 1]))
            begin = place + 1
    close(len(characters))
    return tokens


def _decompose(characters: list[str], origins: list[int]) -> tuple[list[str], list[int]]:
    """NFD with accents (category Mn) removed, and the origins; marks are in canonical order, as in NFD."""
    pairs = [
        (part, origin)
        for character, origin in zip(characters, origins, strict=True)
        for part in unicodedata.normalize("NFD", character)
    ]
    first = 0
    while first < len(pairs):
        last = first
        while last < len(pairs) and unicodedata.combining(pairs[last][0]):
            last += 1
        pairs[first:last] = sorted(pairs[first:last], key=lambda pair: unicodedata.combining(pair[0]))
        first = last + 1
    kept = [(part, origin) for part, origin in pairs if unicodedata.category(part) != "Mn"]
    return [part for part, _ in kept], [origin for _, origin in kept]


class _Translation(dict[int, str | None]):
    """A table for `str.translate` that computes the entry of a character on first use."""

    def __init__(self, *, cleans: TextRules | None = None, strips: bool = False) -> None:
        super().__init__()
        self.cleans, self.strips = cleans, strips

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        result: str | None = character
        if self.cleans is None:
            if self.strips and unicodedata.category(character) == "Mn":
                result = None
            elif is_punctuation(character):
                result = f" {character} "
        elif is_dropped(character, self.cleans):
            result = None
        elif is_whitespace(character):
            result = " "
        elif self.cleans.split_cjk and is_cjk(character):
            result = f" {character} "
        self[code] = result
        return result


_CLEANING: dict[tuple[str, bool], _Translation] = {
    (control, split): _Translation(cleans=TextRules(control_rule=control, split_cjk=split))
    for control in ("huggingface", "google")
    for split in (True, False)
}
_SPLIT = _Translation()
_STRIP_AND_SPLIT = _Translation(strips=True)


def _cleaning(rules: TextRules) -> _Translation:
    return _CLEANING[rules.control_rule, rules.split_cjk]
