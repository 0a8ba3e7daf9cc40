"""Which combining marks are accents, and which are letters of their script.

BERT removes every mark of category Mn from lower-cased text. In the scripts of India and South-East Asia (Devanagari,
Bengali, Tamil, Thai, Lao, Khmer, Burmese, Tibetan and others), in Thaana and N'Ko, and in kana these are vowels, tones
and signs that change a consonant, so it removes half of a word. Text rules with `keep_letter_marks` remove accents
only: the general marks for Latin, Greek and Cyrillic letters, the optional points of Hebrew, Arabic and Syriac, and
variation selectors. Afterwards the text is composed (NFC), so that Korean syllables and kana are whole again.

The list of accents is explicit, so it is the same under every version of Unicode, and for Oniguruma, which runs
`PATTERN` for the package `tokenizers`.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bertsmith.text.tokenizers.characters import Characters

_GENERAL = "\u0300-\u036f\u1ab0-\u1abd\u1abf-\u1ace\u1dc0-\u1dff\u20d0-\u20dc\u20e1\u20e5-\u20f0\ufe20-\ufe2f"
_CYRILLIC_AND_COPTIC = "\u0483-\u0487\u2cef-\u2cf1\u2de0-\u2dff\ua66f\ua674-\ua67d\ua69e\ua69f"
_HEBREW = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\ufb1e"
_ARABIC = (
    "\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
    "\u0898-\u089f\u08ca-\u08e1\u08e3-\u08ff"
)
_SYRIAC = "\u0711\u0730-\u074a"
_CHINESE_TONES, _SELECTORS = "\u302a-\u302d", "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"

PATTERN = f"[{_GENERAL}{_CYRILLIC_AND_COPTIC}{_HEBREW}{_ARABIC}{_SYRIAC}{_CHINESE_TONES}{_SELECTORS}]"
"""Matches one accent."""

_ACCENT = re.compile(PATTERN)


class Placed(NamedTuple):
    """A character and the characters `start` to `end` (exclusive) of the original that it comes from."""

    text: str
    start: int
    end: int


def is_accent(character: str) -> bool:
    """Whether the removal of accents removes a character even if letters keep their marks.

    >>> [is_accent(mark) for mark in ("\N{COMBINING ACUTE ACCENT}", "\N{THAI CHARACTER MAI EK}")]
    [True, False]
    """
    return _ACCENT.match(character) is not None


def without_accents(text: str) -> str:
    """The text in NFC without accents, by the tables of the running Python.

    >>> without_accents("été й ที่นี่ हिन्दी 한국 ガ")
    'ete и ที่นี่ हिन्दी 한국 ガ'
    """
    return unicodedata.normalize("NFC", _ACCENT.sub("", unicodedata.normalize("NFD", text)))


def composed(parts: Sequence[Placed], known: "Characters") -> list[Placed]:
    """The canonical composition of decomposed characters in canonical order, by the tables of `known`.

    Source: Unicode Standard, section 3.11, "Canonical Composition Algorithm".
    """
    result: list[Placed] = []
    starter, last = -1, 0  # the place of the last character of class 0, and the class of the last mark after it
    for part in parts:
        number = known.combining(part.text)
        if starter >= 0 and (starter == len(result) - 1 or last < number):
            before = result[starter]
            joined = _pair(before.text, part.text, known)
            if joined:
                result[starter] = Placed(joined, before.start, max(before.end, part.end))
                continue
        if number == 0:
            starter = len(result)
        last = number
        result.append(part)
    return result


def _pair(first: str, second: str, known: "Characters") -> str:
    """The character that two characters form, or nothing."""
    joined = unicodedata.normalize("NFC", first + second)
    return joined if len(joined) == 1 and known.decompose(joined) != joined else ""
