"""Character classes: removed, white space, symbol, Chinese, accent; lower case and decomposition.

`PYTHON` is the original code: the Unicode tables of the running Python, so a newer Python knows more characters.
`HUGGINGFACE` is the Rust library `tokenizers`, from tables of our own, the same under every Python. The characters on
which the two differ are listed in docs/decisions/0009-unicode-tables.md. ASCII is the same in both.
"""

import abc
import bisect
import functools
import unicodedata

from bertsmith.text.tokenizers import huggingface_tables as tables

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
# The property White_Space of Unicode; Python's `strip` also removes four separators, U+001C to U+001F.
SPACES = "".join(
    character for character in map(chr, range(0x3001)) if character.isspace() and character not in "\x1c\x1d\x1e\x1f"
)
# Unicode never changes the decomposition of a character once it has one, so this old table is right under every Python
# for the characters that it knows; `tables.DECOMPOSED` has the others.
_OLD = unicodedata.ucd_3_2_0


class Characters(abc.ABC):
    """The character classes of one implementation. Every method but `lower` takes a single character."""

    @abc.abstractmethod
    def is_dropped(self, character: str) -> bool:
        """True for characters that cleaning removes: U+0000, U+FFFD and control characters."""

    @abc.abstractmethod
    def is_whitespace(self, character: str) -> bool:
        r"""True for what cleaning turns into a space: space, tab, line feed, carriage return and category Zs.

        >>> [PYTHON.is_whitespace(c) for c in "\u00a0\u200b\x0b\u2028"]
        [True, False, False, False]
        >>> HUGGINGFACE.is_whitespace("\u2028")  # a line separator; for the original code it only ends a word
        True
        """

    @abc.abstractmethod
    def is_punctuation(self, character: str) -> bool:
        """True for ASCII signs (including those that Unicode calls symbols, such as $) and every category P*."""

    @abc.abstractmethod
    def is_cjk(self, character: str) -> bool:
        """True for Chinese characters, which do not include kana and Hangul."""

    @abc.abstractmethod
    def is_accent(self, character: str) -> bool:
        """True for what the removal of accents removes: category Mn."""

    @abc.abstractmethod
    def combining(self, character: str) -> int:
        """The canonical combining class, by which NFD orders the marks after a letter; 0 if it is not a mark."""

    @abc.abstractmethod
    def lower(self, text: str) -> str:
        """The lower case of a whole text."""

    @abc.abstractmethod
    def decompose(self, character: str) -> str:
        """The canonical decomposition (NFD) of a character by itself."""


class _Python(Characters):
    """The original code after its change of 2019-03-28, with the tables of the running Python."""

    def is_dropped(self, character: str) -> bool:
        if character in "\t\n\r":
            return False
        return unicodedata.category(character) in ("Cc", "Cf") or character == "\ufffd"

    def is_whitespace(self, character: str) -> bool:
        return character in " \t\n\r" or unicodedata.category(character) == "Zs"

    def is_punctuation(self, character: str) -> bool:
        code = ord(character)
        if code < 128:
            return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
        return unicodedata.category(character)[0] == "P"

    def is_cjk(self, character: str) -> bool:
        code = ord(character)
        return code >= CJK_RANGES[0][0] and any(first <= code <= last for first, last in CJK_RANGES)

    def is_accent(self, character: str) -> bool:
        return unicodedata.category(character) == "Mn"

    def combining(self, character: str) -> int:
        return unicodedata.combining(character)

    def lower(self, text: str) -> str:
        return text.lower()

    def decompose(self, character: str) -> str:
        return unicodedata.normalize("NFD", character)


class _HuggingFace(Characters):
    """The Rust library, which looks at each character alone: its lower case of Σ is always σ."""

    def is_dropped(self, character: str) -> bool:
        return _has(tables.DROPPED, character)

    def is_punctuation(self, character: str) -> bool:
        return _has(tables.PUNCTUATION, character)

    def is_cjk(self, character: str) -> bool:
        return _has(tables.CHINESE, character)

    def is_accent(self, character: str) -> bool:
        return _has(tables.ACCENTS, character)

    def is_whitespace(self, character: str) -> bool:
        return _has(tables.SPACES, character)

    def is_word(self, character: str) -> bool:
        """True for letters, digits, marks and what else a word consists of."""
        return _has(tables.WORDS, character)

    def combining(self, character: str) -> int:
        return _classes().get(ord(character), 0)

    def lower(self, text: str) -> str:
        return text.translate(_lower())

    def decompose(self, character: str) -> str:
        return _decomposed().get(character) or _OLD.normalize("NFD", character)


PYTHON: Characters = _Python()
HUGGINGFACE = _HuggingFace()


def characters_of(control_rule: str) -> Characters:
    r"""The opinion of a control rule: "huggingface" or "google".

    >>> [characters_of(rule).is_dropped("\ue000") for rule in ("huggingface", "google")]
    [True, False]
    """
    return PYTHON if control_rule == "google" else HUGGINGFACE


@functools.cache
def borders_of(table: str) -> tuple[int, ...]:
    """The first code point of each run, and one past its last, in ascending order."""
    borders = [0]
    for number in table.split():
        borders.append(borders[-1] + int(number))
    return tuple(borders[1:])


def _has(table: str, character: str) -> bool:
    return bisect.bisect_right(borders_of(table), ord(character)) % 2 == 1


@functools.cache
def _classes() -> dict[int, int]:
    numbers = list(map(int, tables.CLASSES.split()))
    result: dict[int, int] = {}
    end = 0
    for gap, length, value in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
        start, end = end + gap, end + gap + length
        result |= dict.fromkeys(range(start, end), value)
    return result


@functools.cache
def _lower() -> dict[int, int | str]:
    numbers = list(map(int, tables.LOWER.split()))
    result: dict[int, int | str] = {0x130: "i\u0307"}  # the only one that becomes two characters
    end = 0
    for gap, count, step, offset in zip(numbers[::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True):
        codes = range(end + gap, end + gap + count * step, step)
        result |= {code: code + offset for code in codes}
        end = codes[-1] + 1
    return result


@functools.cache
def _decomposed() -> dict[str, str]:
    pairs = [pair.split("=") for pair in tables.DECOMPOSED.split()]
    return {chr(int(code, 16)): "".join(chr(int(part, 16)) for part in parts.split("+")) for code, parts in pairs}
