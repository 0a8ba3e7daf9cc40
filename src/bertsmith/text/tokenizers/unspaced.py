r"""Splits words of scripts that put no spaces between words into short parts.

BERT's rules make one word of everything between two spaces, which in Thai is a phrase: one unknown letter turns it into
[UNK], as does a length of more than 100 characters, and a whole-word mask covers all of it. The rules `unspaced` split
it where the script shows a border without a dictionary:

* Thai and Lao: in front of the vowels that are written before the first consonant of their syllable, and after
  `LONGEST_RUN` letters with their marks;
* Khmer: in front of each letter that no sign joins to the one before;
* Burmese: in front of each syllable;
* Japanese: between katakana, hiragana and all other characters, and after `LONGEST_RUN` kana. Chinese characters are
  words of their own already.

Korean has spaces, and is left as it is. The parts are not words; docs/languages.md shows what they gain. The pattern
has the same meaning for Python's `re` and for Oniguruma, which runs it for the package `tokenizers`.
"""

import re

LONGEST_RUN = 16  # letters with their marks

_THAI_LAO_FIRST = "\u0e40-\u0e44\u0ec0-\u0ec4"
# Marks above, below and behind a letter, which stay with it.
_THAI_LAO_MARKS = "\u0e30-\u0e3a\u0e45\u0e47-\u0e4e\u0eb0-\u0ebc\u0ec8-\u0ece"
_BLOCKS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_KHMER, _BURMESE = "\u1780-\u17b3", "\u1000-\u102a\u103f\u104e"

PATTERN = "|".join(
    (
        f"[{_THAI_LAO_FIRST}]?"
        f"(?:(?![{_THAI_LAO_FIRST}{_THAI_LAO_MARKS}])[\u0e00-\u0eff][{_THAI_LAO_MARKS}]*){{1,{LONGEST_RUN}}}",
        f"[{_KHMER}](?:\u17d2[{_KHMER}]|[\u17b4-\u17d1\u17d3\u17dd])*",
        # A consonant belongs to the syllable before it if a killer of its vowel follows, or the sign that stacks.
        f"[{_BURMESE}](?:\u1039[\u1000-\u1021]|[\u102b-\u1038\u103a-\u103e]|[\u1000-\u1021](?=\u1037?[\u1039\u103a]))*",
        "[\u17e0-\u17e9]+|[\u1040-\u1049]+",
        f"[\u3041-\u309f]{{1,{LONGEST_RUN}}}",
        f"[\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9f]{{1,{LONGEST_RUN}}}",
        f"[{_BLOCKS}]",
    )
)
"""Matches one part; joined with what it does not match, the parts are the whole word."""

UNSPACED = re.compile(f"[{_BLOCKS}]")
_PART = re.compile(f"{PATTERN}|[^{_BLOCKS}]+")


def parts_of_words(words: list[str]) -> list[str]:
    """The words, split where their script has no spaces.

    >>> parts_of_words(["ประเทศไทย", "สวย"]), parts_of_words(["ကမ္ဘာမြန်မာ"]), parts_of_words(["コンピュータを", "go"])
    (['ประ', 'เทศ', 'ไทย', 'สวย'], ['ကမ္ဘာ', 'မြန်', 'မာ'], ['コンピュータ', 'を', 'go'])
    """
    parts: list[str] = []
    for word in words:
        if word.isascii() or UNSPACED.search(word) is None:
            parts.append(word)
        else:
            parts += _PART.findall(word)
    return parts


def part_spans(word: str) -> list[tuple[int, int]]:
    """Where the parts of a word begin and end.

    >>> part_spans("ไทยABC")
    [(0, 3), (3, 6)]
    """
    return [match.span() for match in _PART.finditer(word)]
